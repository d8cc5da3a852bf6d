"""The engine as its callers see it: requests in, tokens out, alone or in company."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from episodes import by_rescoring, configure, drain, greedy, same_but_for_near_ties
from torch import Tensor

from engine.config import EngineConfig, RunConfig, WorkloadConfig
from engine.model.llama import Llama
from engine.run.engine import Engine, SamplingParams
from engine.run.runner import NonFiniteLogits

Prompt = Callable[..., list[int]]


def make(
    model: Llama, batch: int = 1, chunk: int = 0, eos: Iterable[int] = (), prompt: int = 60
) -> Engine:
    config = configure(model.precision, batch, chunk, prompt)
    return Engine(model, config, eos_ids=eos)


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("chunk", [0, 16])
def test_a_batch_of_different_lengths_says_what_each_says_alone(
    make_model: Callable[..., Llama], prompt: Prompt, window: int | None, chunk: int
) -> None:
    model = make_model(window=window)
    engine = make(model, batch=4, chunk=chunk)
    prompts = {
        engine.add_request(ids, greedy(count)): (ids, count)
        for ids, count in [
            (prompt(1, 1), 12),
            (prompt(37, 2), 3),
            (prompt(8, 3), 9),
            (prompt(60, 4), 15),
            (prompt(25, 5), 7),
            (prompt(2, 6), 10),
        ]
    }
    outputs, _ = drain(engine)
    assert outputs.keys() == prompts.keys()
    for request, (ids, count) in prompts.items():
        expected = by_rescoring(model, ids, count)
        same_but_for_near_ties(model, ids, outputs[request], expected)


def test_chunks_and_whole_prompts_lead_to_the_same_tokens(model: Llama, prompt: Prompt) -> None:
    ids = prompt(50)
    for chunk in (0, 16, 49, 50, 64):
        engine = make(model, chunk=chunk)
        request = engine.add_request(ids, greedy(8))
        outputs, steps = drain(engine)
        same_but_for_near_ties(model, ids, outputs[request], by_rescoring(model, ids, 8))
        prefills = [step for step in steps if step.phase == "prefill"]
        assert sum(step.rows for step in prefills) == 50
        assert len(prefills) == (1 if chunk in (0, 50, 64) else -(-50 // chunk))
        assert all(not step.tokens for step in prefills[:-1])
        assert prefills[-1].first_tokens == (request,)


def test_every_token_is_told_once_and_every_request_ends(model: Llama, prompt: Prompt) -> None:
    engine = make(model, batch=2)
    requests = [engine.add_request(prompt(5, seed), greedy(4)) for seed in range(5)]
    outputs, steps = drain(engine)
    assert {request: len(outputs[request]) for request in requests} == dict.fromkeys(requests, 4)
    assert [r for step in steps for r in step.first_tokens] == requests
    assert sorted(r for step in steps for r in step.finished) == requests
    assert {reason for step in steps for reason in step.finished.values()} == {"length"}
    assert all(len(step.sequence_ids) <= 2 for step in steps)
    decodes = [step for step in steps if step.phase == "decode"]
    assert all(step.rows == len(step.sequence_ids) == len(step.tokens) for step in decodes)
    assert not any(step.first_tokens for step in decodes)


def test_an_end_token_stops_a_request_unless_it_is_to_be_ignored(
    model: Llama, prompt: Prompt
) -> None:
    ids = prompt(9)
    said = by_rescoring(model, ids, 6)
    end = said[2]
    engine = make(model, batch=2, eos=[end])
    stopping = engine.add_request(ids, greedy(6, ignore_eos=False))
    ignoring = engine.add_request(ids, greedy(6))
    outputs, steps = drain(engine)
    assert outputs[stopping] == said[: said.index(end) + 1]
    assert outputs[ignoring] == said
    reasons = {r: why for step in steps for r, why in step.finished.items()}
    assert reasons == {stopping: "stop", ignoring: "length"}


def test_a_sampled_request_says_the_same_alone_and_in_company(model: Llama, prompt: Prompt) -> None:
    params = SamplingParams(max_tokens=12, temperature=0.8, top_p=0.9, seed=5, ignore_eos=True)
    alone = make(model)
    request = alone.add_request(prompt(7), params)
    expected = drain(alone)[0][request]
    company = make(model, batch=3)
    company.add_request(prompt(30, 1), greedy(4))
    request = company.add_request(prompt(7), params)
    company.add_request(prompt(3, 2), SamplingParams(12, temperature=1.0, seed=5))
    assert drain(company)[0][request] == expected
    other = make(model)
    request = other.add_request(prompt(7), SamplingParams(12, 0.8, 0.9, seed=6, ignore_eos=True))
    assert drain(other)[0][request] != expected


def test_an_aborted_request_says_no_more_and_disturbs_no_other(
    model: Llama, prompt: Prompt
) -> None:
    engine = make(model, batch=3)
    kept = [engine.add_request(prompt(6, seed), greedy(8)) for seed in (0, 2)]
    dropped = engine.add_request(prompt(9, 1), greedy(8))
    waiting = engine.add_request(prompt(4, 3), greedy(8))
    engine.step()
    engine.step()
    engine.abort(kept.pop(0))  # leaves a gap between cache slots
    engine.abort(dropped)
    engine.abort(waiting)
    outputs, _ = drain(engine)
    expected = by_rescoring(model, prompt(6, 2), 8)[2:]
    same_but_for_near_ties(model, prompt(6, 2), outputs[kept[0]], expected)
    assert outputs.keys() == set(kept)
    with pytest.raises(ValueError, match=f"no request {dropped}"):
        engine.abort(dropped)


def test_reset_leaves_an_engine_as_good_as_new(model: Llama, prompt: Prompt) -> None:
    engine = make(model, batch=2)
    for seed in range(4):
        engine.add_request(prompt(20, seed), greedy(5))
    engine.step()
    engine.reset()
    assert not engine.has_work
    request = engine.add_request(prompt(5), greedy(6))
    assert drain(engine)[0] == {request: by_rescoring(model, prompt(5), 6)}


def test_what_cannot_run_is_refused_at_the_door(model: Llama, prompt: Prompt) -> None:
    engine = make(model)
    with pytest.raises(ValueError, match="token 96 is not in the vocabulary: 0 to 95"):
        engine.add_request([1, 96], greedy(1))
    with pytest.raises(ValueError, match="the cache holds at most 80 of one request"):
        engine.add_request(prompt(80), greedy(2))
    with pytest.raises(ValueError, match="the prompt is empty"):
        engine.add_request([], greedy(1))
    assert not engine.has_work
    with pytest.raises(ValueError, match="configuration asks for bfloat16"):
        Engine(model, EngineConfig(run=RunConfig("bfloat16")))
    with pytest.raises(ValueError, match="context of 200"):
        Engine(model, EngineConfig(WorkloadConfig(150, 51)))
    with pytest.raises(ValueError, match="nothing to schedule"):
        engine.step()


def poison(name: str) -> Callable[[dict[str, Tensor]], None]:
    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors[name][0] = float("nan")

    return spoil


@pytest.mark.parametrize(
    ("tensor", "where"),
    [
        ("layers.0.attention_norm", "layer 0: qkv was given nan"),
        ("layers.1.mlp_norm", "layer 1: gate_up was given nan"),
        ("layers.1.o", "layer 1: o gave nan"),
        ("final_norm", "the final norm or the head"),
    ],
)
def test_scores_that_are_no_numbers_name_the_layer_they_came_from(
    make_model: Callable[..., Llama], prompt: Prompt, tensor: str, where: str
) -> None:
    engine = make(make_model(spoil=poison(tensor)))
    engine.add_request(prompt(5), greedy(3))
    with pytest.raises(NonFiniteLogits, match=f"sequence 0 at position 4 .* float32.*{where}$"):
        engine.step()
    assert not engine.has_work


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_every_precision_runs_and_names_its_kernels(
    make_model: Callable[..., Llama], prompt: Prompt, precision: str
) -> None:
    engine = make(make_model(precision), batch=2)
    for seed in range(2):
        engine.add_request(prompt(9 + seed, seed), greedy(3))
    outputs, _ = drain(engine)
    assert [len(said) for said in outputs.values()] == [3, 3]
    path = engine.kernel_path
    assert path["linear"].endswith(precision) and path["attention"].endswith(precision)
    assert {"linear", "attention", "norm", "head"} <= path.keys()


def test_the_account_is_the_formula_where_there_is_one(model: Llama) -> None:
    engine = make(model, batch=3)
    account = engine.allocated()
    assert account["kv"] == 2 * 2 * 3 * 2 * 80 * 8 * 4  # k and v, layers, slots, kv, tokens, D
    assert account["scratch"] == 4 * 4
    assert account["weights"] >= sum(linear.nbytes for linear in model.linears) + 96 * 32 * 4
    assert account["activations"] > 60 * 32 * 4  # at least the residual stream of a prefill pass
    assert engine.allocated() == account


def test_measuring_memory_waits_until_nobody_runs(model: Llama, prompt: Prompt) -> None:
    engine = make(model)
    request = engine.add_request(prompt(11), greedy(6))
    first = engine.step().tokens[request]
    foreseen = engine.allocated()
    said = [*first, *drain(engine)[0][request]]
    assert said == by_rescoring(model, prompt(11), 6)
    measured = engine.allocated()
    assert measured == make(model).allocated()
    assert measured["activations"] == pytest.approx(foreseen["activations"], rel=0.02)
    request = engine.add_request(prompt(11), greedy(6))
    assert drain(engine)[0][request] == said


def test_a_step_result_cannot_be_changed(model: Llama, prompt: Prompt) -> None:
    engine = make(model)
    engine.add_request(prompt(3), greedy(2))
    step = engine.step()
    with pytest.raises(AttributeError):
        step.rows = 9  # type: ignore[misc]
    with pytest.raises(TypeError):
        step.tokens[0] = (1,)  # type: ignore[index]


def test_the_engine_leaves_torchs_modes_as_they_were(model: Llama, prompt: Prompt) -> None:
    engine = make(model)
    engine.add_request(prompt(3), greedy(2))
    drain(engine)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
