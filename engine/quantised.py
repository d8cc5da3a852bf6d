"""How a build's weights were quantised, as a trial tells it. Torch-free values."""

from __future__ import annotations

import msgspec


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Histogram(_Value, frozen=True):
    """How the weights of one matrix lie: counts over equal steps from `low` to `high`, before they
    were quantised and after."""

    layer: int
    name: str
    low: float
    high: float
    before: tuple[int, ...]
    after: tuple[int, ...]


class LayerError(_Value, frozen=True):
    """`error` is ‖(W - Ŵ) X‖ / ‖W X‖ over calibration rows X, or ‖W - Ŵ‖ / ‖W‖ where no activations
    were looked at; `name` is qkv, o, gate_up or down."""

    layer: int
    name: str
    error: float


class Notice(_Value, frozen=True):
    """Something the player should know of a build that runs; `code` names interface text.

    Codes: calibration_short, method_changed_little, not_monotone, slow_form.
    """

    code: str
    details: dict[str, str] = {}


class Quantised(_Value, frozen=True):
    """How the build's weights were made. `seconds` is 0 where they came from disk (`cached`).

    `bits` is the knob's, 0 where only some kinds were quantised. `changed_layers` of `layers` were
    changed by the method beyond rounding to nearest.
    """

    method: str
    bits: int
    average_bits: float
    seconds: float
    cached: bool
    calibration_tokens: int
    changed_layers: int
    layers: int
    errors: tuple[LayerError, ...] = ()
    histogram: Histogram | None = None
    notices: tuple[Notice, ...] = ()
