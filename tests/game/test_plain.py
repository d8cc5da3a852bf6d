"""The whole game in lines of text: no step skipped, both languages, and a way out everywhere."""

from __future__ import annotations

import re

import pytest
from canned_trials import make_build, make_result
from canned_worker import CannedWorker
from plain_script import play
from rich.cells import cell_len

from game.plain_voice import WIDTH, wrapped


def gate_result():
    return make_result("gate", "pass")


async def test_the_gate_is_played_from_name_to_insight(tmp_path):
    worker = CannedWorker(gate_result())
    session, script = await play(tmp_path, worker, hall=["en", "1"], choice=["2"], forge=["t"])
    assert session.standing().passed == {"gate"}
    assert session.records()[0].guess.value == "bandwidth"
    assert "Elder Gauss:" in script.text and "PASS" in script.text
    assert "latency debt" in script.text


async def test_a_failed_pendulum_keeps_the_seal_and_is_tuned_again(tmp_path):
    worker = CannedWorker(
        gate_result(), make_result("pendulum", "fail"), make_result("pendulum", "pass")
    )
    session, _ = await play(
        tmp_path,
        worker,
        hall=["1", "2"],
        choice=["2"],
        dial=["18"],
        forge=["t", "t", "h", "batch=8", "precision=bfloat16", "t"],
    )
    words = [(record.stage, record.verdict["word"]) for record in session.records()]
    assert words == [("gate", "pass"), ("pendulum", "fail"), ("pendulum", "pass")]
    first, second = session.records()[1:]
    assert first.guess.value == second.guess.value == 18.0
    assert first.guess.close is True and second.guess.close is None
    assert second.hints_taken == 1
    assert {key: second.build[key] for key in ("schedule.batch", "run.precision")} == {
        "schedule.batch": 8,
        "run.precision": "bfloat16",
    }


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("batch=0", "nearest: 1"),
        ("bacth=8", "schedule.batch"),
        ("output=64", "workload.output"),
        ("batch", "knob=value"),
    ],
)
async def test_a_setting_that_cannot_be_is_refused_and_nothing_is_lost(tmp_path, answer, said):
    worker = CannedWorker(gate_result(), make_result("pendulum", "pass"))
    session, script = await play(
        tmp_path,
        worker,
        hall=["en", "1", "2"],
        choice=["2"],
        dial=["30"],
        forge=["t", answer, "batch=8", "t"],
    )
    assert said in script.text
    assert session.records()[-1].build["schedule.batch"] == 8


async def test_a_guess_off_the_dial_is_asked_again(tmp_path):
    worker = CannedWorker(gate_result())
    session, script = await play(
        tmp_path,
        worker,
        hall=["en", "1", "2"],
        choice=["2"],
        dial=["-3", "lots", "30"],
        forge=["t", "b"],
    )
    assert script.text.count("Seal your guess, from 1 to 300 times:") == 3
    assert [record.stage for record in session.records()] == ["gate"]


async def test_a_sealed_hall_says_why(tmp_path):
    _, script = await play(tmp_path, CannedWorker(), hall=["en", "3"])
    assert "sealed" in script.text
    assert script.text.count("Which hall?") == 3


async def test_the_language_changes_at_any_prompt(tmp_path):
    session, script = await play(tmp_path, CannedWorker(), hall=["en", "zh"], name=["zh", "林"])
    assert "推理殿" in script.text
    assert session.settings.language == "zh"
    assert not any("[plain." in line for line in script.told)


async def test_foreign_text_cannot_reach_the_terminal(tmp_path):
    _, script = await play(tmp_path, CannedWorker(), name=["\x1b[31mred\x1b[0m\x07"])
    assert "\x1b" not in script.text and "\x07" not in script.text


@pytest.mark.parametrize("language", ["zh", "en"])
async def test_no_line_is_wider_than_a_terminal(tmp_path, language):
    worker = CannedWorker(gate_result())
    _, script = await play(tmp_path, worker, hall=[language, "1"], choice=["2"], forge=["t"])
    assert max(cell_len(line) for line in script.told) <= WIDTH + 2
    assert not re.search(r"\[[a-z_]+\.[a-z_.]+\]", script.text)  # a key without words


def test_wrapping_counts_cells():
    lines = wrapped("推理如电" * 30, 20)
    assert all(cell_len(line) <= 20 for line in lines)
    assert "".join(lines) == "推理如电" * 30
    assert wrapped("one two three", 7) == ["one two", "three"]


def test_the_canned_build_is_the_one_the_hint_names():
    assert make_build("pass")["schedule.batch"] == 8
