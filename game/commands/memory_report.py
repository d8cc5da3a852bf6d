"""Memory and served loads in a trial's report: as JSON, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from engine.trial import TrialResult
from game.load_figures import BuildFigures, KindFigures, served_figures
from game.widgets.figures import duration, plain_number

if TYPE_CHECKING:
    from game.session import Outcome, Session


def memory_document(result: TrialResult) -> dict[str, Any]:
    """Predicted and allocated, by part; where a ledger was kept, the vessel and what was held."""
    account, ledger = result.memory, result.ledger
    document: dict[str, Any] = {
        "predicted_bytes": account.predicted_bytes,
        "allocated_bytes": account.allocated_bytes,
        "predicted": account.predicted,
        "allocated": account.allocated,
        "resident_bytes": account.resident_bytes,
    }
    if ledger is not None:
        document |= {
            "budget_bytes": ledger.budget,
            "held_bytes": ledger.held_bytes,
            "live_tokens": ledger.live_tokens,
        }
    return document


def flood_document(result: TrialResult) -> dict[str, Any] | None:
    """The account of the moment in which the budget broke, as the engine kept it."""
    if result.flood is None:
        return None
    document: dict[str, Any] = msgspec.to_builtins(result.flood)
    return document


def load_document(result: TrialResult) -> dict[str, Any] | None:
    """Both builds' served loads, requests by kind; None where none was served."""
    figures = served_figures(result)
    if figures is None:
        return None
    candidate, reference = figures
    return {
        "loads": len(result.load_pairs),
        "requests": len(result.load_pairs[0].candidate.requests),
        "candidate": msgspec.to_builtins(candidate),
        "reference": msgspec.to_builtins(reference),
    }


def memory_lines(session: Session, outcome: Outcome) -> Iterator[str]:
    """The vessel, the flood, and the loads: what there is of them."""
    result = outcome.result
    if result is None:
        return
    yield from _held(session, result)
    yield from _flood(session, outcome, result)
    figures = served_figures(result)
    if figures is not None:
        for name, build in zip(("candidate", "reference"), figures, strict=True):
            yield from _served(session, session.text(f"plain.build.{name}"), build)


def _held(session: Session, result: TrialResult) -> Iterator[str]:
    ledger = result.ledger
    if ledger is None or result.flood is not None:
        return
    held = {"tokens": f"{ledger.live_tokens:,}", "held": _mb(ledger.held_bytes)}
    yield session.text("plain.held", **held)
    if ledger.budget:
        share = 100 * ledger.reserved_bytes / ledger.budget
        yield session.text(
            "plain.vessel",
            percent=f"{share:.0f}",
            reserved=_mb(ledger.reserved_bytes),
            budget=_mb(ledger.budget),
        )


def _flood(session: Session, outcome: Outcome, result: TrialResult) -> Iterator[str]:
    flood = result.flood
    if flood is None:
        return
    parts = ", ".join(
        session.text(f"plain.part.{name}", size=_mb(count))
        for name, count in flood.ledger.parts.items()
        if count >= 1e5
    )
    yield session.text("plain.flood_parts", budget=_mb(flood.ledger.budget or 0), parts=parts)
    yield session.text(
        "plain.flood_held",
        held=_mb(flood.ledger.held_bytes),
        tokens=f"{flood.ledger.live_tokens:,}",
        requests=flood.requests,
        fits=flood.fits,
    )
    if outcome.facts.get("scar") is True:
        first = outcome.facts.get("floods") == 1
        yield session.text("plain.scar_left" if first else "plain.scar_stands")


def _served(session: Session, name: str, build: BuildFigures) -> Iterator[str]:
    yield session.text(
        "plain.served",
        build=name,
        rate=plain_number(build.throughput),
        use=plain_number(build.memory_use * 100, 2),
        most=build.most_running,
        waste=plain_number(build.waste_tokens),
    )
    paged = (build.prefix_hit_rate, build.copies, build.preemptions, build.recomputed_tokens)
    if any(paged):
        yield session.text(
            "plain.pages",
            build=name,
            hit=plain_number(build.prefix_hit_rate * 100, 2),
            copies=build.copies,
            preemptions=build.preemptions,
            recomputed=build.recomputed_tokens,
        )
    for kind in build.kinds:
        yield _requests(session, name, kind)


def _requests(session: Session, name: str, kind: KindFigures) -> str:
    return session.text(
        "plain.requests",
        build=name,
        kind=session.text(f"plain.kind.{kind.kind}"),
        prompt=plain_number(kind.prompt_tokens),
        queued=duration(kind.queueing),
        ttft=duration(kind.ttft),
        tail=_tail_name(session, kind.itl_tail),
        itl=duration(kind.itl),
        tpot=duration(kind.tpot),
    )


def _tail_name(session: Session, name: str) -> str:
    """`p99` stays as it is; `max of 12` is told in the player's language."""
    if name.startswith("p"):
        return name
    return session.text("plain.tail_max", count=name.rsplit(" ", 1)[-1])


def _mb(count: float) -> str:
    return plain_number(count / 1e6)
