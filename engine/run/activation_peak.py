"""How many bytes of temporary tensors a pass holds at its worst moment: measured, not guessed.

Every tensor an operator returns is seen by a dispatch mode; the storages that are new are counted
until they are freed. Buffers that a kernel allocates inside itself (oneDNN's scratchpad, a tile of
scores in fused attention) never become tensors and are not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.cache.kv_cache import KVCache
from engine.config import EngineConfig
from engine.model.llama import Llama
from engine.run.batch import lay_out
from engine.run.runner import make_cache
from engine.schedule.scheduler import Phase, prefill_counts


class ActivationPeak(TorchDispatchMode):
    """While active, follows the bytes of storages born inside it; `peak` is their highest sum."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._born: dict[int, weakref.finalize[..., Any]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = {
            leaf.untyped_storage()._cdata
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided
        }
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self._follow(leaf.untyped_storage(), given)
        self.peak = max(self.peak, self.live)
        return result

    def _follow(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        """Count a storage that is new: not an argument's (a view, in place) and not yet known."""
        key = storage._cdata
        if key in given or key in self._born:
            return
        size = storage.nbytes()
        self.live += size
        self._born[key] = weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.live -= size
        del self._born[key]


def measure(model: Llama, config: EngineConfig, capacity: int) -> int:
    """The larger peak of the configuration's largest prefill pass and of its decode step.

    Runs both on a cache of their own; the tokens do not matter, the shapes do. A chunked prefill
    is largest at its last chunk, whose mask is the longest.
    """
    batch = config.schedule.batch
    output = config.workload.output
    prompt = max(1, min(config.workload.prompt, capacity - 1))
    chunk = config.schedule.prefill_chunk
    counts = prefill_counts([prompt] * batch, chunk)
    cache = make_cache(model, batch, capacity)
    prefill = _peak_of(model, cache, "prefill", [prompt - count for count in counts], counts)
    longest = min(prompt + output - 1, capacity) - 1
    decode = _peak_of(model, cache, "decode", [longest] * batch, [1] * batch)
    return max(prefill, decode)


@torch.inference_mode()
def _peak_of(
    model: Llama, cache: KVCache, phase: Phase, starts: Sequence[int], counts: Sequence[int]
) -> int:
    """The peak of one pass of `counts[b]` rows after `starts[b]` cached tokens."""
    ids = tuple(range(len(counts)))
    for sequence, start in zip(ids, starts, strict=True):
        cache.allocate(sequence, cache.capacity)
        cache.append([sequence], [start])  # the cached tokens' values do not matter: zeros
    with ActivationPeak() as mode:
        tokens = [0] * sum(counts)
        window = model.config.sliding_window
        batch = lay_out(
            phase, ids, starts, counts, tokens, cache, window, model.dtype, model.device
        )
        hidden = model.forward(batch.input_ids, batch.positions, batch.context)
        logits = model.logits(hidden[batch.last_rows])
        logits.max(dim=-1)
    for sequence in ids:
        cache.free(sequence)
    return mode.peak
