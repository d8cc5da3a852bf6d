"""Records: append-only, named by their content, whole through kills and damage."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saves import migrations
from saves.canonical import canonical_text, holds, seal
from saves.documents import GuessRecord, Record
from saves.faults import NewerSaveError, SaveError
from saves.store import Store


def record(number: int = 0, profile: str = "ann", size: int = 10) -> Record:
    return Record(
        digest="",
        version=1,
        profile=profile,
        stage="pendulum",
        recorded_at=f"2026-01-05T09:00:00.{number:06d}+00:00",
        build={"schedule.batch": 8, "run.precision": "bfloat16"},
        guess=GuessRecord(18, 34.0, 34 / 18, False),
        verdict={"word": "fail", "metrics": {"tpot": 0.027}, "crowns": []},
        result={"samples": [number / 7] * size},
        hints_taken=1,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "home")
    yield opened
    opened.close()


def test_a_record_comes_back_under_the_digest_of_its_canonical_json(store: Store) -> None:
    kept = store.append(record())
    plain: dict[str, Any] = msgspec.to_builtins(kept)
    plain.pop("digest")
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert kept.digest == hashlib.sha256(text.encode()).hexdigest()
    assert Store(store.home).records() == (kept,)
    assert kept.guess is not None and isinstance(kept.guess.value, float)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                                                                max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(
    st.dictionaries(st.text(max_size=8), json_values, max_size=4),
    st.dictionaries(st.text(max_size=8), st.integers(-99, 99) | st.text(max_size=5), max_size=3),
    st.one_of(st.integers(1, 300), st.floats(0.1, 1e9), st.text(max_size=9)),
)
def test_any_record_is_sealed_once_and_reads_back_under_the_same_name(
    verdict: dict[str, Any], build: dict[str, int | str], guess: float | str
) -> None:
    made = msgspec.structs.replace(
        record(), verdict=verdict, build=build, guess=GuessRecord(guess, None, None, None)
    )
    sealed = seal(made)
    assert holds(sealed) and seal(sealed) == sealed
    stored = msgspec.json.decode(canonical_text(sealed))
    assert msgspec.convert({**stored, "digest": sealed.digest}, Record) == sealed
    assert not holds(msgspec.structs.replace(sealed, hints_taken=3))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_cannot_hold_are_refused(store: Store, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.append(msgspec.structs.replace(record(), verdict={"metrics": {"tpot": value}}))
    assert store.records() == ()


def test_records_are_listed_by_profile_in_the_order_they_were_made(store: Store) -> None:
    mine = [store.append(record(number)) for number in (3, 1, 2)]
    theirs = store.append(record(9, profile="bo"))
    assert list(store.records()) == [*mine, theirs]
    ann = msgspec.structs.replace(store.create("Ann"), id="ann")
    assert list(store.records(ann)) == mine


def test_the_same_record_appended_twice_stands_once(store: Store) -> None:
    assert store.append(record()) == store.append(record())
    assert len(store.records()) == 1


def test_a_record_is_found_by_the_beginning_of_its_digest(store: Store) -> None:
    kept = store.append(record())
    assert store.find_record(kept.digest[:12].upper()) == kept
    with pytest.raises(SaveError, match="no record"):
        store.find_record("0" * 12)
    with pytest.raises(SaveError, match="too short"):
        store.find_record(kept.digest[:4])


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE record SET content = '{}'",
        "DELETE FROM record",
        "INSERT OR REPLACE INTO record SELECT * FROM record",
        "REPLACE INTO record (digest, profile, stage, content) "
        "SELECT digest, profile, stage, '{}' FROM record",
        "INSERT INTO record (sequence, digest, profile, stage, content) "
        "VALUES (1, 'a', 'b', 'c', 'd')",
    ],
)
def test_the_database_itself_refuses_to_change_a_record(store: Store, attack: str) -> None:
    kept = store.append(record())
    other = sqlite3.connect(store.house.records)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        other.execute(attack)
    other.close()
    assert store.records() == (kept,)


def _tamper(store: Store, statement: str, *values: object) -> None:
    """Change a row behind the triggers' back, as an editor of the file could."""
    store.close()
    other = sqlite3.connect(store.house.records)
    for name in ("record_no_update", "record_no_delete", "record_no_replace"):
        other.execute(f"DROP TRIGGER {name}")
    other.execute(statement, values)
    other.commit()
    other.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET content = replace(content, 'fail', 'pass') WHERE sequence = 2",
        "UPDATE record SET digest = '" + "0" * 64 + "' WHERE sequence = 2",
        "UPDATE record SET stage = 'gate' WHERE sequence = 2",
        "UPDATE record SET content = 7 WHERE sequence = 2",
        "UPDATE record SET content = CAST(content AS BLOB) WHERE sequence = 2",
    ],
)
def test_a_row_that_does_not_match_its_digest_is_named_and_not_counted(
    store: Store, statement: str
) -> None:
    kept = [store.append(record(number)) for number in range(3)]
    _tamper(store, statement)
    again = Store(store.home)
    assert list(again.records()) == [kept[0], kept[2]]
    (bad,) = again.bad_rows()
    assert bad.sequence == 2 and bad.why
    again.append(record(9))
    assert len(again.bad_rows()) == 1  # it is never removed


def test_a_whole_row_of_another_shape_is_set_apart_too(store: Store) -> None:
    store.append(record())
    text = '{"version":1}'
    digest = hashlib.sha256(text.encode()).hexdigest()
    other = sqlite3.connect(store.house.records)
    other.execute(
        "INSERT INTO record (digest, profile, stage, content) VALUES (?, 'ann', 'gate', ?)",
        (digest, text),
    )
    other.commit()
    other.close()
    assert len(store.records()) == 1 and "not a record" in store.bad_rows()[0].why


def test_the_database_is_durable_and_checked(store: Store) -> None:
    store.append(record())
    connection = store._table._connection
    assert connection is not None
    pragmas = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "user_version")
    }
    assert pragmas == {
        "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1,
        "user_version": migrations.LATEST,
    }  # fmt: skip
    steps = connection.execute("SELECT number, name FROM migration").fetchall()
    assert steps == [(step.number, step.name) for step in migrations.MIGRATIONS]


def test_a_failed_migration_leaves_the_database_as_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store.append(record())
    store.close()
    bad = migrations.Migration(2, "bad", ("CREATE TABLE extra (x)", "CREATE TABLE record (x)"))
    good = migrations.Migration(2, "good", ("CREATE TABLE extra (x)",))
    for module in ("saves.migrations", "saves.record_table"):
        monkeypatch.setattr(f"{module}.LATEST", 2)
    monkeypatch.setattr("saves.migrations.MIGRATIONS", (*migrations.MIGRATIONS, bad))
    with pytest.raises(SaveError, match="already exists"):
        Store(store.home).records()
    monkeypatch.setattr("saves.migrations.MIGRATIONS", (*migrations.MIGRATIONS[:-1], good))
    again = Store(store.home)
    assert again.records() == (kept,)
    assert again.take_notices() == ()
    again.close()


@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_newer_database_is_refused_untouched(store: Store, checkpointed: bool) -> None:
    store.append(record())
    other = sqlite3.connect(store.house.records)
    other.execute("PRAGMA user_version = 99")
    if checkpointed:
        store.close()
        other.close()
    before = store.house.records.read_bytes()
    again = Store(store.home)
    with pytest.raises(NewerSaveError, match="version 99"):
        again.records()
    with pytest.raises(NewerSaveError):
        again.append(record(1))
    assert again.take_notices() == () and store.house.records.read_bytes() == before
    other.close()


def _damage(path: Path, how: str) -> None:
    text = bytearray(path.read_bytes())
    match how:
        case "garbage":
            text = bytearray(b"not a database at all, " * 999)
        case "truncated":
            del text[len(text) // 2 :]
        case "stub":
            del text[50:]
        case "wrong magic":
            text[:4] = b"LWal"
        case "page":
            middle = len(text) // 2 // 4096 * 4096
            text[middle : middle + 8192] = b"\xa5" * 8192
        case "schema":
            text[100:400] = b"\xff" * 300
        case "other program":
            path.unlink()
            other = sqlite3.connect(path)
            other.execute("CREATE TABLE theirs (x)")
            other.commit()
            other.close()
            return
    path.write_bytes(text)


@pytest.mark.parametrize(
    ("how", "least"),
    [
        ("garbage", 0), ("truncated", 20), ("stub", 0), ("wrong magic", 0), ("page", 40),
        ("schema", 0), ("other program", 0),
    ],
)  # fmt: skip
def test_a_damaged_database_is_set_aside_and_what_can_be_read_is_carried_over(
    store: Store, how: str, least: int
) -> None:
    kept = [store.append(record(number, size=40)) for number in range(60)]
    store.close()
    _damage(store.house.records, how)
    damaged = store.house.records.read_bytes()
    again = Store(store.home)
    rescued = again.records()
    new = again.append(record(999))
    assert set(record.digest for record in rescued) <= set(record.digest for record in kept)
    assert least <= len(rescued) < 60
    order = [record.recorded_at for record in rescued]
    assert order == sorted(order)
    (damage,) = again.take_notices()
    assert damage.path == store.house.records and damage.rescued == len(rescued)
    assert damage.aside is not None and damage.aside.read_bytes() == damaged
    assert Store(store.home).records() == (*rescued, new)


def test_damage_met_while_the_game_runs_is_survived(store: Store) -> None:
    store.append(record())
    store.close()
    again = Store(store.home)
    again.records()
    other = Store(store.home)
    _damage(store.house.records, "garbage")
    assert other.records() == ()
    kept = other.append(record(1))
    again.close()
    assert again.records() == (kept,)
    assert len(list(store.home.glob("records.sqlite3.damaged-*Z"))) == 1
    other.close()


_APPENDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_records import record
from saves.store import Store
store = Store(Path(sys.argv[1]))
number = int(sys.argv[2]) * 1_000_000
while True:
    number += 1
    kept = store.append(record(number, size=400))
    print(kept.digest, flush=True)
    if number % 1_000_000 == int(sys.argv[4]):
        break
"""


def _appender(home: Path, writer: int, rounds: int = 999_999) -> subprocess.Popen[str]:
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", _APPENDER, str(home), str(writer), here, str(rounds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_game_killed_in_mid_append_loses_no_record_it_was_promised(store: Store) -> None:
    promised: list[str] = []
    for writer, wait in enumerate((0.0, 0.02, 0.05)):
        child = _appender(store.home, writer)
        assert child.stdout is not None
        promised.append(child.stdout.readline().strip())
        time.sleep(wait)
        child.kill()
        promised += [line.strip() for line in child.communicate()[0].splitlines()
                     if len(line.strip()) == 64]  # fmt: skip
        again = Store(store.home)
        present = {record.digest for record in again.records()}
        assert set(promised) <= present
        assert again.bad_rows() == () and again.take_notices() == ()
        assert all(holds(record) for record in again.records())
        again.append(record(writer, profile="after"))
        again.close()
    assert len(promised) >= 3


def test_two_games_append_to_one_database_and_both_stand(store: Store) -> None:
    children = [_appender(store.home, writer, rounds=40) for writer in range(3)]
    promised = [line for child in children for line in child.communicate()[0].split()]
    assert [child.returncode for child in children] == [0, 0, 0] and len(promised) == 120
    assert sorted(promised) == sorted(record.digest for record in store.records())


_FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_records import record
from saves.faults import SaveError
from saves.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(Path(sys.argv[1]))
store.append(record(1))
limit = (store.home / "records.sqlite3-wal").stat().st_size + 5000
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
try:
    store.append(record(2, size=20_000))
    print("no error")
except SaveError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.append(record(3))
print(len(store.records()), len(store.take_notices()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_full_disk_is_told_and_is_not_taken_for_damage(store: Store) -> None:
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(store.home), here],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said, counts = done.stdout.strip().splitlines()
    assert str(store.house.records) in said and counts == "2 0"


def test_a_lock_held_too_long_is_told_and_nothing_is_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saves.record_table.BUSY_SECONDS", 0.05)
    store.append(record())
    blocker = sqlite3.connect(store.house.records, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(SaveError, match="locked"):
        store.append(record(1))
    assert len(store.records()) == 1  # reading waits for nobody
    blocker.execute("ROLLBACK")
    blocker.close()
    store.append(record(1))
    assert len(store.records()) == 2 and store.take_notices() == ()
