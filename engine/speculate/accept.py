"""Which drafted tokens stand, and which token follows: the text is that of the target alone.

Speculative sampling (Leviathan et al., 2023; Chen et al., 2023). A token x that the draft drew with
chance q(x) stands with chance min(1, p(x) / q(x)), p being the target's at that place. The first
that falls is replaced by a draw from the positive part of p - q; where all stand, one more comes
from the target's own distribution. What is said is then distributed as p, whatever q was. Greedy
decoding is the same with all chance on one token: a draft stands while it is the target's choice.

p and q come from one function (`engine.run.sampler.probabilities`), temperature and top-p applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Outcome:
    """Of the drafted tokens the first `accepted` stand; `token` follows them."""

    accepted: int
    token: int


def verify_greedy(drafted: Sequence[int], best: Sequence[int]) -> Outcome:
    """`best` holds the target's choice at each drafted token's place, and at the one after."""
    accepted = 0
    while accepted < len(drafted) and drafted[accepted] == best[accepted]:
        accepted += 1
    return Outcome(accepted, best[accepted])


def verify_sampled(
    drafted: Sequence[int], proposed: Tensor | None, target: Tensor, chance: torch.Generator
) -> Outcome:
    """`proposed` [k, V] are the distributions that the k tokens were drawn from, None where the
    draft was certain of each; `target` [k + 1, V] those of the target. Rows sum to 1."""
    if drafted:
        chosen = torch.tensor(drafted)[:, None]
        p = target[:-1].gather(1, chosen)[:, 0].tolist()
        q = [1.0] * len(drafted) if proposed is None else proposed.gather(1, chosen)[:, 0].tolist()
        draws = torch.rand(len(drafted), generator=chance).tolist()
        for place, token in enumerate(drafted):
            if draws[place] * q[place] >= p[place]:
                return Outcome(place, _draw(_left(target[place], proposed, place, token), chance))
    return Outcome(len(drafted), _draw(target[len(drafted)], chance))


def _left(p: Tensor, proposed: Tensor | None, place: int, token: int) -> Tensor:
    """The positive part of p - q, not normalised; p itself where rounding leaves nothing of it."""
    if proposed is None:
        left = p.clone()
        left[token] = 0.0
    else:
        left = (p - proposed[place]).clamp_(min=0.0)
    return left if bool(left.sum() > 0.0) else p


def _draw(chances: Tensor, chance: torch.Generator) -> int:
    return int(torch.multinomial(chances, 1, generator=chance))
