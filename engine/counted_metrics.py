"""Figures that are counted rather than timed: one value each, exact.

Torch-free and pure; `engine.metrics` gives them their names' kinds and units.
"""

from __future__ import annotations

from engine.quality_report import Quality
from engine.trial import Ledger, MemoryAccount

ASKED_TOKENS = 2048
"""The request whose KV cache `kv_request_mb` is about."""

_SIXTEEN_BITS = 2
"""Bytes of a weight of which `weight_share` is a share."""


def memory_figures(
    memory: MemoryAccount | None, reference: MemoryAccount | None
) -> dict[str, float]:
    """Of the build's account and the reference's, as far as they are there.

    `weight_share` is what the weights hold over what they would in 16 bits, `average_bits` what
    one of them holds: scales, zeros and second copies included.
    """
    if memory is None:
        return {}
    figures = {"memory_bytes": float(memory.allocated_bytes)}
    if reference is not None:
        figures["memory_ratio"] = memory.allocated_bytes / reference.allocated_bytes
    if memory.weight_elements:
        held = memory.allocated.get("weights", 0)
        figures["weight_share"] = held / (_SIXTEEN_BITS * memory.weight_elements)
        figures["average_bits"] = 8 * held / memory.weight_elements
    return figures


def cache_figures(
    ledger: Ledger | None, reference: MemoryAccount | None, live_tokens: int | None
) -> dict[str, float]:
    """Of what the cache held at most, and of what the reference's holds a token."""
    figures: dict[str, float] = {}
    if live_tokens is not None:
        figures["live_tokens"] = float(live_tokens)
    if ledger is not None and ledger.budget:
        figures["vessel_share"] = ledger.reserved_bytes / ledger.budget
    if reference is not None and reference.kv_tokens:
        token = reference.allocated.get("kv", 0) / reference.kv_tokens
        figures["kv_request_mb"] = token * ASKED_TOKENS / 1e6
    return figures


def quality_figures(quality: Quality) -> dict[str, float]:
    """`probes_right` is the share of the questions that the full model gets right; it is left out
    where it gets none right or none were asked."""
    figures = {
        "kl": quality.kl,
        "top1": quality.top1,
        "perplexity_ratio": quality.perplexity_ratio,
    }
    if quality.probes is not None and quality.probes.known:
        figures["probes_right"] = quality.probes.right / quality.probes.known
    return figures
