"""Where a pass stopped giving numbers: the layer, the matrix in it, the value that came out.

A matrix can overflow quantised where its full twin did not, and a norm's gain can spoil what a
sound matrix is given: the layer's number alone would leave the reader with half a dozen suspects.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.llama import Llama
from engine.run.batch import Batch
from engine.weight_format import ROW, Scheme
from kernels.linear.dispatch import Linear

TAIL = "the final norm or the head"


@torch.inference_mode()
def where_it_broke(model: Llama, batch: Batch) -> str:
    """Where the first non-finite value of a pass appears, in words: `layer 3: down gave inf`.

    Runs the pass again, layer by layer and with every product watched: its cache rows are simply
    written again.
    """
    finds: list[str] = []

    def watched(name: str, linear: Linear) -> Linear:
        return _Watched(name.rpartition(".")[-1], linear, model.schemes.get(name), finds)

    twin = model.with_crossover(model.crossover)  # whose layers may be changed
    twin.layers = tuple(
        layer.with_linears(watched, f"layers.{number}.") for number, layer in enumerate(twin.layers)
    )
    outputs = twin.layer_outputs(batch.input_ids, batch.positions, batch.context)
    for number, hidden in enumerate(outputs):
        if finds:  # also where attention swallowed it: fused kernels make zeros of a row of NaN
            return f"layer {number}: {finds[0]}"
        if _not_a_number(hidden) is not None:
            return f"layer {number}"
    return TAIL


@dataclass(frozen=True)
class _Watched:
    """A matrix that notes in `finds` what it was given or gave that is no number."""

    name: str
    linear: Linear
    scheme: Scheme | None
    finds: list[str]

    @property
    def form(self) -> str:
        return self.linear.form

    @property
    def nbytes(self) -> int:
        return self.linear.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N]."""
        product = self.linear(x)
        given, gave = _not_a_number(x), _not_a_number(product)
        if given is not None:
            self.finds.append(f"{self.name} was given {given:g}")
        elif gave is not None:
            self.finds.append(f"{self.name}{_width(self.scheme)} gave {gave:g}")
        return product


def _not_a_number(values: Tensor) -> float | None:
    """The first of `values` that is not finite; None where all are."""
    bad = ~torch.isfinite(values)
    return float(values[bad][0]) if bool(bad.any()) else None


def _width(scheme: Scheme | None) -> str:
    if scheme is None:
        return ""
    groups = "a group a row" if scheme.group == ROW else f"groups of {scheme.group}"
    return f" ({scheme.bits} bits, {groups})"
