"""Trials of builds that draft, on a real tiny model: every kind from the shelf, the account, the
proof, and the three texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from rounded_weights import rounded
from scripted_trials import CAPABILITIES, MACHINE, spec

from engine.config import DraftConfig, EngineConfig, RunConfig, WorkloadConfig
from engine.domains import KnobError
from engine.draft_report import DraftedText, Piece
from engine.drafters import held_bytes
from engine.measure import speculation
from engine.measure.shelf import Shelf
from engine.measure.trial_runner import TrialRunner
from engine.messages import Event, Progress
from engine.metrics import Evidence, point_estimates
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.run.engine import Engine
from engine.run.sampler import Sampler
from engine.run.scoring import logits
from engine.run_metrics import check_sample
from engine.schedule.sequence import SamplingParams
from engine.speculate import head_file
from engine.speculate.accept import Outcome
from engine.speculate.head import HeadShape
from engine.speculate.head_file import write_head
from engine.speculate.make import draft_bytes
from engine.trial import TrialResult

Configs = Callable[..., ModelConfig]
KINDS = ("ngram", "self8", "self4", "exit", "trained", "model")
PLAIN = {"workload.prompt": 24, "workload.output": 12, "run.precision": "float32"}
DIGEST = "c" * 64


@pytest.fixture
def shelf(
    tiny_config: Configs,
    tiny_tensors: Callable[[ModelConfig], dict[str, torch.Tensor]],
    byte_tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Shelf:
    """A tiny model, a smaller one of the same tokenizer, and a head that was trained on nothing."""
    config, small = tiny_config(), tiny_config(layers=1)
    tensors = tiny_tensors(config)
    shape = HeadShape(hidden=64, inner=32, steps=4)
    made = {n: torch.randn(size) * 0.1 for n, size in shape.tensors(0).items() if n != "words"}
    path = tmp_path / "tiny.safetensors"
    write_head(path, shape, made | {"words": torch.arange(0, 256, 2)}, DIGEST, {})
    monkeypatch.setattr(head_file, "HEADS", tmp_path)

    def loaded(config: ModelConfig, tensors: Any, digest: str) -> Any:
        return SimpleNamespace(
            config=config, tensors=tensors, tokenizer=byte_tokenizer, digest=digest, name="tiny"
        )

    return Shelf(
        loaded(config, tensors, DIGEST),
        quantise=lambda loaded, recipe, *_: rounded(loaded.config, loaded.tensors, recipe),
        other=loaded(small, tiny_tensors(small), "d" * 64),
    )


def run(shelf: Shelf, draft: dict[str, Any], events: list[Event], **changes: Any) -> TrialResult:
    runner = TrialRunner(shelf, MACHINE, CAPABILITIES, events.append, lambda: False)
    fields = {"build": PLAIN | draft, "reference": PLAIN, "bounds": (), "quality": False}
    return runner.run(1, spec(**(fields | changes)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_runs_its_trial_and_loses_nothing(shelf: Shelf, kind: str) -> None:
    events: list[Event] = []
    result = run(shelf, {"draft.kind": kind, "draft.length": 3}, events)
    noisy = {"noise", "unstable", "too_fast"}  # tiny runs are
    assert {fault.code for fault in result.faults} <= noisy
    for pair in result.pairs:
        check_sample(pair.candidate)
        assert pair.candidate.draft is not None and pair.reference.draft is None
    assert result.kernel_path["draft"] and "draft" not in result.reference_kernel_path
    # The account is the price, part by part, and tells the draft where it holds something.
    predicted, allocated = result.memory.predicted, result.memory.allocated
    assert predicted.get("draft", 0) == allocated.get("draft", 0)
    assert (allocated.get("draft", 0) > 0) is (kind not in ("ngram", "exit"))
    assert predicted["weights"] == allocated["weights"]
    assert result.draft is not None
    proof = result.draft.lossless
    assert proof is not None and proof.requests == len(result.pairs)
    assert proof.same == proof.requests and proof.identical >= proof.requests - 1
    figures = point_estimates(Evidence.of(result))
    assert figures["lossless"] == 1 and 0 <= figures["acceptance_rate"] <= 1
    assert figures["break_even_length"] > 0
    assert [one.kind for one in result.draft.texts] == []  # no room for a question of theirs
    phases = [event.phase for event in events if isinstance(event, Progress)]
    assert "lossless" in phases


WARM = {"sampling.temperature": 0.4, "workload.output": 48}


def sampled(shelf: Shelf, kind: str, temperature: float = 0.4) -> TrialResult:
    build = PLAIN | WARM | {"sampling.temperature": temperature, "schedule.batch": 2}
    draft = {"draft.kind": kind, "draft.length": 3, "draft.exit_layer": 1}
    return run(shelf, {}, [], build=build | draft, reference=build)


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_answers_are_held_to_the_models_own_distribution(shelf: Shelf, kind: str) -> None:
    result = sampled(shelf, kind)
    assert not any(fault.code == "wrong_output" for fault in result.faults)
    assert result.draft is not None and result.draft.lossless is None
    drawn = result.draft.drawn
    assert drawn is not None and drawn.fair and drawn.tokens == 2 * 48 * len(result.pairs)
    assert point_estimates(Evidence.of(result))["lossless"] == 1


def always_accept(drafted: Any, proposed: Any, target: torch.Tensor, chance: Any) -> Outcome:
    last = torch.multinomial(target[len(drafted)], 1, generator=chance)
    return Outcome(len(drafted), int(last))


def best_scored_as_drawn(
    sampler: Sampler, sequence: int, logits: torch.Tensor
) -> tuple[int, torch.Tensor]:
    """The draft's best token, said to be drawn."""
    return int(logits.argmax()), sampler._chances(sequence, logits)


def cold_scored_as_warm(
    sampler: Sampler, sequence: int, logits: torch.Tensor
) -> tuple[int, torch.Tensor]:
    """A draft that was drawn at another temperature than it is verified at."""
    return int(torch.softmax(logits / 0.05, -1).multinomial(1)), sampler._chances(sequence, logits)


@pytest.mark.parametrize(
    ("place", "cheat"),
    [
        ("engine.run.sampler.verify_sampled", always_accept),
        ("engine.run.sampler.Sampler.choose", best_scored_as_drawn),
        ("engine.run.sampler.Sampler.choose", cold_scored_as_warm),
    ],
)
def test_a_rule_that_cheats_is_found_out_in_its_trial(
    shelf: Shelf, place: str, cheat: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, cheat)
    result = sampled(shelf, "exit")
    wrong = any(fault.code == "wrong_output" for fault in result.faults)
    if result.draft is not None and result.draft.drawn is not None:
        wrong = wrong or not result.draft.drawn.fair
    assert wrong


def test_a_sampled_build_without_a_draft_is_checked_too(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(shelf, {}, [], build=PLAIN | WARM, reference=PLAIN | WARM)
    assert not any(fault.code == "wrong_output" for fault in result.faults)

    def first_word(sampler: Any, sequence: int, logits: torch.Tensor) -> int:
        return 0

    monkeypatch.setattr("engine.run.sampler.Sampler._draw", first_word)
    result = run(shelf, {}, [], build=PLAIN | WARM, reference=PLAIN | WARM)
    (fault,) = (fault for fault in result.faults if fault.code == "wrong_output")
    assert "candidate: " in fault.details["what"] and "sampled tokens" in fault.details["what"]


def test_three_texts_are_told_word_by_word_where_they_fit(shelf: Shelf) -> None:
    roomy = PLAIN | {"workload.prompt": 70, "workload.output": 30}
    draft = {"draft.kind": "exit", "draft.exit_layer": 2, "draft.length": 3}
    result = run(shelf, {}, [], build=roomy | draft, reference=roomy)
    assert result.draft is not None
    texts = {one.kind: one for one in result.draft.texts}
    assert list(texts) == ["story", "code", "list"]
    for kind, one in texts.items():
        assert one.prompt == speculation.PROMPTS[kind]
        assert one.accepted == one.drafted > 0  # it exits after its last layer
        assert {piece.fate for piece in one.pieces} <= {"plain", "accepted", "added"}
        assert speculation.FEWEST <= one.tokens <= speculation.TOKENS


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_draft_holds_is_what_the_formula_says(
    shelf: Shelf, kind: str, precision: str
) -> None:
    config = EngineConfig(
        workload=WorkloadConfig(24, 12), run=RunConfig(precision, 1), draft=DraftConfig(kind)
    )
    target = shelf.llama(precision)
    network = shelf.drafting(config, target)
    packed = "packed" in target.kernel_path["head"]
    formula = held_bytes(config, shelf.config, shelf.drafters, packed, target.low_bit_forms)
    assert formula == draft_bytes(config.draft, network, 1, 36)
    assert Engine(target, config, draft=network).allocated().get("draft", 0) == formula


def test_a_shelf_without_them_says_so(
    tiny_config: Configs, tiny_tensors: Any, byte_tokenizer: Any
) -> None:
    config = tiny_config()
    bare = Shelf(
        SimpleNamespace(
            config=config,
            tensors=tiny_tensors(config),
            tokenizer=byte_tokenizer,
            digest="e" * 64,
            name="tiny",
        )
    )
    assert bare.drafters.trained is None and bare.drafters.other is None
    for kind, why in (("trained", "no trained draft"), ("model", "no draft model")):
        with pytest.raises(ValueError, match=why):
            bare.drafting(EngineConfig(draft=DraftConfig(kind)), bare.llama("float32"))
        with pytest.raises(KnobError, match=why):
            run(bare, {"draft.kind": kind}, [])


def test_builds_that_differ_in_more_are_not_compared(shelf: Shelf) -> None:
    plain = EngineConfig(workload=WorkloadConfig(24, 12))
    drafting = msgspec.structs.replace(plain, draft=DraftConfig("ngram"))
    assert speculation.is_twin(drafting, plain)
    assert not speculation.is_twin(drafting, drafting)
    assert not speculation.is_twin(plain, plain)
    other = msgspec.structs.replace(drafting, run=RunConfig("bfloat16"))
    assert not speculation.is_twin(other, plain)
    result = run(shelf, {"draft.kind": "exit", "run.precision": "bfloat16"}, [])
    assert result.draft is not None and result.draft.lossless is None
    assert run(shelf, {}, []).draft is None


@dataclass
class Told:
    """Prompts and what was said to them."""

    prompts: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


class Silent:
    def progress(self, *_: Any, **__: Any) -> None: ...


def best_after(model: Llama, text: Sequence[int]) -> list[int]:
    """Words by score, the best first, counted here from the logits."""
    return logits(model, text)[-1].argsort(descending=True).tolist()  # type: ignore[no-any-return]


def test_a_near_tie_is_told_apart_from_a_fault_by_its_margin(shelf: Shelf) -> None:
    """The runner-up in place of the best word: a near-tie where so much is allowed."""
    model, prompt = shelf.llama("float32"), (5, 6, 7, 8)
    best, second, *_, last = best_after(model, prompt)
    plain = [Told((prompt,) * 3, ((best, 1), (best, 2), (best, 3)))]
    drafted = [Told((prompt,) * 3, ((best, 1), (second, 9), (last, 9)))]
    row = logits(model, prompt)[-1]
    margin = float((row[best] - row[second]) / row.std())
    for allowed, ties in ((margin * 1.01, 1), (margin * 0.99, 0), (1e9, 2)):
        found = speculation.compare(plain, drafted, model, allowed, Silent())  # type: ignore[arg-type]
        assert (found.requests, found.identical, found.near_ties) == (3, 1, ties)
        assert found.same == 1 + ties
        if ties == 1:
            assert found.widest == pytest.approx(margin, rel=1e-4)


class Scripted:
    """An engine whose steps are written down: (tokens given, tokens drafted, of these accepted)."""

    def __init__(self, *steps: tuple[tuple[int, ...], tuple[int, ...] | None, int]) -> None:
        self._steps = list(steps)
        self.asked: list[int] = []

    def reset(self) -> None: ...

    def add_request(self, prompt: list[int], params: Any) -> int:
        self.asked = prompt
        return 0

    @property
    def has_work(self) -> bool:
        return bool(self._steps)

    def step(self) -> Any:
        given, drafted, accepted = self._steps.pop(0)
        told = {} if drafted is None else {0: SimpleNamespace(tokens=drafted, accepted=accepted)}
        phase = "decode" if self.asked is None or drafted is not None else "prefill"
        return SimpleNamespace(tokens={0: given}, drafts=told, phase=phase)


def text_of(byte_tokenizer: Any, *steps: Any) -> DraftedText:
    engine = Scripted(*steps)
    params = SamplingParams(max_tokens=20)
    return speculation._text(engine, byte_tokenizer, "list", [1, 2], params)  # type: ignore[arg-type]


def test_every_word_has_its_fate(byte_tokenizer: Any) -> None:
    a, b, c, d, e, x = b"abcdex"
    found = text_of(
        byte_tokenizer,
        ((a,), None, 0),
        ((b, c, d), (b, c), 2),  # stood whole: d is the model's own
        ((e, a), (e, x, x), 1),  # the second fell: a in its place, the third never looked at
        ((b, c), (b, c, d), 3),  # the answer ended within its draft
    )
    assert found.pieces == (
        Piece("a", "plain"),
        Piece("bc", "accepted"),
        Piece("d", "added"),
        Piece("e", "accepted"),
        Piece("x", "rejected"),
        Piece("a", "corrected"),
        Piece("bc", "accepted"),
    )
    assert (found.drafted, found.accepted, found.steps, found.tokens) == (8, 6, 3, 8)
    assert found.acceptance == pytest.approx(6 / 8)


def test_model_text_is_made_safe(byte_tokenizer: Any) -> None:
    found = text_of(byte_tokenizer, ((27, 91, 51, 49, 109, 65, 7), None, 0))
    assert found.pieces == (Piece("A", "plain"),)
    assert found.acceptance is None
