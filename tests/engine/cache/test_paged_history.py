"""Any history of a paged cache against plain lists: hypothesis drives it as a state machine.

Every vector is a canary: it says which token it is and after which beginning. A write into a block
that another sequence reads, a partial block shared without a copy, or a block freed too early shows
as a wrong vector in somebody's cache.
"""

from __future__ import annotations

import math

import torch
from block_canary import LAYERS, assert_holds, layered, make_cache, write
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine.cache.paged import PagedCache

COMMON = [0, 1, 1, 0, 1, 0, 0, 0, 1, 1]
PROMPTS = st.builds(
    lambda shared, own: [*COMMON[:shared], *own][:11] or [0],
    st.integers(0, len(COMMON)),
    st.lists(st.integers(0, 1), max_size=3),
)
"""Beginnings agree often, and part in the middle of a block as often."""


def one_byte(content: bytes) -> bytes:
    """A hash that collides all the time."""
    return bytes([sum(content) % 3])


class PagedHistory(RuleBasedStateMachine):
    cache: PagedCache

    @initialize(
        blocks=st.integers(2, 9),
        size=st.sampled_from([1, 2, 3, 4]),
        sharing=st.sampled_from(["off", "on", "on", "forged"]),
    )
    def begin(self, blocks: int, size: int, sharing: str) -> None:
        forged = {"digest": one_byte} if sharing == "forged" else {}
        self.cache = make_cache(blocks, size, min(blocks * size, 14), sharing != "off", **forged)
        self.sharing = sharing != "off"
        self.blocks, self.size = blocks, size
        self.held: dict[int, list[int]] = {}
        """Sequence -> the tokens it holds."""
        self.prompts: dict[int, list[int]] = {}
        """Sequence -> what of its prompt is still to be run."""
        self.most: dict[int, int] = {}
        self.promised: set[int] = set()
        self.number = 0

    @rule(prompt=PROMPTS, more=st.integers(0, 5), whole=st.booleans())
    def admit(self, prompt: list[int], more: int, whole: bool) -> None:
        most, asked = len(prompt) + more, tuple(prompt)
        before = self.cache.page_map(), self.cache.vacant_tokens
        self.number += 1
        if not self.cache.can_admit(asked, most, whole):
            try:
                self.cache.admit(self.number, asked, most, whole)
            except ValueError:
                assert (self.cache.page_map(), self.cache.vacant_tokens) == before
                # Alone in the cache anything that could ever fit must be let in.
                assert self.held or not self.cache.ever_fits(most)
                return
            raise AssertionError("what cannot be admitted was")
        needed = self.cache.needed_tokens(asked, most, whole)
        vacant = self.cache.vacant_tokens
        foretold = self.cache.matched(asked)
        known = self.cache.admit(self.number, asked, most, whole)
        assert 0 <= known < len(prompt)
        assert known <= foretold if whole else known == foretold
        assert self.sharing or known == 0
        assert self.cache.vacant_tokens <= vacant - needed
        self.held[self.number] = prompt[:known]
        self.prompts[self.number] = prompt[known:]
        self.most[self.number] = most
        if whole:
            self.promised.add(self.number)

    @rule(prompt=PROMPTS)
    def admit_and_prefill(self, prompt: list[int]) -> None:
        """What is full is known to the next from here on."""
        self.admit(prompt, 2, False)
        left = self.prompts.get(self.number)
        if left is not None:
            write(self.cache, [self.number], [left], [prompt])
            self.held[self.number] = list(prompt)
            self.prompts[self.number] = []

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.held)))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), fail=st.sampled_from([False, False, False, True]))
    def run_a_pass(self, data: st.DataObject, fail: bool) -> None:
        """Some sequences grow at once: prompts by a chunk, the others by a token."""
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, unique=True))
        runs = []
        for sequence in chosen:
            left = self.prompts[sequence]
            if left:
                runs.append(left[: data.draw(st.integers(0, len(left)))])
            else:
                room = self.most[sequence] - len(self.held[sequence])
                runs.append(data.draw(st.lists(st.integers(0, 1), max_size=min(room, 3))))
        counts = [len(run) for run in runs]
        whole = [[*self.held[s], *run] for s, run in zip(chosen, runs, strict=True)]
        before = self.cache.page_map()
        missing = self.cache.shortage(chosen, counts)
        if missing:
            assert missing <= sum(map(math.ceil, counts)) and not set(chosen) <= self.promised
            try:
                self.cache.append(chosen, runs)
            except ValueError:
                assert self.cache.page_map() == before
                return
            raise AssertionError("grew without room")
        if fail:
            self.fail_a_pass(chosen, runs)
            return
        write(self.cache, chosen, runs, whole)
        for sequence, tokens, count in zip(chosen, whole, counts, strict=True):
            self.held[sequence] = tokens
            del self.prompts[sequence][:count]

    def fail_a_pass(self, chosen: list[int], runs: list[list[int]]) -> None:
        """What the pass wrote is NaN; its sequences are dropped, and it must never be seen."""
        addresses = self.cache.append(chosen, runs)
        broken = torch.full((sum(map(len, runs)), 2, 3), math.nan)
        for layer in range(LAYERS):
            self.cache.write(layer, addresses, *layered(broken, layer))
        for sequence in chosen:
            self.cache.free(sequence, spoiled=True)
            self.forget(sequence)

    def forget(self, sequence: int) -> None:
        del self.held[sequence], self.prompts[sequence], self.most[sequence]
        self.promised.discard(sequence)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), spoiled=st.booleans())
    def free(self, data: st.DataObject, spoiled: bool) -> None:
        sequence = self.pick(data)
        self.cache.free(sequence, spoiled)
        self.forget(sequence)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        sequence = self.pick(data)
        tokens = self.held[sequence]
        length = data.draw(st.integers(0, len(tokens)))
        self.cache.rewind(sequence, length)
        self.prompts[sequence] = []  # what follows is new
        if length < len(tokens):
            self.promised.discard(sequence)  # kept only as far as there is room
        del tokens[length:]

    @precondition(lambda self: any(not left for left in self.prompts.values()))
    @rule(data=st.data())
    def draft(self, data: st.DataObject) -> None:
        """Some sequences go on for a while with vectors that are not theirs, and take them back:
        nobody may ever find those."""
        ready = sorted(sequence for sequence, left in self.prompts.items() if not left)
        chosen = data.draw(st.lists(st.sampled_from(ready), min_size=1, unique=True))
        ends = {sequence: len(self.held[sequence]) for sequence in chosen}
        for _ in range(data.draw(st.integers(1, 4))):
            growing = [s for s in chosen if self.cache.length(s) < self.most[s]]
            runs = [[data.draw(st.integers(0, 1))] for _ in growing]
            if not growing or self.cache.shortage(growing, [1] * len(growing)):
                break
            addresses = self.cache.append(growing, runs)
            for layer in range(LAYERS):
                strange = torch.full((len(growing), 2, 3), 77.0)
                self.cache.write(layer, addresses, *layered(strange, layer))
        for sequence, end in ends.items():
            if self.cache.length(sequence) > end:
                self.promised.discard(sequence)
            self.cache.rewind(sequence, end, spoiled=True)

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        for sequence in list(self.held):
            self.forget(sequence)
        assert self.cache.page_map().cells == "." * self.blocks
        assert self.cache.vacant_tokens == self.blocks * self.size

    @invariant()
    def every_sequence_holds_its_own_tokens(self) -> None:
        self.cache.check_integrity()
        for sequence, tokens in self.held.items():
            assert_holds(self.cache, sequence, tokens)
        planes = self.cache._storage._planes
        assert all(bool(torch.isfinite(plane).all()) for plane in planes)

    @invariant()
    def the_account_agrees_with_the_lists(self) -> None:
        beginnings = {tuple(t[: i + 1]) for t in self.held.values() for i in range(len(t))}
        tokens = sum(map(len, self.held.values()))
        shown = self.cache.page_map()
        assert len(beginnings) <= self.cache.held_tokens <= tokens
        if not self.sharing:
            assert self.cache.held_tokens == tokens
            assert shown.count("shared") == shown.count("cached") == shown.copies == 0
        assert self.cache.held_tokens <= self.cache.reserved_tokens
        used = self.blocks - shown.count("free") - shown.count("cached")
        assert self.cache.reserved_tokens == used * self.size
        assert len(shown.cells) == self.blocks
        assert len(shown.copied) == min(shown.copies, 8)


PagedHistory.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, print_blob=True
)
test_any_history_leaves_every_sequence_its_own_tokens = PagedHistory.TestCase
