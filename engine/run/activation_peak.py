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

from engine.activations import activation_bytes
from engine.cache_plan import CachePlan
from engine.config import EngineConfig
from engine.model.llama import Llama
from engine.run.runner import Runner
from engine.schedule.plan import Phase, prefill_counts


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


def foreseen(model: Llama, config: EngineConfig, plan: CachePlan) -> int:
    """What the formula says of the same peak, before anything ran."""
    return activation_bytes(config, model.config, model.dtype.itemsize, plan, model.low_bit_forms)


def measure(runner: Runner, config: EngineConfig, plan: CachePlan) -> int:
    """The larger peak of the configuration's largest prefill pass and of its largest decode step.

    Runs both on the runner's own cache, which must be empty of sequences and is cleared afterwards:
    a second cache would break the budget that this reports on. The tokens do not matter, the shapes
    do. A chunked prefill is largest at its last chunk, whose mask is the longest. A decode step is
    largest with every seat taken by the longest request, or, where the cache is too small for that,
    with all of it dealt out evenly among the seats.
    """
    seats = plan.seats(config.schedule.batch)
    prompt = max(1, min(config.workload.prompt, plan.capacity - 1))
    chunk = config.schedule.prefill_chunk
    counts = prefill_counts([prompt] * seats, chunk, widest=prompt)
    prefill = _peak_of(runner, "prefill", [prompt - count for count in counts], counts)
    lengths = decode_lengths(config, plan, seats)
    rows = [min(1 + config.draft.most, length) for length in lengths]
    starts = [length - count for length, count in zip(lengths, rows, strict=True)]
    return max(prefill, _peak_of(runner, "decode", starts, rows))


def decode_lengths(config: EngineConfig, plan: CachePlan, seats: int) -> list[int]:
    """Tokens of each sequence in the largest decode step, the new ones included."""
    longest = max(1, min(config.workload.prompt + config.workload.output - 1, plan.capacity))
    if plan.layout == "contiguous":
        return [longest] * seats
    each, over = divmod(plan.blocks, seats)
    return [min(longest, (each + (seat < over)) * plan.block_size) for seat in range(seats)]


@torch.inference_mode()
def _peak_of(runner: Runner, phase: Phase, starts: Sequence[int], counts: Sequence[int]) -> int:
    """The peak of one pass of `counts[b]` rows after `starts[b]` cached tokens.

    What the cached tokens hold does not matter: finite values, in parts never written. They must
    not be found by anyone, hence the clearing.
    """
    cache = runner.cache
    admitted: list[int] = []
    try:
        for sequence, (start, count) in enumerate(zip(starts, counts, strict=True)):
            tokens = [0] * (start + count)
            if not cache.can_admit(tokens, len(tokens)):
                break
            cache.admit(sequence, tokens, len(tokens))
            admitted.append(sequence)
        for sequence in admitted:
            cache.append([sequence], [[0] * starts[sequence]])
        with ActivationPeak() as mode:
            runs = [[0] * counts[sequence] for sequence in admitted]
            batch = runner.layout.of_tokens(phase, tuple(admitted), runs)
            hidden = runner.last_hidden(batch) if phase == "prefill" else runner.hidden(batch)
            runner.model.logits(hidden).max(dim=-1)
    finally:
        for sequence in admitted:
            cache.free(sequence)
        cache.clear()
    peak: int = mode.peak
    return peak
