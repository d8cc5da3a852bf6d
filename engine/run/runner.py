"""Runs one plan through the model: rows in, the logits of each sequence's last row out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.kv_cache import KVCache
from engine.model.llama import Llama
from engine.run.batch import Batch, Layout
from engine.run.finite import where_it_broke
from engine.schedule.plan import Plan


class NonFiniteLogits(ArithmeticError):
    """The model's scores hold NaN or infinity: says for which sequence, and from which layer on."""


@dataclass(frozen=True)
class Scores:
    """`logits` [R, V] float32 and `greedy` [R], their arg max; `hidden` [R, H], the residual rows
    that they were made of. Sequence b has the `counts[b]` rows after those before it: its last, or
    in a pass that verifies drafts all."""

    sequence_ids: tuple[int, ...]
    logits: Tensor
    greedy: Tensor
    hidden: Tensor
    counts: tuple[int, ...]


class Runner:
    """Joins a model to a cache. Holds no request: it runs what it is given."""

    def __init__(self, model: Llama, cache: KVCache) -> None:
        self.model = model
        self.cache = cache
        self.layout = Layout(cache, model.config.sliding_window, model.dtype, model.device)

    @torch.inference_mode()
    def run(self, plan: Plan) -> Scores:
        """Run every row of the plan; the cache has grown by it afterwards.

        Raises:
            NonFiniteLogits: a score is NaN or +infinity, or all are -infinity.
        """
        batch = self.layout.of_plan(plan)
        verifies = any(piece.drafted for piece in plan.pieces)
        hidden = self.hidden(batch) if verifies else self.last_hidden(batch)
        logits = self.model.logits(hidden)
        best, greedy = logits.max(dim=-1)  # NaN wins a maximum: finite here is finite everywhere
        counts = batch.counts if verifies else (1,) * len(batch.sequence_ids)
        if not bool(torch.isfinite(best).all()):
            raise NonFiniteLogits(_explain(self.model, batch, best, counts))
        return Scores(batch.sequence_ids, logits, greedy, hidden, counts)

    def last_logits(self, batch: Batch) -> Tensor:
        """Scores [B, V] after each sequence's last row: the head, a fifth of the weights here,
        multiplies no other."""
        return self.model.logits(self.last_hidden(batch))

    def last_hidden(self, batch: Batch) -> Tensor:
        """The residual stream [B, H] after each sequence's last row."""
        hidden = self.hidden(batch)
        return hidden[batch.last_rows] if hidden.shape[0] > len(batch.sequence_ids) else hidden

    def hidden(self, batch: Batch) -> Tensor:
        """The residual stream [T, H] after every row."""
        return self.model.forward(batch.input_ids, batch.positions, batch.context)


def _explain(model: Llama, batch: Batch, best: Tensor, counts: tuple[int, ...]) -> str:
    row = int((~torch.isfinite(best)).nonzero()[0, 0])
    of_rows = [place for place, count in enumerate(counts) for _ in range(count)]
    sequence = batch.sequence_ids[of_rows[row]]
    place = row if len(best) == len(batch.positions) else int(batch.last_rows[row])
    position = int(batch.positions[place])
    return (
        f"logits of sequence {sequence} at position {position} are not finite "
        f"({float(best[row]):g}) in {model.precision}; the first non-finite value came out of "
        f"{where_it_broke(model, batch)}"
    )
