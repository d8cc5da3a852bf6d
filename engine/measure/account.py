"""Memory: the price beside the engine's own exact account, and the process's resident size."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from engine.trial import MemoryAccount

_STATM = Path("/proc/self/statm")


def account(
    predicted: Mapping[str, int],
    allocated: Mapping[str, int],
    kv_tokens: int = 0,
    weight_elements: int = 0,
) -> MemoryAccount:
    """Both sides, part by part; `kv_tokens` token slots share the part `kv`, and the distinct
    `weight_elements` of the model the part `weights`.

    Raises:
        ValueError: the parts differ in name: then the sums could agree by chance.
    """
    if predicted.keys() != allocated.keys():
        raise ValueError(
            f"predicted parts {sorted(predicted)} are not the allocated ones {sorted(allocated)}"
        )
    return MemoryAccount(
        predicted=dict(predicted),
        allocated=dict(allocated),
        resident_bytes=resident_bytes(),
        kv_tokens=kv_tokens,
        weight_elements=weight_elements,
    )


def resident_bytes() -> int:
    """Bytes of this process now in memory; its peak where the system does not say.

    Context only: it does not fall when tensors are freed, and counts torch itself.
    """
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
