"""The driver: a model and a recipe in, quantised weights and the story of how they were made out.

A method walks the layers and yields matrices (`method`); the driver picks it, hands it calibration
text, tells of every matrix of a layer as it is done, and draws one histogram a layer. It rounds the
embedding and an untied head to nearest, whatever the method: looking up needs no activations, and
what rounding costs there is little at the widths worth having.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.quant.awq import press_awq
from engine.quant.grid import GridWeight
from engine.quant.method import Finished, Job, Method, Pressed, stacked
from engine.quant.press import press_gptq, press_qat, press_rtn
from engine.quant.rtn import rtn
from engine.quant.smoothquant import press_smoothquant
from engine.quant.walk import nothing
from engine.quant.weights import QuantisedWeights, matrix_name
from engine.quantised import Histogram, LayerError, Notice, Quantised
from engine.recipe import CALIBRATED, Matrix, Recipe, matrices

METHODS: Mapping[str, Method] = {
    "rtn": press_rtn,
    "gptq": press_gptq,
    "awq": press_awq,
    "smoothquant": press_smoothquant,
    "qat": press_qat,
}

OnPressed = Callable[[LayerError, Histogram | None, int, int], None]
"""A layer's matrix is done: its error, its layer's histogram where it is `DRAWN`, how many of how
many."""

DRAWN = "down"
"""The matrix of each layer whose weights are drawn."""
HISTOGRAM_STEPS = 64
LITTLE = 0.5
"""A method that changed fewer than this share of the layers is noticed."""


def quantise(
    tensors: Mapping[str, Tensor],
    model: ModelConfig,
    recipe: Recipe,
    *,
    calibration_ids: Sequence[int] = (),
    on_pressed: OnPressed = lambda *_: None,
    check: Callable[[], None] = nothing,
    finished: Finished | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> QuantisedWeights:
    """Quantise the model's `tensors` (by the loader's names) as `recipe` says.

    `calibration_ids` are read by methods that look at activations. `check` is called at least once
    a second and may raise to stop. Layers that `finished` holds are not made again by a method that
    takes minutes, and are added to it as they are done. The report's `bits` and `average_bits` are
    left to whoever knows the build: one recipe serves several.

    Raises:
        ValueError: an unknown method, one that looks at activations without text to do so, a recipe
            for another number of layers, a group that does not divide, or a weight that is not
            finite (named by layer and matrix).
    """
    if recipe.method not in METHODS:
        raise ValueError(f"no method is named {recipe.method!r}; legal: {', '.join(METHODS)}")
    if recipe.method in CALIBRATED and not calibration_ids:
        raise ValueError(
            f"{recipe.method} looks at activations and needs calibration tokens: at least 1, and "
            f"better {widest_input(Job(tensors, model, recipe)) or model.hidden} or more"
        )
    if len(recipe.layers) != model.layers:
        raise ValueError(f"a recipe of {len(recipe.layers)} layers for a model of {model.layers}")
    begun = clock()
    job = Job(tensors, model, recipe, calibration_ids, check, finished)
    gathered = _Gathered(job, on_pressed)
    with torch.no_grad():
        grids = _tables(job)
        for pressed in METHODS[recipe.method](job):
            gathered.take(pressed)
    report = gathered.report(clock() - begun)
    return QuantisedWeights(gathered.grids | grids, report, gathered.tensors)


def _tables(job: Job) -> dict[str, GridWeight]:
    """The embedding and an untied head, where they are quantised."""
    found = {}
    for matrix in matrices(job.recipe, job.model):
        if matrix.layer is None and matrix.scheme is not None:
            job.check()
            found[matrix.name] = rtn(job.tensors[matrix.name], matrix.scheme, matrix.name)
    return found


class _Gathered:
    """What the method has yielded so far; tells of each matrix as it comes."""

    def __init__(self, job: Job, on_pressed: OnPressed) -> None:
        self._job = job
        self._on_pressed = on_pressed
        self._total = sum(map(len, job.layers))
        self._errors: list[LayerError] = []
        self._worst: tuple[float, Histogram] | None = None
        self._changed: set[int] = set()
        self.grids: dict[str, GridWeight] = {}
        self.tensors: dict[str, Tensor] = {}

    def take(self, pressed: Pressed) -> None:
        matrix = pressed.matrix
        assert matrix.layer is not None
        self.grids[matrix_name(matrix)] = pressed.grid
        self.tensors |= pressed.tensors
        if matrix.layer not in self._changed and self._moved(pressed):
            self._changed.add(matrix.layer)
        drawn = None
        if matrix.name == DRAWN:
            drawn = histogram(matrix, pressed.before, pressed.grid.dequantise())
            if self._worst is None or pressed.error > self._worst[0]:
                self._worst = (pressed.error, drawn)
        error = LayerError(matrix.layer, matrix.name, pressed.error)
        self._errors.append(error)
        self._on_pressed(error, drawn, len(self._errors), self._total)

    def report(self, seconds: float) -> Quantised:
        """The histogram is that of the layer whose `DRAWN` matrix came out worst."""
        layers = sum(bool(found) for found in self._job.layers)
        return Quantised(
            method=self._job.recipe.method,
            bits=0,
            average_bits=0.0,
            seconds=seconds,
            cached=False,
            calibration_tokens=len(self._job.calibration_ids),
            changed_layers=len(self._changed),
            layers=layers,
            errors=tuple(self._errors),
            histogram=None if self._worst is None else self._worst[1],
            notices=notices(self._job, len(self._changed), layers),
        )

    def _moved(self, pressed: Pressed) -> bool:
        """Whether the method did anything but round the model's own matrix to nearest."""
        if self._job.recipe.method == "rtn":
            return False
        if pressed.tensors:
            return True
        matrix, grid = pressed.matrix, pressed.grid
        assert matrix.layer is not None
        plain = rtn(stacked(self._job.layer(matrix.layer), matrix.name), grid.scheme)
        return not (torch.equal(plain.codes, grid.codes) and torch.equal(plain.scale, grid.scale))


def histogram(matrix: Matrix, before: Tensor, after: Tensor) -> Histogram:
    """Counts of both over `HISTOGRAM_STEPS` equal steps from the least weight of either to the
    largest; every weight is in one of them."""
    low = min(float(before.min()), float(after.min()))
    high = max(float(before.max()), float(after.max()))
    if high <= low:  # one value: a step wide enough to stand on
        high = low + max(abs(low), 1.0)

    def counts(weight: Tensor) -> tuple[int, ...]:
        steps = torch.histc(weight.clamp(low, high), HISTOGRAM_STEPS, low, high)
        return tuple(int(count) for count in steps.tolist())

    assert matrix.layer is not None
    return Histogram(matrix.layer, matrix.name, low, high, counts(before), counts(after))


def notices(job: Job, changed: int, layers: int) -> tuple[Notice, ...]:
    """What the player should know of how the weights were made.

    A Hessian of fewer tokens than a matrix has inputs is singular: what a method learns from it
    does not hold elsewhere.
    """
    method, tokens, width = job.recipe.method, len(job.calibration_ids), widest_input(job)
    found: list[Notice] = []
    if method in CALIBRATED and tokens < width:
        details = {"tokens": str(tokens), "width": str(width)}
        found.append(Notice("calibration_short", details))
    if method != "rtn" and changed < LITTLE * layers:
        details = {"changed": str(changed), "layers": str(layers)}
        found.append(Notice("method_changed_little", details))
    return tuple(found)


def widest_input(job: Job) -> int:
    """The most inputs any quantised matrix of the layers has; 0 where none is quantised."""
    return max((matrix.columns for found in job.layers for matrix in found), default=0)
