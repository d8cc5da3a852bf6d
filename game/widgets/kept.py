"""What a build's weights are kept as, by kind and by formula: widths, groups, how many they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from engine.config import WeightsConfig
from engine.fit import weight_elements
from engine.model.config import ModelConfig
from engine.recipe import FULL, matrices, recipe_of
from engine.weight_format import Scheme

Kind = Literal["attention", "mlp", "embedding", "edges"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_ATTENTION = frozenset({"qkv", "o"})


@dataclass(frozen=True)
class Kept:
    """One kind's matrices: `scheme` None keeps them full. `edges` are 0 `elements` where the first
    and last layers have no width of their own."""

    kind: Kind
    scheme: Scheme | None
    elements: int

    @property
    def bits(self) -> int:
        return FULL if self.scheme is None else self.scheme.bits


@dataclass(frozen=True)
class Keeping:
    """Every kind in the order of `KINDS`; `elements` of the whole model, each weight once."""

    method: str
    kinds: tuple[Kept, ...]
    elements: int

    def of(self, kind: Kind) -> Kept:
        return self.kinds[KINDS.index(kind)]

    @property
    def pressed(self) -> Kept | None:
        """The kind that is most of what is quantised in the layers; None where nothing is."""
        found = [
            kept
            for kept in self.kinds
            if kept.scheme is not None and kept.elements and kept.kind != "embedding"
        ]
        return max(found, key=lambda kept: kept.elements, default=None)

    @property
    def full(self) -> bool:
        """Nothing is quantised at all."""
        return all(kept.scheme is None for kept in self.kinds if kept.elements)


def keeping_of(weights: WeightsConfig, model: ModelConfig) -> Keeping:
    """The knobs of `weights` as they fall on `model`."""
    recipe = recipe_of(weights, model)
    schemes: dict[Kind, Scheme | None] = {}
    elements = dict.fromkeys(KINDS, 0)
    for matrix in matrices(recipe, model):
        kind: Kind = "attention" if matrix.name in _ATTENTION else "mlp"
        if matrix.layer is None:
            kind = "embedding"
        elif weights.edges and _at_edge(matrix.layer, weights.edge_layers, model.layers):
            kind = "edges"
        schemes[kind] = matrix.scheme
        elements[kind] += matrix.elements
    kinds = tuple(Kept(kind, schemes.get(kind), elements[kind]) for kind in KINDS)
    return Keeping(recipe.method, kinds, weight_elements(model))


def _at_edge(layer: int, edge: int, layers: int) -> bool:
    return layer < edge or layer >= layers - edge
