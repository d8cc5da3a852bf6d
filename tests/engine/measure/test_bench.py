"""The bench on a tiny model: rows, shares, ceilings that only rise, and peers that are missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from known_machines import make_capabilities

import engine.measure.peer as peer_module
from engine.machine import PROFILE_VERSION, Ceilings, MachineProfile, load_profile
from engine.measure.bench import Load, bench
from engine.measure.shelf import Shelf
from engine.messages import BenchDone, Event, Progress
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.run.scoring import logits
from engine.serve.failures import Aborted

LOADS = (Load("prefill", 32, 2, 1), Load("decode", 16, 4, 1), Load("decode", 16, 4, 3))
CAPABILITIES = make_capabilities(precisions={"float32": "", "bfloat16": "too old", "float16": ""})
MACHINE = MachineProfile(
    version=PROFILE_VERSION,
    fingerprint=CAPABILITIES.fingerprint,
    measured_at="",
    threads=1,
    wait_policy="passive",
    ceilings=Ceilings(1e15, {"float32": 1.0, "bfloat16": 7.0}, 1e-6),
    noise=0.01,
)


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path))
    monkeypatch.setattr("engine.measure.ceilings.read_buffer_bytes", lambda: 1 << 20)


@pytest.fixture
def shelf(
    tiny_config: Callable[..., ModelConfig],
    tiny_tensors: Callable[[ModelConfig], dict[str, torch.Tensor]],
    byte_tokenizer: Any,
) -> Shelf:
    config = tiny_config()
    return Shelf(
        SimpleNamespace(
            config=config,
            tensors=tiny_tensors(config),
            tokenizer=byte_tokenizer,
            digest="e" * 64,
            name="tiny",
        )
    )


def run_bench(shelf: Shelf, events: list[Event], **options: Any) -> BenchDone:
    options = {"loads": LOADS, "ceiling_seconds": 0.0, "job": 4} | options
    return bench(shelf, MACHINE, CAPABILITIES, events.append, lambda: False, **options)


def test_a_row_for_every_load_in_every_precision_this_machine_has(shelf: Shelf) -> None:
    events: list[Event] = []
    done = run_bench(shelf, events)
    rows = [(rate.name, rate.precision, rate.batch) for rate in done.rates]
    assert rows == [("prefill", "float32", 1), ("decode", "float32", 1), ("decode", "float32", 3)]
    prefill, _, batched = done.rates
    assert prefill.tokens_per_second == pytest.approx(32 / prefill.seconds)
    assert batched.tokens_per_second == pytest.approx(3 / batched.seconds)
    assert all(rate.share > 0 and rate.ratio_to_peer is None for rate in done.rates)
    assert done.job == 4 and "linear float32" in done.kernel_path
    assert {event.phase for event in events if isinstance(event, Progress)} == {"bench"}


def test_ceilings_rise_and_are_kept(shelf: Shelf) -> None:
    done = run_bench(shelf, [])
    found = done.profile.ceilings
    assert found.read_bytes_per_second == 1e15  # no machine reads faster than it was told
    assert found.flops_per_second["float32"] > 1e6
    assert found.flops_per_second["bfloat16"] == 7.0
    assert load_profile(CAPABILITIES.fingerprint) == done.profile


def test_a_missing_peer_is_said_and_no_error(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "find_spec", lambda _: None)
    events: list[Event] = []
    done = run_bench(shelf, events, peers=True)
    assert len(done.rates) == 3 and all(rate.peer == "" for rate in done.rates)
    said = [event.detail for event in events if isinstance(event, Progress)]
    assert "no peer: transformers is not installed" in said


def test_a_stopped_bench_stops(shelf: Shelf) -> None:
    with pytest.raises(Aborted):
        bench(shelf, MACHINE, CAPABILITIES, lambda _: None, lambda: True, loads=LOADS)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "shape", [{}, {"family": "qwen2", "qkv_bias": True, "tied_head": False}], ids=str
)
def test_the_peer_runs_the_same_model(
    tiny_config: Callable[..., ModelConfig],
    tiny_tensors: Callable[[ModelConfig], dict[str, torch.Tensor]],
    shape: dict[str, Any],
) -> None:
    """Its logits equal the engine's, so its time is the time of the same work."""
    pytest.importorskip("transformers")
    config = tiny_config(**shape)
    tensors = tiny_tensors(config)
    peer = peer_module.build_peer(config, tensors, "float32")
    with torch.inference_mode():
        theirs = peer(torch.arange(20)[None]).logits[0]
    ours = logits(Llama(config, tensors, "float32"), range(20))
    assert torch.allclose(theirs, ours, atol=1e-3)
    first, each = peer_module.load_peer(config, tensors, "float32")(range(20), 4)
    assert first > 0 and each > 0


@pytest.mark.oracle
def test_rows_at_batch_one_stand_beside_the_peer(shelf: Shelf) -> None:
    pytest.importorskip("transformers")
    done = run_bench(shelf, [], peers=True)
    beside = [(rate.batch, rate.peer, rate.ratio_to_peer is not None) for rate in done.rates]
    assert beside == [(1, "transformers", True), (1, "transformers", True), (3, "", False)]
