"""A draft by a small network trained for this target, on the rows that the target leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.run.sampler import Sampler
from engine.speculate.draft import Asked, Draft, Proposer
from engine.speculate.head import DraftHead
from engine.speculate.sketch import Sketch


class TrainedDraft(Proposer):
    """Drafts for the requests whose last row it has heard.

    `vocabulary` counts the target's tokens: words that the head never says have no chance.
    """

    def __init__(self, head: DraftHead, vocabulary: int, sampler: Sampler, form: str) -> None:
        self._head = head
        self._vocabulary = vocabulary
        self._sampler = sampler
        self._form = form
        self._heard: dict[int, Tensor] = {}

    @property
    def form(self) -> str:
        return self._form

    def hear(self, request: int, hidden: Tensor) -> None:
        self._heard[request] = hidden

    @torch.inference_mode()
    def propose(self, asked: Sequence[Asked]) -> Mapping[int, Draft]:
        known = [one for one in asked if one.id in self._heard]
        if not known:
            return {}
        sketches = [Sketch(one) for one in known]
        rows = list(range(len(sketches)))
        state = self._head.begin(torch.stack([self._heard[one.id] for one in known]))
        while rows:
            tokens = torch.tensor([sketches[row].last for row in rows])
            state = self._head.step(state, tokens)
            for row, scores in zip(rows, self._head.scores(state), strict=True):
                sketches[row].add(self._spread(scores), self._sampler)
            left = [place for place, row in enumerate(rows) if sketches[row].wants_more]
            if len(left) < len(rows):
                state, rows = state[left], [rows[place] for place in left]
        return {sketch.id: sketch.draft for sketch in sketches}

    def close(self, request: int) -> None:
        self._heard.pop(request, None)

    def _spread(self, scores: Tensor) -> Tensor:
        """Scores of all words: [W] -> [V]."""
        every = torch.full((self._vocabulary,), -torch.inf)
        every[self._head.words] = scores
        return every
