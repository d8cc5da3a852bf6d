"""What a build will cost, by formula: memory as one stacked bar, each phase against its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from engine.machine import Ceilings
from engine.price import Price
from engine.trial import PhaseWork, Work
from game.roof_points import Floors, floors
from game.widgets.bars import Part, Rim, draw_bar, draw_stack
from game.widgets.cells import clip, pad, pad_left
from game.widgets.figures import duration, operations, size
from game.widgets.ink import Ink, Line, Run

_AMOUNT, _TIME = 7, 7
RIM_AT, MOST_BAR = 1.08, 1.5
"""A bar reaches a little beyond the rim, and half as far again where much stands over it."""
PART_INK: Mapping[str, Ink] = {
    "weights": "bronze",
    "kv": "wall",
    "activations": "dim",
    "scratch": "faint",
    "draft": "silver",
}


@dataclass(frozen=True)
class PriceWords:
    """`parts` by memory part; `limits` by bandwidth, compute, launch; heads as full phrases."""

    memory: str
    parts: Mapping[str, str]
    decode: str
    prefill: str
    limits: Mapping[str, str]
    at_least: str
    unmeasured: str


@dataclass(frozen=True)
class VesselWords:
    """`of` is the head's figure, "516 MB of 511 MB"; `over` names what stands beyond the rim."""

    of: str
    over: str


def draw_memory(
    parts: Mapping[str, int], whole: float, words: PriceWords, width: int, plain: bool = False
) -> list[Line]:
    """The head with the sum, the bar, and each part's figure; `whole` is what a full bar holds."""
    lines = [_head(words.memory, size(sum(parts.values())), width)]
    lines += draw_stack(_stack(parts), whole, width, plain)
    return [*lines, *_figures(parts, words, width)]


def draw_vessel(
    parts: Mapping[str, int],
    asked: int,
    vessel: int,
    words: PriceWords,
    vessel_words: VesselWords,
    width: int,
    plain: bool = False,
) -> list[Line]:
    """Memory against a budget of `vessel` bytes: the head, the bar with its rim, each part.

    `asked` bytes stand on top of the parts; what passes the rim is violet and has a figure.
    """
    total = sum(parts.values()) + asked
    over = max(total - vessel, 0)
    whole = max(vessel * RIM_AT, float(min(total, vessel * MOST_BAR)))
    lines = [_head(words.memory, vessel_words.of, width, "danger" if over else "text")]
    lines += draw_stack(_stack(parts), whole, width, plain, Rim(vessel, total))
    figures = list(_runs(parts, words))
    if over:
        figures.append(Run(f"{vessel_words.over} {size(over)}", "danger"))
    return [*lines, *flow(figures, width)]


def _stack(parts: Mapping[str, int]) -> list[Part]:
    return [Part(float(amount), PART_INK.get(name, "dim")) for name, amount in parts.items()]


def _runs(parts: Mapping[str, int], words: PriceWords) -> list[Run]:
    return [
        Run(f"{words.parts.get(name, name)} {size(amount)}", PART_INK.get(name, "dim"))
        for name, amount in parts.items()
    ]


def _figures(parts: Mapping[str, int], words: PriceWords, width: int) -> list[Line]:
    return flow(_runs(parts, words), width)


def flow(runs: Sequence[Run], width: int) -> list[Line]:
    """Runs side by side, two cells between them, on as many lines as they need."""
    lines: list[list[Run]] = [[]]
    used = 0
    for run in runs:
        if used and used + cell_len(run.text) + 2 > width:
            lines.append([])
            used = 0
        lead = "  " if used else ""
        lines[-1].append(Run(lead + clip(run.text, width), run.ink))
        used += cell_len(run.text) + len(lead)
    return [tuple(line) for line in lines]


def draw_phase(
    head: str,
    work: Work,
    ceilings: Ceilings | None,
    precision: str,
    words: PriceWords,
    width: int,
    plain: bool = False,
) -> list[Line]:
    """A head with the least time, and a bar for each limit: its share of that least time.

    The limit that fills its bar is the one the phase will meet first.
    """
    amounts = (
        ("bandwidth", size(work.bytes_moved)),
        ("compute", f"{operations(work.flops)}"),
        ("launch", f"{operations(work.dispatches)}"),
    )
    if ceilings is None:
        lines = [_head(head, words.unmeasured, width)]
        return lines + [_amount(words.limits[name], text, width) for name, text in amounts]
    least = floors(work, ceilings, precision)
    lines = [_head(head, f"{words.at_least} {duration(least.seconds)}", width)]
    return lines + _bars(amounts, least, words, width, plain)


def draw_least(
    price: PhaseWork | Price, ceilings: Ceilings | None, words: PriceWords, width: int
) -> list[Line]:
    """One line a phase, where there is no room for its limits: the least time it can take."""
    lines: list[Line] = []
    for head, work in ((words.decode, price.decode), (words.prefill, price.prefill)):
        time = words.unmeasured
        if ceilings is not None:
            time = duration(floors(work, ceilings, price.precision).seconds)
        lines.append(_head(clip(head, max(width - cell_len(time) - 1, 2)), time, width))
    return lines


def _bars(
    amounts: Sequence[tuple[str, str]],
    least: Floors,
    words: PriceWords,
    width: int,
    plain: bool,
) -> list[Line]:
    times = {"bandwidth": least.bandwidth, "compute": least.compute, "launch": least.launch}
    name_width = max(cell_len(words.limits[name]) for name, _ in amounts)
    # The same for every phase, so that the bars of both stand in one column.
    bar = max(width - name_width - _AMOUNT - _TIME - 4, 2)
    lines: list[Line] = []
    for name, text in amounts:
        seconds = times[name]
        first = seconds == least.seconds
        ink: Ink = "silver" if first else "dim"
        lines.append(
            (
                Run(" " + pad(words.limits[name], name_width) + " ", "text" if first else "dim"),
                Run(pad_left(text, _AMOUNT) + " ", "dim"),
                *draw_bar(seconds / least.seconds, bar, "bronze" if first else "wall", plain),
                Run(" " + pad_left(duration(seconds), _TIME), ink),
            )
        )
    return lines


def _head(left: str, right: str, width: int, ink: Ink = "text") -> Line:
    gap = max(width - cell_len(left) - cell_len(right), 1)
    return (Run(left + " " * gap, "bronze"), Run(right, ink))


def _amount(name: str, text: str, width: int) -> Line:
    return (Run(pad(f" {name}", max(width - len(text), 1)), "dim"), Run(text, "text"))
