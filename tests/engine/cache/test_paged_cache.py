"""What a paged cache shares, copies and gives back: each case by hand."""

from __future__ import annotations

import pytest
from block_canary import assert_holds, begin, make_cache, write
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = [1, 2, 16, 256]


def tokens(count: int, first: int = 100) -> list[int]:
    return list(range(first, first + count))


# Sharing


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from(SIZES),
    multiple=st.integers(1, 3),
    beside=st.integers(-1, 1),
    agree=st.integers(-2, 2),
)
def test_what_is_found_of_a_prompt_is_all_but_its_last_token_at_most(
    size: int, multiple: int, beside: int, agree: int
) -> None:
    """Prompts of k blocks, one less and one more, after a full one that agrees so far."""
    length = max(multiple * size + beside, 1)
    cache = make_cache(12, size)
    known_tokens = tokens(3 * size + 2)
    begin(cache, 0, known_tokens)
    same = min(max(multiple * size + agree, 0), length)
    prompt = [*known_tokens[:same], *tokens(length - same, first=9000)]
    registered = 3 * size  # the last two tokens fill no block
    expected = min(same, length - 1, registered)
    assert begin(cache, 1, prompt) == expected
    assert_holds(cache, 0, known_tokens)
    assert_holds(cache, 1, prompt)
    cache.check_integrity()


@pytest.mark.parametrize("size", SIZES)
def test_a_fully_known_prompt_runs_its_last_token_in_a_block_of_its_own(size: int) -> None:
    cache = make_cache(8, size)
    prompt = tokens(2 * size)
    begin(cache, 0, prompt)
    assert begin(cache, 1, prompt) == 2 * size - 1
    first, second = (list(cache._tables[s].blocks) for s in (0, 1))
    assert first[0] == second[0]
    assert first[1] != second[1]
    copied = [(first[1], second[1])] if size > 1 else []  # nothing of a block of one is common
    assert cache.page_map().copied == tuple(copied)
    assert_holds(cache, 0, prompt)
    assert_holds(cache, 1, prompt)


def test_a_known_beginning_inside_a_block_is_copied_on_admission() -> None:
    cache = make_cache(6, 4)
    begin(cache, 0, [1, 2, 3, 4, 5, 6, 7, 8])
    assert cache.admit(1, (1, 2, 3, 4, 5, 6, 9), 8) == 6
    assert_holds(cache, 1, [1, 2, 3, 4, 5, 6])  # before anything was written
    write(cache, [1], [[9]], [[1, 2, 3, 4, 5, 6, 9]])
    assert_holds(cache, 0, [1, 2, 3, 4, 5, 6, 7, 8])
    assert_holds(cache, 1, [1, 2, 3, 4, 5, 6, 9])
    assert (cache.copies, cache.page_map().copied) == (1, ((1, 2),))


def test_a_part_filled_block_is_not_shared() -> None:
    cache = make_cache(6, 4)
    begin(cache, 0, [1, 2, 3])
    assert begin(cache, 1, [1, 2, 3, 4]) == 0


def test_a_finished_sequence_leaves_its_full_blocks_for_the_next() -> None:
    cache = make_cache(4, 2)
    begin(cache, 0, [1, 2, 3, 4, 5])
    cache.free(0)
    assert cache.page_map().cells == "cc.."
    assert cache.vacant_tokens == 8
    assert begin(cache, 1, [1, 2, 3, 4, 9]) == 4
    assert_holds(cache, 1, [1, 2, 3, 4, 9])


def test_answers_are_shared_as_prompts_are() -> None:
    cache = make_cache(6, 2)
    begin(cache, 0, [1, 2, 3], more=3)
    for end in (4, 5, 6):
        write(cache, [0], [[end]], [[*range(1, end + 1)]])
    assert begin(cache, 1, [1, 2, 3, 4, 5, 6, 7]) == 6


def test_two_prompts_of_one_pass_share_nothing_yet_and_the_third_one_does() -> None:
    cache = make_cache(9, 2)
    prompt = (1, 2, 3, 4, 5)
    assert [cache.admit(s, prompt, 5) for s in (0, 1)] == [0, 0]
    write(cache, [0, 1], [prompt, prompt], [prompt, prompt])
    assert begin(cache, 2, prompt) == 4
    assert cache._tables[2].blocks[0] == cache._tables[0].blocks[0]
    cache.free(1)
    assert cache.page_map().count("cached") == 0  # the second's blocks were known to nobody
    for sequence in (0, 2):
        assert_holds(cache, sequence, prompt)
    cache.check_integrity()


def test_colliding_digests_share_nothing_wrong() -> None:
    cache = make_cache(8, 2, digest=lambda content: b"")
    begin(cache, 0, [1, 2, 3, 4])
    assert begin(cache, 1, [3, 4, 3, 4]) == 0
    assert begin(cache, 2, [1, 2, 9, 9]) == 2
    for sequence, held in ((0, [1, 2, 3, 4]), (1, [3, 4, 3, 4]), (2, [1, 2, 9, 9])):
        assert_holds(cache, sequence, held)
    cache.check_integrity()


def test_without_sharing_nothing_is_hashed_found_or_kept() -> None:
    def never(content: bytes) -> bytes:
        raise AssertionError("hashed")

    cache = make_cache(4, 2, sharing=False, digest=never)
    begin(cache, 0, [1, 2, 3, 4])
    cache.free(0)
    assert cache.page_map().cells == "...."
    assert begin(cache, 1, [1, 2, 3, 4]) == 0
    assert cache._tables[1].tokens == []


# Eviction


def test_the_last_blocks_of_the_oldest_are_evicted_first() -> None:
    cache = make_cache(4, 2)
    begin(cache, 0, [1, 2, 3, 4])
    cache.free(0)
    begin(cache, 1, [5, 6])
    cache.free(1)
    assert cache.page_map().cells == "ccc."
    begin(cache, 2, [7, 8, 9])  # the free block, then one that must be evicted
    cache.free(2)
    assert begin(cache, 3, [1, 2, 3, 4, 0]) == 2
    cache.check_integrity()


def test_blocks_kept_for_others_are_room_to_grow_into() -> None:
    cache = make_cache(4, 2)
    begin(cache, 0, [1, 2, 3, 4])
    cache.free(0)
    begin(cache, 1, [5, 6, 7, 8], more=4)
    assert cache.page_map().cells == "ccFF"
    assert cache.shortage([1], [4]) == 0
    write(cache, [1], [[9, 9, 9, 9]], [[5, 6, 7, 8, 9, 9, 9, 9]])
    assert_holds(cache, 1, [5, 6, 7, 8, 9, 9, 9, 9])
    assert cache.page_map().cells == "FFFF"
    cache.check_integrity()


def test_matched_blocks_are_not_counted_as_room_as_well() -> None:
    cache = make_cache(3, 2)
    begin(cache, 0, [1, 2, 3, 4])
    cache.free(0)  # two cached, one free
    begin(cache, 1, [9])
    assert not cache.can_admit((1, 2, 3, 4, 5), 5)
    before = cache.page_map()
    with pytest.raises(
        ValueError, match="sequence 2 needs 1 blocks of 2 tokens and 0 can be given"
    ):
        cache.admit(2, (1, 2, 3, 4, 5), 5)
    assert cache.page_map() == before
    cache.check_integrity()
    cache.free(1)
    assert cache.admit(2, (1, 2, 3, 4, 5), 5) == 4


def test_the_block_to_be_copied_is_taken_itself_where_no_other_is_left() -> None:
    cache = make_cache(2, 4)
    begin(cache, 0, [1, 2, 3, 4])
    cache.free(0)
    begin(cache, 1, [9])
    assert cache.page_map().cells == "ct"
    assert cache.can_admit((1, 2, 3, 5), 4)
    assert begin(cache, 2, [1, 2, 3, 5]) == 0
    assert_holds(cache, 2, [1, 2, 3, 5])
    assert cache.copies == 0
    cache.check_integrity()


def test_what_a_prompt_would_find_is_told_before_it_enters() -> None:
    cache = make_cache(3, 4)
    begin(cache, 0, [1, 2, 3, 4, 5, 6, 7])
    asked = [(1, 2, 3, 4, 9), (1, 2, 9), (1, 2, 3, 4), (9,), (1, 2, 3, 4, 5)]
    assert [cache.matched(prompt) for prompt in asked] == [4, 2, 3, 0, 4]
    cache.free(0)
    begin(cache, 1, [8] * 8)
    assert cache.page_map().cells == "cFF"
    assert cache.matched((1, 2, 3, 5)) == 0  # the block to copy from is the one to take
    assert begin(cache, 2, [1, 2, 3, 5]) == 0


def test_blocks_can_be_left_for_those_running() -> None:
    cache = make_cache(5, 2)
    begin(cache, 0, [1, 2, 3])
    fits = [
        cache.can_admit((7, 7, 7), 5, whole, spare)
        for whole in (False, True)
        for spare in (0, 1, 2)
    ]
    assert fits == [True, True, False, True, False, False]
    assert cache.can_admit((1, 2, 7), 5, spare=2)  # one of its blocks is there already
    assert not cache.can_admit((1, 2, 7), 5, spare=3)


def test_the_block_to_be_copied_survives_the_taking_of_the_others() -> None:
    cache = make_cache(5, 2)
    begin(cache, 0, [1, 2])
    cache.free(0)  # the oldest: the first that would be evicted
    begin(cache, 1, [5, 6, 7, 8])
    cache.free(1)
    begin(cache, 2, [9])
    assert begin(cache, 3, [1, 3, 3, 3, 3]) == 1
    assert_holds(cache, 3, [1, 3, 3, 3, 3])
    cache.check_integrity()


def test_a_match_is_asked_again_once_the_index_has_changed() -> None:
    cache = make_cache(3, 2)
    begin(cache, 0, [1, 2, 3, 4])
    prompt = (1, 2, 3, 4, 5, 6)
    assert cache.needed_tokens(prompt, 6) == 2
    cache.free(0, spoiled=True)
    assert cache.needed_tokens(prompt, 6) == 6
    assert begin(cache, 1, prompt) == 0


# Room


def test_room_is_asked_for_the_prompt_or_for_all_that_may_come() -> None:
    cache = make_cache(4, 4)
    assert [cache.needed_tokens((1,) * 5, 13, whole) for whole in (False, True)] == [8, 16]
    cache.admit(0, (1,) * 5, 13)
    assert cache.page_map().cells == "rr.."
    assert (cache.held_tokens, cache.reserved_tokens, cache.vacant_tokens) == (0, 8, 8)
    assert not cache.can_admit((1,) * 5, 13, whole=True)
    assert cache.can_admit((1,) * 5, 8, whole=True)


def test_a_promised_sequence_grows_to_its_most_in_a_full_cache() -> None:
    cache = make_cache(4, 2)
    cache.admit(0, (1, 2, 3), 6, whole=True)
    begin(cache, 1, [9])
    assert cache.vacant_tokens == 0
    assert cache.shortage([0, 1], [6, 1]) == 0
    assert cache.shortage([0, 1], [6, 2]) == 1
    write(cache, [0], [[1, 2, 3, 4, 5, 6]], [[1, 2, 3, 4, 5, 6]])
    assert_holds(cache, 0, [1, 2, 3, 4, 5, 6])


def test_a_promised_sequence_keeps_its_room_when_it_is_rewound() -> None:
    cache = make_cache(4, 2)
    cache.admit(0, (1, 2), 8, whole=True)
    write(cache, [0], [[1, 2, 3, 4, 5, 6, 7]], [[1, 2, 3, 4, 5, 6, 7]])
    cache.rewind(0, 3)
    assert (cache.reserved_tokens, cache.held_tokens) == (8, 3)
    assert cache.shortage([0], [5]) == 0
    write(cache, [0], [[8] * 5], [[1, 2, 3] + [8] * 5])
    assert_holds(cache, 0, [1, 2, 3] + [8] * 5)
    cache.check_integrity()


def test_shortage_counts_the_blocks_of_all_and_an_append_without_room_changes_nothing() -> None:
    cache = make_cache(3, 2, capacity=6)
    begin(cache, 0, [1, 2], more=4)
    begin(cache, 1, [3], more=4)
    assert cache.shortage([0, 1], [1, 1]) == 0
    assert cache.shortage([0, 1], [1, 2]) == 1
    assert cache.shortage([0, 1], [3, 2]) == 2
    before = cache.page_map()
    with pytest.raises(ValueError, match="1 more blocks of 2 tokens are needed than the 1"):
        cache.append([0, 1], [[8], [8, 8]])
    assert cache.page_map() == before
    assert (cache.length(0), cache.length(1)) == (2, 1)


@pytest.mark.parametrize("size", SIZES)
def test_a_cache_tells_how_long_a_sequence_can_become(size: int) -> None:
    cache = make_cache(3, size, capacity=4 * size)
    assert cache.ever_fits(3 * size)
    assert not cache.ever_fits(3 * size + 1)
    limited = make_cache(3, size, capacity=2 * size)
    assert not limited.ever_fits(2 * size + 1)


# Rewinding


def test_whole_blocks_past_the_end_are_given_back() -> None:
    cache = make_cache(4, 2, sharing=False)
    begin(cache, 0, [1, 2, 3, 4, 5, 6, 7])
    cache.rewind(0, 3)
    assert cache.page_map().cells == "Ft.."
    write(cache, [0], [[9, 9]], [[1, 2, 3, 9, 9]])
    assert_holds(cache, 0, [1, 2, 3, 9, 9])


def test_a_registered_block_is_taken_back_before_it_is_written_again() -> None:
    cache = make_cache(6, 2)
    begin(cache, 0, [1, 2, 3, 4], more=2)
    cache.rewind(0, 3)
    assert begin(cache, 1, [1, 2, 3, 4, 5]) == 2  # the second block is its owner's alone now
    write(cache, [0], [[8, 9]], [[1, 2, 3, 8, 9]])
    assert_holds(cache, 0, [1, 2, 3, 8, 9])
    assert_holds(cache, 1, [1, 2, 3, 4, 5])
    cache.check_integrity()


def test_a_shared_block_is_copied_before_the_rewound_sequence_writes_into_it() -> None:
    cache = make_cache(6, 2)
    begin(cache, 0, [1, 2, 3, 4], more=2)
    begin(cache, 1, [1, 2, 3, 4, 5])
    cache.rewind(0, 3)
    assert cache.page_map().cells.startswith("SS")
    assert cache.held_tokens == 5  # 1 2 3 4 are held by the second sequence as well
    write(cache, [0], [[8]], [[1, 2, 3, 8]])
    assert cache.copies == 1
    assert cache.held_tokens == 7  # and 3 8 by the first alone
    assert_holds(cache, 0, [1, 2, 3, 8])
    assert_holds(cache, 1, [1, 2, 3, 4, 5])
    cache.check_integrity()


def test_the_copy_that_a_rewound_sequence_needs_is_counted_as_a_shortage() -> None:
    cache = make_cache(3, 2)
    begin(cache, 0, [1, 2, 3, 4], more=2)
    begin(cache, 1, [1, 2, 3, 4, 5])
    cache.rewind(0, 3)
    assert cache.shortage([0], [1]) == 1
    with pytest.raises(ValueError, match="1 more blocks"):
        cache.append([0], [[8]])
    cache.free(1)
    assert cache.shortage([0], [1]) == 0
    write(cache, [0], [[8]], [[1, 2, 3, 8]])
    assert cache.copies == 0  # nobody else held it any more
    assert_holds(cache, 0, [1, 2, 3, 8])
    cache.check_integrity()


def test_what_all_holders_were_rewound_out_of_is_held_no_more() -> None:
    cache = make_cache(6, 4)
    begin(cache, 0, [1, 2, 3, 4], more=4)
    begin(cache, 1, [1, 2, 3, 4, 5], more=4)
    cache.rewind(0, 3)
    assert cache.held_tokens == 5
    cache.rewind(1, 2)
    assert cache.held_tokens == 3
    cache.free(0)
    assert cache.held_tokens == 2
    cache.check_integrity()
    write(cache, [1], [[7]], [[1, 2, 7]])
    assert_holds(cache, 1, [1, 2, 7])
    cache.free(1)
    assert cache.held_tokens == cache.reserved_tokens == 0
    cache.check_integrity()


@pytest.mark.parametrize("length", [-1, 4])
def test_a_rewind_past_an_end_is_refused(length: int) -> None:
    cache = make_cache(2, 2)
    begin(cache, 0, [1, 2, 3])
    with pytest.raises(ValueError, match=f"cannot be rewound to {length}; 0 to 3 can"):
        cache.rewind(0, length)


# After a failed pass


def test_what_a_spoiled_sequence_computed_is_found_by_nobody() -> None:
    cache = make_cache(6, 2)
    begin(cache, 0, [1, 2])
    begin(cache, 1, [1, 2, 3, 4, 5])
    cache.free(1, spoiled=True)
    assert begin(cache, 2, [1, 2, 3, 4, 5]) == 2  # the first block was not its own work
    cache.check_integrity()


def test_a_good_sequence_leaves_what_a_spoiled_one_does_not() -> None:
    found = []
    for spoiled in (False, True):
        cache = make_cache(6, 2)
        begin(cache, 0, [1, 2, 3, 4])
        cache.free(0, spoiled)
        found.append(begin(cache, 1, [1, 2, 3, 4, 5]))
    assert found == [4, 0]


# Account


def test_the_page_map_shows_what_every_block_holds() -> None:
    cache = make_cache(9, 2)
    begin(cache, 0, [1, 2, 3])
    begin(cache, 1, [1, 2, 9], more=3)
    cache.admit(2, (7, 7, 7), 3)
    begin(cache, 3, [8, 8])
    cache.free(3)
    shown = cache.page_map()
    assert shown.cells == "Sttrrc..."
    assert (shown.layout, shown.block_size) == ("paged", 2)
    assert (shown.held_tokens, shown.reserved_tokens) == (4, 10)
    write(cache, [2], [[7, 7, 7]], [[7, 7, 7]])
    assert cache.page_map().cells == "SttFtc..."


def test_shared_tokens_are_held_once() -> None:
    cache = make_cache(20, 4)
    for sequence in range(5):
        begin(cache, sequence, [*range(8), 50 + sequence])
    assert cache.held_tokens == 8 + 5
    assert cache.reserved_tokens == (2 + 5) * 4
    assert cache.page_map().use == 13 / 28


def test_at_most_eight_copies_are_listed_newest_last() -> None:
    cache = make_cache(30, 2)
    begin(cache, 0, [1, 2])
    for sequence in range(1, 13):
        begin(cache, sequence, [1, 40 + sequence])
    shown = cache.page_map()
    assert shown.copies == cache.copies == 12
    last = [cache._tables[sequence].blocks[0] for sequence in range(5, 13)]
    assert [target for _, target in shown.copied] == last
    cache.clear()
    assert (cache.copies, cache.page_map().copied) == (0, ())


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_after_clear_every_block_is_free(size: int, sharing: bool) -> None:
    cache = make_cache(9, size, sharing=sharing)
    for _ in range(3):
        begin(cache, 0, tokens(size + 1))
        begin(cache, 1, tokens(2 * size))
        cache.admit(2, tuple(tokens(size, first=7)), 2 * size, whole=True)
        cache.free(1)
        cache.clear()
        cache.check_integrity()
        assert cache.page_map().cells == "." * 9
        assert cache.held_tokens == cache.reserved_tokens == 0
        assert begin(cache, 3, tokens(2 * size)) == 0
        cache.free(3)


def test_bytes_are_those_of_every_block() -> None:
    cache = make_cache(5, 16)
    assert cache.token_bytes == 2 * 2 * 2 * 3 * 4  # keys and values, layers, heads, width, float32
    assert cache.nbytes == 5 * 16 * cache.token_bytes


# What is refused


def test_unknown_sequences_are_refused_everywhere() -> None:
    cache = make_cache(2, 2)
    for act in (
        lambda: cache.free(5),
        lambda: cache.length(5),
        lambda: cache.slot(5),
        lambda: cache.rewind(5, 0),
        lambda: cache.append([5], [[1]]),
        lambda: cache.shortage([5], [1]),
    ):
        with pytest.raises(ValueError, match="sequence 5 is not in the cache"):
            act()


def test_a_sequence_enters_once() -> None:
    cache = make_cache(4, 2)
    begin(cache, 0, [1])
    with pytest.raises(ValueError, match="sequence 0 is in the cache already"):
        cache.admit(0, (1,), 1)


@pytest.mark.parametrize(("prompt", "most"), [((), 3), ((1, 2, 3), 2)])
def test_a_prompt_that_is_empty_or_longer_than_the_most_is_refused(
    prompt: tuple[int, ...], most: int
) -> None:
    cache = make_cache(4, 2)
    assert not cache.can_admit(prompt, most)
    with pytest.raises(ValueError, match=f"a prompt of {len(prompt)} tokens and may hold {most}"):
        cache.admit(0, prompt, most)


def test_what_can_never_fit_is_refused_with_what_would() -> None:
    cache = make_cache(3, 4, capacity=100)
    assert not cache.can_admit((1,), 13)
    with pytest.raises(ValueError, match="needs 13 tokens; this cache holds 12 of one sequence"):
        cache.admit(0, (1,), 13)


def test_a_sequence_does_not_outgrow_the_capacity() -> None:
    cache = make_cache(4, 2, capacity=3)
    begin(cache, 0, [1, 2])
    with pytest.raises(ValueError, match="would grow to 4 tokens; this cache holds 3"):
        cache.append([0], [[1, 2]])
    assert cache.length(0) == 2


def test_a_capacity_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity=-1 holds nothing; at least 1"):
        make_cache(2, 2, capacity=-1)


def test_an_empty_run_changes_nothing() -> None:
    cache = make_cache(4, 2)
    begin(cache, 0, [1, 2])
    assert cache.append([0], [[]]).rows.numel() == 0
    assert cache.spans([0], [2], [0], None, cache._storage.dtype) == ()
    assert cache.length(0) == 2
    cache.check_integrity()


@pytest.mark.parametrize(
    "damage",
    [
        lambda cache: cache._tables[0].blocks.append(5),
        lambda cache: cache._tables[0].blocks.pop(),
        lambda cache: setattr(cache._tables[0], "length", 2),
        lambda cache: setattr(cache._contents, "held_tokens", 99),
        lambda cache: cache._contents.index.drop(4),
        lambda cache: cache._tables[0].tokens.__setitem__(0, 77),
        lambda cache: cache._contents.index.register(cache._contents.index.root, (5, 5), 1),
    ],
)
def test_damaged_books_are_noticed(damage) -> None:  # type: ignore[no-untyped-def]
    cache = make_cache(6, 2)
    begin(cache, 0, [1, 2, 3])
    begin(cache, 1, [1, 2, 4])
    begin(cache, 2, [8, 8, 8, 8])
    cache.free(2)
    cache.check_integrity()
    damage(cache)
    with pytest.raises(AssertionError):
        cache.check_integrity()
