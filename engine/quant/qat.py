"""A short quantisation-aware training: one layer at a time learns weights that survive rounding.

The forward pass rounds, the backward pass pretends it did not (the straight-through estimator,
Bengio et al. 2013); scales and zeros are learned with the weights (LSQ, Esser et al. 2020). Layer
by layer rather than end to end (as EfficientQAT's first phase does, Chen et al. 2024): a layer's
activations fit in memory, and a few thousand tokens are enough for it.

A layer reads what the quantised layers before it give and aims at what the full layer gave the full
model, so that it also makes up for errors that came before. What is learned is counted in steps of
the grid: a weight's offset from where it was, a scale's factor, a zero's shift. One learning rate
then suits every width and every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.quant.block import Block
from engine.quant.grid import GridWeight, fit_grid, middle, round_to
from engine.quant.walk import WINDOW, nothing
from engine.quant.weights import STACKS
from engine.recipe import LayerRecipe
from engine.weight_format import Scheme

STEPS = 64
"""Optimiser steps of a layer, each on one window; whole rounds of the windows, one at least."""
WEIGHT_RATE, GRID_RATE = 0.02, 0.003
"""Adam's step at the start, in grid steps for weights, as a share of the scale for the grid.

Default model, layer 6, 4 bits in groups of 32, 2,048 tokens in 8 rounds: error of the layer's
output on tokens not trained on 0.213 after rounding to nearest, 0.134 with 0.017 of a step for the
weights, 0.156 with 0.003, 0.163 with ten times as much for the grid.
"""

Check = Callable[[], None]
"""Raises where the work is to stop."""


def train_layer(
    config: ModelConfig,
    layer: Mapping[str, Tensor],
    recipe: LayerRecipe,
    before: Tensor,
    after: Tensor,
    *,
    window: int = WINDOW,
    check: Check = nothing,
) -> dict[str, GridWeight]:
    """Grids of one layer by the engine's names (qkv, o, gate_up, down); kinds kept full are absent.

    `layer` holds its tensors by their names in it; `before` and `after` [T, H] float32 are the
    residual stream around it, windows of `window` tokens end to end. Deterministic. `check` is
    called at every step, some tenths of a second apart, and may raise to abort.

    Raises:
        ValueError: a group that does not divide, or a weight that is not finite.
        ArithmeticError: the training left the numbers.
    """
    with torch.inference_mode(False), torch.enable_grad():
        # Copies, since what inference mode has made takes part in no gradient.
        own = {name: tensor.to(torch.float32, copy=True) for name, tensor in layer.items()}
        learners = {
            part: _Learner.of(own[part], scheme) for part, scheme in _schemes(recipe).items()
        }
        if learners:
            pairs = [
                (given.clone()[None], wanted.clone()[None])
                for given, wanted in zip(
                    torch.split(before, window), torch.split(after, window), strict=True
                )
            ]
            _train(Block.of(config), own, learners, pairs, check)
    grids = {part: learner.grid() for part, learner in learners.items()}
    return {
        name: _stacked([grids[part] for part in parts])
        for name, parts in STACKS.items()
        if all(part in grids for part in parts)
    }


def _schemes(recipe: LayerRecipe) -> dict[str, Scheme]:
    kinds = {"q": recipe.attention, "k": recipe.attention, "v": recipe.attention}
    kinds |= {"o": recipe.attention, "gate": recipe.mlp, "up": recipe.mlp, "down": recipe.mlp}
    return {part: scheme for part, scheme in kinds.items() if scheme is not None}


def _train(
    block: Block,
    layer: Mapping[str, Tensor],
    learners: Mapping[str, _Learner],
    pairs: Sequence[tuple[Tensor, Tensor]],
    check: Check,
) -> None:
    """`pairs` are (before, after) [1, L, H], a window each."""
    rounds = max(-(-STEPS // len(pairs)), 1)
    optimiser = torch.optim.Adam(
        [
            {"params": [one.offset for one in learners.values()], "lr": WEIGHT_RATE},
            {"params": [p for one in learners.values() for p in one.steps], "lr": GRID_RATE},
        ]
    )
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, rounds * len(pairs))
    changes = [float((wanted - given).square().mean()) for given, wanted in pairs]
    size = max(sum(changes) / len(changes), 1e-12)
    for _ in range(rounds):
        for given, wanted in pairs:
            check()
            rounded = {part: one.rounded() for part, one in learners.items()}
            loss = (block.forward({**layer, **rounded}, given) - wanted).square().mean() / size
            if not bool(torch.isfinite(loss)):
                raise ArithmeticError(
                    f"the training gave {float(loss.detach())}: activations are too large, or "
                    "weights are not numbers"
                )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            decay.step()


@dataclass(frozen=True)
class _Learner:
    """One matrix [N, K] in G groups: `start` [N, G, K / G] float32 and its first grid [N, G, 1];
    `offset` like `start`, `widen` and `shift` [N, G, 1] are learned, in steps of that grid."""

    scheme: Scheme
    start: Tensor
    scale: Tensor
    zero: Tensor | None
    offset: Tensor
    widen: Tensor
    shift: Tensor

    @classmethod
    def of(cls, weight: Tensor, scheme: Scheme) -> _Learner:
        scale, zero = fit_grid(weight, scheme)
        rows, groups = scale.shape
        start = weight.detach().to(torch.float32).reshape(rows, groups, -1).clone()
        step = scale[..., None].clone()
        return cls(
            scheme,
            start,
            step,
            None if zero is None else zero[..., None].clone(),
            torch.zeros_like(start).requires_grad_(),
            torch.zeros_like(step).requires_grad_(),
            torch.zeros_like(step).requires_grad_(),
        )

    @property
    def steps(self) -> tuple[Tensor, ...]:
        return (self.widen,) if self.zero is None else (self.widen, self.shift)

    def rounded(self) -> Tensor:
        """The weights as the grid would keep them now, [N, K]: rounding has the gradient 1."""
        scale = self.scale * (1 + self.widen)
        offset = self._weight()
        if self.zero is not None:
            offset = offset - self._zero()
        half = middle(self.scheme)
        steps = offset / scale.clamp_min(1e-12)
        codes = (steps + (steps.round() - steps).detach()).clamp(-half, half - 1)
        kept = codes * scale if self.zero is None else codes * scale + self._zero()
        return kept.flatten(1)

    def grid(self) -> GridWeight:
        """Scale and zero rounded to bfloat16, then the nearest codes."""
        with torch.no_grad():
            scale = (self.scale * (1 + self.widen)).clamp_min(0)[..., 0]
            scale = scale.to(torch.bfloat16).to(torch.float32)
            zero = None
            if self.zero is not None:
                zero = self._zero()[..., 0].to(torch.bfloat16).to(torch.float32)
            return round_to(self._weight().flatten(1), scale, zero, self.scheme)

    def _weight(self) -> Tensor:
        return self.start + self.offset * self.scale

    def _zero(self) -> Tensor:
        assert self.zero is not None
        return self.zero + self.shift * self.scale


def _stacked(grids: list[GridWeight]) -> GridWeight:
    """Matrices with the same inputs, one above the other: groups lie along the inputs."""
    zeros = [grid.zero for grid in grids if grid.zero is not None]
    return GridWeight(
        torch.cat([grid.codes for grid in grids]),
        torch.cat([grid.scale for grid in grids]),
        torch.cat(zeros) if zeros else None,
        grids[0].scheme,
    )
