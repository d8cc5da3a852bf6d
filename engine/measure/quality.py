"""What a build's speed costs in quality: its scores against the full-precision model's.

Both models read the same text, teacher-forced, on the kernels that serve; their scores are compared
chunk by chunk, so that the text's whole [S, V] never stands in memory, let alone twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.measure.workload import TextTokenizer, corpus_digest, corpus_text
from engine.model.llama import Llama
from engine.quality_report import Quality
from engine.run.scoring import first_bad_layer, score_chunks

FEWEST_SCORED = 2048
WINDOW = 513
"""Tokens of a window: 512 of them are scored, each seeing all before it in the window."""

CHUNK = 128

OnChunk = Callable[[int, int], None]
"""Called after each chunk with the tokens scored so far and their total."""


class QualityError(ArithmeticError):
    """A score that is no number: names the precision, the position and the layer."""


@dataclass(frozen=True)
class Comparison:
    """Sums over scored positions: KL in nats, equal top-1, and both models' -ln p of the text."""

    kl: float
    equal: int
    reference_nll: float
    candidate_nll: float
    scored: int

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.kl + other.kl,
            self.equal + other.equal,
            self.reference_nll + other.reference_nll,
            self.candidate_nll + other.candidate_nll,
            self.scored + other.scored,
        )


def compare_scores(reference: Tensor, candidate: Tensor, targets: Tensor) -> Comparison:
    """Two models' scores [R, V] float32 of the same R positions, whose next tokens are `targets`.

    KL(P || Q) = sum of P (ln P - ln Q) with P the reference's distribution, Q the candidate's.
    """
    log_p = torch.log_softmax(reference, dim=-1)
    log_q = torch.log_softmax(candidate, dim=-1)
    divergence = (log_p.exp() * (log_p - log_q)).sum(dtype=torch.float64)
    at = targets[:, None]
    return Comparison(
        kl=float(divergence),
        equal=int((reference.argmax(-1) == candidate.argmax(-1)).sum()),
        reference_nll=-float(log_p.gather(1, at).sum(dtype=torch.float64)),
        candidate_nll=-float(log_q.gather(1, at).sum(dtype=torch.float64)),
        scored=len(targets),
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


def measure_quality(
    reference: Llama,
    candidate: Llama,
    token_ids: Sequence[int],
    on_chunk: OnChunk | None = None,
    bits: int = 0,
) -> Quality:
    """`candidate` against the float32 `reference` on at least 2,048 tokens of the text.

    `candidate` keeps its keys and values in `bits`, as `cache.bits` says it; the reference in full.
    The float32 model against itself is the identity and is not run.

    Raises:
        ValueError: `reference` is not in float32, or the text is too short.
        QualityError: a score is not finite.
    """
    if reference.precision != "float32":
        raise ValueError(f"quality is against the float32 model, not {reference.precision}")
    texts = windows(token_ids, reference.config.context)
    total = sum(len(text) - 1 for text in texts)
    if candidate is reference and bits == 0:
        return Quality(0.0, 1.0, 1.0, total, corpus_digest())
    seen = Comparison(0.0, 0, 0.0, 0.0, 0)
    for text in texts:
        pairs = zip(
            score_chunks(reference, text[:-1], CHUNK),
            score_chunks(candidate, text[:-1], CHUNK, bits),
            strict=True,
        )
        start = 0
        for theirs, ours in pairs:
            check_finite(reference, theirs, text, start)
            check_finite(candidate, ours, text, start, bits)
            targets = torch.tensor(text[start + 1 : start + 1 + len(theirs)])
            seen += compare_scores(theirs, ours, targets)
            start += len(theirs)
            if on_chunk is not None:
                on_chunk(seen.scored, total)
    return Quality(
        kl=max(seen.kl / seen.scored, 0.0),  # rounding alone can carry a zero below zero
        top1=seen.equal / seen.scored,
        perplexity_ratio=math.exp((seen.candidate_nll - seen.reference_nll) / seen.scored),
        scored_tokens=seen.scored,
        text_digest=corpus_digest(),
    )


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
        f"in {model.precision} the scores at position {position} are not finite; the first "
        f"non-finite value came out of {where}"
    )


class QualityBook:
    """Figures already measured by this process, by (model digest, precision, KV bits, kernels)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int, str], Quality] = {}

    def look_up(
        self,
        digest: str,
        reference: Llama,
        candidate: Llama,
        tokenizer: TextTokenizer,
        on_chunk: OnChunk | None = None,
        bits: int = 0,
    ) -> Quality:
        """The candidate's quality with a cache of `bits`, measured on first use.

        Raises as `measure_quality`.
        """
        path = ";".join(f"{name}={form}" for name, form in sorted(candidate.kernel_path.items()))
        key = (digest, candidate.precision, bits, path)
        if key not in self._known:
            token_ids = tokenizer.encode(corpus_text())
            self._known[key] = measure_quality(reference, candidate, token_ids, on_chunk, bits)
        return self._known[key]
