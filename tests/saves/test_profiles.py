"""Profiles: whole or absent through crashes, damage, foreign names and two games at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saves.documents import Profile, Settings
from saves.faults import NewerSaveError, ProfileNameError, SaveError, UnknownProfileError
from saves.json_file import backup_path, read_document, remove_stale_parts, write_document
from saves.paths import HOME_VARIABLE, data_home
from saves.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def test_the_home_is_the_platforms_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, "/somewhere/else")
    assert data_home() == Path("/somewhere/else")
    monkeypatch.delenv(HOME_VARIABLE)
    assert data_home().name == "latency-wall" and data_home().is_absolute()


def test_opening_a_store_writes_nothing(store: Store) -> None:
    assert store.list_profiles() == () and store.last_used() is None and store.records() == ()
    assert not store.home.exists()


def test_a_profile_comes_back_as_it_was_saved(store: Store) -> None:
    ann = store.create("Ann", Settings(language="zh", text_speed=0))
    ann = msgspec.structs.replace(ann, stage="pendulum", seen=("gate.1", "gate.2"))
    store.save(ann)
    again = Store(store.home)
    assert again.load("ann") == ann == again.load(ann.id)
    assert again.list_profiles() == (ann,)


profiles = st.builds(
    Profile,
    version=st.just(1),
    name=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x2FFF), max_size=20),
    created_at=st.text(max_size=30),
    settings=st.builds(
        Settings,
        language=st.sampled_from(["zh", "en"]),
        text_speed=st.integers(0, 1000),
        auto=st.booleans(),
        skip_seen=st.booleans(),
        reduced_motion=st.booleans(),
        colour=st.sampled_from(["auto", "none"]),
    ),
    stage=st.text(max_size=20),
    seen=st.lists(st.text(max_size=20), max_size=5).map(tuple),
    id=st.just("ann-00000000"),
)


@settings(max_examples=40, deadline=None)
@given(profiles)
def test_any_document_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, profile: Profile
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.json"
    write_document(path, profile)
    assert read_document(path, Profile).value == profile


@pytest.mark.parametrize(
    "name", ["../../x", "con", "NUL.txt", "a/b\\c", "林默", "🐉", "İstanbul", "x" * 24, "..", "-"]
)
def test_any_name_gets_a_safe_file_of_its_own(store: Store, name: str) -> None:
    made = store.create(name)
    (file,) = store.house.profiles.iterdir()
    assert file.parent == store.house.profiles and file.name == f"{made.id}.json"
    assert set(made.id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert file.stem.split(".")[0] not in {"con", "nul", "aux", "prn"}
    assert Store(store.home).load(name).name == made.name


@pytest.mark.parametrize(
    "name", ["", "   ", "\x1b[31m", "\u200b", "x" * 25, "林" * 13, "\u202e", "a\u0301" * 80]
)
def test_names_that_cannot_be_read_or_do_not_fit_are_refused(store: Store, name: str) -> None:
    with pytest.raises(ProfileNameError, match="visible|cells"):
        store.create(name)
    assert store.list_profiles() == ()


def test_control_bytes_do_not_reach_a_stored_name(store: Store) -> None:
    assert store.create("A\x1b[31mn\nn\u202e").name == "An n"


@pytest.mark.parametrize("twin", ["ann", "ANN", " Ann ", "Ａｎｎ"])
def test_names_differ_by_more_than_case_or_width(store: Store, twin: str) -> None:
    store.create("Ann")
    with pytest.raises(ProfileNameError, match="taken"):
        store.create(twin)


def test_renaming_keeps_the_file_and_refuses_a_taken_name(store: Store) -> None:
    ann, bo = store.create("Ann"), store.create("Bo")
    anna = store.rename(ann, "Anna")
    assert anna.id == ann.id and store.load("anna") == anna
    with pytest.raises(ProfileNameError, match="'Bo' is taken"):
        store.rename(anna, "BO")
    assert store.rename(bo, "bo").name == "bo"
    with pytest.raises(UnknownProfileError, match="there are: Anna, bo"):
        store.load("ann")


def test_deleting_moves_to_the_trash_and_the_name_is_free_again(store: Store) -> None:
    ann = store.create("Ann")
    store.save(ann)
    moved = store.delete(ann)
    assert store.list_profiles() == () and msgspec.json.decode(moved.read_bytes())["name"] == "Ann"
    assert store.create("Ann").id != ann.id
    with pytest.raises(SaveError, match="trash"):
        store.delete(ann)


def test_the_last_used_profile_is_remembered(store: Store) -> None:
    ann, bo = store.create("Ann"), store.create("Bo")
    assert store.last_used() is None
    store.mark_used(ann)
    assert Store(store.home).last_used() == ann
    store.delete(ann)
    assert Store(store.home).last_used() == bo  # the only one there is
    store.house.last_used.write_text("{")
    assert Store(store.home).last_used() == bo


@pytest.mark.parametrize(
    "text", [b"", b'{"version": 1, "name": "An', b"[]", b"\xff\xfe", b'{"version": 1}', b"null"]
)
def test_a_damaged_profile_is_set_aside_and_its_backup_takes_its_place(
    store: Store, text: bytes
) -> None:
    ann = store.create("Ann")
    newer = msgspec.structs.replace(ann, stage="pendulum")
    store.save(newer)
    path = store.house.profile(ann.id)
    path.write_bytes(text)
    again = Store(store.home)
    assert again.list_profiles() == (ann,)
    (damage,) = again.take_notices()
    assert damage.path == path and damage.rescued == 1 and damage.why
    assert damage.aside is not None and damage.aside.read_bytes() == text
    assert f"{path.name}.damaged-" in damage.aside.name
    assert again.list_profiles() == (ann,) and again.take_notices() == ()


def test_a_damaged_profile_without_a_backup_is_set_aside_and_named(store: Store) -> None:
    ann = store.create("Ann")
    store.house.profile(ann.id).write_bytes(b"\0" * 100)
    assert store.list_profiles() == ()
    (damage,) = store.take_notices()
    assert damage.rescued == 0 and damage.aside is not None and damage.aside.exists()
    store.create("Ann")
    store.create("Bo")
    assert len(store.list_profiles()) == 2


def test_two_damages_in_one_second_do_not_overwrite_each_other(store: Store) -> None:
    ann = store.create("Ann")
    for text in (b"one", b"two"):
        store.house.profile(ann.id).write_bytes(text)
        store.list_profiles()
    kept = sorted(path.read_bytes() for path in store.house.profiles.glob("*.damaged-*"))
    assert kept == [b"one", b"two"]


@pytest.mark.parametrize("change", [{"version": 2}, {"version": 2, "odd": 1}, {"halo": True}])
def test_a_newer_profile_is_refused_untouched(store: Store, change: dict[str, object]) -> None:
    ann = store.create("Ann")
    path = store.house.profile(ann.id)
    text = msgspec.json.encode({**msgspec.to_builtins(ann), **change})
    path.write_bytes(text)
    with pytest.raises(NewerSaveError, match="newer game"):
        store.load(ann.id)
    assert store.list_profiles() == () and store.take_notices() == ()
    assert path.read_bytes() == text and len(list(store.house.profiles.iterdir())) == 1


def test_a_profile_that_is_only_a_backup_is_restored(store: Store) -> None:
    ann = store.create("Ann")
    store.save(ann)
    store.house.profile(ann.id).unlink()
    assert Store(store.home).list_profiles() == (ann,)
    assert store.house.profile(ann.id).exists()


def test_an_unfinished_temporary_file_is_no_profile_and_goes_when_it_is_old(store: Store) -> None:
    ann = store.create("Ann")
    folder = store.house.profiles
    torn = folder / f".{ann.id}.json.123-abcd.part"
    torn.write_bytes(b'{"version": 1, "na')
    assert store.list_profiles() == (ann,) and store.take_notices() == ()
    remove_stale_parts(folder)
    assert torn.exists()
    remove_stale_parts(folder, now=time.time() + 7200)
    assert not torn.exists() and store.list_profiles() == (ann,)


def test_a_name_edited_into_the_file_is_cleaned_before_it_is_shown(store: Store) -> None:
    ann = store.create("Ann")
    text = store.house.profile(ann.id).read_text().replace('"Ann"', '"\\u001b[2JEve\\u202e"')
    store.house.profile(ann.id).write_text(text)
    assert store.load(ann.id).name == "Eve"


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "home")
    with pytest.raises(SaveError, match="file/home"):
        store.create("Ann")


_FULL = """
import resource, signal, sys
from pathlib import Path
from saves.faults import SaveError
from saves.store import Store
import msgspec
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(Path(sys.argv[1]))
ann = store.load("Ann")
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    store.save(msgspec.structs.replace(ann, seen=("line",) * 200))
except SaveError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_write_that_the_disk_cuts_short_leaves_the_profile_before_it(store: Store) -> None:
    ann = store.create("Ann")
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(store.home)], capture_output=True, text=True, check=True
    )
    assert f"cannot write {store.house.profile(ann.id)}" in done.stdout
    assert Store(store.home).load("Ann") == ann
    assert [path.name for path in store.house.profiles.iterdir()] == [f"{ann.id}.json"]


_WRITER = """
import sys
from pathlib import Path
import msgspec
from saves.store import Store
store = Store(Path(sys.argv[1]))
ann = store.load("Ann")
print("ready", flush=True)
number = 0
while number < int(sys.argv[3]):
    number += 1
    seen = (sys.argv[2],) * (number % 50) + (f"{sys.argv[2]}-{number}",)
    store.save(msgspec.structs.replace(ann, seen=seen))
"""


def _writer(home: Path, word: str, rounds: int) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(home), word, str(rounds)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    return child


def test_two_games_writing_one_profile_never_mix_their_documents(store: Store) -> None:
    ann = store.create("Ann")
    writers = [_writer(store.home, word, 150) for word in ("left", "right")]
    path = store.house.profile(ann.id)
    while any(writer.poll() is None for writer in writers):
        seen = msgspec.json.decode(path.read_bytes(), type=Profile).seen
        assert len({word.split("-")[0] for word in seen}) <= 1
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert Store(store.home).load("Ann").seen[-1] in ("left-150", "right-150")
    assert store.take_notices() == ()


def test_a_game_killed_in_mid_write_leaves_a_whole_profile(store: Store) -> None:
    ann = store.create("Ann")
    for wait in (0.0, 0.013, 0.031, 0.057):
        writer = _writer(store.home, "seen", 1_000_000)
        time.sleep(wait)
        writer.kill()
        writer.communicate()
        again = Store(store.home)
        assert again.load("Ann").id == ann.id and again.take_notices() == ()
        if backup_path(again.house.profile(ann.id)).exists():
            backup = backup_path(again.house.profile(ann.id)).read_bytes()
            assert msgspec.json.decode(backup, type=Profile).id == ann.id


def test_one_name_is_given_once_though_two_games_ask_at_the_same_time(store: Store) -> None:
    code = (
        "import sys; from pathlib import Path; from saves.store import Store\n"
        "from saves.faults import ProfileNameError\n"
        "store = Store(Path(sys.argv[1])); won = 0\n"
        "for n in range(12):\n"
        "    try: store.create(f'n{n}'); won += 1\n"
        "    except ProfileNameError: pass\n"
        "print(won)"
    )
    games = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(store.home)], stdout=subprocess.PIPE, env=os.environ
        )
        for _ in range(3)
    ]
    won = [int(game.communicate()[0]) for game in games]
    assert sum(won) == 12
    assert [profile.name for profile in store.list_profiles()] == sorted(f"n{n}" for n in range(12))
