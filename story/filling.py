"""`{name}` in a text, replaced by a value. Names only: no attribute, index or call is reachable.

`{name}` shows a number to three significant digits; `{name:.1f}`, `{name:,}`, `{name:.0%}` say
how. `{{` and `}}` are braces. Anything else in braces is not a placeholder and stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.clean import clean

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[a-z_][a-z0-9_]*)(?::(?P<form>,?(?:\.\d)?[fge%d]?))?\}")
_MARKUP = re.compile(r"\{[^{}]*\}?|\}")


def placeholders(text: str) -> tuple[str, ...]:
    """The names `text` quotes, each once, in the order they first appear."""
    return tuple(dict.fromkeys(m["name"] for m in _TOKEN.finditer(text) if m["name"]))


def bad_braces(text: str) -> tuple[str, ...]:
    """What stands in braces and is no placeholder: `{a.b}`, `{0}`, an unclosed brace."""
    return tuple(match.group() for match in _MARKUP.finditer(_TOKEN.sub("", text)))


def fill(text: str, values: Mapping[str, object]) -> str:
    """`text` with its placeholders replaced; one whose value is absent stays visible."""
    if "{" not in text and "}" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match.group()[0]
        if name not in values:
            return match.group()
        return show(values[name], match["form"] or "")

    return _TOKEN.sub(replace, text)


def show(value: object, form: str = "") -> str:
    """A value as the player reads it; foreign text is cleaned."""
    if isinstance(value, float | int) and not isinstance(value, bool):
        return _number(value, form)
    text = str(value)
    return text if text.isascii() and text.isprintable() else clean(text)


def _number(value: float, form: str) -> str:
    if form:
        try:
            return format(round(value) if form.endswith("d") else value, form)
        except (ValueError, OverflowError):
            return str(value)
    if isinstance(value, int):
        return str(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.1e}"
