"""The ladder down the cliff: the model rounded to nearest at one width after another.

Its rungs are the ground a better method is measured from, so they are of the weights alone: the
values that the codes stand for, multiplied by dense kernels in the run's precision. What low-bit
kernels add is the business of the build that runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from engine.config import WeightsConfig
from engine.measure.comparison import FullText, compare_with
from engine.measure.dequantised import DequantisedTensors
from engine.measure.reporter import Reporter
from engine.measure.workload import corpus_digest
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.quality_report import Rung
from engine.quant.quantise import quantise
from engine.quantised import Histogram, LayerError
from engine.recipe import Recipe, recipe_of
from engine.weight_format import WIDTHS

METHOD = "rtn"


@dataclass(frozen=True)
class Stairs:
    """Tells the desk how far rung `number` of `rungs` is, that of `bits`: half of the way is
    rounding, half scoring. Raises Aborted where the player stopped it."""

    desk: Reporter
    number: int
    rungs: int
    bits: int

    def pressed(
        self, error: LayerError, histogram: Histogram | None, done: int, total: int
    ) -> None:
        self._tell(done / total / 2)

    def scored(self, done: int, total: int) -> None:
        self._tell((1 + done / total) / 2)

    def _tell(self, share: float) -> None:
        done = round(100 * (self.number + share))
        self.desk.progress("ladder", done, 100 * self.rungs, detail=str(self.bits))


def rung_recipe(bits: int, model: ModelConfig) -> Recipe:
    """Every matrix of the layers in `bits`, groups and embedding as they are when nothing else is
    said.

    Raises:
        ValueError: a width that no grid has.
    """
    if bits not in WIDTHS:
        widths = ", ".join(map(str, WIDTHS))
        raise ValueError(f"the ladder has no rung of {bits} bits; legal: {widths}")
    return recipe_of(WeightsConfig(bits=bits, method=METHOD), model)


def rung_name(bits: int, model: ModelConfig, digest: str, precision: str) -> str:
    """What a rung is kept under: model, recipe and precision, and the text it was scored on.
    Raises as `rung_recipe`."""
    return f"{rung_recipe(bits, model).digest(digest, precision)}/{corpus_digest()}"


def measure_rung(
    bits: int,
    reference: Llama,
    text: FullText,
    tensors: Mapping[str, Tensor],
    precision: str,
    stairs: Stairs,
) -> Rung:
    """The model of `tensors` rounded to `bits` and run in `precision`, against `reference`.

    One more network stands in memory while it is measured.

    Raises:
        ValueError: a width that no grid has, or an unknown precision.
        QualityError: a score is not finite.
        Aborted: the player stopped it.
    """
    model = reference.config
    recipe = rung_recipe(bits, model)
    weights = quantise(tensors, model, recipe, on_pressed=stairs.pressed, check=stairs.desk.check)
    dense = DequantisedTensors(tensors, model, weights)
    rounded = Llama(model, dense, precision, reference.device)
    found = compare_with(reference, text, rounded, stairs.scored)
    return Rung(bits=bits, kl=found.kl, top1=found.top1)
