"""Formulas against figures counted by hand and by brute force."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_machines import SMOLLM2

from engine.config import EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.price import (
    Slice,
    decode_work,
    element_bytes,
    kv_bytes,
    prefill_passes,
    prefill_work,
    price,
    weight_bytes,
)


def config(
    prompt: int = 128, output: int = 24, batch: int = 1, chunk: int = 0, precision: str = "float32"
) -> EngineConfig:
    return EngineConfig(
        WorkloadConfig(prompt, output), ScheduleConfig(batch, chunk), RunConfig(precision, 2)
    )


def test_kv_of_the_default_model_is_23040_bytes_a_token_in_16_bits() -> None:
    assert kv_bytes(config(2000, 48, precision="bfloat16"), SMOLLM2, 2) == 2048 * 23_040


def test_a_16_bit_pass_over_the_default_models_weights_is_269_megabytes() -> None:
    step = decode_work(config(1, 2, precision="bfloat16"), SMOLLM2)
    assert step.bytes_moved == pytest.approx(269e6, rel=0.002)


def test_weights_count_the_table_and_the_packed_head() -> None:
    shared = weight_bytes(SMOLLM2, 2, packed_head=False)
    assert shared == pytest.approx(269e6, rel=0.002)
    assert weight_bytes(SMOLLM2, 2) - shared == 49_152 * 576 * 2
    untied = msgspec.structs.replace(SMOLLM2, tied_head=False)
    assert weight_bytes(untied, 2, packed_head=False) == weight_bytes(SMOLLM2, 2)


def test_batch_shares_the_weights_and_not_the_cache() -> None:
    one, eight = (decode_work(config(batch=batch), SMOLLM2) for batch in (1, 8))
    weights = SMOLLM2.matrix_elements * 4
    assert (eight.bytes_moved - weights) == pytest.approx(8 * (one.bytes_moved - weights))
    assert eight.flops == pytest.approx(8 * one.flops)
    assert eight.dispatches < one.dispatches  # fewer than four rows are filled up first


def test_prefill_does_two_operations_a_weight_and_token() -> None:
    work = prefill_work(config(prompt=128), SMOLLM2)
    layers = 30 * (576 * (576 * 2 + 192 * 2) + 3 * 576 * 1536)
    attention = 4 * 30 * 576 * sum(range(1, 129))
    assert work.flops == 2 * 128 * layers + 2 * 49_152 * 576 + attention


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
    dense = 2 * prompt * batch * 30 * model.layer_matrix_elements + 2 * slices * 49_152 * 576
    attention = prefill_work(config(prompt, 2, batch, chunk), model).flops - dense
    assert attention == pytest.approx(4 * 30 * 576 * seen)


def test_a_chunk_splits_a_prompt_where_it_must() -> None:
    assert prefill_passes(config(40, 2, batch=2, chunk=32)) == (
        (Slice(0, 32),),
        (Slice(32, 8), Slice(0, 24)),
        (Slice(24, 16),),
    )


def test_parts_are_named_as_the_engines_account_and_sum_to_the_total() -> None:
    found = price(config(batch=4, precision="bfloat16"), SMOLLM2)
    assert set(found.parts) == {"weights", "kv", "activations", "scratch"}
    assert found.total == sum(found.parts.values())
    assert found.work.precision == "bfloat16"


def test_an_unknown_precision_is_refused_with_the_legal_ones() -> None:
    with pytest.raises(ValueError, match="float32, bfloat16, float16"):
        element_bytes("int5")
