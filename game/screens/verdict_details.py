"""The figures beneath a verdict: what ran, how often, on what, and how well it can be trusted."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len

from engine.clean import clean
from engine.metrics import METRICS
from game.outcome import Outcome
from game.widgets.cells import pad, wrap
from game.widgets.figures import duration, plain_number, share, size
from game.widgets.ink import Line, Run

Say = Callable[..., str]
_SHOWN = (
    "ttft",
    "tpot",
    "prefill_throughput",
    "decode_throughput",
    "prefill_ceiling_share",
    "decode_ceiling_share",
)


def rows_of(say: Say, outcome: Outcome) -> list[tuple[str, str]]:
    """(name, figure) pairs; names come from the interface text `detail.<name>`."""
    verdict, result = outcome.verdict, outcome.result
    rows = [
        (say("detail.pairs"), str(verdict.pairs_used or (len(result.singles) if result else 0))),
        (say("detail.noise"), share(verdict.noise_cv)),
    ]
    rows += [
        (say(f"metric.{name}"), _figure(name, verdict.metrics[name]))
        for name in _SHOWN
        if name in verdict.metrics
    ]
    if result is not None:
        memory = result.memory
        rows.append(
            (
                say("detail.memory"),
                say(
                    "detail.memory.figures",
                    predicted=size(memory.predicted_bytes),
                    allocated=size(memory.allocated_bytes),
                ),
            )
        )
        if result.quality is not None:
            quality = say(
                "detail.quality.figures",
                kl=plain_number(result.quality.kl),
                top1=share(result.quality.top1),
                tokens=f"{result.quality.scored_tokens:,}",
            )
            rows.append((say("detail.quality"), quality))
        path = ", ".join(f"{name} {form}" for name, form in result.kernel_path.items())
        rows.append((say("detail.path"), clean(path, one_line=True)))
        ran = result.environment
        machine = say("detail.machine.figures", threads=ran.threads, policy=ran.wait_policy)
        named = clean(ran.fingerprint, one_line=True)
        rows.append((say("detail.machine"), f"{named} | {machine}"))
        loaded = say(
            "detail.warmup.figures", runs=result.warmup_runs, time=duration(result.load_seconds)
        )
        rows.append((say("detail.warmup"), loaded))
    if outcome.record is not None:
        rows.append((say("detail.record"), outcome.record.digest[:16]))
    return rows


def _figure(name: str, value: float) -> str:
    metric = METRICS[name]
    if metric.kind == "share":
        return share(value)
    return duration(value) if metric.unit == "s" else plain_number(value)


def draw_details(say: Say, outcome: Outcome, width: int) -> list[Line]:
    """Names on the left, figures on the right, wrapped where they are long."""
    rows = rows_of(say, outcome)
    left = min(max(cell_len(name) for name, _ in rows), max(width // 2, 8))
    lines: list[Line] = [(Run(say("detail.title"), "bronze"),)]
    for name, figure in rows:
        for number, text in enumerate(wrap(figure, max(width - left - 2, 8))):
            head = pad(name, left) if number == 0 else " " * left
            lines.append((Run(head + "  ", "dim"), Run(text, "text")))
    return lines
