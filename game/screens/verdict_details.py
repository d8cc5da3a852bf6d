"""The figures beneath a verdict: what ran, how often, on what, and how well it can be trusted."""

from __future__ import annotations

from collections.abc import Callable

from engine.clean import clean
from engine.metrics import METRICS
from engine.trial import Ledger, TrialResult
from game.load_figures import served_figures
from game.outcome import Outcome
from game.screens.draft_details import draft_details
from game.screens.weight_details import weight_details
from game.widgets.figure_table import Row, draw_table
from game.widgets.figures import duration, plain_number, share, size
from game.widgets.ink import Line, Run

Say = Callable[..., str]
_LEAST_BYTES = 1000  # a part below a kilobyte says nothing
_SHOWN = (
    "live_tokens",
    "vessel_share",
    "kv_request_mb",
    "memory_use",
    "reference_use",
    "ttft",
    "tpot",
    "prefill_throughput",
    "decode_throughput",
    "prefill_ceiling_share",
    "decode_ceiling_share",
)


def rows_of(say: Say, outcome: Outcome) -> list[Row]:
    """(name, figure) pairs; names come from the interface text `detail.<name>`."""
    verdict, result = outcome.verdict, outcome.result
    rows = [
        (say("detail.pairs"), str(verdict.pairs_used or (len(result.singles) if result else 0))),
        (say("detail.noise"), share(verdict.noise_cv)),
    ]
    rows += _load_rows(say, result) if result is not None else []
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
        if result.ledger is not None:
            rows.append((say("detail.ledger"), _account(say, result.ledger)))
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


def _load_rows(say: Say, result: TrialResult) -> list[Row]:
    """A served trial: each build as a whole, then what each kind of request saw of it."""
    figures = served_figures(result)
    if figures is None:
        return []
    rows: list[Row] = []
    for build, found in zip(("candidate", "reference"), figures, strict=True):
        name = say(f"piece.build.{build}")
        whole = say(
            "detail.load.whole.figures",
            rate=plain_number(found.throughput),
            use=share(found.memory_use),
            most=found.most_running,
            hits=share(found.prefix_hit_rate),
            preemptions=found.preemptions,
            recomputed=f"{found.recomputed_tokens:,}",
            copies=found.copies,
        )
        rows.append((say("detail.load.whole", build=name), whole))
        for kind in found.kinds:
            told = say(
                "detail.load.figures",
                queueing=duration(kind.queueing),
                ttft=duration(kind.ttft),
                tpot=duration(kind.tpot),
                tail=kind.itl_tail,
                itl=duration(kind.itl),
            )
            head = say("detail.load", build=name, kind=say(f"detail.kind.{kind.kind}"))
            rows.append((head, told))
    return rows


def _account(say: Say, account: Ledger) -> str:
    """The parts at the moment when most was held, and the tokens in them."""
    parts = [
        f"{say(f'forge.part.{name}')} {size(amount)}"
        for name, amount in account.parts.items()
        if amount >= _LEAST_BYTES
    ]
    return ", ".join([*parts, say("flood.live", tokens=f"{account.live_tokens:,}")])


def _figure(name: str, value: float) -> str:
    metric = METRICS[name]
    if metric.kind == "share":
        return share(value)
    if metric.unit == "tokens":
        return f"{value:,.0f}"
    return duration(value) if metric.unit == "s" else plain_number(value)


def draw_details(say: Say, outcome: Outcome, width: int, plain: bool = False) -> list[Line]:
    """What quantising cost in quality and what became of drafts, where either was; then what every
    trial tells."""
    lines: list[Line] = []
    for found in (weight_details(say, outcome, width, plain), draft_details(say, outcome, width)):
        lines += [*found, ()] if found else []
    return [
        *lines,
        (Run(say("detail.title"), "bronze"),),
        *draw_table(rows_of(say, outcome), width),
    ]
