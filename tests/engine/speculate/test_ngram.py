"""Look-up against a search that reads the whole text again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.sequence import SamplingParams, Sequence
from engine.speculate.draft import Asked
from engine.speculate.ngram import NgramDraft, NgramIndex


def searched(text: list[int], longest: int, most: int) -> tuple[int, ...]:
    """The longest ending that stands earlier in the text, at its latest place there."""
    for n in range(min(longest, len(text) - 1), 0, -1):
        ending = text[len(text) - n :]
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == ending:
                return tuple(text[start + n : start + n + most])
    return ()


@given(
    text=st.lists(st.integers(0, 3), max_size=40),
    longest=st.integers(1, 4),
    most=st.integers(1, 6),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_it_finds_what_a_search_finds_however_the_text_came(
    text: list[int], longest: int, most: int, cuts: list[int]
) -> None:
    index = NgramIndex(longest)
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    for start, end in zip(places, places[1:], strict=False):
        index.extend(text[start:end])
    assert len(index) == len(text)
    assert index.propose(most) == searched(text, longest, most)


def test_requests_are_looked_up_in_their_own_text_alone() -> None:
    draft = NgramDraft(3)
    first = Sequence(0, (1, 2, 3, 1, 2), SamplingParams(max_tokens=9))
    second = Sequence(1, (7, 8), SamplingParams(max_tokens=9))
    first.output_ids += [3]
    second.output_ids += [3]
    asked = [Asked(first, 2), Asked(second, 2)]
    drafts = draft.propose(asked)
    assert drafts[0].tokens == (1, 2) and drafts[1].tokens == ()
    assert drafts[0].proposed is None
    first.output_ids += [1, 2, 9]
    assert draft.propose([Asked(first, 3)])[0].tokens == ()  # 9 stands nowhere before
    draft.close(0)
    assert draft.propose([Asked(first, 3)])[0].tokens == ()  # read anew, with all it said


def test_runs_of_no_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        NgramIndex(0)
