"""Foreign text made safe to store and to show: model output, names, file names, log lines."""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]",
    re.DOTALL,
)
_KEPT = {"\n", "\t"}
_INVISIBLE = {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"}
_DIRECTION = set("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str, limit: int | None = None, one_line: bool = False) -> str:
    """`text` without control bytes, escape sequences, or marks that reorder what is read.

    Newlines and tabs stay unless `one_line`, which folds white space to single spaces.
    `limit` counts characters; a longer text ends in an ellipsis.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    kept = (
        char
        for char in text
        if char in _KEPT
        or (char not in _DIRECTION and unicodedata.category(char) not in _INVISIBLE)
    )
    text = "".join(kept)
    if one_line:
        text = " ".join(text.split())
    if limit is not None and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…"
    return text
