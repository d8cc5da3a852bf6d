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

from engine.config import EngineConfig
from engine.model.llama import Llama
from engine.run.runner import Runner, make_cache
from engine.schedule.scheduler import Phase, prefill_counts


class ActivationPeak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, follows the bytes of storages born inside it; `peak` is their highest sum."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: int = 0
        self.peak: int = 0
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
    sequences = config.schedule.batch
    prompt = max(1, min(config.workload.prompt, capacity - 1))
    counts = prefill_counts([prompt] * sequences, config.schedule.prefill_chunk)
    longest = min(prompt + config.workload.output - 1, capacity) - 1
    runner = Runner(model, make_cache(model, sequences, capacity))
    prefill = _peak_of(runner, "prefill", [prompt - count for count in counts], counts)
    decode = _peak_of(runner, "decode", [longest] * sequences, [1] * sequences)
    return max(prefill, decode)


@torch.inference_mode()
def _peak_of(runner: Runner, phase: Phase, starts: Sequence[int], counts: Sequence[int]) -> int:
    """The peak of one pass of `counts[b]` rows after `starts[b]` cached tokens."""
    cache = runner.cache
    ids = tuple(range(len(counts)))
    for sequence, start in zip(ids, starts, strict=True):
        cache.admit(sequence, (), cache.capacity)
        cache.append([sequence], [[0] * start])  # what these tokens hold does not matter: zeros
    with ActivationPeak() as mode:
        batch = runner.layout.of_tokens(phase, ids, [[0] * count for count in counts])
        runner.last_logits(batch).max(dim=-1)
    for sequence in ids:
        cache.free(sequence)
    peak: int = mode.peak
    return peak
