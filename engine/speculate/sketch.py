"""Drafts as they grow, a token of each at a time: what every network with a cache does to draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.cache.kv_cache import KVCache
from engine.run.sampler import Sampler
from engine.speculate.draft import Asked, Draft


class Sketch:
    """One request's draft; `last` is the token that the next one follows."""

    def __init__(self, asked: Asked) -> None:
        self.id = asked.id
        self.tokens: list[int] = []
        self.last = asked.request.output_ids[-1]
        self._most = asked.most
        self._proposed: list[Tensor] = []

    @property
    def wants_more(self) -> bool:
        return len(self.tokens) < self._most

    def add(self, scores: Tensor, sampler: Sampler) -> None:
        """The token that `scores` [V] foretell, drawn as the request draws; scores that are no
        numbers foretell none, and end the draft."""
        if not bool(torch.isfinite(scores.max())):
            self._most = len(self.tokens)
            return
        self.last, chances = sampler.choose(self.id, scores)
        self.tokens.append(self.last)
        if chances is not None:
            self._proposed.append(chances)

    @property
    def draft(self) -> Draft:
        proposed = torch.stack(self._proposed) if self._proposed else None
        return Draft(tuple(self.tokens), proposed)


def sketch_out(
    asked: Sequence[Asked],
    cache: KVCache,
    sampler: Sampler,
    after: Callable[[Sequence[Sketch]], Tensor],
) -> Mapping[int, Draft]:
    """Drafts of all that are asked for, in the order of their cache slots; `after` gives the scores
    [B, V] that follow each one's last token, and is called for fewer as drafts are done."""
    sketches = sorted(map(Sketch, asked), key=lambda sketch: cache.slot(sketch.id))
    while growing := [sketch for sketch in sketches if sketch.wants_more]:
        for sketch, scores in zip(growing, after(growing), strict=True):
            sketch.add(scores, sampler)
    return {sketch.id: sketch.draft for sketch in sketches}
