"""What a rewind takes back: kept for others where the target computed it, forgotten where a draft
did."""

from __future__ import annotations

import pytest
from block_canary import make_cache


@pytest.mark.parametrize(("spoiled", "found"), [(False, 7), (True, 4)])
def test_others_find_what_was_taken_back_unless_a_draft_wrote_it(spoiled: bool, found: int) -> None:
    """Four tokens of a prompt, four more that are taken back: an equal text of eight tokens finds
    all but the last, which is always run, or the prompt alone."""
    cache = make_cache(12, 2, capacity=20)
    cache.admit(0, [1, 2, 3, 4], 20)
    cache.append([0], [[1, 2, 3, 4]])
    cache.append([0], [[5, 6, 7, 8]])
    cache.rewind(0, 4, spoiled=spoiled)
    cache.check_integrity()
    assert cache.matched([1, 2, 3, 4, 5, 6, 7, 8]) == found


def test_a_sequence_goes_on_sharing_after_its_draft_was_taken_back() -> None:
    """The same tokens written again, by the target this time, are found by the next."""
    cache = make_cache(12, 2, capacity=20)
    cache.admit(0, [1, 2, 3], 20)
    cache.append([0], [[1, 2, 3]])
    for _ in range(2):
        cache.append([0], [[4, 5, 6]])
        cache.rewind(0, 3, spoiled=True)
        assert cache.matched([1, 2, 3, 4, 5, 6, 7]) == 2
    cache.append([0], [[4, 5, 6]])
    cache.check_integrity()
    assert cache.matched([1, 2, 3, 4, 5, 6, 7]) == 6


def test_a_draft_in_company_forgets_only_its_own() -> None:
    """Two sequences draft the same tokens after the same beginning; both take them back."""
    cache = make_cache(12, 2, capacity=20)
    for sequence in (0, 1):
        cache.admit(sequence, [1, 2, 3], 20)
        cache.append([sequence], [[1, 2, 3][cache.length(sequence) :]])
    cache.append([0, 1], [[4, 5], [4, 5]])
    for sequence in (0, 1):
        cache.rewind(sequence, 3, spoiled=True)
        cache.check_integrity()
    cache.append([0], [[4, 9]])
    assert cache.matched([1, 2, 3, 4, 5]) == 4 and cache.matched([1, 2, 3, 5, 5]) == 3
