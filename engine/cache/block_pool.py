"""Who holds which block: a free list, reference counts, and blocks kept for reuse.

A block is in one of three states. *Free*: nobody's, its content forgotten. *Held*: in the tables of
`references` sequences. *Cached*: of no sequence, but its content may serve the next one that begins
alike; evicted, least recently used first, when no free block is left. The pool knows indices only,
neither tokens nor tensors.

    free + held + cached = all
"""

from __future__ import annotations

import heapq
from collections import OrderedDict


class BlockPool:
    """`blocks` blocks, indices 0 .. blocks - 1.

    The lowest free block is given out first, so that those in use stay low and close together.

    Raises:
        ValueError: fewer than one block.
    """

    def __init__(self, blocks: int) -> None:
        if blocks < 1:
            raise ValueError(f"a pool of {blocks} blocks holds nothing; at least 1")
        self.blocks = blocks
        self._free = list(range(blocks))  # sorted, hence a heap
        self._references = [0] * blocks
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._held = 0
        self._shared = 0

    # State

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def available(self) -> int:
        """Blocks a sequence can be given: the free, and the cached at the cost of their content."""
        return len(self._free) + len(self._cached)

    @property
    def held(self) -> int:
        """Distinct blocks in tables."""
        return self._held

    @property
    def shared(self) -> int:
        """Blocks in more than one table."""
        return self._shared

    def references(self, block: int) -> int:
        """Tables that hold `block`."""
        return self._references[self._known(block)]

    def is_cached(self, block: int) -> bool:
        return self._known(block) in self._cached

    # Moves

    def take(self) -> int:
        """The lowest free block, from now on held once.

        Raises:
            ValueError: none is free; `evict` a cached one first.
        """
        if not self._free:
            raise ValueError(
                f"none of {self.blocks} blocks is free: {self._held} are held and "
                f"{len(self._cached)} cached; release or evict one first"
            )
        block = heapq.heappop(self._free)
        self._references[block] = 1
        self._held += 1
        return block

    def share(self, block: int) -> None:
        """One more table holds `block`, which is held or cached.

        Raises:
            ValueError: it is free: what it held is forgotten.
        """
        references = self.references(block)
        if references == 0:
            if block not in self._cached:
                raise ValueError(f"block {block} is free and cannot be shared; take one instead")
            del self._cached[block]
            self._held += 1
        self._references[block] = references + 1
        self._shared += references == 1

    def release(self, block: int, keep: bool) -> None:
        """One table less holds `block`. After the last, `keep` makes it cached, else it is free.

        Raises:
            ValueError: nobody holds it, as after a second release.
        """
        references = self.references(block)
        if references == 0:
            raise ValueError(f"block {block} is held by nobody and cannot be released again")
        self._references[block] = references - 1
        self._shared -= references == 2
        if references > 1:
            return
        self._held -= 1
        if keep:
            self._cached[block] = None  # at the end: most recently used
        else:
            heapq.heappush(self._free, block)

    def oldest_cached(self) -> int:
        """The cached block that was released longest ago: the one to evict.

        Raises:
            ValueError: none is cached.
        """
        if not self._cached:
            raise ValueError("no block is cached, so none can be evicted")
        return next(iter(self._cached))

    def evict(self, block: int) -> None:
        """Forget a cached block's content: it is free.

        Raises:
            ValueError: it is not cached.
        """
        if not self.is_cached(block):
            state = f"held {self._references[block]} times" if self._references[block] else "free"
            raise ValueError(f"block {block} is {state}; only a cached block can be evicted")
        del self._cached[block]
        heapq.heappush(self._free, block)

    def check_integrity(self) -> None:
        """Raises AssertionError where the books do not add up."""
        free, cached = set(self._free), set(self._cached)
        held = {block for block, count in enumerate(self._references) if count > 0}
        assert len(free) == len(self._free), "a block is on the free list twice"
        assert not free & cached and not free & held and not cached & held, "a block has two states"
        assert free | cached | held == set(range(self.blocks)), "free + held + cached = all"
        assert min(self._references) >= 0
        assert self._held == len(held)
        assert self._shared == sum(count > 1 for count in self._references)
        heap = self._free
        assert all(heap[(i - 1) // 2] < heap[i] for i in range(1, len(heap))), (
            "a heap, lowest first"
        )

    def _known(self, block: int) -> int:
        if not 0 <= block < self.blocks:
            raise ValueError(f"there is no block {block}; blocks are 0 to {self.blocks - 1}")
        return block
