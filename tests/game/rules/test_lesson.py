"""What a hall says of a machine that cannot show its lesson, against sums worked by hand."""

from __future__ import annotations

import msgspec
import pytest
from canned_trials import CAPABILITIES, MACHINE, MODEL

from engine.machine import MachineProfile
from engine.model.published import PUBLISHED
from game.rules.facts import stage_facts
from game.rules.lesson import lesson_facts, lesson_of
from game.rules.progress import standing
from story.facts import tell
from story.loader import load_stages, load_text
from story.schema import LANGUAGES, Language, Line, Stage

STAGES = {stage.id: stage for stage in load_stages()}
LARGE = msgspec.structs.replace(CAPABILITIES, memory_bytes=128 << 30)
"""A machine with room for any of them but the largest in float32."""


def machine(bandwidth: float, dispatch: float) -> MachineProfile:
    ceilings = msgspec.structs.replace(
        MACHINE.ceilings, read_bytes_per_second=bandwidth, dispatch_seconds=dispatch
    )
    return msgspec.structs.replace(MACHINE, ceilings=ceilings)


CARD = machine(4.0e12, 2.5e-6)
"""As quick as a large card with a small model on it: 0.07 ms of bytes, milliseconds of calls."""


def test_an_ordinary_machine_shows_what_bytes_cost() -> None:
    """269 MB at 40 GB/s are 6.7 ms; fifteen hundred calls of 3 microseconds are 4.5."""
    lesson = lesson_of(STAGES["furnace"], MODEL, CAPABILITIES, MACHINE)
    assert lesson is not None and not lesson.hidden and lesson.shown_by == ""
    # Keys and values of a thousand tokens come to a tenth of the weights.
    assert lesson.bytes_seconds == pytest.approx(269e6 / 40e9, rel=0.12)
    assert lesson.launch_seconds == pytest.approx(1500 * 3e-6, rel=0.05)


@pytest.mark.parametrize(
    ("stage", "width", "named"),
    [("furnace", 2, "Qwen/Qwen3-14B"), ("pendulum", 4, "Qwen/Qwen3-8B")],
)
def test_where_calls_bind_the_smallest_model_that_would_show_it_is_named(
    stage: str, width: int, named: str
) -> None:
    """Some fifty calls a layer at 2.5 microseconds, against bytes at 4 TB/s."""
    lesson = lesson_of(STAGES[stage], MODEL, LARGE, CARD)
    assert lesson is not None and lesson.hidden and lesson.shown_by == named
    sums = {
        name: (width * model.matrix_elements / 4e12, 50 * model.layers * 2.5e-6)
        for name, model in PUBLISHED.items()
    }
    assert next(name for name, (moved, called) in sums.items() if moved > called) == named


def test_a_model_that_does_not_fit_is_not_named() -> None:
    lesson = lesson_of(STAGES["furnace"], MODEL, CAPABILITIES, CARD)
    small = msgspec.structs.replace(CAPABILITIES, memory_bytes=1 << 30)
    nothing = lesson_of(STAGES["furnace"], MODEL, small, CARD)
    assert nothing is not None and nothing.hidden and nothing.shown_by == ""
    assert lesson is not None and lesson.hidden
    assert lesson_facts(nothing)["shown_elsewhere"] is False
    assert "shown_by" not in lesson_facts(nothing)


def test_only_halls_about_bytes_have_one_and_only_on_a_known_machine() -> None:
    about_bytes = {stage.id for stage in STAGES.values() if stage.lesson == "bytes"}
    assert about_bytes == {"pendulum", "furnace"}
    assert lesson_of(STAGES["gate"], MODEL, CAPABILITIES, CARD) is None
    assert lesson_of(STAGES["furnace"], MODEL, CAPABILITIES, None) is None
    assert lesson_of(STAGES["furnace"], None, CAPABILITIES, CARD) is None
    assert lesson_facts(None) == {}


def hidden_lines(stage: Stage, profile: MachineProfile, language: Language) -> list[Line]:
    room = LARGE if profile is not MACHINE else CAPABILITIES
    facts = stage_facts(stage, {}, standing((), ()), "Lin", 0, room, MODEL, "SmolLM2-135M", profile)
    told = tell(load_text(stage.id, language).scenes["arrival"], facts)
    return [line for line in told if line.id.endswith((".hidden", ".lost"))]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["pendulum", "furnace"])
def test_the_elder_says_so_before_the_bet_and_only_where_it_is_so(
    name: str, language: Language
) -> None:
    stage = STAGES[name]
    assert hidden_lines(stage, MACHINE, language) == []
    (line,) = hidden_lines(stage, CARD, language)
    lesson = lesson_of(stage, MODEL, LARGE, CARD)
    assert lesson is not None and lesson.shown_by and lesson.shown_by in line.text
    slow_calls = machine(4.0e12, 5e-2)
    (line,) = hidden_lines(stage, slow_calls, language)
    assert line.id.endswith(".lost") and "/" not in line.text
