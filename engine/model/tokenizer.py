"""Text to token ids and back, and whole chats to prompts.

Only what a chat template itself writes can become a control token. Text from outside, a question
or a document, is encoded as plain text even where it spells `<|im_end|>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import tokenizers

from engine.model.chat_template import ChatTemplate
from engine.model.errors import ModelError
from engine.model.token_stream import TokenStream

_PRIVATE_USE = range(0xE000, 0xF900)


@dataclass(frozen=True)
class SpecialToken:
    """A control token; the strips swallow white space beside it when it is matched in a text."""

    id: int
    text: str
    strips_left: bool = False
    strips_right: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer file says, in the form that `Tokenizer` needs.

    `first` encodes plain text from its start, `later` a stretch after a control token; they are
    the same for all but some SentencePiece models. Neither sees control tokens.
    `token_bytes` maps every id to its bytes, b"" for control tokens.
    """

    first: tokenizers.Tokenizer
    later: tokenizers.Tokenizer
    token_bytes: tuple[bytes, ...]
    special: tuple[SpecialToken, ...]
    eos_ids: frozenset[int]
    bos_id: int | None
    drops_first_space: bool = False


class Tokenizer:
    """The tokenizer of one model; immutable, and safe to share between threads.

    Attributes:
        eos_ids: tokens that end an answer.
        bos_id: the token that must stand first in a raw text; None where the model wants none.
            `encode` does not put it there, and chat templates write their own.
        vocabulary_size: ids run from 0 to this, exclusive.
    """

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        self.eos_ids = vocabulary.eos_ids
        self.bos_id = vocabulary.bos_id
        self.vocabulary_size = len(vocabulary.token_bytes)
        self.template = template
        self._vocabulary = vocabulary
        self._special: Mapping[str, SpecialToken] = {
            token.text: token for token in vocabulary.special
        }
        self._special_pattern = _pattern(vocabulary.special)

    @property
    def special_ids(self) -> frozenset[int]:
        """The control tokens: no plain text encodes to one, and none decodes to text."""
        return frozenset(token.id for token in self._vocabulary.special)

    def special_text(self, token: int) -> str:
        """How a chat template spells a control token. Raises ModelError where it is none."""
        for one in self._vocabulary.special:
            if one.id == token:
                return one.text
        raise ModelError(f"{token} is no control token")

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of `text`; `special` lets control tokens spelled in it become themselves."""
        return self._encode_with_special(text, {}) if special else self._plain(text, True)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids` without control tokens; equals what a stream of them gives in all.

        Raises:
            ModelError: an id outside the vocabulary.
        """
        stream = self.stream()
        parts = [stream.push(token) for token in ids]
        return "".join(parts) + stream.flush()

    def stream(self) -> TokenStream:
        return TokenStream(self.token_bytes, self._vocabulary.drops_first_space)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token, b"" for a control token."""
        if not 0 <= token < self.vocabulary_size:
            raise ModelError(f"{token} is no token id; legal: 0 to {self.vocabulary_size - 1}")
        return self._vocabulary.token_bytes[token]

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """The prompt for the assistant's next message, from (role, text) pairs.

        Raises:
            ModelError: an unknown role, or messages that the model's template refuses.
        """
        marks = self._free_marks(text for _, text in messages)
        masked = [(role, self._mask(text, marks)) for role, text in messages]
        unmask = {ord(mark): first for first, mark in marks.items()}
        return self._encode_with_special(self.template.render(masked), unmask)

    def _encode_with_special(self, text: str, unmask: Mapping[int, str]) -> list[int]:
        """Ids of `text`, cut at its control tokens; the stretches between them are unmasked."""
        ids: list[int] = []
        start = 0
        for match in self._special_pattern.finditer(text) if self._special_pattern else ():
            token = self._special[match.group()]
            stretch = text[start : match.start()]
            stretch = stretch.rstrip() if token.strips_left else stretch
            ids += [*self._plain(stretch.translate(unmask), start == 0), token.id]
            start = match.end()
            while token.strips_right and text[start : start + 1].isspace():
                start += 1
        return ids + self._plain(text[start:].translate(unmask), start == 0)

    def _plain(self, text: str, at_start: bool) -> list[int]:
        if not text:
            return []
        encoder = self._vocabulary.first if at_start else self._vocabulary.later
        return encoder.encode(text, add_special_tokens=False).ids

    def _mask(self, text: str, marks: Mapping[str, str]) -> str:
        """`text` with the first character of each control token it spells replaced by its mark.

        The template may trim, join or search the text, which behaves like any other text there.
        """
        for spelled in self._special:
            broken = marks[spelled[0]] + spelled[1:]
            while spelled in text:  # again where one occurrence overlapped another
                text = text.replace(spelled, broken)
        return text

    def _free_marks(self, texts: Iterable[str]) -> dict[str, str]:
        """For each first character of a control token, a character found nowhere in this chat."""
        used = set(self.template.source).union(*texts)
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
        return {first: next(free) for first in sorted({text[0] for text in self._special})}


def _pattern(special: Sequence[SpecialToken]) -> re.Pattern[str] | None:
    """Matches control tokens, the longest first where one begins another."""
    if not special:
        return None
    ordered = sorted(special, key=lambda token: (-len(token.text), token.id))
    return re.compile("|".join(re.escape(token.text) for token in ordered))
