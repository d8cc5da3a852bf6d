"""Runs one plan through the model: rows in, the logits of each sequence's last row out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.kv_cache import ContiguousCache, KVCache
from engine.model.llama import Llama
from engine.run.batch import Batch, prepare
from engine.schedule.scheduler import Plan


class NonFiniteLogits(ArithmeticError):
    """The model's scores hold NaN or infinity: says for which sequence, and from which layer on."""


@dataclass(frozen=True)
class Scores:
    """`logits` [B, V] float32 of each sequence's last row; `greedy` [B], the arg max."""

    sequence_ids: tuple[int, ...]
    logits: Tensor
    greedy: Tensor


class Runner:
    """Joins a model to a cache. Holds no request: it runs what it is given."""

    def __init__(self, model: Llama, cache: KVCache) -> None:
        self.model = model
        self.cache = cache

    @torch.inference_mode()
    def run(self, plan: Plan) -> Scores:
        """Run every row of the plan; cache lengths have grown by it afterwards.

        Raises:
            NonFiniteLogits: a score is NaN or +infinity, or all are -infinity.
        """
        model = self.model
        window = model.config.sliding_window
        batch = prepare(plan.phase, plan.pieces, self.cache, window, model.dtype, model.device)
        hidden = model.forward(batch.input_ids, batch.positions, batch.context)
        if hidden.shape[0] != len(batch.sequence_ids):
            hidden = hidden[batch.last_rows]  # the head is a fifth of the model: only where needed
        logits = model.logits(hidden)
        best, greedy = logits.max(dim=-1)  # a NaN wins every maximum, so this also finds one
        if not bool(torch.isfinite(best).all()):
            raise NonFiniteLogits(_explain(model, batch, best))
        return Scores(batch.sequence_ids, logits, greedy)


def make_cache(model: Llama, sequences: int, capacity: int) -> ContiguousCache:
    """A contiguous cache of the model's shape for `sequences` slots of `capacity` tokens."""
    config = model.config
    return ContiguousCache(
        layers=config.layers,
        slots=sequences,
        kv_heads=config.kv_heads,
        capacity=capacity,
        head_dim=config.head_dim,
        dtype=model.dtype,
        device=model.device,
    )


def _explain(model: Llama, batch: Batch, best: Tensor) -> str:
    """Run the pass again, layer by layer (its cache rows are simply written again)."""
    row = int((~torch.isfinite(best)).nonzero()[0, 0])
    sequence = batch.sequence_ids[row]
    position = int(batch.positions[batch.last_rows[row]])
    where = "the final norm or the head"
    outputs = model.layer_outputs(batch.input_ids, batch.positions, batch.context)
    for index, hidden in enumerate(outputs):
        if not bool(torch.isfinite(hidden).all()):
            where = f"layer {index}"
            break
    return (
        f"logits of sequence {sequence} at position {position} are not finite ({best[row]:g}) in "
        f"{model.precision}; the first non-finite value came out of {where}"
    )
