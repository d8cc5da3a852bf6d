"""The desk, driven with a worker that never ran: what a front end may rely on."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from canned_drafts import make_drafted
from canned_trials import MACHINE, MODEL, make_build, make_result
from canned_worker import CannedWorker

from engine.client import RestartLimit, WorkerDied
from engine.domains import KnobError
from engine.messages import Failed, Hello, Loaded, RunTrial
from engine.resolve import Resolved
from game.session import EngineUnavailable, Session, SessionInputError
from game.trial_record import verdict_of
from saves.faults import SaveError
from story.facts import FACTS

PASS = make_build("pass")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def open_session(home: Path, worker: CannedWorker | None = None, **options: object) -> Session:
    return Session.open(home, make_client=(worker or CannedWorker()).make, **options)  # type: ignore[arg-type]


def test_opening_starts_nothing_and_writes_nothing(home: Path) -> None:
    worker = CannedWorker()
    session = open_session(home, worker)
    session.standing(), session.facts("gate"), session.check("pendulum", PASS)
    assert session.profile is None and worker.starts == 0 and not home.exists()


def test_opening_imports_neither_torch_nor_numpy_nor_textual() -> None:
    code = (
        "import sys, game.session, engine.client; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'textual')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_ready_wakes_the_engine_once_however_often_it_is_asked(home: Path) -> None:
    worker = CannedWorker()
    session = open_session(home, worker)
    heard: list[object] = []
    await asyncio.gather(session.ready(heard.append), session.ready(), session.ready())
    assert worker.starts == 1
    assert [type(command).__name__ for command in worker.commands] == ["Load", "Calibrate"]
    assert any(isinstance(event, Hello) for event in heard)
    assert any(isinstance(event, Loaded) for event in heard)
    assert session.machine == MACHINE and session.model_config == MODEL


async def test_what_was_learned_of_the_engine_prices_the_next_session(home: Path) -> None:
    first = open_session(home)
    assert first.price("pendulum", PASS) is None and first.check("pendulum", PASS) is None
    await first.ready()
    await first.close()
    worker = CannedWorker()
    second = open_session(home, worker)
    resolved = second.check("pendulum", PASS)
    assert isinstance(resolved, Resolved) and resolved.config.run.threads == MACHINE.threads
    price = second.price("pendulum", PASS)
    assert price is not None
    # bfloat16, 2 bytes each: 30 layers' matrices and the head, which an engine may hold beside
    # the embedding it is tied to.
    head = 2 * 49_152 * 576
    weights = 2 * 30 * 3_538_944 + head
    assert weights <= price.weights <= 1.01 * (weights + head)
    assert worker.starts == 0
    await second.ready()
    assert worker.environment == {"OMP_WAIT_POLICY": "active"}


async def test_check_names_what_this_machine_cannot_run(home: Path) -> None:
    session = open_session(home)
    assert "nearest: 1" in str(session.check("pendulum", {"schedule.batch": 0}))
    await session.ready()
    refusal = session.check("pendulum", {"run.precision": "float16"})
    assert isinstance(refusal, str) and "no fast path" in refusal
    with pytest.raises(SessionInputError, match="float16"):
        await session.trial("pendulum", {"run.precision": "float16"}, 20.0)


async def test_a_passing_trial_is_judged_scored_recorded_and_told(home: Path) -> None:
    session = open_session(home, CannedWorker(make_result("gate"), make_result("pendulum")))
    gate = await session.trial("gate", {}, "capacity")
    assert gate.verdict.word == "pass" and (gate.debt_before, gate.debt_after) == (0, 5)
    assert gate.facts["truth"] == "bandwidth" and gate.facts["guess_close"] is False
    assert session.standing().halls["pendulum"].state == "open"
    outcome = await session.trial("pendulum", PASS, 20.0, hints_taken=1)
    assert outcome.verdict.word == "pass"
    assert outcome.guess is not None and outcome.guess.close is True
    # 27 ms a step (and 1.5 ms of a run's 24 tokens outside both phases) over 1.4 ms a token.
    assert outcome.guess.truth == pytest.approx((27 + 1.5 / 23) / 1.4, rel=0.02)
    repaid = -2 - len(outcome.crowns_new)
    assert [charge.code for charge in outcome.charges] == ["guess_close", "crowns"]
    assert outcome.debt_after == max(0, 5 + repaid)
    assert set(outcome.facts) <= set(FACTS)
    assert outcome.facts["hints_taken"] == 1 and outcome.facts["batch"] == 8
    assert outcome.facts["decode_ms_token"] == pytest.approx(27.0, rel=0.03)
    record = session.records()[-1]
    assert outcome.record == record and record.hints_taken == 1
    assert verdict_of(record) == outcome.verdict
    assert record.build == {**next(s for s in session.stages if s.id == "pendulum").build, **PASS}
    await session.close()
    assert open_session(home).standing() == session.standing()


async def test_a_failed_trial_names_the_broken_goal_and_costs_two(home: Path) -> None:
    session = open_session(home, CannedWorker(make_result("pendulum", "fail")))
    outcome = await session.trial("pendulum", {}, 20.0)
    assert outcome.verdict.word == "fail"
    assert outcome.facts["broken_goal"] == "decode_throughput_ratio"
    assert [(c.code, c.amount) for c in outcome.charges] == [
        ("guess_close", -2), ("trial_failed", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("case", ["straddle", "noisy", "fault"])
async def test_what_cannot_be_told_costs_nothing_and_leaves_the_guess_sealed(
    home: Path, case: str
) -> None:
    session = open_session(home, CannedWorker(make_result("pendulum", case)))  # type: ignore[arg-type]
    outcome = await session.trial("pendulum", make_build("straddle"), 300.0)
    assert outcome.verdict.word == ("inconclusive" if case == "straddle" else "invalid")
    assert outcome.debt_after == 0 and outcome.charges == ()
    assert outcome.guess is not None and outcome.guess.truth is None
    again = await session.trial("pendulum", PASS, 300.0)
    assert again.charges[0].code == "guess_far"


async def test_practice_changes_nothing_but_the_best_figure(home: Path) -> None:
    session = open_session(home)
    outcome = await session.trial("pendulum", PASS)
    hall = session.standing().halls["pendulum"]
    assert outcome.verdict.word == "pass" and outcome.guess is None and outcome.charges == ()
    assert hall.crowns == () and hall.attempts == 0 and hall.state == "sealed"
    assert hall.best is not None and hall.best.practice and hall.best.digest == hall.last


async def test_a_session_that_keeps_no_records_leaves_none(home: Path) -> None:
    session = open_session(home, practice=True)
    outcome = await session.trial("pendulum", PASS, 20.0)
    assert outcome.record is None and session.records() == () and not home.exists()


@pytest.mark.parametrize(
    ("mishap", "code"),
    [
        (WorkerDied("exit", "the engine process ended (signal 9)"), "worker_died"),
        (RestartLimit("exit", "it rests"), "restart_limit"),
        (Failed(1, "memory", "needs 9 GB"), "out_of_memory"),
        (Failed(1, "internal", "a fault"), "internal"),
    ],
)
async def test_an_engine_that_is_lost_makes_the_trial_invalid_and_free(
    home: Path, mishap: Exception | Failed, code: str
) -> None:
    session = open_session(home, CannedWorker(mishap))  # type: ignore[arg-type]
    outcome = await session.trial("pendulum", PASS, 20.0)
    assert outcome.verdict.word == "invalid" and outcome.verdict.reasons[0].code == code
    assert outcome.result is None and outcome.debt_after == 0
    assert outcome.record is not None and outcome.record.result is None
    for remark in (*outcome.verdict.reasons, *outcome.verdict.advice):
        said = session.text(f"remark.{remark.code}", **remark.details)
        assert not said.startswith("[") and "{" not in said
    again = await session.trial("pendulum", PASS, 20.0)
    assert again.verdict.word == "pass" and again.charges[0].code == "guess_close"


async def test_a_stopped_trial_is_not_recorded(home: Path) -> None:
    session = open_session(home, CannedWorker(hold=True))
    running = asyncio.create_task(session.trial("pendulum", PASS, 20.0))
    await asyncio.sleep(0.02)
    with pytest.raises(SessionInputError, match="a trial is running"):
        await session.trial("gate", {}, "compute")
    await session.abort()
    outcome = await running
    assert outcome.aborted and outcome.verdict.word == "invalid"
    assert outcome.record is None and session.records() == ()


async def test_a_worker_ended_because_it_would_not_stop_counts_as_stopped(home: Path) -> None:
    session = open_session(home, CannedWorker(WorkerDied("abort", "it had to be ended")))
    outcome = await session.trial("pendulum", PASS, 20.0)
    assert outcome.aborted and outcome.record is None


async def test_a_cancelled_trial_leaves_the_desk_free(home: Path) -> None:
    worker = CannedWorker(hold=True)
    session = open_session(home, worker)
    running = asyncio.create_task(session.trial("pendulum", PASS, 20.0))
    await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    worker.hold = False
    assert (await session.trial("pendulum", PASS, 20.0)).verdict.word == "pass"


async def test_what_the_engine_refuses_is_the_players_to_mend(home: Path) -> None:
    session = open_session(home, CannedWorker(Failed(1, "input", "the prompt is too long")))
    with pytest.raises(SessionInputError, match="too long"):
        await session.trial("pendulum", PASS, 20.0)
    assert session.records() == ()
    without = open_session(home, CannedWorker(load=Failed(1, "model", "no model is here")))
    with pytest.raises(SessionInputError, match="no model is here"):
        await without.ready()


async def test_a_worker_that_does_not_start_is_told_by_ready(home: Path) -> None:
    class Deaf(CannedWorker):
        async def start(self) -> Hello:
            raise WorkerDied("start", "cannot start ssh")

    session = open_session(home, Deaf())
    with pytest.raises(EngineUnavailable, match="cannot start ssh"):
        await session.ready()
    with pytest.raises(SessionInputError, match="close the quotation"):
        await Session.open(home, worker='ssh "box').ready()


async def test_the_spec_carries_the_halls_reference_goals_and_a_fresh_seed(home: Path) -> None:
    worker = CannedWorker()
    session = open_session(home, worker)
    await session.trial("pendulum", PASS)
    await session.trial("pendulum", PASS)
    await session.trial("pendulum", PASS, seed=11)
    first, second, fixed = (c.spec for c in worker.commands if isinstance(c, RunTrial))
    stage = session.open_stage("pendulum")
    assert first.kind == "paired" and first.reference == stage.reference
    assert first.bounds == stage.goals and first.build == {**stage.build, **PASS}
    assert first.seed != second.seed and fixed.seed == 11


async def test_a_knob_that_a_hall_shares_stands_in_its_reference_too(home: Path) -> None:
    worker = CannedWorker(make_drafted(), make_drafted())
    session = open_session(home, worker)
    await session.trial("plaza", {"draft.kind": "self4", "sampling.temperature": 0.7})
    await session.trial("plaza", {"draft.kind": "self4"})
    warm, greedy = (c.spec for c in worker.commands if isinstance(c, RunTrial))
    for spec, temperature in ((warm, 0.7), (greedy, 0.0)):
        assert spec.build["sampling.temperature"] == temperature
        assert spec.reference["sampling.temperature"] == temperature
        assert spec.reference["draft.kind"] == "none"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ({"workload.prompt": 64}, "cannot be set in this hall"),
        ({"schedule.bacth": 8}, "nearest: schedule.batch"),
        ({"schedule.batch": 65}, "nearest: 64"),
        ({"run.precision": "int3"}, "legal: float32"),
    ],
)
async def test_a_build_that_cannot_be_is_refused_before_the_engine_wakes(
    home: Path, build: dict[str, int | str], said: str
) -> None:
    worker = CannedWorker()
    with pytest.raises(SessionInputError, match=said):
        await open_session(home, worker).trial("pendulum", build)
    assert worker.starts == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch=0", "nearest: 1"),
        ("bacth=8", "nearest: schedule.batch"),
        ("prompt=64", "workload.prompt cannot be set in this hall; this hall's knobs"),
        ("workload.prompt=0", "workload.prompt cannot be set in this hall"),
        ("batch", "write knob=value"),
    ],
)
def test_settings_that_cannot_be_name_what_can(home: Path, text: str, said: str) -> None:
    with pytest.raises(SessionInputError, match=said):
        open_session(home).parse_settings("pendulum", [text])


def test_settings_are_read_by_a_unique_ending_and_not_twice(home: Path) -> None:
    session = open_session(home)
    assert session.parse_settings("pendulum", ["batch=8", "precision=bfloat16"]) == PASS
    assert session.parse_settings("pendulum", ["batch=8", "schedule.batch=8"]) == {
        "schedule.batch": 8
    }
    with pytest.raises(SessionInputError, match="set twice"):
        session.parse_settings("pendulum", ["batch=8", "batch=4"])


def test_halls_that_are_not_there_name_those_that_are(home: Path) -> None:
    session = open_session(home)
    with pytest.raises(SessionInputError, match="nearest: pendulum"):
        session.open_stage("pendlum")
    with pytest.raises(SessionInputError, match="closed; open: gate, pendulum, abyss, furnace"):
        session.open_stage("loom")
    assert session.stage_text("gate").name in session.closed_line("pendulum")
    assert session.closed_line("gate") == "" and session.closed_line("loom")


async def test_a_full_disk_ends_no_game_and_loses_no_record(home: Path) -> None:
    session = open_session(home, profile="Ann")
    session.update_settings(language="zh")
    await session.trial("gate", {}, "bandwidth")
    # Another process that holds the writer's lock for ever stands in for a disk that refuses.
    session._player.store._table.close()
    monkey = pytest.MonkeyPatch()
    monkey.setattr("saves.record_table.BUSY_SECONDS", 0.05)
    blocker = sqlite3.connect(home / "records.sqlite3", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    outcome = await session.trial("pendulum", PASS, 20.0)
    assert outcome.warning is not None and "records.sqlite3" in outcome.warning
    assert outcome.record is not None and outcome.record in session.records()
    assert session.standing().halls["pendulum"].state == "passed"
    assert open_session(home, profile="Ann").standing().halls["pendulum"].state == "open"
    blocker.execute("ROLLBACK")
    blocker.close()
    await session.close()
    monkey.undo()
    assert open_session(home, profile="Ann").records() == session.records()


async def test_a_home_that_cannot_be_written_is_told_and_played_on(tmp_path: Path) -> None:
    wall = tmp_path / "file"
    wall.write_text("not a folder")
    session = open_session(wall / "home")
    outcome = await session.trial("pendulum", PASS, 20.0)
    assert outcome.warning is not None and outcome.debt_after == 0
    assert session.standing().halls["pendulum"].state == "passed"
    with pytest.raises(SaveError):
        session.create_profile("Ann")
    wall.unlink()
    session.create_profile("Ann")
    assert session.records() == ()  # what nobody did is not given to Ann
    await session.close()


async def test_records_made_before_a_profile_could_be_written_reach_it(tmp_path: Path) -> None:
    wall = tmp_path / "file"
    wall.write_text("not a folder")
    session = open_session(wall / "home", profile="Ann")
    first = await session.trial("gate", {}, "bandwidth")
    assert first.warning is not None
    wall.unlink()
    second = await session.trial("pendulum", PASS, 20.0)
    assert second.warning is None
    await session.close()
    again = open_session(wall / "home", profile="ann")
    assert [record.stage for record in again.records()] == ["gate", "pendulum"]
    assert again.standing() == session.standing()


def test_settings_are_checked_kept_and_live_without_a_profile(home: Path) -> None:
    session = open_session(home)
    session.update_settings(language="zh", text_speed=0)
    assert session.settings.language == "zh" and not home.exists()
    with pytest.raises(SessionInputError, match="nearest: text_speed"):
        session.update_settings(textspeed=3)
    with pytest.raises(SessionInputError, match="zh, en"):
        session.update_settings(language="fr")
    with pytest.raises(SessionInputError, match="0 to 1000"):
        session.update_settings(text_speed=-1)
    session.create_profile("林默")
    assert session.settings.language == "zh"
    session.update_settings(reduced_motion=True)
    assert open_session(home).settings == msgspec.structs.replace(
        session.settings, reduced_motion=True
    )


def test_profiles_are_made_chosen_renamed_and_laid_aside(home: Path) -> None:
    session = open_session(home)
    session.create_profile("Ann")
    session.create_profile("Bo")
    assert session.profile is not None and session.profile.name == "Bo"
    with pytest.raises(SaveError, match="taken"):
        session.create_profile("ANN")
    session.use_profile("ann")
    session.rename_profile("Anna")
    assert [profile.name for profile in session.profiles()] == ["Anna", "Bo"]
    session.mark_seen(["gate.1", "gate.2", "gate.1"])
    session.stand_at("pendulum")
    again = open_session(home)
    assert again.profile is not None and again.profile.name == "Anna"
    assert again.profile.seen == ("gate.1", "gate.2") and again.profile.stage == "pendulum"
    again.delete_profile("Anna")
    assert again.profile is None and [one.name for one in again.profiles()] == ["Bo"]


async def test_looking_at_a_profile_does_not_make_it_the_last_one_played(home: Path) -> None:
    session = open_session(home)
    session.create_profile("Ann")
    session.create_profile("Bo")
    ann = open_session(home, profile="Ann")
    ann.standing()
    assert open_session(home).profile.name == "Bo"  # type: ignore[union-attr]
    await ann.trial("gate", {}, "compute")
    assert open_session(home).profile.name == "Ann"  # type: ignore[union-attr]


def test_lines_read_are_not_written_one_by_one(home: Path) -> None:
    session = open_session(home)
    profile = session.create_profile("Ann")
    path = home / "profiles" / f"{profile.id}.json"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    for line in range(50):
        session.mark_seen([f"line.{line}"])
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    session._player.flush()
    assert len(open_session(home).profile.seen) == 50  # type: ignore[union-attr]


def test_damage_is_told_once_in_the_players_language(home: Path) -> None:
    session = open_session(home)
    profile = session.create_profile("Ann")
    session.update_settings(language="zh")
    path = home / "profiles" / f"{profile.id}.json"
    path.write_text('{"version": 1, "na')
    again = open_session(home)
    (notice,) = again.take_notices()
    assert f"{path.name}.damaged-" in notice and again.take_notices() == ()
    assert again.profile is not None and again.profile.name == "Ann"


def test_guesses_are_read_and_shown_in_words(home: Path) -> None:
    session = open_session(home)
    assert session.parse_guess("gate", "b") == "bandwidth"
    assert session.parse_guess("pendulum", "18x") == 18.0
    with pytest.raises(ValueError, match="1 to 300"):
        session.parse_guess("pendulum", "0")
    assert (
        session.show_guess("gate", "bandwidth") == session.stage_text("gate").choices["bandwidth"]
    )
    assert session.show_guess("pendulum", 18.0) == "18"


async def test_a_hall_of_ones_own_is_run_without_the_shipped_one(home: Path) -> None:
    session = open_session(home, practice=True)
    easier = msgspec.structs.replace(session.open_stage("pendulum"), goals=())
    outcome = await session.trial("pendulum", {}, stage=easier)
    assert outcome.verdict.word == "pass" and outcome.verdict.goals == ()


def test_knob_errors_stay_what_they_are(home: Path) -> None:
    assert issubclass(SessionInputError, ValueError) and issubclass(KnobError, ValueError)
