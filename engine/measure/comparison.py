"""A model's scores against the full-precision model's, of the same text, position by position.

Both read the text teacher-forced, on the kernels that serve; their scores are compared a stretch at
a time, so that the text's whole [S, V] never stands in memory, let alone twice.

Of the full model the residual stream after the last layer is kept (`FullText`): 5 MB here, where
its scores would be 400. The head makes the same scores of it again in a fifth of the time of a
whole pass, so the divergence stays exact and only the first look pays for the layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from engine.model.llama import Llama
from engine.run.scoring import first_bad_layer, hidden_chunks, score_chunks

FEWEST_SCORED = 2048
WINDOW = 513
"""Tokens of a window: 512 of them are scored, each seeing all before it in the window."""

POSITION_TOKENS = 64
"""Positions of a window whose divergences are told as one mean."""

DECODED_ROWS = 32
"""The last rows of a window, of a model that multiplies few rows by low-bit kernels and many by
weights made dense again: they run as one pass of few rows, so that both kinds of kernels are
judged. All others run as one pass, so that weights are made dense once a window."""

SCORED_ROWS = 256
"""Rows whose scores [R, V] are made at once: a quantised head is made dense for each time."""

COMPARED_ROWS = 16
"""Rows that are compared at once: their scores stay in the processor's cache from one pass over
them to the next (49,152 scores a row, one thread: 0.27 ms a row at 16, 0.39 at 64, 0.52 at 128)."""

MOST_NATS = 500.0
"""Lost a token, where no float holds their ratio much longer."""

OnChunk = Callable[[int, int], None]
"""Called as scores are compared with the tokens scored so far and their total; raises to stop."""


class QualityError(ArithmeticError):
    """A score that is no number: names the precision, the position, the layer and the matrix."""


@dataclass(frozen=True)
class Comparison:
    """Over scored positions in order: each one's KL in nats; sums of equal top-1 and of both
    models' -ln p of the text."""

    divergences: tuple[float, ...]
    equal: int
    reference_nll: float
    candidate_nll: float

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.divergences + other.divergences,
            self.equal + other.equal,
            self.reference_nll + other.reference_nll,
            self.candidate_nll + other.candidate_nll,
        )

    @property
    def scored(self) -> int:
        return len(self.divergences)

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, self.divergences))

    @property
    def kl(self) -> float:
        """The mean, in nats a token; rounding alone can carry a zero below zero."""
        return max(math.fsum(self.divergences) / self.scored, 0.0)

    @property
    def top1(self) -> float:
        return self.equal / self.scored

    @property
    def perplexity_ratio(self) -> float:
        """Of a model so broken that it passes e^MOST_NATS, that."""
        nats = (self.candidate_nll - self.reference_nll) / self.scored
        return math.exp(min(nats, MOST_NATS))

    def by_position(self, width: int, step: int = POSITION_TOKENS) -> tuple[float, ...]:
        """Mean KL of each `step` positions of a window of `width` scored ones, the last may be
        shorter. The comparison must be of whole windows."""
        assert self.scored % width == 0
        means = []
        for start in range(0, width, step):
            count = min(step, width - start)
            runs = [
                self.divergences[window + start : window + start + count]
                for window in range(0, self.scored, width)
            ]
            total = math.fsum(value for run in runs for value in run)
            means.append(max(total / (count * len(runs)), 0.0))
        return tuple(means)


NOTHING = Comparison((), 0, 0.0, 0.0)


def compare_scores(reference: Tensor, candidate: Tensor, targets: Tensor) -> Comparison:
    """Two models' scores [R, V] float32 of the same R positions, whose next tokens are `targets`.

    KL(P || Q) = sum of P (ln P - ln Q) with P the reference's distribution, Q the candidate's.
    """
    log_p = torch.log_softmax(reference, dim=-1)
    log_q = torch.log_softmax(candidate, dim=-1)
    at = targets[:, None]
    reference_nll = -float(log_p.gather(1, at).sum(dtype=torch.float64))
    candidate_nll = -float(log_q.gather(1, at).sum(dtype=torch.float64))
    ratio = log_q.neg_().add_(log_p)
    divergences = ratio.mul_(log_p.exp_()).sum(dim=-1, dtype=torch.float64)  # [R]
    return Comparison(
        divergences=tuple(divergences.tolist()),
        equal=int((reference.argmax(-1) == candidate.argmax(-1)).sum()),
        reference_nll=reference_nll,
        candidate_nll=candidate_nll,
    )


def windows(token_ids: Sequence[int], context: int) -> list[list[int]]:
    """Windows spread evenly over the text, enough of them to score at least 2,048 tokens.

    Raises:
        ValueError: the text is too short to score that many.
    """
    width = min(WINDOW, context, len(token_ids))
    count = -(-FEWEST_SCORED // max(width - 1, 1))
    if width < 2 or count * (width - 1) > len(token_ids):
        raise ValueError(
            f"a text of {len(token_ids)} tokens is too short to score {FEWEST_SCORED} of them"
        )
    last = len(token_ids) - width
    starts = [round(last * index / max(count - 1, 1)) for index in range(count)]
    return [list(token_ids[start : start + width]) for start in starts]


@dataclass(frozen=True)
class FullText:
    """The text's windows, and the full model's residual stream over each: [S, H] float32.

    A window has S + 1 tokens: each of the S foretells the one after it.
    """

    windows: tuple[tuple[int, ...], ...]
    hidden: tuple[Tensor, ...]

    @property
    def width(self) -> int:
        return len(self.windows[0]) - 1

    @property
    def scored(self) -> int:
        return self.width * len(self.windows)


def read_text(
    reference: Llama, token_ids: Sequence[int], check: Callable[[], None] = lambda: None
) -> FullText:
    """The text as the float32 model reads it. `check` may raise to stop.

    Raises:
        ValueError: `reference` is not in float32, or the text is too short.
    """
    if reference.precision != "float32":
        raise ValueError(f"quality is against the float32 model, not {reference.precision}")
    texts = windows(token_ids, reference.config.context)
    read: list[Tensor] = []
    for text in texts:
        check()
        read += hidden_chunks(reference, text[:-1], [len(text) - 1])
    return FullText(tuple(tuple(text) for text in texts), tuple(read))


def compare_with(
    reference: Llama,
    text: FullText,
    candidate: Llama,
    on_chunk: OnChunk = lambda *_: None,
    bits: int = 0,
) -> Comparison:
    """`candidate`, its keys and values kept in `bits`, against what `reference` made of the text.

    Raises:
        QualityError: a score is not finite.
    """
    seen = NOTHING
    counts = _passes(candidate, text.width)
    for words, kept in zip(text.windows, text.hidden, strict=True):
        start = 0
        for ours in hidden_chunks(candidate, words[:-1], counts, bits):
            theirs = kept[start : start + len(ours)]
            targets = torch.tensor(words[start + 1 : start + 1 + len(ours)])
            for found in _stretches(reference, theirs, candidate, ours, targets):
                if not found.finite:
                    _explain(reference, candidate, words, bits)
                seen += found
                on_chunk(seen.scored, text.scored)
            start += len(ours)
    return seen


def _passes(model: Llama, width: int) -> list[int]:
    """Rows of each pass over a window of `width`."""
    few = min(model.crossover, DECODED_ROWS) if model.schemes else 0
    return [width - few, few] if 0 < few < width else [width]


def _stretches(
    reference: Llama, theirs: Tensor, candidate: Llama, ours: Tensor, targets: Tensor
) -> Iterator[Comparison]:
    """Comparisons of residual streams [R, H] against [R, H], some rows at a time, in order."""
    with torch.inference_mode():
        for start in range(0, len(ours), SCORED_ROWS):
            part = slice(start, start + SCORED_ROWS)
            scored = (reference.logits(theirs[part]), candidate.logits(ours[part]), targets[part])
            for full, build, words in zip(
                *(torch.split(whole, COMPARED_ROWS) for whole in scored), strict=True
            ):
                yield compare_scores(full, build, words)


def _explain(reference: Llama, candidate: Llama, words: Sequence[int], bits: int) -> NoReturn:
    """Whose scores of a window were no numbers, and from where. Raises QualityError."""
    for model, width in ((reference, 0), (candidate, bits)):
        start = 0
        for scores in score_chunks(model, words[:-1], SCORED_ROWS, width):
            check_finite(model, scores, words, start, width)
            start += len(scores)
    raise QualityError(f"the divergence of {_made_in(candidate)} from the full model is no number")


def check_finite(
    model: Llama, scores: Tensor, text: Sequence[int], start: int, bits: int = 0
) -> None:
    """Raises QualityError where one of `scores` (positions `start` ... of `text`) is no number."""
    finite = torch.isfinite(scores).all(dim=-1)
    if bool(finite.all()):
        return
    position = start + int((~finite).nonzero()[0, 0])
    where = first_bad_layer(model, text[: position + 1], bits)
    raise QualityError(
        f"in {_made_in(model)} the scores at position {position} are not finite; the first "
        f"non-finite value came out of {where}"
    )


def _made_in(model: Llama) -> str:
    """The precision, and the widths of weights that are kept in fewer bits."""
    widths = sorted({scheme.bits for scheme in model.schemes.values()}, reverse=True)
    if not widths:
        return model.precision
    return f"{model.precision} with weights of {', '.join(map(str, widths))} bits"
