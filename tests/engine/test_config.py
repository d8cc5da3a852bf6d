"""Build -> EngineConfig: pure, complete, and honest about what it chose."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_machines import SMOLLM2

from engine.capabilities import Capabilities
from engine.config import EngineConfig, complete
from engine.domains import KnobError
from engine.knobs import KNOBS
from engine.resolve import resolve

MACHINE = Capabilities(
    device="cpu",
    device_name="test",
    physical_cores=4,
    logical_cores=8,
    memory_bytes=2**33,
    instruction_set="AVX2",
    torch_version="2.13.0",
    python_version="3.11",
    platform="test",
    precisions={"float32": "", "bfloat16": "", "float16": "not on this CPU"},
    linear_forms=("plain",),
)
MODEL = SMOLLM2


def test_an_empty_build_is_the_default_config_but_for_the_threads() -> None:
    resolved = resolve({}, MACHINE, MODEL)
    threads = msgspec.structs.replace(EngineConfig().run, threads=4)
    assert resolved.config == msgspec.structs.replace(EngineConfig(), run=threads)
    assert resolved.reasons == {"run.threads": "4: the physical cores (not calibrated yet)"}


def test_calibrated_threads_win_over_the_count_of_cores() -> None:
    resolved = resolve({}, MACHINE, MODEL, calibrated_threads=3)
    assert resolved.config.run.threads == 3
    assert "calibrated" in resolved.reasons["run.threads"]


def test_the_players_threads_win_over_both_and_need_no_reason() -> None:
    resolved = resolve({"run.threads": 7}, MACHINE, MODEL, calibrated_threads=3)
    assert resolved.config.run.threads == 7
    assert resolved.reasons == {}


def test_every_knob_lands_in_its_field() -> None:
    build: dict[str, int | str] = {
        "workload.prompt": 41,
        "workload.output": 12,
        "workload.mix": "mixed",
        "workload.requests": 14,
        "workload.system": 15,
        "schedule.batch": 13,
        "schedule.prefill_chunk": 17,
        "run.precision": "bfloat16",
        "run.threads": 5,
        "cache.layout": "paged",
        "cache.block_size": 32,
        "cache.bits": 8,
        "cache.prefix_sharing": "on",
        "weights.bits": 4,
        "weights.group": 32,
        "weights.symmetric": "on",
        "weights.method": "awq",
        "weights.calibration": 777,
        "weights.crossover": 6,
        "weights.attention": 8,
        "weights.mlp": 3,
        "weights.embedding": 16,
        "weights.edges": 2,
        "weights.edge_layers": 3,
        "memory.budget": 333,
        "memory.overflow": "break",
        "draft.kind": "exit",
        "draft.length": 7,
        "draft.ngram": 5,
        "draft.exit_layer": 1,
        "draft.adaptive": "on",
        "sampling.temperature": 0.7,
    }
    assert set(build) == set(KNOBS)
    config = resolve(build, MACHINE, MODEL).config
    for name, value in build.items():
        section, key = name.split(".")
        assert getattr(getattr(config, section), key) == value


@pytest.mark.parametrize(
    ("build", "told"),
    [
        ({"schedule.batch": 0}, "schedule.batch: 0 is outside its range"),
        ({"bacth": 8}, r"no knob is named 'bacth'; nearest: schedule\.batch"),
        ({"batch": 8}, r"no knob is named 'batch'; nearest: schedule\.batch"),
        ({"run.precision": "float16"}, "run.precision=float16 cannot run here: not on this CPU"),
        ({"run.threads": 9}, "8 logical cores"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(build: dict[str, int | str], told: str) -> None:
    with pytest.raises(KnobError, match=told):
        resolve(build, MACHINE, MODEL)


def test_a_workload_that_just_fits_is_taken() -> None:
    config = resolve({"workload.prompt": 8190, "workload.output": 2}, MACHINE, MODEL).config
    assert config.workload.prompt + config.workload.output == MODEL.context


@given(st.integers(1, 64), st.sampled_from(["float32", "bfloat16"]))
def test_resolving_is_pure_and_its_result_survives_json(batch: int, precision: str) -> None:
    build = {"schedule.batch": batch, "run.precision": precision}
    before = dict(build)
    first, second = (resolve(build, MACHINE, MODEL) for _ in range(2))
    assert first == second
    assert build == before
    text = msgspec.json.encode(first.config)
    assert msgspec.json.decode(text, type=EngineConfig) == first.config


def test_complete_fills_in_the_defaults_and_keeps_what_was_set() -> None:
    positions = complete({"schedule.batch": 16})
    assert positions == {name: knob.default for name, knob in KNOBS.items()} | {
        "schedule.batch": 16
    }


def test_a_config_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        EngineConfig().run.threads = 2  # type: ignore[misc]
