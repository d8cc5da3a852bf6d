"""Drafts change when tokens come, never which: the same words under every draft, right or wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from episodes import by_rescoring, configure, drain, greedy, same_but_for_near_ties, squeezed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.cache_plan import BudgetError
from engine.config import DraftConfig, EngineConfig
from engine.model.llama import Llama
from engine.run.engine import Engine, SamplingParams, StepOutput
from engine.speculate.head import DraftHead, HeadShape
from engine.speculate.make import DraftWith, draft_bytes

Prompt = Callable[..., list[int]]
MakeModel = Callable[..., Llama]


def shaken(by: float) -> Callable[[dict[str, Tensor]], None]:
    """Every matrix off by `by` of its own spread, as a grid would shake it."""

    def shake(tensors: dict[str, Tensor]) -> None:
        generator = torch.Generator().manual_seed(8)
        for name, tensor in tensors.items():
            if tensor.dim() == 2:
                noise = torch.randn(tensor.shape, generator=generator)
                tensors[name] = tensor + by * tensor.std() * noise

    return shake


def random_head(model: Llama) -> DraftHead:
    """A head that was trained on nothing, and says every third word only."""
    shape = HeadShape(model.config.hidden, 24, 4)
    generator = torch.Generator().manual_seed(5)
    tensors = {
        name: torch.randn(size, generator=generator) * 0.2
        for name, size in shape.tensors(0).items()
        if name != "words"
    }
    return DraftHead(shape, tensors | {"words": torch.arange(0, 96, 3)}, model)


@pytest.fixture(scope="module")
def networks(model: Llama, make_model: MakeModel) -> dict[str, DraftWith]:
    """By kind of draft: near twins draft well, a stranger hardly ever right."""
    return {
        "ngram": None,
        "exit": None,
        "self8": make_model(spoil=shaken(0.002)),
        "self4": make_model(spoil=shaken(0.1)),
        "model": make_model(layers=1, hidden=16, intermediate=24),
        "trained": random_head(model),
    }


KINDS = ("ngram", "exit", "self8", "self4", "model", "trained")


def drafting(config: EngineConfig, kind: str, length: int = 4, **more: Any) -> EngineConfig:
    return msgspec.structs.replace(config, draft=DraftConfig(kind, length, exit_layer=1, **more))


def watched(engine: Engine) -> tuple[dict[int, list[int]], list[StepOutput]]:
    """`drain`, with the cache's books checked after every step."""
    outputs: dict[int, list[int]] = {}
    steps = []
    while engine.has_work:
        steps.append(engine.step())
        assert len(steps) < 2000
        for request, tokens in steps[-1].tokens.items():
            outputs.setdefault(request, []).extend(tokens)
        engine._cache.check_integrity()
        assert engine.held_tokens <= engine.reserved_tokens
    return outputs, steps


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "build",
    [
        {},
        {"layout": "paged", "block": 4},
        {"layout": "paged", "block": 8, "sharing": "on"},
        {"chunk": 7},
        {"bits": 8},
        {"layout": "paged", "bits": 8},
    ],
    ids=lambda build: " ".join(map(str, build.values())) or "plain",
)
def test_the_words_are_those_without_a_draft(
    model: Llama,
    networks: dict[str, DraftWith],
    prompt: Prompt,
    kind: str,
    build: dict[str, Any],
) -> None:
    config = configure(batch=3, prompt=30, output=24, **build)
    prompts = [prompt(length, seed) for seed, length in enumerate((9, 30, 1, 17))]
    plain = Engine(model, config)
    drafted = Engine(model, drafting(config, kind), draft=networks[kind])
    asked = [(ids, greedy(count)) for ids, count in zip(prompts, (24, 1, 13, 2), strict=True)]
    ids = [engine.add_request(*one) for one in asked for engine in (plain, drafted)]
    theirs, (ours, steps) = drain(plain)[0], watched(drafted)
    assert len(ids) == 8 and {one: len(said) for one, said in ours.items()} == {
        0: 24, 1: 1, 2: 13, 3: 2
    }  # fmt: skip
    for one, text in enumerate(prompts):
        if build.get("bits"):
            assert ours[one] == theirs[one]
        else:
            same_but_for_near_ties(model, text, ours[one], theirs[one])
    decodes = [step for step in steps if step.phase == "decode"]
    given = sum(len(tokens) for step in decodes for tokens in step.tokens.values())
    counted = drafted.draft_counters
    # Every request and step gives one token of the target's, and what stood before it.
    assert given == counted.steps + counted.bare + counted.accepted
    assert counted.drafted == sum(len(v.tokens) for step in decodes for v in step.drafts.values())


def test_a_good_draft_stands_and_saves_passes(
    model: Llama, networks: dict[str, DraftWith], prompt: Prompt
) -> None:
    config = configure(prompt=30, output=40)
    engine = Engine(model, drafting(config, "self8"), draft=networks["self8"])
    engine.add_request(prompt(20), greedy(40))
    _, steps = watched(engine)
    counted = engine.draft_counters
    assert counted.accepted > 0.6 * counted.drafted
    assert len(steps) - 1 == counted.steps + counted.bare < 20
    # Place after place fewer are offered (a draft ends with its request) and fewer stand.
    assert list(counted.offered) == sorted(counted.offered, reverse=True)
    assert list(counted.stood) == sorted(counted.stood, reverse=True)
    engine.reset()
    assert engine.draft_counters.steps == 0


def test_the_target_as_its_own_draft_is_always_right(model: Llama, prompt: Prompt) -> None:
    """An exit after the last layer: every token stands, so each pass gives five."""
    config = configure(prompt=30, output=36)
    every = msgspec.structs.replace(config, draft=DraftConfig("exit", 4, exit_layer=2))
    engine = Engine(model, every)
    engine.add_request(prompt(12), greedy(36))
    said, steps = watched(engine)
    counted = engine.draft_counters
    assert counted.accepted == counted.drafted == 28 and counted.steps == 7 and counted.bare == 0
    assert said[0] == by_rescoring(model, prompt(12), 36)
    assert [len(step.tokens[0]) for step in steps] == [1, *[5] * 7]


def test_what_was_rejected_is_not_found_by_others(model: Llama, prompt: Prompt) -> None:
    """Two that begin alike, one after the other, blocks of two tokens shared: the second finds only
    what the target itself computed, and says what it would say alone."""
    config = configure(batch=1, prompt=30, output=20, layout="paged", block=2, sharing="on")
    stranger = Engine(model, drafting(config, "exit", 5))
    text = prompt(11)
    first = stranger.add_request(text, greedy(20))
    said, _ = watched(stranger)
    counted = stranger.draft_counters
    assert counted.accepted < counted.drafted
    longer = text + said[first][:15]
    second = stranger.add_request(longer, greedy(5))
    again, steps = watched(stranger)
    assert steps[0].admitted[second] >= len(longer) - 3
    same_but_for_near_ties(model, longer, again[second], by_rescoring(model, longer, 5))


@pytest.mark.parametrize("kind", ["ngram", "self4", "model"])
def test_requests_put_back_for_want_of_room_say_the_same(
    model: Llama, networks: dict[str, DraftWith], prompt: Prompt, kind: str
) -> None:
    config = configure(batch=4, prompt=20, output=20, layout="paged", block=4)
    drafts = drafting(config, kind)
    beside = draft_bytes(drafts.draft, networks[kind], 4, 40)
    engine = Engine(model, squeezed(model, drafts, 20, beside), draft=networks[kind])
    texts = [prompt(length, seed) for seed, length in enumerate((20, 14, 19, 16))]
    for text in texts:
        engine.add_request(text, greedy(20))
    said, _ = watched(engine)
    assert engine.counters.preemptions > 0
    for one, text in enumerate(texts):
        same_but_for_near_ties(model, text, said[one], by_rescoring(model, text, 20))


def test_an_end_of_text_within_a_draft_ends_the_request(model: Llama, prompt: Prompt) -> None:
    text = prompt(12)
    said = by_rescoring(model, text, 20)
    end = next(token for place, token in enumerate(said) if place > 4 and token not in said[:place])
    config = configure(prompt=30, output=20)
    every = msgspec.structs.replace(config, draft=DraftConfig("exit", 6, exit_layer=2))
    engine = Engine(model, every, eos_ids={end})
    request = engine.add_request(text, greedy(20, ignore_eos=False))
    outputs, steps = watched(engine)
    assert outputs[request] == said[: said.index(end) + 1]
    assert steps[-1].finished[request] == "stop" and engine.running == 0


def test_an_adaptive_draft_shortens_where_it_fails_and_grows_where_it_stands(
    model: Llama, prompt: Prompt
) -> None:
    lengths = {}
    for layer in (1, 2):
        config = configure(prompt=30, output=60)
        draft = DraftConfig("exit", 6, exit_layer=layer, adaptive="on")
        engine = Engine(model, msgspec.structs.replace(config, draft=draft))
        request = engine.add_request(prompt(12), greedy(60))
        said, steps = watched(engine)
        same_but_for_near_ties(
            model, prompt(12), said[request], by_rescoring(model, prompt(12), 60)
        )
        drafts = [len(step.drafts[request].tokens) for step in steps if request in step.drafts]
        lengths[layer] = drafts
    assert min(lengths[1]) == 1 and set(lengths[2][:-1]) == {6}


def test_sampled_requests_draw_their_drafts_from_their_own_stream(
    model: Llama, networks: dict[str, DraftWith], prompt: Prompt
) -> None:
    """The same seed says the same, alone or in company."""
    params = SamplingParams(max_tokens=16, temperature=0.8, top_p=0.9, seed=3, ignore_eos=True)
    config = configure(batch=3, prompt=30, output=20)

    def say(others: int) -> list[int]:
        engine = Engine(model, drafting(config, "self8"), draft=networks["self8"])
        first = engine.add_request(prompt(12), params)
        for seed in range(1, 1 + others):
            engine.add_request(prompt(15, seed), greedy(16))
        return watched(engine)[0][first]

    assert say(0) == say(2)


def test_what_drafts_takes_its_room_in_the_vessel(
    model: Llama, networks: dict[str, DraftWith], prompt: Prompt
) -> None:
    """Weights of a second network, and of a stranger two slots of 50 tokens: k and v of 1 layer,
    2 heads of 8 numbers."""
    config = configure(batch=2, prompt=30, output=20)
    for kind, own in (("ngram", 0), ("exit", 0), ("self4", 0), ("model", 2 * 50 * 2 * 2 * 8 * 4)):
        network = networks[kind]
        engine = Engine(model, drafting(config, kind), draft=network)
        told = engine.allocated().get("draft", 0)
        assert told == own + (network.weight_bytes if isinstance(network, Llama) else 0)
        assert engine.ledger().parts.get("draft", 0) == told
    with pytest.raises(BudgetError):
        Engine(model, squeezed(model, drafting(config, "self4"), 1), draft=networks["self4"])


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=5),
    kind=st.sampled_from(KINDS),
    length=st.integers(1, 6),
    block=st.sampled_from([1, 3, 8]),
    more=st.integers(0, 10),
    sharing=st.sampled_from(["off", "on"]),
)
def test_any_load_comes_to_its_end_under_any_draft(
    model: Llama,
    networks: dict[str, DraftWith],
    shapes: list[tuple[int, int]],
    kind: str,
    length: int,
    block: int,
    more: int,
    sharing: str,
) -> None:
    config = configure(batch=4, prompt=20, output=12, layout="paged", block=block, sharing=sharing)
    drafts = drafting(config, kind, length)
    beside = draft_bytes(drafts.draft, networks[kind], 4, 32)
    tight = squeezed(model, drafts, -(-32 // block) + more, beside)
    engine = Engine(model, tight, draft=networks[kind])
    texts = [[(place // 4) % 3 for place in range(count)] for count, _ in shapes]
    for text, (_, new) in zip(texts, shapes, strict=True):
        engine.add_request(text, greedy(new))
    said, _ = watched(engine)
    for one, (text, (_, new)) in enumerate(zip(texts, shapes, strict=True)):
        same_but_for_near_ties(model, text, said[one], by_rescoring(model, text, new))


def test_a_network_that_does_not_fit_is_refused(model: Llama, make_model: MakeModel) -> None:
    config = configure()
    with pytest.raises(ValueError, match="network; none was given"):
        Engine(model, drafting(config, "self4"))
    with pytest.raises(ValueError, match="the target itself"):
        Engine(model, drafting(config, "self4"), draft=make_model(layers=1))
    with pytest.raises(ValueError, match="48 tokens cannot draft for a target with 96"):
        Engine(model, drafting(config, "model"), draft=make_model(vocabulary=48))
