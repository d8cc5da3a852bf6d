"""What is asked of the engine: fresh prompts of an exact length, and the text quality is scored on.

A prompt is never seen twice: prompts are drawn from the trial's seed for every repeat and every
request, and no two of a trial begin alike, so a prefix cache can serve none of them. In a served
load all requests share one beginning, drawn for that load alone, and no two go on alike after it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from engine.config import EngineConfig
from engine.load import draw_load
from engine.measure.served import LoadRequest

CORPUS = Path(__file__).parent / "corpus"
WINDOW_LOW, WINDOW_HIGH = 8, 32
"""Tokens of a run of corpus text before the prompt jumps elsewhere."""

SALT_SPACE = 1 << 24
"""Prompts a trial can draw before two could begin alike: far more than any trial runs."""


class TextTokenizer(Protocol):
    """The part of the tokenizer that drawing prompts needs."""

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def vocabulary_size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...


@lru_cache(maxsize=1)
def corpus_text(folder: Path = CORPUS) -> str:
    """All evaluation prose, files in name order, an empty line between them."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise FileNotFoundError(f"no evaluation text in {folder}")
    return "\n\n".join(file.read_text(encoding="utf-8").strip() for file in files) + "\n"


def corpus_digest() -> str:
    """SHA-256 of the evaluation prose: two quality figures compare only where it is equal."""
    return hashlib.sha256(corpus_text().encode()).hexdigest()


class Workload:
    """Draws a trial's prompts. Equal seeds draw equal prompts; `corpus_ids` is the text to cut.

    Raises:
        ValueError: fewer than two ordinary tokens in the vocabulary, or an empty corpus.
    """

    def __init__(self, tokenizer: TextTokenizer, seed: int, corpus_ids: Sequence[int]) -> None:
        special = set(tokenizer.eos_ids) | {tokenizer.bos_id}
        ordinary = [token for token in range(tokenizer.vocabulary_size) if token not in special]
        if len(ordinary) < 2 or not corpus_ids:
            raise ValueError("prompts need at least two ordinary tokens and some text to cut")
        self._seed = seed
        self._corpus = list(corpus_ids)
        random.Random(f"salt/{seed}").shuffle(ordinary)
        self._alphabet = ordinary
        self._drawn = 0
        self._loads = 0

    def prompts(self, count: int, length: int) -> tuple[tuple[int, ...], ...]:
        """The next `count` prompts, each of exactly `length` tokens.

        Raises:
            ValueError: a count or a length under 1.
        """
        if count < 1 or length < 1:
            raise ValueError(f"at least one prompt of one token, not {count} of {length}")
        first = self._drawn
        self._drawn += count
        return tuple(self._prompt(number, length) for number in range(first, first + count))

    def load(self, config: EngineConfig) -> tuple[LoadRequest, ...]:
        """The next load of this workload, in order of arrival: shapes and words drawn anew."""
        number = self._loads
        self._loads += 1
        return self._words(config, random.Random(f"shapes/{self._seed}/{number}").getrandbits(48))

    def rehearsal(self, config: EngineConfig) -> tuple[LoadRequest, ...]:
        """A load in fresh words whose shapes are always the same: to warm up with, where two runs
        in a row are to agree."""
        return self._words(config, self._seed)

    def _words(self, config: EngineConfig, shape_seed: int) -> tuple[LoadRequest, ...]:
        shapes = draw_load(config, shape_seed)
        system = config.workload.system
        shared = self.prompts(1, system)[0] if system else ()
        own = [self.prompts(1, shape.prompt - system)[0] for shape in shapes]
        return tuple(
            LoadRequest(shape.kind, shared + words, shape.output)
            for shape, words in zip(shapes, own, strict=True)
        )

    def _prompt(self, number: int, length: int) -> tuple[int, ...]:
        """A salt that no other prompt of this trial begins with, then windows of the corpus."""
        tokens = self._salt(number)
        source = random.Random(f"{self._seed}/{number}")
        while len(tokens) < length:
            start = source.randrange(len(self._corpus))
            tokens.extend(self._corpus[start : start + source.randint(WINDOW_LOW, WINDOW_HIGH)])
        return tuple(tokens[:length])

    def _salt(self, number: int) -> list[int]:
        """`number` in the base of the shuffled vocabulary, least digit first: neighbours differ in
        their very first token, and no two numbers share all their digits."""
        base = len(self._alphabet)
        digits, space = [], 1
        while space < SALT_SPACE:
            digits.append(self._alphabet[number % base])
            number //= base
            space *= base
        return digits
