"""Profile names are foreign text: what may stand as one, and the file name it is given."""

from __future__ import annotations

import re
import secrets
import unicodedata

from rich.cells import cell_len

from engine.clean import clean
from saves.faults import ProfileNameError

LONGEST_CELLS = 24
SLUG_LENGTH = 24


def checked_name(text: str) -> str:
    """`text` as a name to store and show: one line, no control, at most 24 terminal cells wide.

    Raises:
        ProfileNameError: nothing visible is left, or it is too wide.
    """
    name = unicodedata.normalize("NFC", clean(text, one_line=True)).strip()
    if cell_len(name) == 0:
        raise ProfileNameError("a name needs at least one visible character")
    if cell_len(name) > LONGEST_CELLS or len(name) > 4 * LONGEST_CELLS:
        raise ProfileNameError(
            f"{clean(name, limit=40)!r} is {cell_len(name)} cells wide; a name has at most "
            f"{LONGEST_CELLS} (a Chinese character takes 2)"
        )
    return name


def same_name(left: str, right: str) -> bool:
    """True where two names cannot stand side by side: equal but for case or width."""
    return folded(left) == folded(right)


def folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def new_key(name: str) -> str:
    """A key no other profile ever had, safe as a file name on any system.

    Letters and digits of the name for whoever looks into the folder, then 8 random hex digits:
    "con" becomes `con-1f2e3d4c`, "旅人" becomes `traveller-…`.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:SLUG_LENGTH].strip("-")
    return f"{slug or 'traveller'}-{secrets.token_hex(4)}"


def is_key(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9-]{1,40}", text) is not None
