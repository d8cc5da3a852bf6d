"""Was the answer the model's own? A timed run's tokens, scored again by the full-precision model.

The run was greedy, so with the float32 model every token it gave is the arg max of what came before
it, or so close behind that rounding can explain it. Skipped layers, stale caches and reused answers
cannot hide: their tokens lie far below the maximum.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.measure.timing import Answered
from engine.model.llama import Llama
from engine.recipe import Recipe
from engine.run.scoring import score_chunks

TOLERANCE: Mapping[str, float] = {"float32": 0.01, "float16": 0.05, "bfloat16": 0.25}
"""How far below the largest float32 score a given token may lie, in standard deviations of that
position's scores, by the precision the run was made in.

bfloat16 keeps 8 bits, so a sum's relative error is about 2^-9 at each of some 200 roundings on the
way to the logits; float16 has 3 bits more. Measured on the default model: of 4,096 greedy bfloat16
tokens 18 were not the arg max, and the farthest lay 0.014 below it (0.068 where the head's largest
scores are not computed again); 512 float32 tokens all were. A random token lies about 4 below.
"""


CACHE_TOLERANCE: Mapping[int, float] = {0: 0.0, 16: 0.25, 8: 0.25, 4: 2.0}
"""The same for what a narrow cache adds, by its bits.

Measured on the default model in bfloat16: of 1,024 greedy tokens after prompts of 512, with 8-bit
keys and values 7 were not the arg max and the farthest lay 0.013 below it; with 4 bits 62, and
0.72 (1.07 after prompts of 384, 1.36 among 2,048 after prompts of 128 to 1,024). A cache of zeros
in place of the prompt's gives 5.7 and more.
"""

OWN_WIDTH_TOLERANCE: Mapping[int, float] = {4: 1.75}
"""Where a width costs so much that a wrong cache could hide behind it, the run is scored once more,
by the float32 model on a cache of that width.

With 4 bits, of 2,048 honest tokens after prompts of 128 to 1,024, 312 were not the best and the
farthest lay 1.18 below it (1.36 scored at full width); with another request's prompt in place of
their own, 29 of 32 answers of 32 tokens had one farther than 1.75. The first scoring stays: a width
that keeps nothing would agree with itself.
"""


WEIGHT_TOLERANCE: Mapping[int, float] = {8: 0.0, 4: 0.25, 3: 1.0}
"""The same for what few bits add to it, by the fewest of a build's layers. The float32 model that
judges a quantised build has the weights its codes stand for; but the coarser a network is, the more
it makes of every rounding on the way. (4 bits: their product rounds activations to bfloat16 in
float32 runs as well.)

Measured on the default model rounded to nearest, in bfloat16, after prompts of 96: with 4 bits the
farthest of 1,664 tokens lay 0.05 below the best, with 3 bits that of 1,920 0.33 (0.07 in groups of
32). In float32, 384 tokens each: 0.009 with 4 bits, 0 with 3 and with 2.
"""

RESTLESS_BITS, LEAST_AGREEMENT, JUDGED_TOKENS = 2, 0.2, 96
"""With so few bits a 16-bit run's single tokens tell nothing: they lay up to 6.9 below the best of
a float32 run with the same weights. How many are the best does: 50 to 62 % of 384 honest tokens, by
the row and in groups, and 3 % at most with another request's prompt in place of their own. At least
`LEAST_AGREEMENT` must be, once `JUDGED_TOKENS` of a build have been scored."""

ACTIVATION_TOLERANCE: Mapping[int, float] = {16: 0.0, 8: 1.0}
"""The same for what products by quantised activations add, by their bits: the judge keeps them
whole. Of 896 tokens of SmoothQuant's 8 by 8 bits 35 were not the best, the farthest 0.32 below."""


def tolerance(precision: str, bits: int, recipe: Recipe | None = None) -> float:
    """The farthest a token may lie below the best, for a run's precision, its cache's bits and the
    recipe of its weights."""
    allowed = max(TOLERANCE[precision], CACHE_TOLERANCE[bits])
    for scheme in recipe.schemes if recipe is not None else ():
        if precision != "float32" or scheme.bits == 4:
            allowed = max(allowed, WEIGHT_TOLERANCE.get(scheme.bits, 0.0))
        allowed = max(allowed, ACTIVATION_TOLERANCE[scheme.activations])
    return allowed


def restless(precision: str, recipe: Recipe) -> bool:
    """Whether a build is judged by how many of its tokens are the best."""
    few = any(scheme.bits <= RESTLESS_BITS for scheme in recipe.schemes)
    return few and precision != "float32"


@dataclass(frozen=True)
class WrongToken:
    """The first token that cannot be explained: its place in the output and its distance."""

    place: int
    token: int
    best: int
    distance: float
    allowed: float


def chosen_request(seed: int, run: int, batch: int) -> int:
    """Which request of a run is scored again: chance decides, not the build."""
    return random.Random(f"check/{seed}/{run}").randrange(batch)


def check_output(
    model: Llama,
    run: Answered,
    request: int,
    precision: str,
    bits: int = 0,
    recipe: Recipe | None = None,
) -> WrongToken | None:
    """Score one request of a run, teacher-forced, with the float32 `model`: for a quantised build,
    the one whose weights are those that its codes stand for.

    `precision` is the run's, `bits` the width of its cache as `cache.bits` says it, `recipe` that
    of its weights.

    Raises:
        ValueError: `model` is not in float32.
    """
    if model.precision != "float32":
        raise ValueError(f"outputs are checked with the float32 model, not {model.precision}")
    prompt, output = run.prompts[request], run.outputs[request]
    limits = {0: tolerance(precision, bits, recipe)}  # by the width of the cache scored on
    if bits in OWN_WIDTH_TOLERANCE:
        limits[bits] = max(OWN_WIDTH_TOLERANCE[bits], tolerance(precision, 0, recipe))
    for width, allowed in limits.items():
        distances, best = token_distances(model, prompt, output, width)
        for place, distance in enumerate(distances):
            if not distance <= allowed:  # a NaN is wrong, too
                return WrongToken(place, output[place], best[place], distance, allowed)
    return None


def token_distances(
    model: Llama, prompt: Sequence[int], output: Sequence[int], bits: int = 0
) -> tuple[list[float], list[int]]:
    """How far each output token lies below the best, in standard deviations of its position's
    scores; and the best token of each position. `bits` is the width of the cache scored on."""
    distances: list[float] = []
    best: list[int] = []
    for rows, given in output_scores(model, prompt, output, bits):
        top, places = rows.max(dim=-1)
        behind = top - rows.gather(1, given[:, None]).squeeze(1)
        distances.extend((behind / rows.std(dim=-1).clamp_min(1e-12)).tolist())
        best.extend(places.tolist())
    return distances, best


def output_scores(
    model: Llama, prompt: Sequence[int], output: Sequence[int], bits: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Chunk by chunk the scores [C, V] that each output token was chosen by, and the tokens [C]."""
    first = len(prompt) - 1
    start = told = 0
    for scores in score_chunks(model, [*prompt, *output[:-1]], bits=bits):
        rows = scores[max(first - start, 0) :]
        start += scores.shape[0]
        if rows.shape[0]:
            yield rows, torch.tensor(output[told : told + rows.shape[0]])
            told += rows.shape[0]
