"""A draft by the target itself made cheaper: the same network in fewer bits, or its first layers.

It reads the target's keys and values and writes its own after them, in the same cache, so that no
prompt is ever run twice. They are taken back before the target verifies, which writes its own over
them: what stays in the cache is the target's alone. Sound because both have one shape, and because
vectors of a network in fewer bits differ from the target's by no more than its grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.cache.kv_cache import KVCache
from engine.model.llama import Llama
from engine.run.batch import Layout
from engine.run.sampler import Sampler
from engine.speculate.draft import Asked, Draft, Proposer
from engine.speculate.sketch import Sketch, sketch_out


class SharedCacheDraft(Proposer):
    """`network` drafts on the `cache` of a target of its own shape and dtype.

    Raises:
        ValueError: a network whose vectors the cache cannot hold.
    """

    def __init__(self, network: Llama, cache: KVCache, sampler: Sampler, form: str) -> None:
        self._network = network
        self._cache = cache
        self._sampler = sampler
        self._form = form
        self._layout = Layout(cache, network.config.sliding_window, network.dtype, network.device)

    @property
    def form(self) -> str:
        return self._form

    @torch.inference_mode()
    def propose(self, asked: Sequence[Asked]) -> Mapping[int, Draft]:
        cache = self._cache
        ends = {one.id: cache.length(one.id) for one in asked}
        try:
            return sketch_out(asked, cache, self._sampler, self._next)
        finally:
            for request, end in ends.items():
                cache.rewind(request, end, spoiled=True)

    def _next(self, sketches: Sequence[Sketch]) -> Tensor:
        """Scores [B, V] after each one's last token."""
        ids = tuple(sketch.id for sketch in sketches)
        batch = self._layout.of_tokens("decode", ids, [(sketch.last,) for sketch in sketches])
        hidden = self._network.forward(batch.input_ids, batch.positions, batch.context)
        return self._network.logits(hidden)
