"""Teacher forcing: the scores a model gives to a known text, on the kernels that serve it.

Quality is judged on these: KL divergence, equal top-1 and perplexity compare two models' scores of
the same tokens. A text runs as chunked prefill, so a long one needs little memory at a time, and
every position attends to what is read back from the cache: a narrow one costs here what it costs
when it serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.model.llama import Llama
from engine.run.plain_cache import plain_cache
from engine.run.runner import Runner, where_it_broke

CHUNK = 256


def score_chunks(
    model: Llama, token_ids: Sequence[int], chunk: int = CHUNK, bits: int = 0
) -> Iterator[Tensor]:
    """Scores of the text, `chunk` positions at a time: tensors [C, V] float32, in order.

    Row i of the whole foretells token i + 1. Every position sees all before it, whatever the
    chunk, as the cache keeps it in `bits` (0: the model's own precision). Non-finite scores are
    passed on: the judge of quality names them.

    Raises:
        ValueError: an empty text, one longer than the model's context, a chunk below 1, or a width
            there is no format for.
    """
    if not 0 < len(token_ids) <= model.config.context:
        raise ValueError(
            f"a text of {len(token_ids)} tokens cannot be scored; 1 to {model.config.context} can"
        )
    if chunk < 1:
        raise ValueError(f"a chunk of {chunk} positions; at least 1")
    return _scores(_reader(model, token_ids, bits), token_ids, chunk)


def logits(model: Llama, token_ids: Sequence[int], bits: int = 0) -> Tensor:
    """All scores of a text at once: [S, V] float32. Raises as `score_chunks`."""
    return torch.cat(list(score_chunks(model, token_ids, bits=bits)))


@torch.inference_mode()
def first_bad_layer(model: Llama, token_ids: Sequence[int], bits: int = 0) -> str:
    """Where the first non-finite value of a pass over the text appears, in words."""
    runner = _reader(model, token_ids, bits)
    batch = runner.layout.of_tokens("prefill", (0,), [token_ids])
    return where_it_broke(model, batch)


def _reader(model: Llama, token_ids: Sequence[int], bits: int) -> Runner:
    """The model on a cache that holds this one text, as sequence 0."""
    runner = Runner(model, plain_cache(model, len(token_ids), bits))
    runner.cache.admit(0, token_ids, len(token_ids))
    return runner


def _scores(runner: Runner, token_ids: Sequence[int], chunk: int) -> Iterator[Tensor]:
    model = runner.model
    for start in range(0, len(token_ids), chunk):
        with torch.inference_mode():
            tokens = token_ids[start : start + chunk]
            batch = runner.layout.of_tokens("prefill", (0,), [tokens])
            scores = model.logits(model.forward(batch.input_ids, batch.positions, batch.context))
        yield scores
