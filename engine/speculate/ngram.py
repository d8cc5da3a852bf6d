"""A draft that costs nothing: what followed the last time the text stood at the same words.

Prompt look-up (Saxena, 2023). The last n tokens are sought earlier in the request's own text,
prompt and output alike; the longest match wins, and of equal ones the latest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.speculate.draft import Asked, Draft, Proposer


class NgramIndex:
    """Where each run of 1 to `longest` tokens of one request was last followed by more.

    Grows with the text, by constant work a token: nothing is searched.

    Raises:
        ValueError: `longest` is below 1.
    """

    def __init__(self, longest: int) -> None:
        if longest < 1:
            raise ValueError(f"runs of {longest} tokens are none; at least 1")
        self._longest = longest
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """`tokens` were added to the text."""
        for token in tokens:
            place = len(self._text)
            for n in range(1, min(self._longest, place) + 1):
                self._after[tuple(self._text[place - n : place])] = place
            self._text.append(token)

    def propose(self, most: int) -> tuple[int, ...]:
        """Up to `most` tokens that followed the longest known run that the text ends with."""
        text = self._text
        for n in range(min(self._longest, len(text)), 0, -1):
            place = self._after.get(tuple(text[len(text) - n :]))
            if place is not None:
                return tuple(text[place : place + most])
        return ()

    def __len__(self) -> int:
        return len(self._text)


class NgramDraft(Proposer):
    """Looks up runs of up to `longest` tokens in each request's own text."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._indices: dict[int, NgramIndex] = {}

    @property
    def form(self) -> str:
        return f"n-gram look-up of {self._longest}"

    def propose(self, asked: Sequence[Asked]) -> Mapping[int, Draft]:
        return {one.id: Draft(self._index(one).propose(one.most)) for one in asked}

    def close(self, request: int) -> None:
        self._indices.pop(request, None)

    def _index(self, asked: Asked) -> NgramIndex:
        """The request's index, with all of its text in it."""
        request = asked.request
        index = self._indices.get(request.id)
        if index is None:
            index = self._indices[request.id] = NgramIndex(self._longest)
            index.extend(request.prompt_ids)
        index.extend(request.output_ids[len(index) - len(request.prompt_ids) :])
        return index
