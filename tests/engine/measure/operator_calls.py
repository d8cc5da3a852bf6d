"""Operator calls of an engine's passes, counted with a dispatch mode."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from engine.run.engine import Engine, SamplingParams


class CallCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def counted_calls(engine: Engine, prompt: int, output: int, requests: int) -> tuple[int, float]:
    """Calls of the whole prefill of `requests` prompts, and of a decode step in the mean."""
    for request in range(requests):
        ids = [(request + place) % 256 for place in range(prompt)]
        engine.add_request(ids, SamplingParams(max_tokens=output, ignore_eos=True))
    counts: dict[str, list[int]] = {"prefill": [], "decode": []}
    while engine.has_work:
        with CallCounter() as counter:
            step = engine.step()
        counts[step.phase].append(counter.calls)
    return sum(counts["prefill"]), sum(counts["decode"]) / len(counts["decode"])
