"""A draft by another model of the same tokenizer, with keys and values of its own.

What it holds of a request is compared with what the request has said: it keeps the common
beginning, forgets what the target rejected, and runs what it has not seen. So it need not be told
what became of its drafts, nor when a request was put back and came again.
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


class OwnCacheDraft(Proposer):
    """`network` drafts on a `cache` that nothing else uses; a request without room in it is not
    drafted for."""

    def __init__(self, network: Llama, cache: KVCache, sampler: Sampler, form: str) -> None:
        self._network = network
        self._cache = cache
        self._sampler = sampler
        self._form = form
        self._held: dict[int, list[int]] = {}
        self._layout = Layout(cache, network.config.sliding_window, network.dtype, network.device)

    @property
    def form(self) -> str:
        return self._form

    @torch.inference_mode()
    def propose(self, asked: Sequence[Asked]) -> Mapping[int, Draft]:
        unseen = {one.id: run for one in asked if (run := self._unseen(one)) is not None}

        def after(sketches: Sequence[Sketch]) -> Tensor:
            """The first time all that was not seen, then the last token alone."""
            return self._after([(one.id, unseen.pop(one.id, [one.last])) for one in sketches])

        heard = [one for one in asked if one.id in unseen]
        return sketch_out(heard, self._cache, self._sampler, after)

    def close(self, request: int) -> None:
        if self._held.pop(request, None) is not None:
            self._cache.free(request)

    def _unseen(self, asked: Asked) -> list[int] | None:
        """The request's tokens that are not in the cache, which is cut back to those that it
        shares with them; None where it has no room for them and a draft."""
        request = asked.request
        said = [*request.prompt_ids, *request.output_ids]
        if len(said) + asked.most - 1 > self._cache.capacity:
            return None
        if request.id not in self._held:
            most = min(request.most_cached + 1, self._cache.capacity)
            if not self._cache.can_admit(said, most):
                return None
            self._cache.admit(request.id, said, most)
            self._held[request.id] = []
        held = self._held[request.id]
        common = 0
        for ours, theirs in zip(held, said[:-1], strict=False):
            if ours != theirs:
                break
            common += 1
        self._cache.rewind(request.id, common)
        del held[common:]
        return said[common:]

    def _after(self, runs: Sequence[tuple[int, Sequence[int]]]) -> Tensor:
        """Scores [B, V] after each request's run of tokens."""
        ids, tokens = tuple(one for one, _ in runs), [run for _, run in runs]
        batch = self._layout.of_tokens("decode", ids, tokens)
        for one, run in runs:
            self._held[one].extend(run)
        hidden = self._network.forward(batch.input_ids, batch.positions, batch.context)
        return self._network.logits(hidden[batch.last_rows])
