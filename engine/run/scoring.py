"""Teacher forcing: the scores a model gives to a known text, on the kernels that serve it.

Quality is judged on these: KL divergence, equal top-1 and perplexity compare two models' scores of
the same tokens. A text runs as chunked prefill, so a long one needs little memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.model.llama import Llama
from engine.run.runner import Runner, make_cache

CHUNK = 256


def score_chunks(model: Llama, token_ids: Sequence[int], chunk: int = CHUNK) -> Iterator[Tensor]:
    """Scores of the text, `chunk` positions at a time: tensors [C, V] float32, in order.

    Row i of the whole foretells token i + 1. Every position sees all before it, whatever the
    chunk. Non-finite scores are passed on: the judge of quality names them.

    Raises:
        ValueError: an empty text, one longer than the model's context, or a chunk below 1.
    """
    if not 0 < len(token_ids) <= model.config.context:
        raise ValueError(
            f"a text of {len(token_ids)} tokens cannot be scored; 1 to {model.config.context} can"
        )
    if chunk < 1:
        raise ValueError(f"a chunk of {chunk} positions; at least 1")
    return _scores(model, token_ids, chunk)


def _scores(model: Llama, token_ids: Sequence[int], chunk: int) -> Iterator[Tensor]:
    runner = Runner(model, make_cache(model, sequences=1, capacity=len(token_ids)))
    runner.cache.admit(0, token_ids, len(token_ids))
    for start in range(0, len(token_ids), chunk):
        with torch.inference_mode():
            tokens = token_ids[start : start + chunk]
            batch = runner.layout.of_tokens("prefill", (0,), [tokens])
            scores = model.logits(model.forward(batch.input_ids, batch.positions, batch.context))
        yield scores


def logits(model: Llama, token_ids: Sequence[int]) -> Tensor:
    """All scores of a text at once: [S, V] float32. Raises as `score_chunks`."""
    return torch.cat(list(score_chunks(model, token_ids)))
