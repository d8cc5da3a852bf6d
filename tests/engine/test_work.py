"""Work against sums by hand, masks counted cell by cell, and passes walked through."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_machines import SMOLLM2

from engine.cache_plan import CachePlan
from engine.config import (
    CacheConfig,
    EngineConfig,
    RunConfig,
    ScheduleConfig,
    WeightsConfig,
    WorkloadConfig,
)
from engine.load import mean_load
from engine.trial import LoadSample, RequestSample
from engine.work import Slice, decode_work, load_work, prefill_passes, prefill_work, running

LAYERS = 30 * (576 * (576 * 2 + 192 * 2) + 3 * 576 * 1536)
HEAD = 49_152 * 576


def config(
    prompt: int = 128, output: int = 24, batch: int = 1, chunk: int = 0, precision: str = "float32"
) -> EngineConfig:
    return EngineConfig(
        WorkloadConfig(prompt, output), ScheduleConfig(batch, chunk), RunConfig(precision, 2)
    )


def mixed(sharing: str = "off", chunk: int = 0, requests: int = 9, batch: int = 9) -> EngineConfig:
    return EngineConfig(
        WorkloadConfig(640, 48, "mixed", requests, 96),
        ScheduleConfig(batch, chunk),
        RunConfig("bfloat16", 2),
        CacheConfig("paged", 16, 0, sharing),
    )


# What a build will do


def test_a_16_bit_pass_over_the_default_models_weights_is_269_megabytes() -> None:
    step = decode_work(config(1, 2, precision="bfloat16"), SMOLLM2)
    assert step.bytes_moved == pytest.approx(269e6, rel=0.002)


def test_batch_shares_the_weights_and_not_the_cache() -> None:
    one, eight = (decode_work(config(batch=batch), SMOLLM2) for batch in (1, 8))
    weights = SMOLLM2.matrix_elements * 4
    assert (eight.bytes_moved - weights) == pytest.approx(8 * (one.bytes_moved - weights))
    assert eight.flops == pytest.approx(8 * one.flops)
    assert eight.dispatches < one.dispatches  # fewer than four rows are filled up first


@pytest.mark.parametrize(("bits", "token"), [(0, 23_040), (16, 23_040), (8, 11_880), (4, 6_480)])
def test_a_narrow_cache_moves_fewer_bytes_and_takes_as_many_operations(
    bits: int, token: int
) -> None:
    built = msgspec.structs.replace(
        config(512, 2, batch=4, precision="bfloat16"), cache=CacheConfig(bits=bits)
    )
    work = decode_work(built, SMOLLM2)
    assert work.bytes_moved == 2 * (LAYERS + HEAD) + 4 * (512 + 1 + 1) * token
    assert work.flops == 2 * 4 * (LAYERS + HEAD) + 4 * 4 * 30 * 576 * 513


def test_prefill_does_two_operations_a_weight_and_token() -> None:
    work = prefill_work(config(prompt=128), SMOLLM2)
    attention = 4 * 30 * 576 * sum(range(1, 129))
    assert work.flops == 2 * 128 * LAYERS + 2 * HEAD + attention


def test_chunks_read_the_weights_again() -> None:
    whole = prefill_work(config(prompt=512), SMOLLM2)
    cut = prefill_work(config(prompt=512, chunk=64), SMOLLM2)
    assert cut.bytes_moved > 7 * whole.bytes_moved
    assert cut.flops > whole.flops


loads = st.tuples(st.integers(1, 300), st.integers(1, 12), st.sampled_from([0, 16, 50, 128, 512]))


@given(loads)
def test_every_token_is_prefilled_once_and_in_order(load: tuple[int, int, int]) -> None:
    prompt, batch, chunk = load
    passes = prefill_passes(config(prompt, 2, batch, chunk))
    assert sum(part.count for one in passes for part in one) == prompt * batch
    for one in passes:
        rows = sum(part.count for part in one)
        assert all(part.count > 0 and part.start + part.count <= prompt for part in one)
        assert rows <= (chunk or max(128, prompt))


@given(loads, st.one_of(st.none(), st.integers(1, 200)))
def test_attention_work_equals_the_mask_counted_cell_by_cell(
    load: tuple[int, int, int], window: int | None
) -> None:
    prompt, batch, chunk = load
    model = msgspec.structs.replace(SMOLLM2, sliding_window=window)
    seen = batch * sum(min(place + 1, window or prompt) for place in range(prompt))
    passes = prefill_passes(config(prompt, 2, batch, chunk))
    slices = sum(len(one) for one in passes)
    dense = 2 * prompt * batch * LAYERS + 2 * slices * HEAD
    attention = prefill_work(config(prompt, 2, batch, chunk), model).flops - dense
    assert attention == pytest.approx(4 * 30 * 576 * seen)


def test_a_chunk_splits_a_prompt_where_it_must() -> None:
    assert prefill_passes(config(40, 2, batch=2, chunk=32)) == (
        (Slice(0, 32),),
        (Slice(32, 8), Slice(0, 24)),
        (Slice(24, 16),),
    )


def test_whole_prompts_join_a_pass_while_they_fit_in_128_rows() -> None:
    sizes = [[part.count for part in one] for one in prefill_passes(config(50, 2, batch=5))]
    assert sizes == [[50, 50], [50, 50], [50]]


def test_requests_that_wait_for_a_seat_join_no_pass_of_those_before_them() -> None:
    built = msgspec.structs.replace(config(50, 2, 5), workload=WorkloadConfig(50, 2, requests=5))
    sizes = [[part.count for part in one] for one in prefill_passes(built, seats=1)]
    assert sizes == [[50]] * 5


@pytest.mark.parametrize("chunk", [0, 64])
def test_a_shared_beginning_is_prefilled_by_the_first_alone(chunk: int) -> None:
    built = mixed("on", chunk)
    slices = [part for one in prefill_passes(built) for part in one]
    prompts = sum(shape.prompt for shape in mean_load(built))
    assert sum(part.count for part in slices) == prompts - 8 * 96
    assert slices[0].start == 0
    alone = sum(part.count for one in prefill_passes(mixed("off", chunk)) for part in one)
    assert alone == prompts


@pytest.mark.parametrize(
    ("layout", "blocks", "slots", "sharing", "together"),
    [
        # 3 documents of 504 + 36 - 1 tokens take 34 blocks of 16, 6 chats of 158 + 36 - 1 take 13.
        ("contiguous", 0, 4, "off", 4),
        ("contiguous", 0, 40, "off", 9),
        ("paged", 100, 0, "off", 5),
        ("paged", 1000, 0, "off", 9),
        ("paged", 100, 0, "on", 6),
        ("paged", 5, 0, "off", 1),
    ],
)
def test_how_many_decode_together(
    layout: str, blocks: int, slots: int, sharing: str, together: int
) -> None:
    plan = CachePlan(layout, 688, slots, blocks, 16, 1)  # type: ignore[arg-type]
    assert running(mixed(sharing), plan) == together


# What a load has done


def request(prompt: int, output: int, cached: int = 0, preemptions: int = 0) -> RequestSample:
    return RequestSample(
        kind="chat",
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=cached,
        queued=0.0,
        ttft=1.0,
        finished=2.0,
        gaps=(0.1,) * (output - 1),
        preemptions=preemptions,
    )


def sample(*requests: RequestSample, passes: int = 2, steps: int = 9) -> LoadSample:
    prefilled = sum(one.prompt_tokens - one.cached_tokens for one in requests)
    return LoadSample(
        requests=requests,
        prefill_seconds=1.0,
        decode_seconds=1.0,
        other_seconds=0.0,
        wall_seconds=2.0,
        prefill_passes=passes,
        decode_steps=steps,
        prefilled_tokens=prefilled,
        recomputed_tokens=0,
        preemptions=sum(one.preemptions for one in requests),
        held_tokens=1.0,
        reserved_tokens=1.0,
        peak_live_tokens=1,
        most_running=len(requests),
        copies=0,
        output_digest="",
    )


BF16 = config(precision="bfloat16")
TOKEN = 23_040
PAIR = 4 * 30 * 576
"""Operations of one (query, key) pair over the default model's layers."""


def test_a_loads_work_is_counted_token_by_token() -> None:
    work = load_work(sample(request(100, 5), request(30, 10)), BF16, SMOLLM2)
    prefill_pairs = sum(range(1, 101)) + sum(range(1, 31))
    decode_pairs = sum(range(101, 105)) + sum(range(31, 40))
    assert work.prefill.bytes_moved == 2 * 2 * (LAYERS + HEAD) + 130 * TOKEN
    assert work.prefill.flops == 2 * 130 * LAYERS + 2 * 2 * HEAD + PAIR * prefill_pairs
    rows = 4 + 9
    assert work.decode.bytes_moved == pytest.approx(
        2 * (LAYERS + HEAD) + (decode_pairs + rows) * TOKEN / 9
    )
    assert work.decode.flops == pytest.approx(
        (2 * rows * (LAYERS + HEAD) + PAIR * decode_pairs) / 9
    )


def test_a_uniform_loads_work_is_that_of_the_build() -> None:
    """The same load told in advance and counted afterwards: 4 requests, whole prompts, one wave."""
    built = config(200, 11, batch=4, precision="bfloat16")
    counted = load_work(sample(*[request(200, 11)] * 4, passes=4, steps=10), built, SMOLLM2)
    assert counted.prefill.flops == prefill_work(built, SMOLLM2).flops
    assert counted.prefill.bytes_moved == prefill_work(built, SMOLLM2).bytes_moved
    assert counted.decode.flops == pytest.approx(decode_work(built, SMOLLM2).flops)
    assert counted.decode.bytes_moved == pytest.approx(decode_work(built, SMOLLM2).bytes_moved)
    assert counted.decode.dispatches == decode_work(built, SMOLLM2).dispatches


def test_what_was_found_in_the_prefix_cache_was_not_computed_and_may_be_read_once_for_all() -> None:
    alone = load_work(sample(request(100, 5), request(100, 5)), BF16, SMOLLM2)
    shared = load_work(sample(request(100, 5), request(100, 5, cached=96)), BF16, SMOLLM2)
    assert alone.prefill.flops - shared.prefill.flops == (
        2 * 96 * LAYERS + PAIR * sum(range(1, 97))
    )
    assert alone.decode.flops == shared.decode.flops
    assert alone.decode.bytes_moved - shared.decode.bytes_moved == pytest.approx(4 * 96 * TOKEN / 9)


def test_a_request_that_was_put_back_is_charged_no_step_it_may_not_have_made() -> None:
    """Its next token came out of the prefill that computed it again."""
    once = load_work(sample(request(100, 5, preemptions=1)), BF16, SMOLLM2)
    assert once.decode.flops == pytest.approx(
        (2 * 3 * (LAYERS + HEAD) + PAIR * (101 + 102 + 103)) / 9
    )
    often = load_work(sample(request(100, 2, preemptions=4)), BF16, SMOLLM2)
    assert often.decode.flops == 0
    assert often.decode.bytes_moved == 2 * (LAYERS + HEAD)


def test_a_window_bounds_what_a_load_looks_at() -> None:
    model = msgspec.structs.replace(SMOLLM2, sliding_window=50)
    work = load_work(sample(request(100, 5)), BF16, model)
    pairs = sum(min(place, 50) for place in range(1, 101))
    assert work.prefill.flops == 2 * 100 * LAYERS + 2 * HEAD + PAIR * pairs
    assert work.decode.flops == pytest.approx((2 * 4 * (LAYERS + HEAD) + PAIR * 4 * 50) / 9)


# Quantised weights

FORMS = ("int8-row", "int4-group", "int8-dynamic", "packed", "int8-blocked")


def narrow(
    weights: WeightsConfig, precision: str = "bfloat16", batch: int = 1, chunk: int = 0
) -> EngineConfig:
    return msgspec.structs.replace(
        config(batch=batch, chunk=chunk, precision=precision), weights=weights
    )


def test_a_decode_step_reads_the_bytes_that_are_kept() -> None:
    full, four = (
        decode_work(narrow(WeightsConfig(bits)), SMOLLM2, forms=FORMS).bytes_moved
        for bits in (0, 4)
    )
    read = LAYERS / 2 + LAYERS / 64 * 4 + 49_152 * (576 + 2 + 4)
    assert full - four == pytest.approx(2 * (LAYERS + HEAD) - read)


def test_every_pass_of_a_prefill_reads_them_again() -> None:
    build = WeightsConfig(4)
    one, four = (
        prefill_work(narrow(build, chunk=chunk), SMOLLM2, forms=FORMS).bytes_moved
        for chunk in (0, 32)
    )
    read = LAYERS / 2 + LAYERS / 64 * 4 + 49_152 * (576 + 2 + 4)
    kept = 23_040 * (32 + 64 + 96)  # read back by the later chunks
    assert four - one == pytest.approx(3 * read + kept)


@pytest.mark.parametrize(
    ("weights", "precision", "layers", "head"),
    [
        (WeightsConfig(4), "bfloat16", 1, 1),
        (WeightsConfig(3), "float32", 1, 3 / 4),
        (WeightsConfig(4, embedding=16), "float32", 1 / 2, 1),
        (WeightsConfig(8), "float32", 3 / 4, 3 / 4),
        (WeightsConfig(8, method="smoothquant"), "bfloat16", 1 / 2, 1),
        (WeightsConfig(8, method="smoothquant"), "float32", 1 / 4, 3 / 4),
    ],
)
def test_multiply_adds_of_narrower_numbers_count_less(
    weights: WeightsConfig, precision: str, layers: float, head: float
) -> None:
    """The floor must not be above what a kernel of such numbers can do."""
    full = decode_work(narrow(WeightsConfig(), precision), SMOLLM2, forms=FORMS).flops
    found = decode_work(narrow(weights, precision), SMOLLM2, forms=FORMS).flops
    saved = 2 * (LAYERS * (1 - layers) + HEAD * (1 - head))
    assert full - found == pytest.approx(saved)


def test_a_machine_without_kernels_moves_packed_codes() -> None:
    found = decode_work(narrow(WeightsConfig(8, symmetric="on")), SMOLLM2, forms=("packed",))
    full = decode_work(narrow(WeightsConfig()), SMOLLM2, forms=("packed",))
    rows = 30 * (960 + 576 + 3072 + 576) + 49_152
    assert full.bytes_moved - found.bytes_moved == pytest.approx(LAYERS + HEAD - 2 * rows)
    assert found.flops == full.flops
