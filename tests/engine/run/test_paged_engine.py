"""Blocks instead of slots: the same words, whatever the layout, the pool and who shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from episodes import (
    by_rescoring,
    configure,
    drain,
    greedy,
    same_but_for_near_ties,
    serve,
    squeezed,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.cache.make import make_cache
from engine.cache_plan import CachePlan
from engine.kv_format import vector_bytes
from engine.model.llama import Llama
from engine.run.engine import Engine, EngineCounters, SamplingParams, StepOutput
from engine.run.runner import Runner
from kernels.attention import decode, fused

Prompt = Callable[..., list[int]]
MakeModel = Callable[..., Llama]

SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {},
    "no groups": {"kv_heads": 4},
    "one KV head": {"kv_heads": 1},
    "q/k norm, explicit head_dim": {"qk_norm": True, "head_dim": 12},
    "window 9": {"window": 9},
    "window 40": {"window": 40},
    "untied, three heads a group": {"tied_head": False, "heads": 6, "kv_heads": 2, "head_dim": 4},
}


def stepwise_logits(model: Llama, texts: list[list[int]], layout: str, block: int) -> Tensor:
    """Each text prefilled but for its last 3 tokens, which run one by one, all texts together."""
    shape = model.config
    capacity = max(map(len, texts))
    paged = layout == "paged"
    plan = CachePlan(
        layout="paged" if paged else "contiguous",
        capacity=capacity,
        slots=0 if paged else len(texts),
        blocks=len(texts) * -(-capacity // block) if paged else 0,
        block_size=block,
        token_bytes=2 * shape.layers * shape.kv_heads * vector_bytes(shape.head_dim, 0, 4),
    )
    runner = Runner(model, make_cache(plan, shape, 0, model.dtype))
    scores = []
    with torch.inference_mode():
        for sequence, text in enumerate(texts):
            runner.cache.admit(sequence, text[:-3], len(text))
            batch = runner.layout.of_tokens("prefill", (sequence,), [text[:-3]])
            scores.append(runner.last_logits(batch))
        ids = tuple(range(len(texts)))
        for place in (-3, -2, -1):
            batch = runner.layout.of_tokens("decode", ids, [[text[place]] for text in texts])
            scores.append(runner.last_logits(batch))
    return torch.cat(scores)


@pytest.mark.parametrize("block", [1, 2, 16, 64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_paged_scores_equal_contiguous_ones(
    make_model: MakeModel, prompt: Prompt, shape: str, block: int
) -> None:
    model = make_model(**SHAPES[shape])
    lengths = [4, 15, 16, 17, 33, 48, 64, 65]
    texts = [prompt(length + 3, length) for length in lengths]
    expected = stepwise_logits(model, texts, "contiguous", 1)
    got = stepwise_logits(model, texts, "paged", block)
    assert float(expected.std()) > 0.5  # else any small scores would pass
    torch.testing.assert_close(got, expected, rtol=0, atol=5e-5)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    multiples=st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 1)), min_size=1, max_size=5),
    block=st.sampled_from([2, 4, 16]),
    chunk=st.sampled_from([0, 16, 17]),
)
def test_lengths_around_a_multiple_of_the_block_say_what_each_says_alone(
    model: Llama, multiples: list[tuple[int, int]], block: int, chunk: int
) -> None:
    lengths = [max(1, times * block + more) for times, more in multiples]
    prompts = [[(7 * one + place * place) % 96 for place in range(one)] for one in lengths]
    engine = Engine(model, configure(batch=3, chunk=chunk, prompt=65, layout="paged", block=block))
    outputs, _ = serve(engine, [(ids, greedy(block + 1)) for ids in prompts])
    for ids, said in zip(prompts, outputs, strict=True):
        same_but_for_near_ties(model, ids, said, by_rescoring(model, ids, block + 1))


def books_add_up(
    engine: Engine, steps: list[StepOutput], prompts: list[list[int]]
) -> EngineCounters:
    """Identities between what steps tell and what the engine counts, when all work is done."""
    seen = engine.counters
    first: dict[int, int] = {}
    for step in steps:
        for request, cached in step.admitted.items():
            first.setdefault(request, cached)
    prefills = [step for step in steps if step.phase == "prefill"]
    admissions = sum(len(step.admitted) for step in steps)
    assert seen.prompt_tokens == sum(map(len, prompts))
    assert seen.cached_tokens == sum(first.values())
    assert seen.prefilled_tokens == sum(step.rows for step in prefills)
    assert seen.preemptions == sum(len(step.preempted) for step in steps)
    assert admissions == len(prompts) + seen.preemptions
    assert seen.prefilled_tokens == (
        seen.prompt_tokens - seen.cached_tokens + seen.recomputed_tokens + seen.preemptions
    )
    assert all(step.phase == "prefill" for step in steps if step.admitted)
    assert all(step.phase == "decode" for step in steps if step.preempted)
    said = [request for step in steps for request in step.first_tokens]
    assert sorted(said) == sorted(first)
    assert (engine.running, engine.waiting, engine.held_tokens, engine.reserved_tokens) == (0,) * 4
    engine.reset()
    assert set(engine.page_map().cells) <= {"."}
    assert engine.counters == EngineCounters()
    return seen


@pytest.mark.parametrize("chunk", [0, 16])
@pytest.mark.parametrize("sharing", ["off", "on"])
def test_a_pool_far_too_small_says_the_same_only_later(
    model: Llama, prompt: Prompt, sharing: str, chunk: int
) -> None:
    system = prompt(20, 99)
    prompts = [system + prompt(5 + 7 * seed, seed) for seed in range(6)]
    asked = [(ids, greedy(20)) for ids in prompts]
    plain = configure(batch=6, chunk=chunk, layout="paged", block=4, sharing=sharing)
    ample = Engine(model, plain)
    expected, steps = serve(ample, asked)
    assert books_add_up(ample, steps, prompts).preemptions == 0
    engine = Engine(model, squeezed(model, plain, 26))
    got, steps = serve(engine, asked)
    seen = books_add_up(engine, steps, prompts)
    assert seen.preemptions > 0
    assert sharing == "on" or seen.recomputed_tokens > 0
    for ids, ours, theirs in zip(prompts, got, expected, strict=True):
        same_but_for_near_ties(model, ids, ours, theirs)
        same_but_for_near_ties(model, ids, ours, by_rescoring(model, ids, 20))


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), min_size=2, max_size=7),
    block=st.sampled_from([1, 3, 8]),
    more=st.integers(0, 12),
    sharing=st.sampled_from(["off", "on"]),
)
def test_any_pool_that_holds_the_longest_request_serves_every_load(
    model: Llama, shapes: list[tuple[int, int]], block: int, more: int, sharing: str
) -> None:
    """Prompts over few tokens, so that they share, fork, and come back to what they left behind."""
    prompts = [
        [(place // 5) % (2 + n % 2) for place in range(one)] for n, (one, _) in enumerate(shapes)
    ]
    config = configure(batch=7, prompt=30, output=12, layout="paged", block=block, sharing=sharing)
    engine = Engine(model, squeezed(model, config, -(-42 // block) + more))
    asked = [(ids, greedy(new)) for ids, (_, new) in zip(prompts, shapes, strict=True)]
    ids = [engine.add_request(*one) for one in asked]
    said: dict[int, list[int]] = {request: [] for request in ids}
    steps: list[StepOutput] = []
    while engine.has_work:
        steps.append(engine.step())
        assert len(steps) < 2000
        for request, tokens in steps[-1].tokens.items():
            said[request].extend(tokens)
        assert engine.held_tokens <= engine.reserved_tokens
        engine._cache.check_integrity()
    for request, text, (_, new) in zip(ids, prompts, shapes, strict=True):
        same_but_for_near_ties(model, text, said[request], by_rescoring(model, text, new))
    books_add_up(engine, steps, prompts)


def test_sharing_changes_what_is_computed_and_not_what_is_said(
    model: Llama, prompt: Prompt
) -> None:
    system = prompt(37, 99)
    prompts = [system + prompt(3 + 5 * seed, seed) for seed in range(5)]
    asked = [(ids, greedy(9)) for ids in prompts]
    said, seen = {}, {}
    for sharing in ("off", "on"):
        engine = Engine(model, configure(batch=5, layout="paged", block=8, sharing=sharing))
        said[sharing], steps = serve(engine, asked)
        copies = engine.page_map().copies
        seen[sharing] = books_add_up(engine, steps, prompts)
        assert seen[sharing].copies == copies
    for ids, ours, theirs in zip(prompts, said["on"], said["off"], strict=True):
        same_but_for_near_ties(model, ids, ours, theirs)
    assert seen["off"].cached_tokens == seen["off"].copies == 0
    # The first two run together; then 37 = 4 blocks of 8 that are shared, and 5 tokens copied.
    assert seen["on"].cached_tokens == 3 * 37
    assert seen["on"].copies == 3


def test_prompts_that_share_run_together_once_the_first_has_run(
    model: Llama, prompt: Prompt
) -> None:
    system = prompt(48, 99)
    engine = Engine(model, configure(batch=8, layout="paged", block=16, sharing="on"))
    for seed in range(6):
        engine.add_request(system + prompt(12, seed), greedy(2))
    first, second = engine.step(), engine.step()
    # Two whole prompts of 60 tokens fit in 128 rows; then four that have 12 left to run.
    assert (first.rows, dict(first.admitted)) == (120, {0: 0, 1: 0})
    assert (second.rows, dict(second.admitted)) == (48, {2: 48, 3: 48, 4: 48, 5: 48})


@pytest.mark.parametrize("length", [31, 32, 33])
@pytest.mark.parametrize("block", [1, 16])
def test_a_prompt_that_is_all_cached_runs_its_last_token_again(
    model: Llama, prompt: Prompt, length: int, block: int
) -> None:
    engine = Engine(model, configure(batch=2, layout="paged", block=block, sharing="on"))
    ids = prompt(length)
    expected = by_rescoring(model, ids, 6)
    for turn in range(3):
        request = engine.add_request(ids, greedy(6))
        step = engine.step()
        cached = step.admitted[request]
        # The answer's first block is kept, too: it begins with the tokens that follow this prompt.
        assert cached == (0 if turn == 0 else length - 1)
        assert step.rows == length - cached
        said = [*step.tokens[request], *drain(engine)[0][request]]
        same_but_for_near_ties(model, ids, said, expected)


def test_a_sampled_request_draws_the_same_after_it_was_put_back(
    model: Llama, prompt: Prompt
) -> None:
    asked = [
        (prompt(20, seed), SamplingParams(20, temperature=0.9, seed=seed, ignore_eos=True))
        for seed in range(4)
    ]
    for chunk in (0, 16):
        config = configure(batch=4, chunk=chunk, layout="paged", block=2)
        expected, _ = serve(Engine(model, config), asked)
        engine = Engine(model, squeezed(model, config, 45))
        got, steps = serve(engine, asked)
        assert sum(len(step.preempted) for step in steps) > 0
        assert got == expected
        alone = [serve(Engine(model, config), [one])[0][0] for one in asked]
        assert got == alone


def test_a_prompt_in_chunks_takes_nothing_from_its_own_stream_of_chance(
    model: Llama, prompt: Prompt
) -> None:
    params = SamplingParams(12, temperature=1.0, seed=3, ignore_eos=True)
    whole = serve(Engine(model, configure()), [(prompt(60), params)])[0]
    chunked = serve(Engine(model, configure(chunk=16)), [(prompt(60), params)])[0]
    assert whole == chunked


def test_a_shared_block_is_never_written(model: Llama, prompt: Prompt) -> None:
    """Canary: the vectors of a shared beginning stay bit for bit what the first request wrote."""
    system = prompt(32, 99)
    engine = Engine(model, configure(batch=4, layout="paged", block=8, sharing="on"))
    engine.add_request(system + prompt(3, 0), greedy(20))
    engine.step()
    storage = engine._cache._storage  # type: ignore[attr-defined]
    blocks = slice(0, 4)
    before = [storage.view(layer, blocks, slice(0, 8)) for layer in range(2)]
    kept = [(keys.clone(), values.clone()) for keys, values in before]
    for ids in (system, system[:31], system + prompt(9, 1), system[:20] + prompt(9, 2)):
        engine.add_request(ids, greedy(12))
    drain(engine)
    assert engine.counters.copies > 0
    for layer, (keys, values) in enumerate(kept):
        now = storage.view(layer, blocks, slice(0, 8))
        assert torch.equal(now[0], keys) and torch.equal(now[1], values)


def test_a_pass_that_fails_leaves_nothing_for_others_to_find(
    make_model: MakeModel, prompt: Prompt
) -> None:
    """One token's embedding is poisoned: who uses it fails, all others are served as ever."""

    def poison(tensors: dict[str, Tensor]) -> None:
        tensors["embedding"][5] = float("inf")

    def without(ids: list[int]) -> list[int]:
        return [token if token != 5 else 6 for token in ids]

    model, sane = make_model(spoil=poison, tied_head=False), make_model(tied_head=False)
    for layout, sharing in (("contiguous", "off"), ("paged", "off"), ("paged", "on")):
        engine = Engine(model, configure(batch=3, layout=layout, block=4, sharing=sharing))
        bad = [*without(prompt(30, 1)), 5, *without(prompt(9, 2))]
        engine.add_request(bad, greedy(3))
        with pytest.raises(ArithmeticError):
            engine.step()
        assert (engine.running, engine.held_tokens) == (0, 0)
        engine._cache.check_integrity()
        # A long one beside short ones: what they read past their ends must be finite.
        prompts = [bad[:30], without(prompt(44, 4)), without(prompt(18, 3))]
        outputs, steps = serve(engine, [(one, greedy(4)) for one in prompts])
        assert not any(cached for step in steps for cached in step.admitted.values())
        for ids, said in zip(prompts, outputs, strict=True):
            same_but_for_near_ties(sane, ids, said, by_rescoring(sane, ids, 4))


@pytest.mark.parametrize("bits", [0, 16, 8, 4])
def test_the_path_names_the_layout_and_the_width(make_model: MakeModel, bits: int) -> None:
    model = make_model("bfloat16")
    width = f", kv {bits}" if bits else ""
    contiguous = Engine(model, configure("bfloat16", bits=bits)).kernel_path["attention"]
    paged = Engine(model, configure("bfloat16", layout="paged", bits=bits)).kernel_path["attention"]
    assert contiguous.startswith("sdpa-") and contiguous.endswith(f"bfloat16{width}")
    assert "paged" not in contiguous
    assert paged.startswith("sdpa-") and paged.endswith(f"paged-queries bfloat16{width}")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("bits", [0, 16, 8])
def test_the_path_names_what_runs_in_c(make_model: MakeModel, bits: int) -> None:
    """Paged, only vectors that lie as they are computed."""
    model = make_model("bfloat16", head_dim=16)
    width = f" bfloat16, kv {bits}" if bits else " bfloat16"
    contiguous = Engine(model, configure("bfloat16", bits=bits)).kernel_path["attention"]
    paged = Engine(model, configure("bfloat16", layout="paged", bits=bits)).kernel_path["attention"]
    assert contiguous.endswith(f"native-decode{width}")
    assert paged.endswith(("paged-queries" if bits == 8 else "native-decode") + width)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("block", [1, 2, 16, 64])
def test_paged_scores_equal_contiguous_ones_in_c(
    make_model: MakeModel, prompt: Prompt, block: int
) -> None:
    """And both those of torch's attention."""
    model = make_model(head_dim=16)
    texts = [prompt(length + 3, length) for length in [4, 15, 16, 17, 33, 48, 64, 65]]
    found = [stepwise_logits(model, texts, layout, block) for layout in ("contiguous", "paged")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "takes", lambda *_: False)
        patch.setattr(fused, "takes", lambda *_: False)
        expected = stepwise_logits(model, texts, "contiguous", 1)
    assert float(expected.std()) > 0.5
    for one in found:
        torch.testing.assert_close(one, expected, rtol=0, atol=5e-5)


@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_a_narrow_cache_serves_what_scoring_on_it_foretells(
    model: Llama, prompt: Prompt, layout: str, bits: int
) -> None:
    """Greedy tokens lie at the top of the scores that a plain cache of the same width gives."""
    from engine.run import scoring

    config = configure(batch=3, layout=layout, block=8, bits=bits)
    prompts = [prompt(length, length) for length in (9, 16, 40)]
    outputs, _ = serve(Engine(model, config), [(ids, greedy(8)) for ids in prompts])
    for ids, said in zip(prompts, outputs, strict=True):
        scores = scoring.logits(model, ids + said[:-1], bits)[len(ids) - 1 :]
        behind = scores.max(dim=-1).values - scores.gather(1, torch.tensor(said)[:, None])[:, 0]
        assert float(behind.max()) < 1e-3
