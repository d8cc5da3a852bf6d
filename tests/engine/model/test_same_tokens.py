"""Two tokenizers laid side by side: the first token that is not the same is named."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine.model.same_tokens import first_difference


class Words:
    """Tokens in order; control tokens by id."""

    def __init__(self, tokens: list[bytes], special: Mapping[int, str] = {}) -> None:
        self._tokens, self._special = tokens, special
        self.vocabulary_size = len(tokens)
        self.special_ids = frozenset(special)

    def token_bytes(self, token: int) -> bytes:
        return self._tokens[token]

    def special_text(self, token: int) -> str:
        return self._special[token]


@pytest.mark.parametrize(
    ("draft", "difference"),
    [
        (Words([b"a", b"b", b""], {2: "<end>"}), None),
        (Words([b"a", b"c", b""], {2: "<end>"}), "token 1 is b'b' in the model and b'c' in the"),
        (Words([b"a", b"b"]), "token 2 is the control token <end> in the model and none in the"),
        (
            Words([b"a", b"b", b"", b"d"], {2: "<end>"}),
            "token 3 is none in the model and b'd' in the draft",
        ),
        (Words([b"a", b"b", b""]), "token 2 is the control token <end> in the model and b'' in"),
        (Words([b"a", b"b", b""], {2: "<e\x1b[0mnd2>"}), "and the control token <end2> in the"),
    ],
)
def test_the_first_token_that_differs_is_named(draft: Words, difference: str | None) -> None:
    found = first_difference(Words([b"a", b"b", b""], {2: "<end>"}), draft)  # type: ignore[arg-type]
    assert (found is None) is (difference is None)
    assert difference is None or (found is not None and difference in found)
