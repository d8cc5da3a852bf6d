"""Numbers as they are read: three figures, the right prefix, the unit apart."""

from __future__ import annotations

from math import floor, isfinite, log10

_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SIZE = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_COUNT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain_number(value: float, digits: int = 3) -> str:
    """`digits` significant figures, no exponent, no needless zeros: 0.048, 1.6, 34, 1,024."""
    if not isfinite(value):
        return "inf" if value > 0 else "-inf" if value < 0 else "?"
    if value == 0:
        return "0"
    places = digits - 1 - floor(log10(abs(value)))
    rounded = round(value, places)
    text = f"{rounded:,.{max(min(places, 15), 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def times(value: float) -> str:
    """A ratio: two figures after rounding are all a guess or a bound needs."""
    return plain_number(value, 3 if value >= 100 else 2)


def duration(seconds: float) -> str:
    return _scaled(seconds, _TIME, "s")


def size(count: float) -> str:
    """Bytes, in powers of a thousand."""
    return _scaled(count, _SIZE, "B")


def operations(count: float) -> str:
    return _scaled(count, _COUNT, "")


def share(value: float) -> str:
    """0.713 -> 71 %; what is below one per cent keeps a figure."""
    return f"{plain_number(value * 100, 2 if value < 0.995 else 3)} %"


def _scaled(value: float, scale: tuple[tuple[float, str], ...], bare: str) -> str:
    for factor, unit in scale:
        # 0.9995 rounds up into the next prefix.
        if abs(value) >= factor * 0.9995:
            return f"{plain_number(value / factor)} {unit}".rstrip()
    smallest, unit = scale[-1]
    if smallest < 1 and value:
        return f"{plain_number(value / smallest)} {unit}"
    return f"{plain_number(value)} {bare}".rstrip()
