"""The grid a quantised weight lies on: codes, a scale a group, and a zero where it is asymmetric.

    symmetric    w = scale · (q - 2^(b-1))             q in 0 ... 2^b - 1
    asymmetric   w = scale · (q - 2^(b-1)) + zero

Scales and zeros are rounded to bfloat16 *before* codes are chosen, so that the codes make up for
the rounding. Scales are rounded up and zeros to nearest, and the scale is then widened until the
grid reaches every weight of its group: no weight is ever further than half a step from its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.weight_format import WIDTHS, Scheme, groups_of

SLAB = 1 << 18
"""Weights worked on at a time."""


@dataclass(frozen=True)
class GridWeight:
    """A matrix [N, K] (outputs, inputs) in codes; G groups along K.

    `codes` uint8 [N, K]; `scale` float32 [N, G] and `zero` likewise (None: symmetric), both
    holding values that bfloat16 represents exactly.

    Raises:
        ValueError: shapes, types or the presence of zeros do not follow from the scheme.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    scheme: Scheme

    def __post_init__(self) -> None:
        if self.codes.dim() != 2 or self.codes.dtype != torch.uint8:
            raise ValueError(
                f"codes are uint8 [N, K], not {self.codes.dtype} {list(self.codes.shape)}"
            )
        rows, columns = self.codes.shape
        _check_steps(self.scale, self.zero, self.scheme, rows, columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.codes.shape[0], self.codes.shape[1]

    def dequantise(self) -> Tensor:
        """The weights that the codes stand for: float32 [N, K]."""
        rows, columns = self.shape
        groups = self.scale.shape[1]
        weight = self.codes.to(torch.float32).view(rows, groups, -1)  # [N, G, group]
        weight.sub_(middle(self.scheme)).mul_(self.scale[..., None])
        if self.zero is not None:
            weight.add_(self.zero[..., None])
        return weight.view(rows, columns)


def middle(scheme: Scheme) -> int:
    """The code of the value 0 (symmetric) or of `zero`: 2^(b-1)."""
    return 1 << (scheme.bits - 1)


def fit_grid(
    weight: Tensor, scheme: Scheme, name: str = "the matrix"
) -> tuple[Tensor, Tensor | None]:
    """The narrowest grid that reaches every weight: (scale, zero), float32 [N, G] or None.

    Symmetric: the step of whichever side needs the longer one, 2^(b-1) - 1 codes up and 2^(b-1)
    down. Asymmetric: from the smallest weight of the group to the largest. A group of equal
    weights is kept as its zero; a group of zeros has scale 0.

    Raises:
        ValueError: an unknown width, a group that does not divide the row, or a weight that is not
            finite or too large to step over (names `name` and the place).
    """
    groups = _groups(weight, scheme, name)
    ends = [torch.aminmax(slab, dim=-1) for _, slab in _slabs(weight, groups, name)]  # [rows, G]
    low, high = torch.cat([end.min for end in ends]), torch.cat([end.max for end in ends])
    return grid_between(low, high, scheme, name)


def grid_between(
    low: Tensor, high: Tensor, scheme: Scheme, name: str = "the matrix"
) -> tuple[Tensor, Tensor | None]:
    """The narrowest grid from `low` to `high` (float32 of one shape, as scale and zero are given;
    [N, G] for a whole matrix; low <= high).

    A method that clips outliers asks for a narrower range than the weights have.

    Raises:
        ValueError: the range is too wide for a finite scale.
    """
    half = middle(scheme)
    zero = None
    if not scheme.symmetric:
        step = (high - low) / (2 * half - 1)
        zero = (low + half * step).to(torch.bfloat16).to(torch.float32)
        low, high = low - zero, high - zero
    needed = torch.maximum(high / (half - 1), -low / half)
    scale = _bfloat16_above(needed.clamp_min(0.0))
    finite = torch.isfinite(scale)
    if zero is not None:
        finite &= torch.isfinite(zero)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0, 0])
        raise ValueError(
            f"{name} holds weights too large to quantise in row {row}: their range passes that of "
            "bfloat16"
        )
    return scale, zero


def round_to(weight: Tensor, scale: Tensor, zero: Tensor | None, scheme: Scheme) -> GridWeight:
    """Every weight to the nearest code of its group's grid; outside the grid, to its end.

    `weight` [N, K]; `scale` and `zero` [N, G], as `fit_grid` gives them, or any others that
    bfloat16 holds.

    Raises:
        ValueError: as `fit_grid`, or `scale` and `zero` do not belong to weight and scheme.
    """
    groups = _groups(weight, scheme, "the matrix")
    rows, columns = weight.shape
    _check_steps(scale, zero, scheme, rows, columns)
    codes = torch.empty(rows, columns, dtype=torch.uint8)
    for part, slab in _slabs(weight, groups, "the matrix"):
        offset = None if zero is None else zero[part, :, None]
        nearest = nearest_codes(slab, scale[part, :, None], offset, scheme)
        codes[part] = nearest.view(-1, columns)
    return GridWeight(codes, scale, zero, scheme)


def nearest_codes(weight: Tensor, scale: Tensor, zero: Tensor | None, scheme: Scheme) -> Tensor:
    """The nearest codes as float32 whole numbers; all arguments broadcast to one shape.

    Where the scale is 0 every code stands for the same value, and the middle one is taken.
    """
    offset = weight if zero is None else weight - zero
    half = middle(scheme)
    steps = torch.where(scale > 0, offset / scale, 0.0)
    return steps.round_().add_(half).clamp_(0, 2 * half - 1)


def _groups(weight: Tensor, scheme: Scheme, name: str) -> int:
    """Groups in a row. Raises ValueError for a width or a shape that there is no grid for."""
    if scheme.bits not in WIDTHS:
        raise ValueError(f"no grid has {scheme.bits} bits; legal: {', '.join(map(str, WIDTHS))}")
    if weight.dim() != 2 or not weight.numel():
        raise ValueError(f"{name} is a matrix [N, K], not {list(weight.shape)}")
    return groups_of(scheme, weight.shape[1])


def _slabs(weight: Tensor, groups: int, name: str) -> Iterator[tuple[slice, Tensor]]:
    """Some rows of [N, K] at a time as [rows, G, group] float32, so that what is made of them stays
    in the processor's cache. Raises ValueError for a weight that is not finite."""
    rows, columns = weight.shape
    height = max(SLAB // columns, 1)
    for start in range(0, rows, height):
        part = slice(start, min(start + height, rows))
        slab = weight[part].to(torch.float32)
        if not bool(torch.isfinite(slab.sum())):  # a sum may overflow where no weight does
            _check_finite(weight, name)
        yield part, slab.reshape(slab.shape[0], groups, -1)


def _check_finite(weight: Tensor, name: str) -> None:
    finite = torch.isfinite(weight)
    if not bool(finite.all()):
        row, column = (~finite).nonzero()[0].tolist()
        raise ValueError(
            f"{name} holds {float(weight[row, column])} in row {row}, column {column}; "
            "only finite weights can be quantised"
        )


def _check_steps(
    scale: Tensor, zero: Tensor | None, scheme: Scheme, rows: int, columns: int
) -> None:
    shape = (rows, groups_of(scheme, columns))
    if (zero is None) != scheme.symmetric:
        kind = "a symmetric grid has no zeros" if scheme.symmetric else "zeros are missing"
        raise ValueError(f"{kind} (scheme: {scheme})")
    for what, tensor in (("scales", scale), ("zeros", zero)):
        if tensor is not None and (tensor.shape != shape or tensor.dtype != torch.float32):
            raise ValueError(
                f"{what} are float32 {list(shape)}, not {tensor.dtype} {list(tensor.shape)}"
            )


def _bfloat16_above(value: Tensor) -> Tensor:
    """The smallest number of bfloat16 that is not below each of `value` (float32, not negative).

    bfloat16 is the upper half of a float32: adding all ones to the lower half carries wherever
    that is not zero already.
    """
    bits = value.contiguous().view(torch.int32)
    return ((bits + 0xFFFF) & -0x10000).view(torch.float32)
