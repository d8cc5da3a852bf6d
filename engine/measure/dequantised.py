"""A model's tensors with the values that its quantised weights stand for, made as they are asked
for: beside the float32 model built of them there is never a second copy of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from engine.model.config import ModelConfig
from engine.quant.grid import GridWeight
from engine.quant.weights import STACKS, QuantisedWeights, stack_heights

_MATRIX_OF: Mapping[str, str] = {part: name for name, parts in STACKS.items() for part in parts}


class DequantisedTensors(Mapping[str, Tensor]):
    """By the loader's names, as the model's own: float32 where a grid or a fold made them."""

    def __init__(
        self, tensors: Mapping[str, Tensor], model: ModelConfig, weights: QuantisedWeights
    ) -> None:
        self._full = {**tensors, **weights.tensors}
        self._grids = weights.grids
        self._model = model

    def __getitem__(self, name: str) -> Tensor:
        if name in self._grids:
            return self._grids[name].dequantise()
        prefix, _, part = name.rpartition(".")
        matrix = _MATRIX_OF.get(part, "")
        grid = self._grids.get(f"{prefix}.{matrix}")
        if grid is None:
            return self._full[name]
        start, stop = self._span(matrix, part)
        return _rows(grid, start, stop).dequantise()

    def __iter__(self) -> Iterator[str]:
        return iter(self._full)

    def __len__(self) -> int:
        return len(self._full)

    def _span(self, matrix: str, part: str) -> tuple[int, int]:
        """Rows of the stacked `matrix` that are the tensor `part`."""
        start = 0
        for name, height in zip(STACKS[matrix], stack_heights(self._model, matrix), strict=True):
            if name == part:
                return start, start + height
            start += height
        raise AssertionError(f"{part} is not stacked in {matrix}")


def _rows(grid: GridWeight, start: int, stop: int) -> GridWeight:
    zero = None if grid.zero is None else grid.zero[start:stop]
    return GridWeight(grid.codes[start:stop], grid.scale[start:stop], zero, grid.scheme)
