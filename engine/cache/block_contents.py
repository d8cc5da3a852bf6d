"""What every block holds: how full it is, whether it can be found again, where it was copied to.

Between pool and tables. A block stays in the pool as *cached* exactly while the index knows it and
no table holds it; so giving a block back, finding one to take, and forgetting one touch both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from engine.cache.block_pool import BlockPool
from engine.cache.prefix_index import PrefixIndex

Copy = Callable[[int, int, int], None]
"""(source, target, places): move the vectors of the first places from block to block."""

COPIES_LISTED = 8


class BlockContents:
    """`blocks` blocks of `block_size` tokens. Without an `index` nothing can be found again.

    `held_tokens` are the distinct tokens of sequences: what all blocks together are filled with.
    `copied` lists the last of `copies` (source, target), newest last.
    """

    def __init__(self, blocks: int, block_size: int, index: PrefixIndex | None, copy: Copy) -> None:
        self.pool = BlockPool(blocks)
        self.block_size = block_size
        self.index = index
        self.held_tokens = 0
        self.copies = 0
        self.copied: deque[tuple[int, int]] = deque(maxlen=COPIES_LISTED)
        self._copy = copy
        self._fill = [0] * blocks

    def fill(self, block: int) -> int:
        """Tokens of sequences in `block`: of the one that has most there."""
        return self._fill[block]

    def set_fill(self, block: int, tokens: int) -> None:
        self.held_tokens += tokens - self._fill[block]
        self._fill[block] = tokens

    def is_registered(self, block: int) -> bool:
        return self.index is not None and self.index.node(block) is not None

    def take(self) -> int:
        """A block for one table: a free one, else the one that was used least recently."""
        if not self.pool.free:
            self.evict()
        return self.pool.take()

    def share(self, block: int) -> None:
        """One more table holds a full block."""
        self.pool.share(block)
        self.set_fill(block, self.block_size)

    def release(self, block: int) -> None:
        """One table less holds `block`; nobody's, it is kept for as long as it can be found."""
        self.pool.release(block, keep=self.is_registered(block))
        if self.pool.references(block) == 0:
            self.set_fill(block, 0)

    def copy_into(self, target: int, source: int, places: int) -> None:
        """Copy on write: `target` is a fresh block."""
        self._copy(source, target, places)
        self.set_fill(target, places)
        self.copies += 1
        self.copied.append((source, target))

    def evict(self) -> None:
        """Free the block that was used least recently, and what cannot be found without it."""
        self.forget(self.pool.oldest_cached())

    def forget(self, block: int) -> None:
        """Take a block out of the index with all that continue it; those in no table are free."""
        if self.index is None:
            return
        for dropped in self.index.drop(block):
            if self.pool.is_cached(dropped):
                self.pool.evict(dropped)

    def clear(self) -> None:
        """Evict all that is cached and forget the copies; tables hold nothing any more."""
        while self.pool.cached:
            self.evict()
        self.copies = 0
        self.copied.clear()

    def check_integrity(self) -> None:
        """Raises AssertionError where the books do not add up."""
        self.pool.check_integrity()
        assert self.held_tokens == sum(self._fill)
        registered = frozenset[int]()
        if self.index is not None:
            self.index.check_integrity()
            registered = self.index.blocks
        every = range(self.pool.blocks)
        cached = {block for block in every if self.pool.is_cached(block)}
        held = {block for block in every if self.pool.references(block)}
        assert cached == registered - held, "cached = can be found and in no table"
        assert all(self._fill[block] == 0 for block in every if block not in held)
