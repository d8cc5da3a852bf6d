"""Temporary tensors of a pass, by formula: the peak that the engine's own account will show.

Torch-free. The terms follow the tensors of one pass through `engine.model.llama`, moment by moment,
and the largest moment counts: of the largest prefill pass, or of a decode step at full length with
every seat taken. Buffers that kernels keep to themselves (oneDNN's scratchpad, a tile of scores in
fused attention) are not tensors and are not counted, here or there.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.cache_plan import CachePlan
from engine.cache_tensors import CacheTensors, Group, Pass
from engine.config import EngineConfig
from engine.joined import Joined
from engine.model.config import ModelConfig
from engine.products import Products
from engine.weight_format import NATIVE, NATIVE_PAIRS, NATIVE_ROWS

JOIN_ROWS = 128
"""Rows within which whole prompts share a prefill pass; the scheduler's own figure."""

_FLOAT = 4


def activation_bytes(
    config: EngineConfig,
    model: ModelConfig,
    size: int,
    plan: CachePlan,
    forms: Collection[str] = (),
) -> int:
    """The peak for a build whose cache is `plan`; `size` is the run's bytes a number, `forms` this
    machine's low-bit forms.

    A larger plan of the same build has more seats, and never needs less.
    """
    cache = CacheTensors.of(config, model, size, plan, forms)
    products = Products.of(config, model, forms)
    joined = Joined.of(config, model, forms)
    prefill, decode = largest_prefill(config, plan), largest_decode(config, plan)
    if cache.in_place:
        decode = one_by_one(decode)
    threads = config.run.threads if NATIVE in forms else 0
    rows = sum(part.rows for part in decode)
    return max(
        _peak(prefill, model, size, cache, products, joined, threads),
        _peak(decode, model, size, cache, products, joined, threads, scored=rows),
    )


def largest_prefill(config: EngineConfig, plan: CachePlan) -> Pass:
    """The prefill pass with the most rows, at its prompts' ends: there its masks are longest."""
    prompt = max(min(config.workload.prompt, plan.capacity - 1), 1)
    seats, chunk = plan.seats(config.schedule.batch), config.schedule.prefill_chunk
    if plan.layout == "paged":
        seats = min(seats, plan.blocks // -(-prompt // plan.block_size))
    room = chunk or max(JOIN_ROWS, prompt)
    whole = min(seats, room // prompt)
    groups = [Group(0, prompt, whole)] if whole else []
    rest = room - whole * prompt
    if chunk and rest and whole < seats:
        groups.append(Group(prompt - rest, rest))
    return groups


def largest_decode(config: EngineConfig, plan: CachePlan) -> Pass:
    """A row of every seat, and those of its draft, at the end of the longest request, or all blocks
    dealt out evenly."""
    seats = plan.seats(config.schedule.batch)
    work = config.workload
    longest = max(min(work.prompt + work.output - 1, plan.capacity), 1)
    if plan.layout == "contiguous":
        return [_ending(longest, config.draft.most, seats)]
    each, over = divmod(plan.blocks, seats)
    dealt = ((each + 1, over), (each, seats - over))
    return [
        _ending(min(longest, blocks * plan.block_size), config.draft.most, times)
        for blocks, times in dealt
        if times
    ]


def _ending(length: int, drafted: int, times: int) -> Group:
    """Sequences of `length` tokens with the last one and its draft in this pass."""
    count = min(1 + drafted, length)
    return Group(length - count, count, times)


def one_by_one(parts: Pass) -> Pass:
    """The same rows, each of which attends by itself."""
    return [Group(part.start + row, 1, part.times) for part in parts for row in range(part.count)]


def _peak(
    parts: Pass,
    model: ModelConfig,
    size: int,
    cache: CacheTensors,
    products: Products,
    joined: Joined,
    threads: int,
    scored: int = 0,
) -> int:
    """The largest of a pass's moments, for T rows and B sequences; every term is a live tensor.

    `threads` of the functions in C that few rows run in; 0 where none do. `scored` rows go through
    the head; 0 is each sequence's last.
    """
    rows = sum(part.rows for part in parts)
    sequences = scored or sum(part.times for part in parts)
    residual = rows * model.hidden * _FLOAT
    stream = rows * model.hidden * size
    turn = 2 * rows * model.head_dim * _FLOAT  # cosines and signed sines
    layer = cache.held(parts) + turn + residual
    rotated = rows * (model.query_width + model.kv_width)
    qkv = rows * (model.query_width + 2 * model.kv_width) * size
    again = rotated * size if model.qk_norm else 0  # the normed copy of q and k
    attention = layer + qkv + rotated * size
    # The last row of each sequence, picked where there are others, and normed.
    picked = sequences * model.hidden * _FLOAT if rows > sequences else residual
    last = layer - turn - residual + picked + sequences * model.hidden * size
    scores = sequences * model.vocabulary
    widened = scores * _FLOAT if size < _FLOAT else 0
    # The largest scores computed again: x, weight and product, a little over B rows each.
    sharpened = 3 * sequences * model.hidden * _FLOAT if widened and model.tied_head else 0
    few = threads > 0 and rows <= NATIVE_ROWS
    normed = stream if few else rows * model.hidden * _FLOAT + (stream if size < _FLOAT else 0)
    turning = 0 if few and not model.head_dim % NATIVE_PAIRS else _FLOAT
    attended = rows * model.query_width * size
    inner = rows * model.intermediate * size
    # In float32, or cast to it: the normed copy of queries and keys, and the result; the turned
    # copy, and the half-rotated one or the result.
    norming = rotated * (_FLOAT + (size if size < _FLOAT else 0)) if model.qk_norm else 0
    before: tuple[int, ...] = (
        layer + normed,
        layer + stream + qkv + products.beside("qkv", rows),
        layer + stream + qkv + max(norming, again + rotated * (turning + size)),
    )
    after: tuple[int, ...] = (
        layer + attended + stream + products.beside("o", rows),
        layer + stream + 2 * inner + products.beside("gate_up", rows),
        layer + stream + 3 * inner,
        layer + 2 * stream + inner + products.beside("down", rows),
    )
    moments: tuple[int, ...] = (
        cache.while_masked(parts),
        *(() if joined.all_before(rows) else before),
        attention + joined.beside_before(rows, size),
        attention + cache.writing(rows),
        attention + cache.attending(parts),
        *(() if joined.all_after(rows) else after),
        layer + attended + joined.beside_after(rows, size),
        last + scores * size + products.beside("head", sequences),
        last + widened + max(scores * size, sharpened),
    )
    return max(moments)
