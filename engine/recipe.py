"""Which matrix is quantised how: the knobs of `weights`, spelled out for one model.

Torch-free: the forge prices it, the quantiser follows it, the cache of quantised weights is named
by its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import msgspec

from engine.config import EngineConfig, WeightsConfig
from engine.model.config import ModelConfig
from engine.precision import element_bytes
from engine.weight_format import (
    FUSED,
    FUSED_RUN,
    INT4_GROUPS,
    ROW,
    ROW_MAJOR,
    WIDENED,
    WIDENED_ELEMENTS,
    Form,
    Scheme,
    choose_form,
    fuses,
    lies_blocked,
    matrix_bytes,
    nearest_group,
)

VERSION = 1
"""Of what the methods do: a change that gives other codes for the same recipe raises it."""

FULL = 16
"""A kind's bits that keep it in the run's precision; 0 follows `weights.bits`."""

EMBEDDING_BITS = 8
"""Of the token embedding and the output head where nothing else is said: they are a fifth of the
model, and every word passes through them."""


class LayerRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """q, k, v, o are `attention`; gate, up, down `mlp`. None keeps them in the run's precision."""

    attention: Scheme | None = None
    mlp: Scheme | None = None


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`embedding` is the table and, where it is tied to it or not, the output head.

    `method` shapes the layers' matrices; embedding and head are always rounded to nearest.
    `calibration` tokens are read by the methods that look at activations, 0 by those that do not.
    """

    method: str
    calibration: int
    layers: tuple[LayerRecipe, ...]
    embedding: Scheme | None = None
    version: int = VERSION

    @property
    def quantises(self) -> bool:
        """Whether any matrix is kept in fewer bits."""
        return self.embedding is not None or any(
            layer.attention or layer.mlp for layer in self.layers
        )

    @property
    def schemes(self) -> frozenset[Scheme]:
        """Every scheme of the layers, each once."""
        both = (scheme for one in self.layers for scheme in (one.attention, one.mlp))
        return frozenset(scheme for scheme in both if scheme is not None)

    def digest(self, model_digest: str, precision: str) -> str:
        """Names the quantised weights: SHA-256 over model, recipe and the run's precision."""
        told = msgspec.json.encode([model_digest, precision, self])
        return hashlib.sha256(told).hexdigest()


CALIBRATED = frozenset({"gptq", "awq", "smoothquant", "qat"})
"""Methods that look at activations."""


AUTO_GROUPS = {8: ROW, 4: 64, 3: 32, 2: 32}
"""`weights.group` 0: what the kernels of a width like, or as near as the model's shape lets it be.
Eight bits with a row a group are symmetric, as their kernel wants them."""


def recipe_of(weights: WeightsConfig, model: ModelConfig) -> Recipe:
    """The recipe that the knobs of `weights` ask for, group sizes chosen where they are left to us.

    It may still be one that cannot be: `engine.legality` checks groups against the model.
    """
    middle = LayerRecipe(
        _scheme(weights, weights.attention, model), _scheme(weights, weights.mlp, model)
    )
    layers = [middle] * model.layers
    if weights.edges:
        edge = _scheme(weights, weights.edges, model)
        for index in range(min(weights.edge_layers, model.layers)):
            layers[index] = layers[-1 - index] = LayerRecipe(edge, edge)
    return Recipe(
        method=weights.method,
        calibration=weights.calibration if weights.method in CALIBRATED else 0,
        layers=tuple(layers),
        embedding=_embedding(weights, model),
    )


def inner_widths(model: ModelConfig) -> tuple[int, ...]:
    """The lengths of rows that groups must divide: of qkv, gate and up; of o; of down."""
    return tuple(sorted({model.hidden, model.query_width, model.intermediate}))


def _scheme(weights: WeightsConfig, own: int, model: ModelConfig) -> Scheme | None:
    """The scheme of layers' matrices whose own knob says `own`."""
    bits = own or weights.bits
    if bits in (0, FULL):
        return None
    if bits == 8 and weights.method == "smoothquant":
        return Scheme(8, ROW, symmetric=True, activations=8)
    return _grid(weights, bits, inner_widths(model))


def _embedding(weights: WeightsConfig, model: ModelConfig) -> Scheme | None:
    """Nothing quantises the embedding's activations."""
    bits = weights.embedding or (EMBEDDING_BITS if weights.bits else FULL)
    return None if bits == FULL else _grid(weights, bits, (model.hidden,), embedding=True)


def _grid(
    weights: WeightsConfig,
    bits: int,
    widths: tuple[int, ...],
    embedding: bool = False,
) -> Scheme:
    """`weights.group` is for widths below 8, and in the layers for 8 where `weights.bits` is 8."""
    symmetric = weights.symmetric == "on"
    if weights.group and (bits < 8 or (weights.bits == 8 and not embedding)):
        return Scheme(bits, weights.group, symmetric)
    if AUTO_GROUPS[bits] == ROW:
        return Scheme(bits, ROW, True)
    group = nearest_group(AUTO_GROUPS[bits], widths)
    fast = [size for size in INT4_GROUPS if not any(width % size for width in widths)]
    if bits == 4 and fast:
        group = min(fast, key=lambda size: (abs(size - AUTO_GROUPS[bits]), size))
    return Scheme(bits, group, symmetric)


@dataclass(frozen=True)
class Matrix:
    """One matrix as the engine multiplies by it: q, k, v stacked, and gate and up.

    `layer` is None for the embedding and the head. `rows` are outputs, `columns` inputs.
    """

    name: str
    layer: int | None
    rows: int
    columns: int
    scheme: Scheme | None

    @property
    def elements(self) -> int:
        return self.rows * self.columns

    def form(self, forms: Collection[str]) -> Form | None:
        """None where it is kept in the run's precision."""
        if self.scheme is None:
            return None
        return choose_form(self.scheme, self.rows, self.columns, forms)

    def is_compiled(self, forms: Collection[str]) -> bool:
        """Whether its packed codes are multiplied by as they lie, by compiled functions."""
        if self.scheme is None or FUSED not in forms or self.form(forms) != "packed":
            return False
        return fuses(self.scheme, self.rows, self.columns)

    def is_widened(self, forms: Collection[str]) -> bool:
        """Whether its dense product is: on a processor that widens, of large matrices."""
        return WIDENED in forms and self.elements >= WIDENED_ELEMENTS

    def takes_rows_in_c(self, forms: Collection[str]) -> bool:
        """Whether a few rows are multiplied in C, as they are."""
        if self.scheme is not None:
            return self.scheme.activations == 16 and self.is_compiled(forms)
        return ROW_MAJOR in forms and self.columns % FUSED_RUN == 0

    def nbytes(self, size: int, forms: Collection[str]) -> int:
        """`size` are the run's bytes a number."""
        form = self.form(forms)
        if self.scheme is None or form is None:
            return self.elements * size
        blocked = lies_blocked(form, self.rows, self.columns, forms)
        return matrix_bytes(self.scheme, self.rows, self.columns, form, size, blocked)


def matrices(recipe: Recipe, model: ModelConfig) -> Iterator[Matrix]:
    """Every matrix of the layers in the order of the network, then the embedding (and an untied
    head). A tied and quantised head is the embedding itself, kept once."""
    hidden, inner = model.hidden, model.intermediate
    qkv = model.query_width + 2 * model.kv_width
    for index, layer in enumerate(recipe.layers):
        for name, rows, columns, scheme in (
            ("qkv", qkv, hidden, layer.attention),
            ("o", hidden, model.query_width, layer.attention),
            ("gate_up", 2 * inner, hidden, layer.mlp),
            ("down", hidden, inner, layer.mlp),
        ):
            yield Matrix(name, index, rows, columns, scheme)
    yield Matrix("embedding", None, model.vocabulary, hidden, recipe.embedding)
    if not model.tied_head:
        yield Matrix("head", None, model.vocabulary, hidden, recipe.embedding)


def read_bytes(
    recipe: Recipe,
    model: ModelConfig,
    size: int,
    forms: Collection[str],
    layers: int | None = None,
) -> int:
    """Bytes of weights that one pass cannot avoid to read: the matrices of every layer, or of the
    first `layers`, and the head.

    `size` are the run's bytes a number. Rows looked up in the embedding are not worth counting.
    """
    table = "embedding" if model.tied_head else "head"
    most = model.layers if layers is None else layers
    return sum(
        matrix.nbytes(size, forms)
        for matrix in matrices(recipe, model)
        if (matrix.name == table if matrix.layer is None else matrix.layer < most)
    )


def average_bits(config: EngineConfig, model: ModelConfig, forms: Collection[str]) -> float:
    """Bits a weight takes on the average, scales and zeros included; every weight counted once."""
    size = element_bytes(config.run.precision)
    found = list(matrices(recipe_of(config.weights, model), model))
    held = sum(matrix.nbytes(size, forms) for matrix in found)
    return 8 * held / sum(matrix.elements for matrix in found)
