"""The calibration text that ships: enough of it, mixed from its start, and not the judge's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.measure.workload import corpus_text
from engine.quant.calibrate import calibration_ids, calibration_text


class Words:
    """A tokenizer of words: each gets the next free id."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self.known.setdefault(word, len(self.known)) for word in text.split()]


def runs_of_words(text: str, length: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}


def test_it_shares_no_run_of_eight_words_with_the_evaluation_text() -> None:
    assert not runs_of_words(calibration_text(), 8) & runs_of_words(corpus_text(), 8)


def test_it_shares_no_stretch_of_chinese_with_the_evaluation_text() -> None:
    def stretches(text: str) -> set[str]:
        return {
            run[start : start + 8]
            for run in re.findall(r"[\u4e00-\u9fff]+", text)
            for start in range(len(run) - 7)
        }

    assert stretches(corpus_text())
    assert not stretches(calibration_text()) & stretches(corpus_text())


def test_its_first_part_is_as_mixed_as_the_whole() -> None:
    beginning = calibration_text()[:12_000]
    assert re.search(r"[\u4e00-\u9fff]{8}", beginning)
    assert re.search(r"^(def|class|function|import|#include|SELECT) ?", beginning, re.MULTILINE)
    assert re.search(r"^(- |\d+\. |\|)", beginning, re.MULTILINE)


def test_no_control_character_is_in_it() -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]", calibration_text())


def test_fewer_tokens_are_the_beginning_of_more() -> None:
    tokenizer = Words()
    few, many = calibration_ids(tokenizer, 100), calibration_ids(tokenizer, 1000)
    assert len(few) == 100 and many[:100] == few


def test_asking_for_more_than_there_is_gives_all_of_it() -> None:
    tokenizer = Words()
    assert calibration_ids(tokenizer, 10**9) == tokenizer.encode(calibration_text())


def test_no_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        calibration_ids(Words(), 0)


@pytest.mark.model
def test_the_default_model_makes_more_tokens_of_it_than_the_knob_can_ask_for(
    default_model_path: Path,
) -> None:
    from engine.domains import IntDomain
    from engine.knobs import KNOBS
    from engine.model.gguf_tokenizer import gguf_tokenizer
    from engine.model.layout import inspect_gguf

    tokenizer = gguf_tokenizer(inspect_gguf(default_model_path).header)
    domain = KNOBS["weights.calibration"].domain
    assert isinstance(domain, IntDomain)
    assert len(calibration_ids(tokenizer, 10**9)) >= domain.high
