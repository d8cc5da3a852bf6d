"""From logits to tokens: one probability function, and one stream of chance a request.

A request's draws come from its own generator, seeded by the request: what it says does not depend
on who shares its batch (up to rounding of the logits themselves).
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch
from torch import Tensor

from engine.schedule.sequence import SamplingParams
from engine.speculate.accept import Outcome, verify_greedy, verify_sampled
from engine.speculate.draft import Draft


def probabilities(logits: Tensor, temperature: float, top_p: float = 1.0) -> Tensor:
    """The distribution a token is drawn from: [V] -> [V] float32, sums to 1.

    softmax(logits / temperature), cut to the smallest set of most probable tokens whose mass
    reaches `top_p` (nucleus sampling, Holtzman et al., 2020) and renormalised. Temperature 0 puts
    all mass on the first largest logit. Draft and target use this same function.
    """
    if temperature == 0.0:
        return torch.nn.functional.one_hot(logits.argmax(), logits.shape[-1]).to(torch.float32)
    # Shifting by the maximum first keeps the quotient finite at any temperature.
    shifted = logits.to(torch.float32) - logits.max()
    full = torch.softmax(shifted / temperature, dim=-1)
    if top_p >= 1.0:
        return full
    ranked, order = full.sort(descending=True, stable=True)
    before = ranked.cumsum(0) - ranked  # mass of the strictly more probable
    kept = torch.where(before < top_p, ranked, 0.0)
    kept[0] = ranked[0]
    return torch.zeros_like(full).scatter_(0, order, kept / kept.sum())


class Sampler:
    """Draws the next token of each request; keeps one generator a sampled request."""

    def __init__(self) -> None:
        self._params: dict[int, SamplingParams] = {}
        self._generators: dict[int, torch.Generator] = {}

    def open(self, sequence: int, params: SamplingParams) -> None:
        self._params[sequence] = params
        if params.temperature > 0.0:
            self._generators[sequence] = torch.Generator().manual_seed(params.seed)

    def close(self, sequence: int) -> None:
        self._params.pop(sequence, None)
        self._generators.pop(sequence, None)

    def sample(self, sequences: Ordered[int], logits: Tensor, greedy: Tensor) -> list[int]:
        """One token a sequence. `logits` [B, V]; `greedy` [B], their arg max."""
        tokens: list[int] = greedy.tolist()
        for row, sequence in enumerate(sequences):
            if sequence in self._generators:
                tokens[row] = self._draw(sequence, logits[row])
        return tokens

    def choose(self, sequence: int, logits: Tensor) -> tuple[int, Tensor | None]:
        """A draft's next token of `sequence` from its scores [V], and the distribution it was drawn
        from; None where the request is greedy, and the token certain."""
        if sequence not in self._generators:
            return int(logits.argmax()), None
        chances = self._chances(sequence, logits)
        return self._pick(sequence, chances), chances

    def verify(self, sequence: int, draft: Draft, logits: Tensor, greedy: Tensor) -> Outcome:
        """What becomes of a draft of k tokens: `logits` [k + 1, V] are the target's scores at their
        places and after the last, `greedy` [k + 1] their arg max."""
        if sequence not in self._generators:
            return verify_greedy(draft.tokens, greedy.tolist())
        target = torch.stack([self._chances(sequence, row) for row in logits])
        chance = self._generators[sequence]
        return verify_sampled(draft.tokens, draft.proposed, target, chance)

    def _draw(self, sequence: int, logits: Tensor) -> int:
        return self._pick(sequence, self._chances(sequence, logits))

    def _chances(self, sequence: int, logits: Tensor) -> Tensor:
        params = self._params[sequence]
        return probabilities(logits, params.temperature, params.top_p).cpu()

    def _pick(self, sequence: int, chances: Tensor) -> int:
        return int(torch.multinomial(chances, 1, generator=self._generators[sequence]))
