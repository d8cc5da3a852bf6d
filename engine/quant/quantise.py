"""The driver: a model and a recipe in, quantised weights and the story of how they were made out.

A method walks the layers and yields matrices (`method`); the driver picks it, hands it calibration
text, tells of every matrix as it is done, draws one histogram a layer, and rounds the embedding and
an untied head to nearest, whatever the method: every word passes through them, and no activations
of theirs are worth watching.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.quant.awq import press_awq
from engine.quant.grid import GridWeight
from engine.quant.method import Job, Method, Pressed, weight_error
from engine.quant.press import press_gptq, press_qat, press_rtn
from engine.quant.rtn import rtn
from engine.quant.smoothquant import press_smoothquant
from engine.quant.walk import nothing
from engine.quant.weights import QuantisedWeights, matrix_name
from engine.quantised import Histogram, LayerError, Notice, Quantised
from engine.recipe import CALIBRATED, Matrix, Recipe, inner_widths, matrices

METHODS: Mapping[str, Method] = {
    "rtn": press_rtn,
    "gptq": press_gptq,
    "awq": press_awq,
    "smoothquant": press_smoothquant,
    "qat": press_qat,
}

OnPressed = Callable[[LayerError, Histogram | None, int, int], None]
"""One matrix is done: its error, its layer's histogram where there is one, how many of how many."""

DRAWN = "down"
"""The matrix of each layer whose weights are drawn."""
HISTOGRAM_STEPS = 64
LITTLE = 0.1
"""A method that changed fewer than this share of its layers is noticed."""


def quantise(
    tensors: Mapping[str, Tensor],
    model: ModelConfig,
    recipe: Recipe,
    *,
    calibration_ids: Sequence[int] = (),
    on_pressed: OnPressed = lambda *_: None,
    check: Callable[[], None] = nothing,
    clock: Callable[[], float] = time.perf_counter,
) -> QuantisedWeights:
    """Quantise the model's `tensors` (by the loader's names) as `recipe` says.

    `check` is called at least once a second and may raise to stop; nothing is kept then.

    Raises:
        ValueError: an unknown method, one that looks at activations without text to do so, a group
            that does not divide, or a weight that is not finite.
    """
    if recipe.method not in METHODS:
        raise ValueError(f"no method is named {recipe.method!r}; legal: {', '.join(METHODS)}")
    if recipe.method in CALIBRATED and not calibration_ids:
        raise ValueError(f"{recipe.method} looks at activations and needs calibration tokens")
    begun = clock()
    job = Job(tensors, model, recipe, calibration_ids, check)
    total = sum(matrix.scheme is not None for matrix in matrices(recipe, model))
    teller = _Teller(tensors, on_pressed, total)
    with torch.inference_mode():
        for pressed in METHODS[recipe.method](job):
            teller.take(pressed)
        for matrix in matrices(recipe, model):
            if matrix.layer is None and matrix.scheme is not None:
                check()
                teller.take_table(matrix)
    return QuantisedWeights(teller.grids, teller.report(job, clock() - begun), teller.tensors)


class _Teller:
    """Gathers what the method yields, and tells of it."""

    def __init__(self, tensors: Mapping[str, Tensor], on_pressed: OnPressed, total: int) -> None:
        self._model_tensors = tensors
        self._on_pressed = on_pressed
        self._total = total
        self._errors: list[LayerError] = []
        self._drawn: list[Histogram] = []
        self._changed: set[int] = set()
        self.grids: dict[str, GridWeight] = {}
        self.tensors: dict[str, Tensor] = {}

    def take(self, pressed: Pressed) -> None:
        matrix = pressed.matrix
        assert matrix.layer is not None
        self.tensors |= pressed.tensors
        error = LayerError(matrix.layer, matrix.name, pressed.error)
        drawn = None
        if matrix.name == DRAWN:
            drawn = histogram(matrix, pressed.before, pressed.grid.dequantise())
            self._drawn.append(drawn)
        if _moved(pressed):
            self._changed.add(matrix.layer)
        self._keep(matrix, pressed.grid, error, drawn)

    def take_table(self, matrix: Matrix) -> None:
        """The embedding, or an untied head: rounded to nearest."""
        assert matrix.scheme is not None
        weight = self._model_tensors[matrix.name].to(torch.float32)
        grid = rtn(weight, matrix.scheme, matrix.name)
        error = LayerError(-1, matrix.name, weight_error(weight, grid.dequantise()))
        self._keep(matrix, grid, error, None)

    def report(self, job: Job, seconds: float) -> Quantised:
        """How it went; widths and average bits are filled in by whoever knows the build."""
        layers = sum(bool(found) for found in job.layers)
        return Quantised(
            method=job.recipe.method,
            bits=0,
            average_bits=0.0,
            seconds=seconds,
            cached=False,
            calibration_tokens=len(job.calibration_ids),
            changed_layers=len(self._changed),
            layers=layers,
            errors=tuple(self._errors),
            histogram=self._drawn[len(self._drawn) // 2] if self._drawn else None,
            notices=_notices(job, len(self._changed), layers),
        )

    def _keep(
        self, matrix: Matrix, grid: GridWeight, error: LayerError, drawn: Histogram | None
    ) -> None:
        self.grids[matrix_name(matrix)] = grid
        self._errors.append(error)
        self._on_pressed(error, drawn, len(self._errors), self._total)


def histogram(matrix: Matrix, before: Tensor, after: Tensor) -> Histogram:
    """Counts of both over equal steps from the least weight of either to the largest."""
    low = min(float(before.min()), float(after.min()))
    high = max(float(before.max()), float(after.max()))
    if high <= low:
        high = low + 1.0

    def counts(weight: Tensor) -> tuple[int, ...]:
        found: list[int] = torch.histc(weight, HISTOGRAM_STEPS, low, high).to(torch.int64).tolist()
        return tuple(found)

    return Histogram(matrix.layer or 0, matrix.name, low, high, counts(before), counts(after))


def _moved(pressed: Pressed) -> bool:
    """Whether the method did more than round this matrix to nearest."""
    if pressed.tensors:
        return True
    scheme = pressed.grid.scheme
    return not torch.equal(rtn(pressed.before, scheme, "the matrix").codes, pressed.grid.codes)


def _notices(job: Job, changed: int, layers: int) -> tuple[Notice, ...]:
    found: list[Notice] = []
    widest = max(inner_widths(job.model))
    method = job.recipe.method
    if method in CALIBRATED and len(job.calibration_ids) < widest:
        details = {"tokens": str(len(job.calibration_ids)), "wide": str(widest)}
        found.append(Notice("calibration_short", details))
    if method != "rtn" and changed < LITTLE * layers:
        details = {"changed": str(changed), "layers": str(layers)}
        found.append(Notice("method_changed_little", details))
    return tuple(found)
