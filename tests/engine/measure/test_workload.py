"""Prompts are exact, fresh, repeatable, and never begin alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig, ScheduleConfig, WorkloadConfig
from engine.load import draw_load
from engine.measure.comparison import FEWEST_SCORED
from engine.measure.served import LoadRequest
from engine.measure.workload import Workload, corpus_digest, corpus_text

CORPUS_IDS = list(range(100))


def test_prompts_have_exactly_the_length_asked_for(byte_tokenizer: Any) -> None:
    workload = Workload(byte_tokenizer, 1, CORPUS_IDS)
    for length in (1, 2, 3, 17, 128, 1000):
        prompts = workload.prompts(3, length)
        assert [len(prompt) for prompt in prompts] == [length] * 3


def test_equal_seeds_draw_equal_prompts_and_others_do_not(byte_tokenizer: Any) -> None:
    draw = [Workload(byte_tokenizer, seed, CORPUS_IDS).prompts(4, 32) for seed in (1, 1, 2)]
    assert draw[0] == draw[1]
    assert not set(draw[0]) & set(draw[2])


def test_no_two_prompts_of_a_trial_begin_alike(byte_tokenizer: Any) -> None:
    """More prompts than the vocabulary has tokens: three tokens always tell them apart, and any
    run of 300 is told apart by the first alone."""
    workload = Workload(byte_tokenizer, 3, CORPUS_IDS)
    prompts = [prompt for _ in range(20) for prompt in workload.prompts(64, 16)]
    assert len({prompt[:3] for prompt in prompts}) == len(prompts)
    assert len({prompt[0] for prompt in prompts[100:400]}) == 300


def test_two_requests_share_no_body(byte_tokenizer: Any) -> None:
    first, second = Workload(byte_tokenizer, 3, CORPUS_IDS).prompts(2, 200)
    assert first[4:] != second[4:]


def test_special_tokens_are_never_drawn(byte_tokenizer: Any) -> None:
    workload = Workload(byte_tokenizer, 5, CORPUS_IDS)
    drawn = {token for _ in range(20) for prompt in workload.prompts(64, 4) for token in prompt}
    assert 256 not in drawn and max(drawn) < byte_tokenizer.vocabulary_size


MIXED = EngineConfig(
    WorkloadConfig(prompt=200, output=20, mix="mixed", requests=9, system=48), ScheduleConfig(4)
)


def test_a_load_has_the_drawn_shapes_and_one_beginning(byte_tokenizer: Any) -> None:
    workload = Workload(byte_tokenizer, 3, CORPUS_IDS)
    load = workload.rehearsal(MIXED)
    shapes = draw_load(MIXED, 3)
    assert [(one.kind, len(one.prompt), one.output) for one in load] == [
        (shape.kind, shape.prompt, shape.output) for shape in shapes
    ]
    assert len({one.prompt[:48] for one in load}) == 1
    assert len({one.prompt[48] for one in load}) == 9  # they part at once


def test_no_two_loads_begin_alike_or_share_their_words(byte_tokenizer: Any) -> None:
    workload = Workload(byte_tokenizer, 3, CORPUS_IDS)
    loads = [workload.load(MIXED) for _ in range(20)] + [workload.rehearsal(MIXED)]
    assert len({load[0].prompt[:3] for load in loads}) == 21
    own = [one.prompt[48:51] for load in loads for one in load]
    assert len(set(own)) == len(own)
    prompts = workload.prompts(5, 60)
    assert not {prompt[:3] for prompt in prompts} & {load[0].prompt[:3] for load in loads}


def test_timed_loads_differ_in_shape_and_rehearsals_do_not(byte_tokenizer: Any) -> None:
    workload = Workload(byte_tokenizer, 3, CORPUS_IDS)

    def lengths(load: tuple[LoadRequest, ...]) -> tuple[int, ...]:
        return tuple(len(one.prompt) for one in load)

    assert len({lengths(workload.load(MIXED)) for _ in range(8)}) == 8
    rehearsed = [workload.rehearsal(MIXED) for _ in range(3)]
    assert len({lengths(load) for load in rehearsed}) == 1
    assert len({load[0].prompt for load in rehearsed}) == 3


def test_equal_seeds_draw_equal_loads(byte_tokenizer: Any) -> None:
    first, second, other = (
        Workload(byte_tokenizer, seed, CORPUS_IDS).load(MIXED) for seed in (1, 1, 2)
    )
    assert first == second != other


def test_a_uniform_load_shares_nothing_unless_it_is_asked_to(byte_tokenizer: Any) -> None:
    workload = Workload(byte_tokenizer, 3, CORPUS_IDS)
    alone = workload.load(EngineConfig(WorkloadConfig(40, 8, requests=5)))
    assert {(one.kind, len(one.prompt), one.output) for one in alone} == {("chat", 40, 8)}
    assert len({one.prompt[0] for one in alone}) == 5
    shared = workload.load(EngineConfig(WorkloadConfig(40, 8, requests=5, system=39)))
    assert len({one.prompt[:39] for one in shared}) == 1
    assert len({one.prompt for one in shared}) == 5


@pytest.mark.parametrize(("count", "length"), [(0, 5), (5, 0), (-1, 5)])
def test_impossible_requests_are_refused(byte_tokenizer: Any, count: int, length: int) -> None:
    with pytest.raises(ValueError, match="at least one prompt"):
        Workload(byte_tokenizer, 1, CORPUS_IDS).prompts(count, length)


def test_an_empty_corpus_is_refused(byte_tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="some text"):
        Workload(byte_tokenizer, 1, [])
    with pytest.raises(FileNotFoundError, match="no evaluation text"):
        corpus_text(tmp_path)


def test_the_corpus_has_prose_in_two_languages_and_code() -> None:
    text = corpus_text()
    assert "ferry" in text and "def merge" in text
    assert sum("\u4e00" <= char <= "\u9fff" for char in text) > 200
    assert len(text.split()) > 2000
    assert len(corpus_digest()) == 64


@pytest.mark.model
def test_the_corpus_is_long_enough_for_the_default_tokenizer() -> None:
    from engine.model.loader import load_model
    from engine.model.store import find_model

    tokenizer = load_model(find_model("default")).tokenizer
    assert len(tokenizer.encode(corpus_text())) >= 2600 > FEWEST_SCORED
