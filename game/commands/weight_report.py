"""Weights in fewer bits in a trial's report: as JSON, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from engine.clean import clean
from engine.quality_report import Answer, Quality
from engine.quantised import Quantised
from engine.trial import TrialResult
from game.rules.weight_facts import worst_error
from game.widgets.figures import duration, plain_number

if TYPE_CHECKING:
    from game.session import Outcome, Session


def quantised_document(result: TrialResult) -> dict[str, Any] | None:
    """How the build's weights were made, errors and histogram included; None in full width."""
    if result.quantised is None:
        return None
    document: dict[str, Any] = msgspec.to_builtins(result.quantised)
    return document


def ladder_document(result: TrialResult) -> list[dict[str, Any]]:
    """The rungs, as the stage lists them."""
    return [msgspec.to_builtins(rung) for rung in result.ladder]


def weight_lines(session: Session, outcome: Outcome) -> Iterator[str]:
    """How the weights were made, and what of the model is left: what there is of it."""
    result = outcome.result
    if result is None:
        return
    if result.quantised is not None:
        held = outcome.verdict.metrics.get("average_bits", result.quantised.average_bits)
        yield from _made(session, result.quantised, held)
    if result.quality is not None:
        yield from _left(session, result.quality)
    if result.ladder:
        rungs = "; ".join(
            session.text("report.weights.rung", bits=rung.bits, kl=plain_number(rung.kl))
            for rung in result.ladder
        )
        yield session.text("report.weights.ladder", rungs=rungs)
    if outcome.verdict.fallen and outcome.facts.get("scar") is True:
        first = outcome.facts.get("falls") == 1
        yield session.text("plain.scar_left" if first else "plain.scar_stands")


def _made(session: Session, quantised: Quantised, held: float) -> Iterator[str]:
    say = session.text
    width = "report.weights.width" if quantised.bits else "report.weights.widths"
    yield say(
        "report.weights.made",
        method=say(f"knob.value.{quantised.method}"),
        width=say(width, bits=quantised.bits),
        average=plain_number(held),
    )
    if quantised.cached:
        yield say("report.weights.from_disk")
    else:
        yield say("report.weights.pressed", time=duration(quantised.seconds))
    if quantised.calibration_tokens:
        yield say("report.weights.calibration", tokens=f"{quantised.calibration_tokens:,}")
    if quantised.method != "rtn":
        changed, layers = quantised.changed_layers, quantised.layers
        yield say("report.weights.changed", changed=changed, layers=layers)
    worst = worst_error(quantised)
    if worst is not None:
        yield say(
            "report.weights.worst",
            layer=worst.layer + 1,
            matrix=worst.name,
            error=plain_number(worst.error * 100),
        )
    for notice in quantised.notices:
        yield say(f"notice.{notice.code}", **notice.details)


def _left(session: Session, quality: Quality) -> Iterator[str]:
    """Questions, the divergence along the text, and both models' answers."""
    if quality.probes is not None:
        marks = quality.probes
        yield session.text(
            "report.weights.probes", asked=marks.asked, known=marks.known, right=marks.right
        )
    if quality.kl_by_position:
        along = ", ".join(plain_number(kl, 2) for kl in quality.kl_by_position)
        tokens = quality.position_tokens
        yield session.text("report.weights.positions", tokens=tokens, figures=along)
    for answer in quality.answers:
        yield from _answer(session, answer)


def _answer(session: Session, answer: Answer) -> Iterator[str]:
    """One prompt: the full model's answer, the build's under it, and where they part."""
    say = session.text
    yield say("report.weights.asked", text=clean(answer.prompt, one_line=True))
    yield "  " + say("report.weights.full", text=clean(answer.full, one_line=True))
    yield "  " + say("report.weights.build", text=clean(answer.build, one_line=True))
    if answer.differs is None:
        yield "  " + say("report.weights.same")
    else:
        yield "  " + say("report.weights.differs", token=answer.differs + 1)
