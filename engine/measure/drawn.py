"""Was a sampled answer drawn from the model's own distribution? Its tokens, placed in it.

Order a position's tokens by probability, the likeliest first, and lay them end to end on the line
from 0 to 1, each as long as its probability. If the token that was said was drawn so, a point
chosen evenly within its piece is evenly spread over the whole line, and independent of those before
it, whatever the text (Rosenblatt, Ann. Math. Statist. 23, 1952). Tokens that come too often from a
tail, or never, are not; nor are those of another text.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from engine.draft_report import Drawn
from engine.measure.asking import chance_for
from engine.measure.output_check import output_scores
from engine.measure.timing import Answered
from engine.model.llama import Llama
from engine.uniformity import chance_of, distance

LEAST_CHANCE = 1e-3
"""Below it a proof has failed. One honest trial in a thousand fails too, and can be repeated."""


def places(
    model: Llama, prompt: Sequence[int], output: Sequence[int], temperature: float
) -> list[float]:
    """A point within each output token's piece of its position's line, 0 to 1, by the float32
    `model` that scores the text again. The point follows from the prompt."""
    chance = random.Random(f"place/{chance_for(prompt)}")
    found: list[float] = []
    for rows, given in output_scores(model, prompt, output):
        found += _pieces(rows.double() / temperature, given, chance)
    return found


def _pieces(rows: Tensor, given: Tensor, chance: random.Random) -> list[float]:
    """`rows` [C, V] are scores over the temperature, `given` [C] tokens."""
    probabilities = rows.softmax(dim=-1)
    own = rows.gather(1, given[:, None])
    earlier = torch.arange(rows.shape[1])[None] < given[:, None]
    before = (rows > own) | ((rows == own) & earlier)
    starts = torch.where(before, probabilities, 0.0).sum(dim=-1).tolist()
    lengths = probabilities.gather(1, given[:, None]).squeeze(1).tolist()
    return [
        min(start + chance.random() * length, 1.0)
        for start, length in zip(starts, lengths, strict=True)
    ]


def weigh(points: Sequence[float]) -> Drawn:
    """The verdict on places of one build's tokens. Raises ValueError without any."""
    far = distance(points)
    return Drawn(len(points), far, chance_of(far, len(points)), LEAST_CHANCE)


def places_of(model: Llama, runs: Iterable[Answered], temperature: float) -> list[float]:
    """Of every request of some runs."""
    return [
        place
        for run in runs
        for prompt, output in zip(run.prompts, run.outputs, strict=True)
        for place in places(model, prompt, output, temperature)
    ]
