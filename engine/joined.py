"""Layers of which a few rows take the halves around attention in a call each.

Torch-free formulas beside `kernels.block`: which layers of a build these are, how many operator
calls fewer a pass makes, and what it makes instead of the tensors between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.recipe import Matrix, matrices, recipe_of
from engine.weight_format import FUSED_RUN, JOINED, NATIVE_PAIRS, NATIVE_ROWS, crosses

FEWER_BEFORE, FEWER_AFTER = 2, 7
"""Calls that the halves of a layer save, from counts made with a dispatch mode."""

_FLOAT = 4


@dataclass(frozen=True)
class Halves:
    """Which halves of one layer run in one call, up to `rows`."""

    before: bool
    after: bool
    rows: int


@dataclass(frozen=True)
class Joined:
    """A model's layers, of which few rows take `before` and `after` attention in one call."""

    model: ModelConfig
    layers: tuple[Halves, ...] = ()

    @classmethod
    def of(cls, config: EngineConfig, model: ModelConfig, forms: Collection[str]) -> Joined:
        if JOINED not in forms:
            return cls(model)
        layers: list[dict[str, Matrix]] = [{} for _ in range(model.layers)]
        for matrix in matrices(recipe_of(config.weights, model), model):
            if matrix.layer is not None:
                layers[matrix.layer][matrix.name] = matrix
        crossover = config.weights.crossover
        return cls(model, tuple(_halves(layer, model, forms, crossover) for layer in layers))

    def fewer_calls(self, rows: int) -> int:
        """Than a pass of `rows` rows would make with every step of a layer by itself."""
        running = [layer for layer in self.layers if rows <= layer.rows]
        return sum(one.before * FEWER_BEFORE + one.after * FEWER_AFTER for one in running)

    def all_before(self, rows: int) -> bool:
        """Whether no layer makes the tensors of its first half."""
        return bool(self.layers) and all(one.before and rows <= one.rows for one in self.layers)

    def all_after(self, rows: int) -> bool:
        """Whether no layer makes those of its second half."""
        return bool(self.layers) and all(one.after and rows <= one.rows for one in self.layers)

    def beside_before(self, rows: int, size: int) -> int:
        """Bytes beside queries, keys and values; `size` are the run's bytes a number."""
        model = self.model
        made = any(one.before and rows <= one.rows for one in self.layers)
        return rows * _row((model.hidden,), model.hidden, size) if made else 0

    def beside_after(self, rows: int, size: int) -> int:
        """Bytes beside what was attended."""
        model = self.model
        inputs = (model.query_width, model.hidden, model.intermediate)
        numbers = model.hidden + 3 * model.intermediate
        made = any(one.after and rows <= one.rows for one in self.layers)
        return rows * _row(inputs, numbers, size) if made else 0


def _halves(
    layer: Mapping[str, Matrix], model: ModelConfig, forms: Collection[str], crossover: int
) -> Halves:
    """None of its matrices may be made dense for as many rows."""
    in_c = {name: matrix.takes_rows_in_c(forms) for name, matrix in layer.items()}
    turns = not model.qk_norm and model.head_dim % NATIVE_PAIRS == 0
    schemes = [matrix.scheme for matrix in layer.values() if matrix.scheme is not None]
    crossing = crossover and any(crosses(scheme) for scheme in schemes)
    return Halves(
        before=turns and in_c["qkv"],
        after=in_c["o"] and in_c["gate_up"] and in_c["down"],
        rows=min(NATIVE_ROWS, crossover) if crossing else NATIVE_ROWS,
    )


def _row(inputs: Sequence[int], numbers: int, size: int) -> int:
    """Bytes of a workspace's row: what the widest product needs, and `numbers` numbers."""
    scratch = max(width + width // FUSED_RUN for width in inputs)
    return (scratch + -(-numbers * size // _FLOAT)) * _FLOAT
