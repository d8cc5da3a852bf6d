"""What is refused before the run, and the nearest build it is told: tried, and one beyond it."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_machines import SMOLLM2, make_capabilities

from engine.cache_plan import vessel_bytes
from engine.domains import KnobError, Value
from engine.price import price
from engine.resolve import Resolved, resolve

Build = dict[str, Value]

MACHINE = make_capabilities(memory_bytes=8 << 30, linear_forms=("plain", "packed"))
ABYSS: Build = {
    "workload.prompt": 1024,
    "workload.output": 8,
    "run.precision": "bfloat16",
    "memory.budget": 95,
    "memory.overflow": "break",
}
PAGING: Build = {
    "workload.mix": "mixed",
    "workload.prompt": 640,
    "workload.output": 48,
    "workload.requests": 16,
    "workload.system": 96,
    "schedule.batch": 16,
    "run.precision": "bfloat16",
    "memory.budget": 72,
}


def resolved(build: Build, memory: int = 8 << 30) -> Resolved:
    machine = msgspec.structs.replace(MACHINE, memory_bytes=memory)
    return resolve(build, machine, SMOLLM2, calibrated_threads=2)


def refusal(build: Build, memory: int = 8 << 30) -> str:
    with pytest.raises(KnobError) as caught:
        resolved(build, memory)
    return str(caught.value)


def nearest(message: str) -> Build:
    """The settings that a refusal names after "nearest:"."""
    found = re.findall(r"([a-z]+\.[a-z_]+)=(\w+)", message.rpartition("nearest: ")[2])
    assert found, message
    return {name: int(value) if value.isdigit() else value for name, value in found}


# Lengths


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (
            {"workload.prompt": 8192},
            "workload.prompt + workload.output is 8216 tokens and the model's context is 8192; "
            "nearest: workload.prompt=8168",
        ),
        (
            {"workload.prompt": 8191, "workload.output": 2},
            "workload.prompt + workload.output is 8193 tokens and the model's context is 8192; "
            "nearest: workload.prompt=8190",
        ),
        (
            {"workload.prompt": 100, "workload.system": 100},
            "workload.system=100 leaves none of the 100 tokens of workload.prompt to each "
            "request; at least 1 must be its own; nearest: workload.system=99",
        ),
        (
            PAGING | {"workload.system": 630},
            "workload.system=630 leaves 10 of the 640 tokens of workload.prompt to each request; "
            "at least 16 must be its own; nearest: workload.system=624",
        ),
        (
            PAGING | {"workload.output": 3},
            "a mixed load draws answers from half its longest up, which needs 4 tokens; "
            "workload.output is 3; nearest: workload.output=4",
        ),
        (
            {"workload.mix": "mixed", "workload.prompt": 10},
            "a mixed load draws prompts below its longest, which needs 16 tokens; "
            "workload.prompt is 10; nearest: workload.prompt=16",
        ),
    ],
)
def test_lengths_that_cannot_go_together(build: Build, told: str) -> None:
    assert refusal(build) == told
    resolved(build | nearest(told))


def test_an_answer_longer_than_the_context_gets_both_lengths() -> None:
    short = msgspec.structs.replace(SMOLLM2, context=256)
    with pytest.raises(KnobError) as caught:
        resolve({"workload.prompt": 300, "workload.output": 512}, MACHINE, short)
    found = nearest(str(caught.value))
    assert found == {"workload.prompt": 254, "workload.output": 2}
    resolve(found, MACHINE, short)


# Layout


def test_sharing_needs_blocks() -> None:
    told = refusal(PAGING | {"cache.prefix_sharing": "on"})
    assert "nearest: cache.prefix_sharing=off, or cache.layout=paged" in told
    resolved(PAGING | {"cache.prefix_sharing": "on", "cache.layout": "paged"})


@pytest.mark.parametrize(("size", "near"), [(48, 32), (3, 2), (100, 128), (200, 256), (255, 256)])
def test_blocks_divide_the_context(size: int, near: int) -> None:
    told = refusal({"cache.layout": "paged", "cache.block_size": size})
    assert told == (
        f"cache.block_size={size} cannot run here: blocks must divide the model's context of "
        f"8192 tokens; nearest: {near}"
    )
    resolved({"cache.layout": "paged", "cache.block_size": near})


def test_a_block_size_that_nobody_uses_is_nobodys_trouble() -> None:
    odd = msgspec.structs.replace(SMOLLM2, context=1000)
    assert resolve({}, MACHINE, odd).config.cache.block_size == 16


def test_an_odd_head_has_no_4_bit_cache() -> None:
    odd = msgspec.structs.replace(SMOLLM2, head_dim=63)
    with pytest.raises(KnobError, match=r"cache\.bits=4 cannot run here: .* 63 .*; nearest: 8"):
        resolve({"cache.bits": 4}, MACHINE, odd)
    assert resolve({"cache.bits": 8}, MACHINE, odd).config.cache.bits == 8


# The vessel


def test_a_prompt_too_long_for_the_vessel_is_told_the_longest_that_fits() -> None:
    build = ABYSS | {"workload.prompt": 8000}
    told = refusal(build)
    assert told.startswith("the vessel holds 511.0 MB; weights and working memory take ")
    found = nearest(told)
    assert set(found) == {"workload.prompt"}
    resolved(build | found)
    refusal(build | {"workload.prompt": int(found["workload.prompt"]) + 1})


def test_weights_that_alone_pass_the_vessel_are_told_a_precision() -> None:
    told = refusal(ABYSS | {"run.precision": "float32"})
    assert nearest(told) == {"run.precision": "bfloat16"}


def test_a_vessel_too_small_for_any_precision_is_told_a_larger_one() -> None:
    build = ABYSS | {"memory.budget": 20}
    found = nearest(refusal(build))
    assert set(found) == {"memory.budget"}
    resolved(build | found)
    assert "memory.budget" not in nearest(
        refusal(build | {"memory.budget": int(found["memory.budget"]) - 1})
    )


def test_a_precision_that_does_not_run_here_is_not_proposed() -> None:
    machine = msgspec.structs.replace(
        MACHINE, precisions={"float32": "", "bfloat16": "no", "float16": "no"}
    )
    with pytest.raises(KnobError, match=r"nearest: memory\.budget=\d+$"):
        resolve(ABYSS | {"run.precision": "float32"}, machine, SMOLLM2)


def test_a_batch_that_must_break_the_vessel_is_not_refused() -> None:
    deep = resolved(ABYSS | {"schedule.batch": 64})
    assert "schedule.batch" not in deep.reasons
    found = price(deep.config, SMOLLM2)
    assert found.live > found.kv and found.vessel is not None
    assert found.total <= found.vessel < found.total - found.kv + found.live


def test_a_batch_that_waits_is_told_how_many_run_at_once() -> None:
    found = resolved(PAGING)
    seats = price(found.config, SMOLLM2).plan.slots
    told = found.reasons["schedule.batch"]
    assert told == f"{seats} of 16 requests fit the vessel at once"
    paged = resolved(PAGING | {"cache.layout": "paged"})
    assert re.fullmatch(
        r"\d+ blocks of 16 tokens fit the vessel: \d+ of 16 requests of the longest length at once",
        paged.reasons["schedule.batch"],
    )
    assert "schedule.batch" not in resolved(PAGING | {"memory.budget": 400}).reasons


# The machine


def test_a_build_larger_than_the_machine_is_told_the_largest_batch() -> None:
    build: Build = {"workload.prompt": 4000, "schedule.batch": 64}
    told = refusal(build, memory=4 << 30)
    assert "and this machine gives 3,436.0 MB, 80% of its memory; nearest: " in told
    found = nearest(told)
    assert set(found) == {"schedule.batch"}
    fits = price(resolved(build | found, memory=4 << 30).config, SMOLLM2)
    assert fits.total <= 0.8 * (4 << 30)
    refusal(build | {"schedule.batch": int(found["schedule.batch"]) + 1}, memory=4 << 30)


def test_one_request_larger_than_the_machine_is_told_a_shorter_prompt_or_a_precision() -> None:
    assert set(nearest(refusal({"workload.prompt": 8000}, memory=1 << 30))) == {"workload.prompt"}
    small = 600 * 10**6
    assert nearest(refusal({}, memory=small)) == {"run.precision": "bfloat16"}
    assert refusal({}, memory=1 << 28).endswith("nearest: a smaller model")


def test_a_machine_of_unknown_memory_refuses_nothing() -> None:
    assert resolved({"schedule.batch": 64}, memory=0).config.schedule.batch == 64


@given(
    st.sampled_from(["contiguous", "paged"]),
    st.integers(1, 8000),
    st.integers(1, 64),
    st.sampled_from([0, 16, 8, 4]),
    st.sampled_from(["float32", "bfloat16"]),
    st.integers(30, 300),
)
def test_what_is_taken_stays_in_the_vessel_and_what_is_refused_is_told_what_would_run(
    layout: str, prompt: int, batch: int, bits: int, precision: str, budget: int
) -> None:
    build: Build = {
        "cache.layout": layout,
        "workload.prompt": prompt,
        "schedule.batch": batch,
        "cache.bits": bits,
        "run.precision": precision,
        "memory.budget": budget,
    }
    try:
        found = resolved(build)
    except KnobError as error:
        resolved(build | nearest(str(error)))
        return
    cost = price(found.config, SMOLLM2)
    assert cost.vessel == vessel_bytes(found.config, SMOLLM2)
    assert cost.total <= (cost.vessel or 0)
    assert cost.plan.requests >= 1


# Weights


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (
            {"weights.bits": 4, "weights.group": 128},
            "weights.group=128 does not divide rows of 576, 1536 weights; nearest: "
            "weights.group=96",
        ),
        (
            {"weights.bits": 4, "weights.group": 500},
            "nearest: weights.group=192",
        ),
        (
            {"weights.bits": 8, "weights.group": 1000},
            "nearest: weights.group=192",
        ),
        (
            {"weights.mlp": 3, "weights.group": 33},
            "nearest: weights.group=32",
        ),
        (
            {"weights.embedding": 4, "weights.group": 300},
            "weights.group=300 does not divide rows of 576 weights; nearest: weights.group=288",
        ),
        (
            {"weights.bits": 4, "weights.method": "smoothquant"},
            "weights.method=smoothquant is for 8-bit weights and activations, and weights.bits=4 "
            "asks for others; nearest: weights.bits=8",
        ),
        (
            {"weights.bits": 3, "weights.mlp": 4, "weights.method": "smoothquant"},
            "weights.bits=3, weights.mlp=4 asks for others; nearest: weights.bits=8 with "
            "weights.mlp=8",
        ),
        (
            {"weights.attention": 8, "weights.edges": 2, "weights.method": "smoothquant"},
            "nearest: weights.edges=8",
        ),
        (
            {"weights.bits": 8, "weights.group": 64, "weights.method": "smoothquant"},
            "nearest: weights.group=row",
        ),
    ],
)
def test_a_recipe_that_cannot_be_names_the_nearest_that_can(build: Build, told: str) -> None:
    message = refusal(build)
    assert told in message
    found = {name: -1 if value == "row" else value for name, value in nearest(message).items()}
    resolved(build | found)


def test_a_model_that_no_group_divides_is_told_the_row() -> None:
    odd = msgspec.structs.replace(SMOLLM2, hidden=7 * 9, head_dim=7, intermediate=11 * 13)
    with pytest.raises(KnobError, match=r"nearest: weights.group=row$"):
        resolve({"weights.bits": 4, "weights.group": 32}, MACHINE, odd)
    resolve({"weights.bits": 4, "weights.group": -1}, MACHINE, odd)


def test_groups_that_nothing_uses_are_not_checked() -> None:
    resolved({"weights.group": 500})
    resolved({"weights.bits": 8, "weights.embedding": 16, "weights.group": 0})


@pytest.mark.parametrize("name", ["bits", "attention", "mlp", "embedding", "edges"])
def test_a_width_without_a_kernel_names_the_nearest_with_one(name: str) -> None:
    bare = msgspec.structs.replace(
        MACHINE, weight_bits={"8": "", "4": "", "3": "no kernel", "2": "no kernel"}
    )
    with pytest.raises(KnobError) as caught:
        resolve({f"weights.{name}": 3}, bare, SMOLLM2)
    assert str(caught.value) == (
        f"weights.{name}=3 cannot run here: no kernel; nearest: weights.{name}=4"
    )
    resolve({f"weights.{name}": 4}, bare, SMOLLM2)


def test_a_machine_without_any_narrow_kernel_names_full_width() -> None:
    bare = msgspec.structs.replace(MACHINE, weight_bits=dict.fromkeys("8432", "no kernel"))
    with pytest.raises(KnobError, match=r"nearest: weights.bits=full"):
        resolve({"weights.bits": 4}, bare, SMOLLM2)


def test_automatic_choices_of_a_recipe_are_explained() -> None:
    assert not {name for name in resolved({}).reasons if name.startswith("weights.")}
    reasons = resolved({"weights.bits": 4, "weights.attention": 3}).reasons
    assert reasons["weights.group"].startswith("8 bits by the row, 4 bits in groups of 64, 3 bits")
    assert reasons["weights.embedding"].startswith("8 bits: ")
    named = resolved({"weights.bits": 4, "weights.group": 32, "weights.embedding": 16}).reasons
    assert not {name for name in named if name.startswith("weights.")}


def test_a_method_with_nothing_to_do_is_told() -> None:
    for build in ({}, {"weights.embedding": 4}):
        reasons = resolved({"weights.method": "awq", **build}).reasons
        assert "awq has nothing to do" in reasons["weights.method"]
    assert "weights.method" not in resolved({"weights.method": "awq", "weights.mlp": 4}).reasons


@pytest.mark.parametrize(("tokens", "short"), [(512, True), (1535, True), (1536, False)])
def test_calibration_shorter_than_the_widest_matrix_is_told(tokens: int, short: bool) -> None:
    build = {"weights.bits": 4, "weights.method": "gptq", "weights.calibration": tokens}
    assert ("weights.calibration" in resolved(build).reasons) == short
    assert "weights.calibration" not in resolved(build | {"weights.method": "rtn"}).reasons


def test_fewer_bits_hold_more_requests_in_the_vessel() -> None:
    seats = {
        bits: price(
            resolved(ABYSS | {"weights.bits": bits, "schedule.batch": 64}).config,
            SMOLLM2,
            forms=MACHINE.low_bit_forms["bfloat16"],
        ).plan.slots
        for bits in (0, 8, 4, 2)
    }
    assert seats[0] < seats[8] < seats[4] <= seats[2]


def test_the_refusal_of_a_vessel_counts_quantised_weights() -> None:
    tight = {"workload.prompt": 1024, "workload.output": 8, "memory.budget": 40}
    full = tight | {"run.precision": "bfloat16"}
    assert "the vessel holds" in refusal(full)
    resolved(full | {"weights.bits": 4})
