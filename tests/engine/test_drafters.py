"""What a draft reads and what it is refused for, on the default model's shape, by hand."""

from __future__ import annotations

import msgspec
import pytest
from known_machines import SMOLLM2, make_capabilities

from engine.config import DraftConfig, EngineConfig, RunConfig, WeightsConfig, WorkloadConfig
from engine.domains import KnobError, Value
from engine.drafters import Drafters, TrainedHead, cost_ratio, exit_layers, held_bytes
from engine.price import price
from engine.resolve import Resolved, resolve

HEAD = TrainedHead(hidden=576, inner=1024, words=8192)
SMALL = msgspec.structs.replace(SMOLLM2, layers=3)
ALL = Drafters(HEAD, SMALL, "a small one")
LAYER = 576 * (576 + 2 * 192) + 576 * 576 + 3 * 576 * 1536
"""Weights of a layer: q, k, v; o; gate, up, down."""
TABLE = 49_152 * 576
STEP = 30 * LAYER + TABLE
MACHINE = make_capabilities(memory_bytes=8 << 30, linear_forms=("plain", "packed"))


def config(kind: str, precision: str = "float32", bits: int = 0, **more: int) -> EngineConfig:
    return EngineConfig(
        workload=WorkloadConfig(100, 28),
        run=RunConfig(precision, 2),
        weights=WeightsConfig(bits=bits),
        draft=DraftConfig(kind, **more),
    )


def resolved(build: dict[str, Value], drafters: Drafters = ALL) -> Resolved:
    return resolve(build, MACHINE, SMOLLM2, 2, drafters)


def refusal(build: dict[str, Value], drafters: Drafters = ALL) -> str:
    with pytest.raises(KnobError) as caught:
        resolved(build, drafters)
    return str(caught.value)


def test_a_drafted_token_reads_its_share_of_a_step() -> None:
    assert SMOLLM2.layer_matrix_elements == LAYER
    assert (
        cost_ratio(config("none"), SMOLLM2, ALL) == 0 == cost_ratio(config("ngram"), SMOLLM2, ALL)
    )
    assert cost_ratio(config("exit"), SMOLLM2, ALL) == pytest.approx((27 * LAYER + TABLE) / STEP)
    assert cost_ratio(config("exit", exit_layer=6), SMOLLM2, ALL) == pytest.approx(
        (6 * LAYER + TABLE) / STEP
    )
    head = 3 * 2 * 576 * 1024 - 576 * 1024 + 8192 * 576
    for precision in ("float32", "bfloat16"):
        found = cost_ratio(config("trained", precision), SMOLLM2, ALL)
        assert found == pytest.approx(head / STEP)
    assert cost_ratio(config("model"), SMOLLM2, ALL) == pytest.approx((3 * LAYER + TABLE) / STEP)


def test_itself_in_fewer_bits_costs_what_its_codes_and_scales_do() -> None:
    """Eight bits: a byte, and 4 bytes a row. Four bits in groups of 64: half a byte, and scale and
    zero in the run's precision; its embedding keeps eight."""
    eight = cost_ratio(config("self8"), SMOLLM2, ALL)
    assert eight == pytest.approx(0.25, rel=0.02) and eight > 0.25
    for precision, size in (("float32", 4), ("bfloat16", 2)):
        codes = (0.5 + 2 * size / 64) * 30 * LAYER + TABLE
        found = cost_ratio(config("self4", precision), SMOLLM2, ALL)
        assert found == pytest.approx(codes / (size * STEP), rel=0.005)


def test_what_a_draft_holds_by_formula() -> None:
    for kind in ("none", "ngram", "exit"):
        assert held_bytes(config(kind), SMOLLM2, ALL) == 0
    head = (5 * 576 * 1024 + 8192 * 576) * 2 + 3 * 577 * 4 + 8192 * 8
    assert held_bytes(config("trained", "bfloat16"), SMOLLM2, ALL) == head
    cache = 128 * 2 * 3 * 192 * 4
    weights = (3 * LAYER + 2 * TABLE) * 4 + (2 * 3 + 1) * 577 * 4
    assert held_bytes(config("model"), SMOLLM2, ALL) == weights + cache


def test_the_price_counts_the_draft_and_its_vessel_holds_it() -> None:
    plain, drafting = (price(config(kind), SMOLLM2, drafters=ALL) for kind in ("none", "trained"))
    assert "draft" not in plain.parts
    assert drafting.parts["draft"] == held_bytes(config("trained"), SMOLLM2, ALL)
    # Prefill is the larger pass here; where it is not, four rows more are verified and scored.
    assert drafting.activations == plain.activations
    short = [
        msgspec.structs.replace(config(kind), workload=WorkloadConfig(2, 126))
        for kind in ("none", "trained")
    ]
    few, more = (price(one, SMOLLM2, drafters=ALL).activations for one in short)
    assert more - few > 4 * 49_152 * 4
    assert drafting.total == sum(drafting.parts.values())
    assert drafting.work == plain.work
    with pytest.raises(ValueError, match="no trained draft ships"):
        price(config("trained"), SMOLLM2)


@pytest.mark.parametrize(
    ("kind", "why"), [("trained", "no trained draft ships"), ("model", "--draft-model")]
)
def test_a_draft_that_is_not_there_is_refused_with_one_that_is(kind: str, why: str) -> None:
    said = refusal({"draft.kind": kind}, Drafters())
    assert said.startswith(f"draft.kind={kind} cannot run here: ") and why in said
    assert said.endswith("nearest: draft.kind=self4")
    resolved({"draft.kind": kind})
    resolved({"draft.kind": "self4"}, Drafters())


def test_an_exit_after_the_last_layer_is_the_last_one() -> None:
    said = refusal({"draft.kind": "exit", "draft.exit_layer": 31})
    assert said.endswith("nearest: draft.exit_layer=30")
    assert "which has 30" in said
    resolved({"draft.kind": "exit", "draft.exit_layer": 30})
    resolved({"draft.kind": "ngram", "draft.exit_layer": 31})
    assert exit_layers(DraftConfig("exit"), 30) == 27 and exit_layers(DraftConfig("exit"), 1) == 1


def test_a_draft_larger_than_its_target_is_warned_of_with_the_ratio() -> None:
    large = Drafters(HEAD, msgspec.structs.replace(SMOLLM2, layers=60), "a large one")
    reasons = resolved({"draft.kind": "model"}, large).reasons
    ratio = (60 * LAYER + TABLE) / STEP
    assert reasons["draft.kind"].startswith(f"a drafted token reads {ratio:.2f} times")
    assert "draft.kind" not in resolved({"draft.kind": "model"}).reasons
    narrow: dict[str, Value] = {"run.precision": "bfloat16", "weights.bits": 4}
    assert "times the weights" in resolved(narrow | {"draft.kind": "self8"}).reasons["draft.kind"]
    assert "draft.kind" not in resolved({"draft.kind": "self8"}).reasons
    assert resolved({"draft.kind": "exit"}).reasons["draft.exit_layer"].startswith("27 of 30")


def test_a_vessel_without_room_for_a_draft_refuses_it() -> None:
    build: dict[str, Value] = {"memory.budget": 130, "draft.kind": "none"}
    resolved(build)
    assert "the vessel holds" in refusal(build | {"draft.kind": "self8"})
