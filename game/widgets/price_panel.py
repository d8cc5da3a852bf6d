"""What a build will cost, by formula: memory as one stacked bar, each phase against its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from engine.machine import Ceilings
from engine.price import Price
from engine.trial import PhaseWork, Work
from game.roof_points import Floors, floors
from game.widgets.bars import Part, draw_bar, draw_stack
from game.widgets.cells import clip, pad, pad_left
from game.widgets.figures import duration, operations, size
from game.widgets.ink import Ink, Line, Run

_AMOUNT, _TIME = 7, 7
PART_INK: Mapping[str, Ink] = {
    "weights": "bronze",
    "kv": "wall",
    "activations": "dim",
    "scratch": "faint",
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


def draw_memory(
    parts: Mapping[str, int], whole: float, words: PriceWords, width: int, plain: bool = False
) -> list[Line]:
    """The head with the sum, the bar, and each part's figure; `whole` is what a full bar holds."""
    total = sum(parts.values())
    lines = [_head(words.memory, size(total), width)]
    bar = [Part(float(amount), PART_INK.get(name, "dim")) for name, amount in parts.items()]
    lines += draw_stack(bar, whole, width, plain)
    line: list[Run] = []
    used = 0
    for name, amount in parts.items():
        text = f"{words.parts.get(name, name)} {size(amount)}"
        if used and used + cell_len(text) + 2 > width:
            lines.append(tuple(line))
            line, used = [], 0
        lead = "  " if used else ""
        line.append(Run(lead + text, PART_INK.get(name, "dim")))
        used += cell_len(text) + len(lead)
    return [*lines, tuple(line)]


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


def _head(left: str, right: str, width: int) -> Line:
    gap = max(width - cell_len(left) - cell_len(right), 1)
    return (Run(left + " " * gap, "bronze"), Run(right, "text"))


def _amount(name: str, text: str, width: int) -> Line:
    return (Run(pad(f" {name}", max(width - len(text), 1)), "dim"), Run(text, "text"))
