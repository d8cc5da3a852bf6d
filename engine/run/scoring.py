"""Teacher forcing: the scores a model gives to a known text, on the kernels that serve it.

Quality is judged on these: KL divergence, equal top-1 and perplexity compare two models' scores of
the same tokens. A text runs as chunked prefill, so a long one needs little memory at a time, and
every position attends to what is read back from the cache: a narrow one costs here what it costs
when it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from engine.model.llama import Llama
from engine.run.finite import where_it_broke
from engine.run.plain_cache import plain_cache
from engine.run.runner import Runner

CHUNK = 256


def hidden_chunks(
    model: Llama, token_ids: Sequence[int], counts: Sequence[int], bits: int = 0
) -> Iterator[Tensor]:
    """The residual stream after the last layer, as many positions at a time as `counts` say, in
    order: tensors [C, H] float32. `Llama.logits` makes scores of them.

    Every position sees all before it, whatever the counts, as the cache keeps it in `bits` (0: the
    model's own precision).

    Raises:
        ValueError: an empty text, one longer than the model's context, counts that are not positive
            or do not add up to it, or a width there is no format for.
    """
    if not 0 < len(token_ids) <= model.config.context:
        raise ValueError(
            f"a text of {len(token_ids)} tokens cannot be scored; 1 to {model.config.context} can"
        )
    if min(counts, default=0) < 1 or sum(counts) != len(token_ids):
        raise ValueError(
            f"passes of {list(counts)} positions; each at least 1, and {len(token_ids)} in all"
        )
    return _hidden(_reader(model, token_ids, bits), token_ids, counts)


def score_chunks(
    model: Llama, token_ids: Sequence[int], chunk: int = CHUNK, bits: int = 0
) -> Iterator[Tensor]:
    """Scores of the text, `chunk` positions at a time: tensors [C, V] float32, in order.

    Row i of the whole foretells token i + 1. Non-finite scores are passed on: the judge of quality
    names them.

    Raises:
        ValueError: as `hidden_chunks`, or a chunk below 1.
    """
    if chunk < 1:
        raise ValueError(f"a chunk of {chunk} positions; at least 1")
    length = len(token_ids)
    counts = [min(chunk, length - start) for start in range(0, length, chunk)]
    return map(_scored(model), hidden_chunks(model, token_ids, counts, bits))


def logits(model: Llama, token_ids: Sequence[int], bits: int = 0) -> Tensor:
    """All scores of a text at once: [S, V] float32. Raises as `score_chunks`."""
    return torch.cat(list(score_chunks(model, token_ids, bits=bits)))


@torch.inference_mode()
def first_bad_layer(model: Llama, token_ids: Sequence[int], bits: int = 0) -> str:
    """Where the first non-finite value of a pass over the text appears, in words: the layer, the
    matrix in it and the value."""
    runner = _reader(model, token_ids, bits)
    batch = runner.layout.of_tokens("prefill", (0,), [token_ids])
    return where_it_broke(model, batch)


def _reader(model: Llama, token_ids: Sequence[int], bits: int) -> Runner:
    """The model on a cache that holds this one text, as sequence 0."""
    runner = Runner(model, plain_cache(model, len(token_ids), bits))
    runner.cache.admit(0, token_ids, len(token_ids))
    return runner


def _hidden(runner: Runner, token_ids: Sequence[int], counts: Sequence[int]) -> Iterator[Tensor]:
    model, start = runner.model, 0
    for count in counts:
        with torch.inference_mode():
            tokens = token_ids[start : start + count]
            batch = runner.layout.of_tokens("prefill", (0,), [tokens])
            hidden = model.forward(batch.input_ids, batch.positions, batch.context)
        yield hidden
        start += count


def _scored(model: Llama) -> Callable[[Tensor], Tensor]:
    return torch.inference_mode()(model.logits)
