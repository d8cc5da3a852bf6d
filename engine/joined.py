"""Layers of which a few rows take the halves around attention in a call each.

Torch-free formulas beside `kernels.block`: which layers of a build these are, how many operator
calls fewer a pass makes, and what it makes instead of the tensors between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.recipe import matrices, recipe_of
from engine.weight_format import FUSED_RUN, JOINED, NATIVE_PAIRS, NATIVE_ROWS

FEWER_BEFORE, FEWER_AFTER = 2, 7
"""Calls that the halves of a layer save, from counts made with a dispatch mode."""

_FLOAT = 4


@dataclass(frozen=True)
class Joined:
    """How many of a model's layers run `before` and `after` attention in one call, up to `rows`."""

    model: ModelConfig
    before: int
    after: int
    rows: int

    @classmethod
    def of(cls, config: EngineConfig, model: ModelConfig, forms: Collection[str]) -> Joined:
        if JOINED not in forms:
            return cls(model, 0, 0, 0)
        layers: list[dict[str, bool]] = [{} for _ in range(model.layers)]
        for matrix in matrices(recipe_of(config.weights, model), model):
            if matrix.layer is not None:
                layers[matrix.layer][matrix.name] = matrix.takes_rows_in_c(forms)
        turns = not model.qk_norm and model.head_dim % NATIVE_PAIRS == 0
        before = sum(turns and layer["qkv"] for layer in layers)
        after = sum(layer["o"] and layer["gate_up"] and layer["down"] for layer in layers)
        return cls(model, before, after, min(NATIVE_ROWS, config.weights.crossover or NATIVE_ROWS))

    def fewer_calls(self, rows: int) -> int:
        """Than a pass of `rows` rows would make with every step of a layer by itself."""
        if rows > self.rows:
            return 0
        return self.before * FEWER_BEFORE + self.after * FEWER_AFTER

    def all_before(self, rows: int) -> bool:
        """Whether no layer makes the tensors of its first half."""
        return rows <= self.rows and self.before == self.model.layers

    def all_after(self, rows: int) -> bool:
        """Whether no layer makes those of its second half."""
        return rows <= self.rows and self.after == self.model.layers

    def beside_before(self, rows: int, size: int) -> int:
        """Bytes beside queries, keys and values; `size` are the run's bytes a number."""
        model = self.model
        made = rows <= self.rows and self.before
        return rows * _row((model.hidden,), model.hidden, size) if made else 0

    def beside_after(self, rows: int, size: int) -> int:
        """Bytes beside what was attended."""
        model = self.model
        inputs = (model.query_width, model.hidden, model.intermediate)
        numbers = model.hidden + 3 * model.intermediate
        return rows * _row(inputs, numbers, size) if rows <= self.rows and self.after else 0


def _row(inputs: Sequence[int], numbers: int, size: int) -> int:
    """Bytes of a workspace's row: what the widest product needs, and `numbers` numbers."""
    scratch = max(width + width // FUSED_RUN for width in inputs)
    return (scratch + -(-numbers * size // _FLOAT)) * _FLOAT
