"""How a quantised matrix is kept, and how many bytes that takes.

Torch-free: the price counts with it what the model allocates. A matrix [N, K] (outputs, inputs) is
cut along K into groups of `group` weights that share a scale and, where the grid is asymmetric, a
zero: numbers rounded to bfloat16, and kept in the run's precision. With q a code of b bits, the
weight is

    symmetric    w = scale · (q - 2^(b-1))
    asymmetric   w = scale · (q - 2^(b-1)) + zero

`Form` says how the codes lie and which kernel multiplies by them. One function chooses it, for the
price and for the engine.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

Form = Literal["int8-row", "int4-group", "int8-dynamic", "packed"]
"""int8-row: torch's int8 product, a scale a row. int4-group: torch's int4 product. int8-dynamic:
int8 weights by int8 activations, a scale a row and a token. packed: codes side by side in bytes,
any width, decoded before the product."""

WIDTHS = (8, 4, 3, 2)
"""Bits a weight can be quantised to."""

ROW = -1
"""`weights.group`: one group for the whole row."""

BLOCKED = "int8-blocked"
"""Beside a machine's low-bit forms: where large int8 matrices lie in oneDNN's layout."""

WIDENED = "widened"
"""Beside them for a 16-bit precision that this processor multiplies in float32: dense products of
more than a few rows widen the weight, a piece at a time."""

ROW_MAJOR = "row-major"
"""Beside them where dense weights stay as they lie and a few rows are multiplied by them in C."""

FUSED = "fused"
"""Beside them where the packed form of whole panels and runs is compiled: no product decodes it for
itself."""

JOINED = "joined"
"""Beside them where a few rows take the halves of a layer around its attention in a call each, if
the matrices there are compiled."""

FUSED_FIRST = "fused-first"
"""Beside them where the fused product of packed codes is the fastest of 8 and 4 bits too."""

NATIVE = "native"
"""Beside them where what is done with a few rows alone (norms, rotation, gates, attention of one
row) runs in C."""

NATIVE_ROWS, NATIVE_HEADS, NATIVE_PAIRS = 16, 16, 32
"""Rows up to which it does; what must divide a head's width for attention, and for rotation."""

INT8_BLOCK = (64, 64)
INT8_BLOCKED_CODES = 1 << 20
INT8_SUM_BYTES = 4
"""Outputs and inputs by which that layout is filled, how many codes make it worth while, and what
it keeps beside each row."""

INT4_GROUPS = (32, 64, 128, 256)
INT4_ROWS = 32
"""Group sizes torch's int4 product knows, and what must divide N for it."""

FUSED_RUN, FUSED_PANEL = 32, 32
"""Weights of a row that share a scale come in whole runs of so many for the fused product, and
outputs in whole panels."""

WIDENED_ELEMENTS = 1 << 18
"""Weights of a matrix that is large enough to be widened."""


class Scheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`group` weights of a row share a scale, ROW all of them. `activations` 8: the product's other
    side is quantised too, each token by its own largest value."""

    bits: int
    group: int = ROW
    symmetric: bool = False
    activations: int = 16


def groups_of(scheme: Scheme, columns: int) -> int:
    """Groups in one row of `columns` weights.

    Raises:
        ValueError: the group does not divide the row; names the nearest that does.
    """
    if scheme.group == ROW:
        return 1
    if scheme.group < 1 or columns % scheme.group:
        raise ValueError(
            f"groups of {scheme.group} do not divide rows of {columns} weights; nearest: "
            f"{nearest_group(scheme.group, (columns,))}"
        )
    return columns // scheme.group


def nearest_group(wished: int, widths: Collection[int], least: int = 16) -> int:
    """The group size nearest to `wished` that divides every one of `widths`; at least `least`,
    where there is one."""
    shared = [size for size in range(1, min(widths) + 1) if not any(w % size for w in widths)]
    wide = [size for size in shared if size >= least] or shared
    return min(wide, key=lambda size: (abs(size - wished), size))


def choose_form(scheme: Scheme, rows: int, columns: int, forms: Collection[str]) -> Form:
    """The fastest form for a matrix [rows, columns] among those this machine has.

    `forms` as `Capabilities.low_bit_forms`; "packed" needs nothing and is always there.
    """
    whole = scheme.group == ROW or scheme.group == columns
    if FUSED_FIRST in forms and scheme.activations == 16 and fuses(scheme, rows, columns):
        return "packed"
    if scheme.bits == 8 and whole and scheme.symmetric:
        wanted: Form = "int8-dynamic" if scheme.activations == 8 else "int8-row"
        if wanted in forms:
            return wanted
    fits = scheme.group in INT4_GROUPS and columns % scheme.group == 0 and rows % INT4_ROWS == 0
    if scheme.bits == 4 and fits and "int4-group" in forms:
        return "int4-group"
    return "packed"


def fuses(scheme: Scheme, rows: int, columns: int) -> bool:
    """Whether a matrix [rows, columns] comes in whole panels and runs, as the fused product wants
    it."""
    group = columns if scheme.group == ROW else scheme.group
    return rows % FUSED_PANEL == 0 and group % FUSED_RUN == 0


def crosses(scheme: Scheme) -> bool:
    """Whether `weights.crossover` is about such a matrix: not where activations are quantised as
    well, which a dense product would leave whole."""
    return scheme.activations == 16


def lies_blocked(form: Form, rows: int, columns: int, forms: Collection[str]) -> bool:
    """Whether a matrix of int8 codes lies in oneDNN's layout, on a machine of these `forms`."""
    fills = not (rows % INT8_BLOCK[0] or columns % INT8_BLOCK[1])
    large = rows * columns >= INT8_BLOCKED_CODES
    return BLOCKED in forms and form in ("int8-row", "int8-dynamic") and fills and large


def matrix_bytes(
    scheme: Scheme, rows: int, columns: int, form: Form, size: int, blocked: bool = False
) -> int:
    """Codes, scales and zeros of one matrix; `size` are the run's bytes a number.

    torch's int4 product reads a zero for every scale, also where it is 0; the other forms keep
    zeros only where the grid is asymmetric. Codes of a row fill whole bytes. `blocked` int8 codes
    have their row sums beside them.

    Raises:
        ValueError: the group does not divide the row.
    """
    groups = groups_of(scheme, columns)
    codes = -(-columns * scheme.bits // 8)
    if blocked:
        codes += INT8_SUM_BYTES
    zeros = form == "int4-group" or not scheme.symmetric
    return rows * (codes + groups * size * (2 if zeros else 1))
