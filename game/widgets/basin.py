"""The vessel on the screen, its account beside it; the water eases to where it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.cells import cell_len
from textual.timer import Timer

from game.widgets.cells import clip, pad
from game.widgets.dial import eased
from game.widgets.drawn import Drawn
from game.widgets.ink import Ink, Line, Run, cells
from game.widgets.pendulum import Pace
from game.widgets.water import GUTTER, Waters, WaterWords, draw_water

FRAMES = 16
_FRAME_SECONDS = 1 / 15
_LEAST_VESSEL, _MOST_TABLE = GUTTER + 16, 44
_GAP = 2


@dataclass(frozen=True)
class Entry:
    """A line of the account: a name and its figure. Where lines lack, those of the highest `rank`
    go first; a heading has no figure."""

    name: str
    figure: str = ""
    ink: Ink = "text"
    rank: int = 0


def draw_account(entries: Sequence[Entry], width: int, rows: int) -> list[Line]:
    """At most `rows` lines of `width` cells: names on the left, figures in a column beside."""
    kept = list(entries)
    while len(kept) > max(rows, 1):
        kept.remove(max(reversed(kept), key=lambda entry: entry.rank))
    figures = max((cell_len(entry.figure) for entry in kept), default=0)
    lines: list[Line] = []
    for entry in kept:
        if not entry.figure:
            lines.append((Run(pad(entry.name, width), entry.ink),))
            continue
        name = max(width - figures - 1, 4)
        figure = " " * (figures - cell_len(entry.figure)) + entry.figure
        lines.append((Run(pad(entry.name, name) + " ", "dim"), Run(clip(figure, width), entry.ink)))
    return lines


def widest(entries: Sequence[Entry]) -> int:
    """Cells that the account needs so that nothing of it is cut."""
    figures = max((cell_len(entry.figure) for entry in entries), default=0)
    names = max((cell_len(entry.name) for entry in entries if entry.figure), default=0)
    heads = max((cell_len(entry.name) for entry in entries if not entry.figure), default=0)
    return max(names + figures + 2, heads)


class Basin(Drawn):
    """Shows the waters it was given. In free pace they rise from where they stood."""

    DEFAULT_CSS: ClassVar[str] = "Basin { height: 1fr; width: 1fr; padding: 0 2; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.waters: Waters | None = None
        self.entries: Sequence[Entry] = ()
        self.words = WaterWords("", "")
        self.silence = ""
        self._before: Waters | None = None
        self._frame = FRAMES
        self._timer: Timer | None = None

    def show(self, waters: Waters, entries: Sequence[Entry], words: WaterWords, pace: Pace) -> None:
        """The account of the moment. While something is timed nothing eases: it steps."""
        moving = pace == "free" and waters != self.waters
        if moving:
            self._before = self.shown or replace(waters, held=0.0, empty=0.0, asked=0.0)
            self._frame = 0
        elif pace != "free":
            self._frame = FRAMES
        self.waters, self.entries, self.words, self.silence = waters, entries, words, ""
        if moving and self._timer is None and self.is_attached:
            self._timer = self.set_interval(_FRAME_SECONDS, self.tick)
        self.refresh()

    def say_nothing(self, words: str) -> None:
        """There is no account yet, and why."""
        self.waters, self.silence = None, words
        self.refresh()

    def tick(self) -> None:
        self._frame = min(self._frame + 1, FRAMES)
        if self._frame == FRAMES and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.refresh()

    @property
    def shown(self) -> Waters | None:
        """The waters of this frame; at rest, the account itself."""
        now, before = self.waters, self._before
        if now is None or before is None or self._frame >= FRAMES:
            return now
        share = eased(self._frame / FRAMES)

        def between(old: float, new: float) -> float:
            return old + (new - old) * share

        return replace(
            now,
            held=between(before.held, now.held),
            working=between(before.working, now.working),
            empty=between(before.empty, now.empty),
            asked=between(before.asked, now.asked),
        )

    def draw(self, columns: int, rows: int) -> list[Line]:
        waters = self.shown
        if waters is None:
            return [(), (Run(clip(self.silence, columns), "dim"),)]
        table = min(widest(self.entries), _MOST_TABLE, max(columns - _LEAST_VESSEL - _GAP, 0))
        picture = draw_water(waters, columns - table - _GAP, rows, self.words, self.plain_glyphs)
        account = draw_account(self.entries, table, rows - 1) if table > 8 else []
        # The account stands level with the rim, where the eye compares.
        first = max((rows - len(account)) // 2, 0)
        lines: list[Line] = []
        for number, line in enumerate(picture):
            beside = number - first
            if 0 <= beside < len(account):
                gap = columns - table - cells(line)
                lines.append((*line, Run(" " * gap, "faint"), *account[beside]))
            else:
                lines.append(line)
        return lines
