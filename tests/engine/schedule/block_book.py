"""A cache that only counts: so many blocks of so many tokens, no vectors, no sharing.

What the scheduler may rely on, in the plainest form. It can be told what prompts find in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.kv_cache import Addresses, KVCache, Span
from engine.page_map import PageMap


class BlockBook(KVCache):
    """`found` maps a prompt to the tokens that `matched` promises and `admit` finds."""

    def __init__(self, blocks: int, block_size: int, capacity: int | None = None) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self.capacity = blocks * block_size if capacity is None else capacity
        self.found: dict[tuple[int, ...], int] = {}
        self.spoiled: list[int] = []
        self._length: dict[int, int] = {}
        self._held: dict[int, int] = {}

    def _for(self, tokens: int) -> int:
        return (tokens + self.block_size - 1) // self.block_size

    @property
    def left(self) -> int:
        return self.blocks - sum(self._held.values())

    def ever_fits(self, tokens: int) -> bool:
        return tokens <= self.capacity and self._for(tokens) <= self.blocks

    def can_admit(
        self, prompt: Sequence[int], most: int, whole: bool = False, spare: int = 0
    ) -> bool:
        return self._for(most if whole else len(prompt)) + spare <= self.left

    def matched(self, prompt: Sequence[int]) -> int:
        return self.found.get(tuple(prompt), 0)

    def admit(self, sequence: int, prompt: Sequence[int], most: int, whole: bool = False) -> int:
        assert sequence not in self._held and self.can_admit(prompt, most, whole)
        assert 0 < len(prompt) <= most <= self.capacity
        self._held[sequence] = self._for(most if whole else len(prompt))
        self._length[sequence] = self.matched(prompt)
        return self._length[sequence]

    def _more(self, sequence: int, count: int) -> int:
        return max(self._for(self._length[sequence] + count) - self._held[sequence], 0)

    def shortage(self, sequences: Sequence[int], counts: Sequence[int]) -> int:
        more = sum(self._more(one, count) for one, count in zip(sequences, counts, strict=True))
        return max(more - self.left, 0)

    def free(self, sequence: int, spoiled: bool = False) -> None:
        if spoiled:
            self.spoiled.append(sequence)
        del self._held[sequence], self._length[sequence]

    def clear(self) -> None:
        self._held.clear()
        self._length.clear()

    def length(self, sequence: int) -> int:
        return self._length[sequence]

    def slot(self, sequence: int) -> int:
        return sequence

    def append(self, sequences: Sequence[int], runs: Sequence[Sequence[int]]) -> Addresses:
        assert self.shortage(sequences, [len(run) for run in runs]) == 0
        for sequence, run in zip(sequences, runs, strict=True):
            self._held[sequence] += self._more(sequence, len(run))
            self._length[sequence] += len(run)
        return Addresses(torch.empty(0, dtype=torch.int64))

    def rewind(self, sequence: int, length: int, spoiled: bool = False) -> None:
        raise NotImplementedError

    def write(self, layer: int, addresses: Addresses, keys: Tensor, values: Tensor) -> None:
        raise NotImplementedError

    def spans(
        self,
        sequences: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        window: int | None,
        dtype: torch.dtype,
        by_row: bool = False,
    ) -> tuple[Span, ...]:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        return self.blocks * self.block_size

    @property
    def token_bytes(self) -> int:
        return 1

    @property
    def held_tokens(self) -> int:
        return sum(self._length.values())

    @property
    def reserved_tokens(self) -> int:
        return sum(self._held.values()) * self.block_size

    def needed_tokens(self, prompt: Sequence[int], most: int, whole: bool = False) -> int:
        return self._for(most if whole else len(prompt)) * self.block_size

    def page_map(self) -> PageMap:
        return PageMap("paged", self.block_size, "", self.held_tokens, self.reserved_tokens)

    def check_integrity(self) -> None:
        assert 0 <= self.left <= self.blocks
