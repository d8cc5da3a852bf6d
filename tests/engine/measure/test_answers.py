"""Prompts answered by a build: against a loop that calls the model by hand, and side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from rounded_weights import rounded

from engine.config import CacheConfig, EngineConfig, RunConfig, WeightsConfig
from engine.measure import answers
from engine.measure.answers import PROMPTS, framed_prompts, greedy, parting, side_by_side
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.run.scoring import score_chunks

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]

PLAIN = EngineConfig(run=RunConfig("float32", 1))
NO_END: frozenset[int] = frozenset()


def drawn(count: int, shared: int = 20) -> list[list[int]]:
    """Prompts of different lengths that begin alike."""
    begin = [(7 * place) % 256 for place in range(shared)]
    return [begin + [(31 * n + 5 * p) % 256 for p in range(3 + n % 5)] for n in range(count)]


def by_hand(model: Llama, prompt: Sequence[int], tokens: int, bits: int = 0) -> list[int]:
    """The arg max after the whole text, again and again, without a cache that lives."""
    text = list(prompt)
    for _ in range(tokens):
        *_, last = score_chunks(model, text, bits=bits)
        text.append(int(last[-1].argmax()))
    return text[len(prompt) :]


def test_answers_are_the_most_likely_tokens(tiny_config: Configs, tiny_tensors: Tensors) -> None:
    config = tiny_config()
    model = Llama(config, tiny_tensors(config), "float32")
    prompts = drawn(7)
    found = greedy(model, PLAIN, prompts, 6, NO_END)
    assert [list(answer) for answer in found] == [by_hand(model, one, 6) for one in prompts]


def test_an_answer_ends_with_its_end_token_which_is_no_word(
    tiny_config: Configs, tiny_tensors: Tensors
) -> None:
    config = tiny_config()
    model = Llama(config, tiny_tensors(config), "float32")
    prompts = drawn(3)
    free = by_hand(model, prompts[0], 6)
    end = free[3]
    found = greedy(model, PLAIN, prompts, 6, frozenset({end}))
    assert list(found[0]) == free[: free.index(end)]


def test_few_seats_give_the_same_answers_later(
    tiny_config: Configs, tiny_tensors: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config()
    model = Llama(config, tiny_tensors(config), "float32")
    prompts = drawn(9)
    together = greedy(model, PLAIN, prompts, 4, NO_END)
    monkeypatch.setattr(answers, "CACHE_BYTES", 1)
    heard: list[int] = []
    assert greedy(model, PLAIN, prompts, 4, NO_END, heard.append) == together
    assert heard == sorted(heard) and heard[-1] == 9 and set(heard) == set(range(10))


def test_an_answer_breaks_off_where_it_is_enough(
    tiny_config: Configs, tiny_tensors: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each after a length of its own, and with few seats at a time, so that indices are the
    prompts'."""
    config = tiny_config()
    model = Llama(config, tiny_tensors(config), "float32")
    prompts = drawn(9)
    whole = greedy(model, PLAIN, prompts, 6, NO_END)
    lengths = [1, 6, 3, 9, 2, 5, 1, 4, 6]

    def enough(index: int, said: Sequence[int]) -> bool:
        assert tuple(said) == whole[index][: len(said)]
        return len(said) == lengths[index]

    for room in (answers.CACHE_BYTES, 1):
        monkeypatch.setattr(answers, "CACHE_BYTES", room)
        heard: list[int] = []
        found = greedy(model, PLAIN, prompts, 6, NO_END, heard.append, enough)
        assert found == [one[:length] for one, length in zip(whole, lengths, strict=True)]
        assert heard == sorted(heard) and heard[-1] == 9


def test_a_build_answers_with_its_own_weights_and_its_own_cache(
    tiny_config: Configs, tiny_tensors: Tensors
) -> None:
    """Codes of 8 bits answer as the loop over them does; a cache of 4 bits answers otherwise, and a
    configuration that speaks of other weights is refused."""
    config = tiny_config()
    tensors = tiny_tensors(config)
    weights = WeightsConfig(bits=8, crossover=0)
    model = Llama(config, tensors, "float32", quantised=rounded(config, tensors, weights))
    prompts = drawn(12, shared=60)
    build = EngineConfig(run=PLAIN.run, weights=weights)
    narrow = EngineConfig(run=PLAIN.run, weights=weights, cache=CacheConfig(bits=4))
    wide = greedy(model, build, prompts, 6, NO_END)
    assert [list(answer) for answer in wide] == [by_hand(model, one, 6) for one in prompts]
    assert greedy(model, narrow, prompts, 6, NO_END) != wide
    with pytest.raises(ValueError, match="quantise it again"):
        greedy(model, PLAIN, prompts, 6, NO_END)


def test_it_stops_where_it_is_told_to(tiny_config: Configs, tiny_tensors: Tensors) -> None:
    config = tiny_config()
    model = Llama(config, tiny_tensors(config), "float32")

    def stop(finished: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        greedy(model, PLAIN, drawn(2), 4, NO_END, stop)
    assert greedy(model, PLAIN, [], 4, NO_END) == []


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([], [], None),
        ([1, 2, 3], [1, 9, 3], 1),
        ([9], [1, 2], 0),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3], [1], 1),
        ([], [1], 0),
    ],
)
def test_the_first_token_that_differs(one: list[int], other: list[int], place: int | None) -> None:
    assert parting(one, other) == place == parting(other, one)


def test_two_texts_stand_side_by_side_and_are_safe_to_show(byte_tokenizer: Any) -> None:
    full = [b"Paris.", b"Light is scattered.", b"A fox"]
    build = [b"Paris.", b"\x1b[31mLi\x07ght", b"x" * 900]
    found = side_by_side(byte_tokenizer, [list(text) for text in full], list(map(list, build)))
    assert [one.prompt for one in found] == list(PROMPTS)
    assert [one.differs for one in found] == [None, 0, 0]
    assert found[1].build == "Light" and found[1].full == "Light is scattered."
    assert len(found[2].build) == 400 and found[2].build.endswith("…")


def test_prompts_are_framed_as_chat(byte_tokenizer: Any) -> None:
    assert [bytes(ids).decode() for ids in framed_prompts(byte_tokenizer)] == list(PROMPTS)
