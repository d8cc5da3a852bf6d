"""From a configuration to whoever drafts: the one place that knows every kind."""

from __future__ import annotations

from engine.cache.kv_cache import KVCache
from engine.cache.make import make_cache
from engine.config import DraftConfig
from engine.drafters import FREE_KINDS, SELF_BITS, exit_layers, own_cache_plan
from engine.model.llama import Llama
from engine.run.sampler import Sampler
from engine.speculate.draft import Proposer
from engine.speculate.head import DraftHead
from engine.speculate.ngram import NgramDraft
from engine.speculate.own_cache import OwnCacheDraft
from engine.speculate.shared import SharedCacheDraft
from engine.speculate.trained import TrainedDraft

DraftWith = Llama | DraftHead | None
"""What drafts, where it is not the target itself: that in fewer bits, another model, or a head."""


def make_proposer(
    asked: DraftConfig,
    target: Llama,
    cache: KVCache,
    sampler: Sampler,
    seats: int,
    network: DraftWith,
) -> Proposer | None:
    """Whoever drafts for `target` on `cache`, for up to `seats` requests; None where nobody does.

    Raises:
        ValueError: a kind that needs a network and has none, or one that does not fit the target.
    """
    if asked.kind == "none":
        return None
    if asked.kind == "ngram":
        return NgramDraft(asked.ngram)
    if asked.kind == "exit":
        layers = exit_layers(asked, target.config.layers)
        form = f"the first {layers} of {target.config.layers} layers"
        return SharedCacheDraft(target.first_layers(layers), cache, sampler, form)
    if network is None or isinstance(network, DraftHead) != (asked.kind == "trained"):
        given = "none" if network is None else type(network).__name__
        raise ValueError(f"draft.kind={asked.kind} drafts with a network; {given} was given")
    if isinstance(network, DraftHead):
        form = f"trained head of {network.shape.inner}, {len(network.words):,} words"
        return TrainedDraft(network, target.config.vocabulary, sampler, form)
    if asked.kind in SELF_BITS:
        _check_twin(target, network)
        form = f"itself at {SELF_BITS[asked.kind]} bits ({network.kernel_path['linear']})"
        return SharedCacheDraft(network, cache, sampler, form)
    if network.config.vocabulary != target.config.vocabulary:
        raise ValueError(
            f"a draft with {network.config.vocabulary} tokens cannot draft for a target with "
            f"{target.config.vocabulary}"
        )
    form = f"another model of {network.config.layers} layers ({network.kernel_path['linear']})"
    return OwnCacheDraft(network, _own_cache(network, seats, cache.capacity), sampler, form)


def _check_twin(target: Llama, network: Llama) -> None:
    if network.config != target.config or network.dtype != target.dtype:
        raise ValueError(
            "a draft that shares the target's keys and values is the target itself, in the same "
            f"precision: {target.precision}, not {network.precision}"
        )


def draft_bytes(asked: DraftConfig, network: DraftWith, seats: int, capacity: int) -> int:
    """Bytes that drafting takes beside the target: a network's weights, and its own cache for
    `seats` requests of `capacity` tokens where it needs one."""
    if network is None or asked.kind in FREE_KINDS:
        return 0
    if isinstance(network, DraftHead):
        return network.nbytes
    if asked.kind in SELF_BITS:
        return network.weight_bytes
    plan = own_cache_plan(network.config, network.dtype.itemsize, seats, capacity)
    return network.weight_bytes + plan.nbytes


def _own_cache(network: Llama, seats: int, capacity: int) -> KVCache:
    plan = own_cache_plan(network.config, network.dtype.itemsize, seats, capacity)
    return make_cache(plan, network.config, 0, network.dtype, network.device)
