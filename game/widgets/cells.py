"""Text measured in terminal cells: a Chinese character takes two, a combining mark none."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

from rich.cells import cell_len

_JOINER = "\u200d"
# Signs that may not begin a line (closing marks) or end one (opening marks).
_NOT_FIRST = set("，。、；：？！）》」』】〉”’…—·%,.;:?!)]}")
_NOT_LAST = set("（《「『【〈“‘([{")


def graphemes(text: str) -> list[str]:
    """`text` cut where a cursor may stand: marks and joined signs stay with their base."""
    found: list[str] = []
    for sign in text:
        attached = unicodedata.category(sign) in ("Mn", "Me", "Cf") or (
            bool(found) and found[-1].endswith(_JOINER)
        )
        if attached and found:
            found[-1] += sign
        else:
            found.append(sign)
    return found


def clip(text: str, width: int) -> str:
    """The beginning of `text` that fits in `width` cells; what is cut ends in "..."."""
    if cell_len(text) <= width:
        return text
    mark = "..."[: max(width, 0)]
    kept, used = "", 0
    for sign in graphemes(text):
        used += cell_len(sign)
        if used > width - len(mark):
            break
        kept += sign
    return kept + mark


def pad(text: str, width: int) -> str:
    """`text` in exactly `width` cells, from the left."""
    text = clip(text, width)
    return text + " " * (width - cell_len(text))


def pad_left(text: str, width: int) -> str:
    """`text` in exactly `width` cells, against the right edge."""
    text = clip(text, width)
    return " " * (width - cell_len(text)) + text


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells. Latin breaks at spaces, Chinese between characters.

    A closing mark is carried with the character before it, an opening one with the one after.
    """
    if width < 2:
        raise ValueError(f"text cannot be wrapped to {width} cells; at least 2 are needed")
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines.extend(_wrap_paragraph(paragraph, width))
    return lines


def _wrap_paragraph(text: str, width: int) -> list[str]:
    lines: list[str] = []
    line = ""
    for piece in _pieces(text):
        if cell_len(line + piece.rstrip()) <= width:
            line += piece
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = piece.lstrip() if lines else piece
        while cell_len(line.rstrip()) > width:
            head = _head(line, width)
            lines.append(head)
            line = line[len(head) :]
    lines.append(line.rstrip())
    return lines


def _head(text: str, width: int) -> str:
    kept = ""
    for sign in graphemes(text):
        if kept and cell_len(kept + sign) > width:
            break
        kept += sign
    return kept


def _pieces(text: str) -> list[str]:
    """The unbreakable pieces, each with the spaces that follow it."""
    signs = graphemes(text)
    if not signs:
        return []
    pieces = [signs[0]]
    for before, after in pairwise(signs):
        if _may_break(before, after):
            pieces.append(after)
        else:
            pieces[-1] += after
    return pieces


def _may_break(before: str, after: str) -> bool:
    if after == " " or after[0] in _NOT_FIRST or before[0] in _NOT_LAST:
        return False
    if before == " ":
        return True
    return cell_len(before) == 2 or cell_len(after) == 2
