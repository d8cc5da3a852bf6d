"""The book of quality: what it looks at, once, in which order, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from rounded_weights import rounded

import engine.measure.asked as asked_module
import engine.measure.comparison as comparison_module
import engine.measure.quality as quality_module
from engine.config import CacheConfig, EngineConfig, RunConfig, WeightsConfig
from engine.measure import answers, probes
from engine.measure.comparison import QualityError
from engine.measure.probes import Question
from engine.measure.quality import Looked, QualityBook, measure_quality
from engine.measure.reporter import Reporter
from engine.measure.shelf import Shelf
from engine.messages import Event, Progress
from engine.model.config import ModelConfig
from engine.quality_report import Quality
from engine.recipe import Recipe
from engine.serve.failures import Aborted
from engine.trial import TrialSpec

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]
MakeShelf = Callable[..., Shelf]

QUESTIONS = tuple(Question(f"What is {n}?", f"It is {n} and", (str(n),)) for n in range(12))
FULL = EngineConfig(run=RunConfig("bfloat16", 1))


def quantised(bits: int, group: int = 0, kv: int = 0, **weights: object) -> EngineConfig:
    settings = {"bits": bits, "group": group, **weights}
    return EngineConfig(
        run=FULL.run,
        cache=CacheConfig(bits=kv),
        weights=WeightsConfig(**settings),  # type: ignore[arg-type]
    )


def spec(**asked: object) -> TrialSpec:
    return msgspec.structs.replace(
        TrialSpec(stage="test", kind="hold", build={}, reference={}, seed=0), **asked
    )


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 tokens are scored, twelve questions asked, and a reply's sum says whether it is right: a
    random model knows no capital."""
    monkeypatch.setattr(comparison_module, "FEWEST_SCORED", 300)
    monkeypatch.setattr(comparison_module, "WINDOW", 101)
    monkeypatch.setattr(probes, "questions", lambda: QUESTIONS)
    monkeypatch.setattr(quality_module, "questions", lambda: QUESTIONS)
    monkeypatch.setattr(probes, "marks", by_sum)


def by_sum(
    tokenizer: object, asked: Sequence[Question], replies: Sequence[Sequence[int]]
) -> tuple[bool, ...]:
    assert len(asked) == len(replies)
    return tuple(sum(reply) % 3 != 0 for reply in replies)


@pytest.fixture
def make_shelf(tiny_config: Configs, tiny_tensors: Tensors, byte_tokenizer: Any) -> MakeShelf:
    """make_shelf(digest, tokenizer): the same tiny model under any name."""
    config = tiny_config()
    tensors = tiny_tensors(config)

    def quantise(loaded: Any, recipe: Recipe, *_: object) -> Any:
        return rounded(loaded.config, loaded.tensors, recipe)

    def make(digest: str = "model", tokenizer: Any = byte_tokenizer) -> Shelf:
        loaded: Any = SimpleNamespace(
            config=config, tensors=tensors, tokenizer=tokenizer, digest=digest, name="tiny"
        )
        return Shelf(loaded, quantise=quantise)

    return make


def desk(
    events: list[Event] | None = None, aborted: Callable[[], bool] = lambda: False
) -> Reporter:
    heard: list[Event] = [] if events is None else events
    return Reporter(1, heard.append, aborted, lambda: 0)


def phases(events: Sequence[Event]) -> list[str]:
    """Phases in the order they began."""
    told = [event.phase for event in events if isinstance(event, Progress)]
    return [phase for place, phase in enumerate(told) if told[place - 1 : place] != [phase]]


def look(book: QualityBook, shelf: Shelf, config: EngineConfig, **asked: object) -> Looked:
    return book.look(shelf, config, spec(**asked), desk())


def test_a_look_gives_the_figures_of_the_builds_own_network(make_shelf: MakeShelf) -> None:
    shelf = make_shelf()
    for config in (FULL, quantised(4), quantised(4, kv=4), quantised(3, crossover=0)):
        found = look(QualityBook(), shelf, config)
        recipe = quality_module.wanted(config, shelf.config)
        model = shelf.llama("bfloat16", recipe, config.weights.crossover)
        text = shelf.tokenizer.encode(quality_module.corpus_text())
        bits = config.cache.bits
        assert found.quality == measure_quality(shelf.llama("float32"), model, text, bits=bits)
        assert found.quality.kl > 0 and found.quality.probes is None
        assert (found.ladder, found.notices) == ((), ())


def test_every_build_is_looked_at_once(
    make_shelf: MakeShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Model, recipe, precision, width of the cache and kernels make a build."""
    measured: list[EngineConfig] = []
    plain = Quality(0.1, 0.9, 1.1, 300, "text")

    def counted(*_: object) -> Quality:
        measured.append(FULL)
        return plain

    monkeypatch.setattr(quality_module, "measure_quality", counted)
    book, one, two = QualityBook(), make_shelf(), make_shelf("another model")
    float32 = EngineConfig(run=RunConfig("float32", 1))
    builds = [
        (one, FULL), (one, float32), (two, FULL), (one, quantised(4)), (one, quantised(4, 16)),
        (one, quantised(4, symmetric="on")), (one, quantised(4, kv=8)), (one, quantised(3)),
        (one, quantised(4, crossover=0)),
    ]  # fmt: skip
    for number, (shelf, config) in enumerate(builds, 1):
        assert look(book, shelf, config).quality == plain
        assert len(measured) == number
    for shelf, config in builds:
        look(book, shelf, config)
    assert len(measured) == len(builds)


def test_the_full_model_reads_the_text_once_for_all_builds(
    make_shelf: MakeShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = quality_module.read_text

    def heard(*arguments: Any) -> Any:
        read.append(arguments[0].precision)
        return original(*arguments)

    monkeypatch.setattr(quality_module, "read_text", heard)
    book, shelf = QualityBook(), make_shelf()
    for config in (FULL, quantised(4), quantised(8)):
        look(book, shelf, config)
    assert read == ["float32"]
    look(book, make_shelf("another model"), FULL)
    assert read == ["float32"] * 2


def test_the_build_is_asked_what_the_full_model_knows(make_shelf: MakeShelf) -> None:
    """Marks and words against the two networks asked one after the other, here."""
    shelf, config = make_shelf(), quantised(3)
    recipe = quality_module.wanted(config, shelf.config)
    models = (
        (shelf.llama("float32"), EngineConfig(run=RunConfig("float32", 1))),
        (shelf.llama("bfloat16", recipe, config.weights.crossover), config),
    )
    eos = shelf.tokenizer.eos_ids
    questions = probes.framed(shelf.tokenizer, QUESTIONS)
    full, build = (answers.greedy(*one, questions, probes.TOKENS, eos) for one in models)
    right = [by_sum(None, QUESTIONS, replies) for replies in (full, build)]
    prompts = answers.framed_prompts(shelf.tokenizer)
    words = [answers.greedy(*one, prompts, answers.TOKENS, eos) for one in models]

    found = look(QualityBook(), shelf, config, probes=True).quality
    assert found.probes is not None
    assert 0 < found.probes.known < found.probes.asked == 12
    assert found.probes.known == sum(right[0])
    assert found.probes.right == sum(a and b for a, b in zip(*right, strict=True))
    assert found.answers == answers.side_by_side(shelf.tokenizer, *words)
    assert any(answer.differs is not None for answer in found.answers)


def test_the_full_model_is_asked_once_for_every_process(
    make_shelf: MakeShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    original = quality_module.full_spoken

    def heard(shelf: Shelf, threads: int, desk: Reporter) -> Any:
        asked.append(shelf.digest)
        return original(shelf, threads, desk)

    monkeypatch.setattr(quality_module, "full_spoken", heard)
    first = look(QualityBook(tmp_path), make_shelf(), quantised(4), probes=True)
    book = QualityBook(tmp_path)
    assert look(book, make_shelf(), quantised(4), probes=True) == first
    look(book, make_shelf(), quantised(3), probes=True)
    assert asked == ["model"]
    look(book, make_shelf("another model"), quantised(3), probes=True)
    assert asked == ["model", "another model"]
    monkeypatch.setattr(probes, "TOKENS", 4)  # other questions: what was said no longer stands
    look(QualityBook(tmp_path), make_shelf(), quantised(4), probes=True)
    assert asked == ["model", "another model", "model"]


def test_words_are_told_only_to_whom_asked(make_shelf: MakeShelf) -> None:
    book, shelf = QualityBook(), make_shelf()
    events: list[Event] = []
    with_words = book.look(shelf, FULL, spec(probes=True), desk(events)).quality
    assert phases(events) == ["quality", "probes", "answers", "probes", "answers"]
    without = look(book, shelf, FULL).quality
    assert without == msgspec.structs.replace(with_words, probes=None, answers=())
    events.clear()
    assert book.look(shelf, FULL, spec(probes=True), desk(events)).quality == with_words
    assert not events


def test_a_model_that_does_not_chat_is_not_asked(
    make_shelf: MakeShelf, byte_tokenizer: Any
) -> None:
    class Mute:
        def __getattr__(self, name: str) -> Any:
            return getattr(byte_tokenizer, name)

        def chat(self, messages: object) -> list[int]:
            raise ValueError("the chat template refuses")

    found = look(QualityBook(), make_shelf(tokenizer=Mute()), FULL, probes=True).quality
    assert (found.probes, found.answers) == (None, ())
    assert found.kl > 0


def test_a_context_too_short_for_the_questions_is_not_an_error(
    make_shelf: MakeShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_module.answers, "TOKENS", 5_000)
    found = look(QualityBook(), make_shelf(), FULL, probes=True).quality
    assert (found.probes, found.answers) == (None, ())


def test_the_ladder_is_climbed_once_and_kept(make_shelf: MakeShelf, tmp_path: Path) -> None:
    shelf, events = make_shelf(), list[Event]()
    book = QualityBook(tmp_path)
    found = book.look(shelf, quantised(4), spec(ladder=(8, 3)), desk(events)).ladder
    assert [rung.bits for rung in found] == [8, 3] and found[0].kl < found[1].kl
    assert "ladder" in phases(events)
    events.clear()
    later = QualityBook(tmp_path)
    again = later.look(shelf, quantised(4), spec(ladder=(3, 8, 2)), desk(events)).ladder
    assert again[:2] == found[::-1] and again[2].bits == 2
    climbed = {event.detail for event in events if isinstance(event, Progress) and event.detail}
    assert climbed == {"2"}
    with pytest.raises(ValueError, match="no rung of 5 bits"):
        look(later, shelf, FULL, ladder=(5,))


def test_a_finer_build_that_lost_more_is_noticed(
    make_shelf: MakeShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter((0.2, 0.1, 0.9))
    monkeypatch.setattr(
        quality_module,
        "measure_quality",
        lambda *_: Quality(next(figures), 0.9, 1.1, 300, "text"),
    )
    book, shelf = QualityBook(), make_shelf()
    assert look(book, shelf, quantised(4, 64)).notices == ()
    assert look(book, shelf, quantised(4, 32)).notices == ()
    (notice,) = look(book, shelf, quantised(4, 16)).notices
    assert notice.code == "not_monotone" and notice.details["coarser_group"] == "32"
    assert look(book, shelf, quantised(4, 64)).notices == ()
    assert look(book, shelf, quantised(4, 16)).notices == (notice,)


@pytest.mark.parametrize("phase", ["quality", "probes", "answers", "ladder"])
def test_it_stops_where_the_player_does_and_keeps_what_stands(
    make_shelf: MakeShelf, phase: str
) -> None:
    book, shelf = QualityBook(), make_shelf()
    events: list[Event] = []

    def aborted() -> bool:
        return phase in phases(events)

    everything = spec(probes=True, ladder=(4,))
    with pytest.raises(Aborted):
        book.look(shelf, quantised(4), everything, desk(events, aborted))
    assert phases(events)[-1] == phase
    events.clear()
    found = book.look(shelf, quantised(4), everything, desk(events))
    assert found.quality.answers and len(found.ladder) == 1
    assert ("quality" in phases(events)) == (phase == "quality")


def test_a_broken_build_has_no_quality(make_shelf: MakeShelf) -> None:
    book, shelf = QualityBook(), make_shelf()
    recipe = quality_module.wanted(quantised(4), shelf.config)
    assert recipe is not None
    weights = shelf.quantised(recipe, "bfloat16")
    weights.grids["layers.1.down"].scale[0, 0] = float("nan")
    with pytest.raises(QualityError, match=r"layer 1: down \(4 bits, "):
        look(book, shelf, quantised(4))


def test_the_float32_model_is_its_own_measure(make_shelf: MakeShelf) -> None:
    shelf = make_shelf()
    config = EngineConfig(run=RunConfig("float32", 1))
    found = look(QualityBook(), shelf, config, probes=True).quality
    assert (found.kl, found.top1, found.perplexity_ratio) == (0.0, 1.0, 1.0)
    assert found.probes is not None and found.probes.right == found.probes.known
    assert all(answer.differs is None for answer in found.answers)
