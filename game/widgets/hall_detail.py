"""What the map tells of the chosen hall, beside or under its row."""

from __future__ import annotations

from typing import Protocol

from rich.cells import cell_len
from textual.content import Content

from game.rules.standing import HallStanding
from game.widgets.cells import pad, wrap
from game.widgets.hall_row import HallView
from game.widgets.metric_figure import metric_figure
from story.schema import StageText


class Say(Protocol):
    def __call__(self, key: str, **values: object) -> str: ...


def hall_detail(
    say: Say, view: HallView, text: StageText, hall: HallStanding, width: int, stacked: bool
) -> Content:
    """The hall's place in the tale, then what was done there; of a closed hall, why it is closed.

    Lines have at most `width` cells. `stacked` gives each deed a line of its own.
    """
    sealed = view.state == "sealed"
    tale = text.closed if sealed else _tale(text)
    parts = [
        Content.styled(view.name, "bold $bronze-bright"),
        *(Content.styled(line, "$mist") for line in wrap(text.place, width)),
        Content(""),
        *(Content.styled(line, "$silver") for line in wrap(tale.strip(), width)),
        Content(""),
    ]
    if sealed:
        parts.append(Content.styled(view.note, "$bronze"))
    elif stacked:
        deeds = _deeds(say, view, hall)
        column = max(cell_len(name) for name, _ in deeds) + 2
        parts += [_deed(pad(name, column), value) for name, value in deeds]
    else:
        parts.append(Content("   ").join(_deed(f"{name} ", value)
                                         for name, value in _deeds(say, view, hall)))  # fmt: skip
    return Content("\n").join(parts)


def _tale(text: StageText) -> str:
    """The line that opens the hall's first scene."""
    told = [line.text for line in text.scenes.get("arrival", ()) if "{" not in line.text]
    return told[0] if told else ""


def _deeds(say: Say, view: HallView, hall: HallStanding) -> list[tuple[str, str]]:
    if not hall.attempts and hall.best is None:
        return [(say("map.untried"), "")]
    rows = [(say("map.attempts"), str(hall.attempts))]
    if hall.last_word is not None:
        rows.append((say("map.last"), say(f"map.word.{hall.last_word}")))
    if hall.best is not None:
        rows += [
            (say(f"map.figure.{name}") if name in _SHORT else say(f"metric.{name}"),
             metric_figure(name, value))
            for name, value in hall.best.figures
        ]  # fmt: skip
    won = [crown.word for crown in view.crowns if crown.won]
    if any(crown.won is not None for crown in view.crowns):
        rows.append((say("map.crowns"), " ".join(won) if won else "-"))
    if hall.scar is not None:
        rows.append((say("map.scar"), view.scar_words or say("map.scar.left")))
    elif hall.met and view.state != "passed":
        rows.append((say("map.scar"), say("map.scar.due")))
    if hall.debt:
        rows.append((say("map.debt_here"), f"{hall.debt:+d}"))
    return rows


_SHORT = (
    "decode_throughput_ratio",
    "tpot_ratio",
    "live_tokens",
    "kl",
    "throughput_ratio",
    "memory_use",
    "weight_share",
    "ttft_ratio",
    "average_bits",
    "probes_right",
)
"""Metrics with a name short enough for a column."""


def _deed(name: str, value: str) -> Content:
    return Content.assemble((name, "$mist"), (value, "$silver"))
