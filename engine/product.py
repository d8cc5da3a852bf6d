"""What a product by one matrix makes and calls, beside what a product by a dense one does.

Torch-free formulas, one beside each form of `kernels.linear`: bytes of temporary tensors, of which
only the largest moment counts, and operator calls, from counts made with a dispatch mode. Shapes:
`rows` T by a matrix of N outputs and K inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.precision import element_bytes
from engine.weight_format import FUSED_PANEL, FUSED_RUN, Form, Scheme, groups_of

PIECE = 1 << 18
"""Weights that are decoded at a time; the kernels' own figure."""

FEWEST_ROWS, FUSED_ROWS = 4, 32
"""Rows that a oneDNN product of fewer is filled up to; up to which the fused product runs where
dense ones are not widened."""

INT4_BLOCK = 64
"""Outputs of a block of torch's int4 layout; 32 where registers are narrower."""

WHOLE_ROWS, WHOLE_INPUTS = 8, 16
"""Rows up to which torch's own int8 product is the faster where codes lie in rows, and what must
divide K for it."""

_UNPACKED: Mapping[int, int] = {8: 8, 4: 16, 3: 13, 2: 32}
"""Codes of a run of 32 that are there as int32 at once: those of a word, and of the one before."""

_A_PIECE: Mapping[int, tuple[int, int]] = {8: (101, 103), 4: (57, 59), 3: (68, 70), 2: (35, 37)}
"""Calls to decode a piece, and to multiply by it as well."""

_A_LOOK_UP: Mapping[int, int] = {8: 104, 4: 60, 3: 71, 2: 38}
"""Calls to look rows up in packed codes."""

_A_COMPILED_PIECE = 4
"""Calls to make a piece dense by compiled functions, and to multiply by it."""

_FLOAT, _INT, _BFLOAT = 4, 4, 2

WIDENED_ROWS = 5
"""Rows up to which a 16-bit product runs as it is where more are widened."""

IN_C_ROWS: Mapping[str, int] = {"float32": 32, "bfloat16": 64, "float16": 64}
"""Rows up to which a dense product runs in C where it can."""

_A_WIDENED_WHOLE, _A_WIDENED, _A_WIDENED_PIECE, _IN_C = 9, 6, 6, 2
"""Calls of a widened product in one piece; of one in several, and of each of these; in C."""


@dataclass(frozen=True, slots=True)
class Dense:
    """One dense matrix [outputs, inputs]: up to `in_c` rows are multiplied in C; `widened` where
    many are in float32, though it is in 16 bits."""

    outputs: int
    inputs: int
    in_c: int = 0
    widened: bool = False

    def beside(self, rows: int) -> int:
        """As `Product.beside`."""
        if self._runs_in_c(rows):
            return rows * self.inputs * _FLOAT
        return self.making(rows) if self._widens(rows) else 0

    def making(self, rows: int) -> int:
        """Bytes of the widened rows, a widened piece and its product."""
        step = min(self._step, self.outputs)
        return (rows * self.inputs + step * self.inputs + rows * step) * _FLOAT

    def calls(self, rows: int) -> int:
        if self._runs_in_c(rows):
            return _IN_C
        return self.making_calls if self._widens(rows) else 1

    @property
    def making_calls(self) -> int:
        pieces = -(-self.outputs // self._step)
        return _A_WIDENED_WHOLE if pieces == 1 else _A_WIDENED + _A_WIDENED_PIECE * pieces

    @property
    def look_up_calls(self) -> int:
        return 1

    def _runs_in_c(self, rows: int) -> bool:
        return rows <= self.in_c

    def _widens(self, rows: int) -> bool:
        return self.widened and rows > WIDENED_ROWS

    @property
    def _step(self) -> int:
        return max(PIECE // self.inputs, 1)


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix [outputs, inputs] in one form. `crossover` is 0 where the matrix has none.

    `compiled` where packed codes are read by compiled functions, `blocked` where codes lie as
    oneDNN lays them, `widened` where dense products run in float32.
    """

    scheme: Scheme
    form: Form
    outputs: int
    inputs: int
    precision: str
    crossover: int
    compiled: bool
    blocked: bool
    widened: bool

    # Tensors

    def beside(self, rows: int) -> int:
        """Bytes at the worst moment of a product of `rows` rows, beside these and the result."""
        result = rows * self.outputs * self._size
        if self._dense(rows):
            dense = self.outputs * self.inputs * self._size
            made = Dense(self.outputs, self.inputs).making(rows) if self.widened else 0
            return dense + max(self._decoding() - result, made, 0)
        most, after = self._low_bit(rows)
        return max(most - result, after)

    def _decoding(self) -> int:
        """What is alive beside the dense matrix while it is made."""
        if self.compiled:
            return 0
        elements = self.outputs * self.inputs
        if self.form in ("int8-row", "int8-dynamic"):
            return elements if self.blocked else 0  # codes in the order of rows
        copied = elements * self._size if self.precision == "float16" else 0
        if self.form == "packed":
            return max(sum(self._piece()), copied)
        return max(self._int4_decoding(), copied)

    def _int4_decoding(self) -> int:
        """Values of a piece and halves of its bytes (both, and one on its way), beside the values
        of the piece before."""
        blocks = -(-self.outputs // INT4_BLOCK)
        first = min(self._int4_step, blocks)
        second = min(blocks - first, first)
        block = INT4_BLOCK * self.inputs
        made = block * self._size + 3 * block // 2
        return max(first * made, first * block * self._size + second * made if second else 0)

    def _low_bit(self, rows: int) -> tuple[int, int]:
        """Largest sum of tensors before the result is there, it included; beside it, after."""
        if self.form == "packed":
            return self._packed(rows)
        if self.form == "int4-group":
            return self._int4(rows)
        pieces = 1 if self.form == "int8-dynamic" else 3 if self._size == _FLOAT else 2
        if self.blocked:
            return self._int8(rows, pieces, max(rows * pieces, FEWEST_ROWS))
        return (0, 0) if self._whole(rows) else self._int8(rows, pieces, pieces * rows)

    def _packed(self, rows: int) -> tuple[int, int]:
        """A piece of the matrix is decoded, multiplied by and forgotten; or nothing is written but
        rows in float32 and their sums by runs."""
        rounded = rows * self.inputs * self._size if self.scheme.activations == 8 else 0
        if self._fuses(rows):
            scratch = rows * (self.inputs + self.inputs // FUSED_RUN) * _FLOAT
            return 0, rounded + scratch
        codes, values = self._piece()
        product = rows * min(self._step, self.outputs) * self._size
        if self.compiled:
            return 0, rounded + values + product
        return 0, rounded + values + max(codes, product)

    def _int4(self, rows: int) -> tuple[int, int]:
        """Rows, scales and zeros are cast where the run is not in bfloat16."""
        if self.precision == "bfloat16":
            return 0, 0
        product = rows * self.outputs * _BFLOAT
        steps = 2 * self.outputs * groups_of(self.scheme, self.inputs) * _BFLOAT
        return rows * self.inputs * _BFLOAT + steps + product, product

    def _int8(self, rows: int, pieces: int, multiplied: int) -> tuple[int, int]:
        """Rows are split in pieces of a byte, `multiplied` rows of them, and products joined."""
        narrow = self._size < _FLOAT
        parts = multiplied * self.inputs
        wide = rows * self.inputs * _FLOAT
        split = parts + wide * (1 + narrow + (pieces == 3))
        products = multiplied * self.outputs * _FLOAT
        joined = rows * self.outputs * _FLOAT
        scale = self.outputs * _FLOAT if narrow and self.blocked else 0
        converted = 0 if self.blocked else products  # whole numbers become float32
        together = products + max(scale, converted, joined * (1 + (pieces > 1)))
        return max(split, parts + together), joined if narrow else 0

    def _piece(self) -> tuple[int, int]:
        """Bytes of a piece's codes while they are unpacked, and of its values."""
        piece = min(self._step, self.outputs) * self.inputs
        return piece * _UNPACKED[self.scheme.bits] // 32 * _INT, piece * self._size

    # Calls

    def calls(self, rows: int) -> int:
        """Of a product of `rows` rows."""
        dense = self._dense(rows)
        if dense and self.widened:
            return self._calls(rows, dense) - 1 + Dense(self.outputs, self.inputs).making_calls
        return self._calls(rows, dense)

    def _calls(self, rows: int, dense: bool) -> int:
        if self.form == "packed":
            return self._packed_calls(rows)
        if self.form == "int4-group":
            return 6 + 27 * self._int4_pieces if dense else 4
        if dense:
            return 8 if self.blocked else 4
        if self._whole(rows):
            return 2
        pieces = 0 if self.form == "int8-dynamic" else 3 if self._size == _FLOAT else 1
        return (20 if self.blocked else 22) + pieces

    def _packed_calls(self, rows: int) -> int:
        decode, multiply = _A_PIECE[self.scheme.bits]
        pieces = -(-self.outputs // self._step)
        if self._dense(rows):
            return 2 if self.compiled else 3 + decode * pieces
        rounded = 10 if self.scheme.activations == 8 else 0
        if self._fuses(rows):
            return rounded + 2
        if self.compiled:
            return rounded + 1 + _A_COMPILED_PIECE * pieces
        return rounded + 1 + multiply * pieces

    @property
    def look_up_calls(self) -> int:
        """To look rows up."""
        if self.compiled:
            return 1
        if self.form == "packed":
            return _A_LOOK_UP[self.scheme.bits]
        if self.form == "int4-group":
            return 28
        return 10 if self.blocked else 6

    @property
    def _int4_pieces(self) -> int:
        return -(-self.outputs // (INT4_BLOCK * self._int4_step))

    @property
    def _int4_step(self) -> int:
        """Blocks of outputs that are decoded at a time."""
        return max(PIECE // (INT4_BLOCK * self.inputs), 1)

    # Shapes

    def _dense(self, rows: int) -> bool:
        return 0 < self.crossover < rows

    def _fuses(self, rows: int) -> bool:
        return self.compiled and (rows <= FUSED_ROWS or self.widened)

    def _whole(self, rows: int) -> bool:
        """Whether torch's weight-only int8 product runs, which takes activations as they are."""
        fits = rows <= WHOLE_ROWS and self.inputs % WHOLE_INPUTS == 0
        return self.form == "int8-row" and fits and not self.blocked

    @property
    def _size(self) -> int:
        return element_bytes(self.precision)

    @property
    def _step(self) -> int:
        """Outputs of a piece of packed codes."""
        if self.compiled:
            return max(PIECE // self.inputs // FUSED_PANEL, 1) * FUSED_PANEL
        return max(16, PIECE // self.inputs // 16 * 16)
