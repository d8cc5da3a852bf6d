"""What is known of a prompt, against a search through all registered beginnings."""

from __future__ import annotations

import hashlib
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.prefix_index import Node, PrefixIndex


def fill(index: PrefixIndex, *blocks: tuple[int, ...], first: int = 0) -> list[Node]:
    """Register a chain of blocks, numbered from `first`."""
    node, nodes = index.root, []
    for number, tokens in enumerate(blocks, first):
        known = index.register(node, tokens, number)
        assert known is not None
        node = known
        nodes.append(node)
    return nodes


def found(index: PrefixIndex, prompt: list[int], limit: int | None = None) -> tuple[list[int], int]:
    match = index.match(prompt, len(prompt) if limit is None else limit)
    assert (match.partial is None) == (match.common == 0)
    return [node.block for node in match.nodes], match.common


def test_a_digest_names_all_tokens_up_to_the_block() -> None:
    index = PrefixIndex(2)
    first, second = fill(index, (5, 6), (7, 8))
    outer = hashlib.sha256(array("q", [5, 6]).tobytes()).digest()
    assert first.digest == outer
    assert second.digest == hashlib.sha256(outer + array("q", [7, 8]).tobytes()).digest()


def test_whole_blocks_are_matched_and_then_the_beginning_of_the_next() -> None:
    index = PrefixIndex(3)
    fill(index, (1, 2, 3), (4, 5, 6), (7, 8, 9))
    assert found(index, [1, 2, 3, 4, 5, 6, 7, 8, 0]) == ([0, 1], 2)
    assert found(index, [1, 2, 3, 4, 5, 0]) == ([0], 2)
    assert found(index, [1, 2, 0]) == ([], 2)
    assert found(index, [0, 1, 2, 3]) == ([], 0)


def test_a_limit_inside_a_known_block_leaves_part_of_it() -> None:
    index = PrefixIndex(3)
    fill(index, (1, 2, 3), (4, 5, 6))
    prompt = [1, 2, 3, 4, 5, 6]
    assert found(index, prompt, 5) == ([0], 2)
    assert found(index, prompt, 3) == ([0], 0)
    assert found(index, prompt, 2) == ([], 2)
    assert found(index, prompt, 0) == ([], 0)


def test_the_child_that_begins_most_like_the_prompt_is_taken_and_among_equals_the_lowest() -> None:
    index = PrefixIndex(4)
    index.register(index.root, (1, 2, 8, 8), 5)
    index.register(index.root, (1, 2, 3, 9), 6)
    index.register(index.root, (1, 2, 3, 7), 2)
    index.register(index.root, (1, 9, 9, 9), 1)
    match = index.match([1, 2, 3, 4], 4)
    assert match.partial is not None
    assert (match.partial.block, match.common) == (2, 3)


def test_the_same_tokens_after_another_beginning_are_not_the_same_block() -> None:
    index = PrefixIndex(2)
    fill(index, (1, 1), (7, 7))
    assert found(index, [7, 7, 1, 1]) == ([], 0)
    assert found(index, [2, 2, 7, 7]) == ([], 0)


def test_a_second_block_for_a_known_beginning_stays_unknown() -> None:
    index = PrefixIndex(2)
    (first,) = fill(index, (1, 2))
    assert index.register(index.root, (1, 2), 9) is first
    assert index.node(9) is None
    assert index.blocks == {0}


def one_digest_for_all(content: bytes) -> bytes:
    return b"same"


def test_colliding_digests_never_match_other_tokens() -> None:
    index = PrefixIndex(2, one_digest_for_all)
    fill(index, (1, 2), (3, 4))
    assert found(index, [1, 2, 3, 4]) == ([0, 1], 0)
    assert found(index, [3, 4, 3, 4]) == ([], 0)  # right tokens, wrong place
    assert found(index, [1, 2, 1, 2]) == ([0], 0)
    assert found(index, [9, 9]) == ([], 0)


def test_a_beginning_whose_digest_is_taken_is_not_registered() -> None:
    index = PrefixIndex(2, one_digest_for_all)
    (first,) = fill(index, (1, 2))
    assert index.register(index.root, (5, 6), 1) is None
    assert found(index, [5, 6]) == ([], 0)
    assert found(index, [1, 2]) == ([0], 0)
    index.check_integrity()
    index.drop(first.block)
    assert index.register(index.root, (5, 6), 1) is not None


def test_a_dropped_block_takes_all_that_continue_it_along() -> None:
    index = PrefixIndex(1)
    fill(index, (1,), (2,), (3,))
    index.register(index.match([1, 2], 2).nodes[1], (4,), 7)
    index.register(index.root, (9,), 8)
    dropped = index.drop(1)
    assert dropped[0] == 1
    assert sorted(dropped) == [1, 2, 7]
    assert index.blocks == {0, 8}
    assert found(index, [1, 2, 3]) == ([0], 0)
    assert index.drop(1) == ()
    index.check_integrity()


def test_nothing_is_registered_behind_a_dropped_block() -> None:
    index = PrefixIndex(1)
    first, second = fill(index, (1,), (2,))
    index.drop(0)
    assert index.register(second, (3,), 5) is None
    assert index.register(first, (2,), 5) is None
    assert index.blocks == frozenset()


def test_every_change_that_could_change_a_match_is_counted() -> None:
    index = PrefixIndex(1)
    seen = [index.changes]
    fill(index, (1,), (2,))
    seen.append(index.changes)
    index.register(index.root, (1,), 9)  # known already
    assert index.changes == seen[-1]
    index.drop(1)
    seen.append(index.changes)
    assert len(set(seen)) == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda index: index._by_block.pop(0),
        lambda index: index.root.children.clear(),
        lambda index: setattr(index.node(1), "tokens", (8, 8)),
        lambda index: setattr(index.node(1), "parent", index.root),
    ],
)
def test_a_damaged_index_is_noticed(damage) -> None:  # type: ignore[no-untyped-def]
    index = PrefixIndex(2)
    fill(index, (1, 2), (3, 4))
    index.check_integrity()
    damage(index)
    with pytest.raises(AssertionError):
        index.check_integrity()


runs = st.lists(st.integers(0, 1), max_size=9)


@settings(max_examples=150, deadline=None)
@given(
    size=st.sampled_from([1, 2, 3]),
    known=st.lists(runs, max_size=4),
    prompt=runs,
    collide=st.booleans(),
    data=st.data(),
)
def test_a_match_is_the_longest_beginning_that_is_registered(
    size: int, known: list[list[int]], prompt: list[int], collide: bool, data: st.DataObject
) -> None:
    def short(content: bytes) -> bytes:
        return hashlib.sha256(content).digest()[: 0 if collide else 32]

    index, block = PrefixIndex(size, short), 0
    beginnings: dict[tuple[int, ...], int] = {}
    for tokens in known:
        node: Node | None = index.root
        for end in range(size, len(tokens) + 1, size):
            assert node is not None
            node = index.register(node, tokens[end - size : end], block)
            if node is None:
                assert collide
                break
            beginnings.setdefault(tuple(tokens[:end]), node.block)
            block += 1
    limit = data.draw(st.integers(0, len(prompt)))
    nodes, common = found(index, prompt, limit)
    longest = max(
        (
            shared
            for beginning in [(), *beginnings]
            if (shared := agree(beginning, prompt[:limit])) >= len(beginning) - size
        ),
        default=0,
    )
    assert len(nodes) * size + common == longest
    assert nodes == [beginnings[tuple(prompt[: n * size])] for n in range(1, len(nodes) + 1)]


def agree(left: tuple[int, ...], right: list[int]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
