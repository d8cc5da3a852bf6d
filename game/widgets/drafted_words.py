"""An answer as it was drafted: what stood as it is, what fell in [ ], the model's own words in < >.

The text is a model's own: it is cleaned, wrapped by cells, and never read as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len

from engine.clean import clean
from engine.draft_report import DraftedText, Fate, Piece
from game.widgets.cells import graphemes, wrap
from game.widgets.ink import Ink, Line, Run, plain

Say = Callable[..., str]
KINDS = ("story", "code", "list")
MARKS: Mapping[Fate, tuple[str, str, Ink]] = {
    "accepted": ("", "", "silver"),
    "rejected": ("[", "]", "danger"),
    "corrected": ("<", ">", "bronze"),
    "added": ("<", ">", "bronze"),
    "plain": ("<", ">", "dim"),
}
"""Fate -> what stands before and after, ink. Words for which nothing was drafted are the model's
own too: without brackets they would pass for accepted wherever colours are not seen."""
_CUT = " ..."
_MOST_NAME, _MOST_PIECE, _MOST_PIECES = 24, 400, 400  # characters, characters, pieces


def text_head(say: Say, text: DraftedText) -> str:
    """The kind of text, and how much of what was drafted for it stood."""
    kind = clean(text.kind, _MOST_NAME, one_line=True)
    if kind in KINDS:
        kind = say(f"detail.draft.kind.{kind}")
    return say("detail.draft.text", kind=kind, accepted=text.accepted, drafted=text.drafted)


def draw_words(pieces: Sequence[Piece], width: int, rows: int | None = None) -> list[Line]:
    """Lines of at most `width` cells, at most `rows` of them: what is cut ends in "..."."""
    lines = _wrapped(marked(pieces), max(width, 2))
    if rows is None or len(lines) <= rows:
        return lines
    if rows < 1:
        return []
    last = _head(lines[rows - 1], width - len(_CUT))
    return [*lines[: rows - 1], (*last, Run(_CUT, "dim"))]


def marked(pieces: Sequence[Piece]) -> Line:
    """Each piece in its marks and ink, ends of lines as blanks; blanks at its ends stay outside the
    marks, and blanks alone have marks only where they fell."""
    runs: list[Run] = []
    for piece in pieces[:_MOST_PIECES]:
        text = clean(piece.text, _MOST_PIECE)
        before, after, ink = MARKS[piece.fate]
        words = " ".join(text.split())
        said = " "
        if words:
            lead, tail = (" " if text[at].isspace() else "" for at in (0, -1))
            said = f"{lead}{before}{words}{after}{tail}"
        elif piece.fate == "rejected":
            said = f"{before} {after}"
        if text and runs and runs[-1].text.endswith(" "):
            said = said.lstrip()
        if text and said:
            runs.append(Run(said, ink))
    return tuple(runs)


def _wrapped(runs: Line, width: int) -> list[Line]:
    """The runs as one text on lines of `width` cells, each sign in its own ink."""
    whole = plain(runs)
    inks: list[Ink] = [run.ink for run in runs for _ in run.text]
    lines: list[Line] = []
    place = 0
    for line in wrap(whole, width):
        found: list[Run] = []
        for sign in line:
            place = whole.index(sign, place)  # wrapping drops the blanks it breaks at
            if found and found[-1].ink == inks[place]:
                found[-1] = Run(found[-1].text + sign, inks[place])
            else:
                found.append(Run(sign, inks[place]))
            place += 1
        lines.append(tuple(found))
    return lines


def _head(line: Line, width: int) -> Line:
    """The beginning of a line that fits in `width` cells."""
    kept: list[Run] = []
    for run in line:
        text = ""
        for sign in graphemes(run.text):
            if cell_len(text + sign) > width:
                break
            text += sign
        kept.append(Run(text, run.ink))
        width -= cell_len(text)
        if text != run.text:
            break
    return tuple(kept)
