"""The books of a paged cache: which block holds which tokens of which sequence.

A block table lists a sequence's blocks in the order of its tokens. Tables are append-only: an entry
never changes while its sequence grows, since a block that others may read is not written. Three
rules see to it:

- Only full blocks are shared, from the moment they are full. The last, part-filled block of a
  sequence is its own.
- A beginning that ends inside a known block is *copied on write*: the common tokens go into a fresh
  block on admission, because the sequence writes the next place at once. So a fully known prompt,
  whose last token is run again, never writes what it shares.
- A sequence rewound into a full block takes it back from the index if nobody else holds it, and
  copies it before it writes there if somebody does.

Pure Python: tokens and indices, no tensors.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from engine.cache.block_contents import BlockContents
from engine.cache.prefix_index import Match, Node

NOTHING = Match(())


@dataclass(eq=False)
class BlockTable:
    """One sequence's blocks; `length` tokens fill the first of them, the rest are set aside.

    `serial` counts admissions and `version` rewinds: both together say whether the same entries
    still stand. `borrowed` first blocks were matched, so that others
    computed them. `promised` blocks are kept whatever is rewound. `chain` holds the index's node of
    each full block as far as it knows them, and `tokens` every token; both stay empty where nothing
    is shared.
    """

    serial: int
    blocks: array[int]
    length: int
    borrowed: int
    promised: int
    tokens: list[int]
    chain: list[Node]
    chained: bool
    version: int = 0


class BlockTables:
    """The tables of all sequences over one pool; with an index, sequences share beginnings."""

    def __init__(self, contents: BlockContents) -> None:
        self.pool = contents.pool
        self.block_size = contents.block_size
        self._contents = contents
        self._index = contents.index
        self._tables: dict[int, BlockTable] = {}
        self._cut: set[BlockTable] = set()
        """Rewound into a block that others hold: copied before the next token."""
        self._admitted = 0
        self._matched: tuple[Sequence[int], int, Match] = ((), -1, NOTHING)

    def __getitem__(self, sequence: int) -> BlockTable:
        table = self._tables.get(sequence)
        if table is None:
            raise ValueError(f"sequence {sequence} is not in the cache")
        return table

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._tables

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    # Coming and going

    def needed(self, prompt: Sequence[int], most: int, whole: bool) -> int:
        """Blocks that admission would take: those of `prompt`, or of `most` tokens, not shared."""
        return self._needed(self._match(prompt), prompt, most, whole)

    def room(self, prompt: Sequence[int]) -> int:
        """Blocks that admission could take: the free, and the cached it would not itself share."""
        return self._room(self._match(prompt))

    def found(self, prompt: Sequence[int]) -> int:
        """Tokens that admission would find, if there is room for it."""
        match = self._match(prompt)
        source = self._source(match, self._needed(match, prompt, len(prompt), False))
        return self._known(match, source)

    def admit(self, sequence: int, prompt: Sequence[int], most: int, whole: bool) -> int:
        """Match, see that there is room, then take it; gives the tokens found.

        Raises:
            ValueError: there is no room; nothing has changed then.
        """
        match = self._match(prompt)
        needed, room = self._needed(match, prompt, most, whole), self._room(match)
        if needed > room:
            raise ValueError(
                f"sequence {sequence} needs {needed} blocks of {self.block_size} tokens and "
                f"{room} can be given; wait for others to finish, or free one"
            )
        source = self._source(match, needed)
        for node in match.nodes:
            self._contents.share(node.block)
        fresh = self._fresh_blocks(needed, source, match.common)
        known = self._known(match, source)
        self._admitted += 1
        self._tables[sequence] = BlockTable(
            serial=self._admitted,
            blocks=array("q", [*(node.block for node in match.nodes), *fresh]),
            length=known,
            borrowed=len(match.nodes),
            promised=len(match.nodes) + needed if whole else 0,
            tokens=list(prompt[:known]),
            chain=list(match.nodes),
            chained=self._index is not None,
        )
        return known

    def free(self, sequence: int, spoiled: bool) -> list[int]:
        """Take a table apart. Registered blocks stay cached, the last ones the first to be evicted.

        A `spoiled` sequence's own blocks are forgotten, with all that continues them; gives those
        of them that nobody else holds, whose content may be anything.
        """
        table = self[sequence]
        del self._tables[sequence]
        self._cut.discard(table)
        own = list(table.blocks[table.borrowed :]) if spoiled else []
        for block in own:
            self._contents.forget(block)
        for block in reversed(table.blocks):
            self._release(block)
        return [block for block in own if self.pool.references(block) == 0]

    def clear(self) -> None:
        """Forget every sequence, every cached block, and the count of copies."""
        for sequence in list(self._tables):
            self.free(sequence, spoiled=False)
        self._contents.clear()

    # Growing and shrinking

    def shortage(self, sequences: Sequence[int], counts: Sequence[int]) -> int:
        """Blocks missing for each sequence to grow by its count."""
        needs = (self._growth(self[s], c) for s, c in zip(sequences, counts, strict=True))
        return max(sum(needs) - self.pool.available, 0)

    def grow(self, sequence: int, run: Sequence[int]) -> None:
        """Append a run of tokens; the caller has seen that there is room."""
        table = self[sequence]
        count = len(run)
        if count == 0:
            return
        if table in self._cut:
            self._uncut(table)
        for _ in range(self._growth(table, count)):
            table.blocks.append(self._contents.take())
        end = table.length + count
        self._fill_up(table, end)
        table.length = end
        if table.chained:
            table.tokens.extend(run)
            if end // self.block_size > len(table.chain):
                self._register(table)

    def rewind(self, sequence: int, length: int, spoiled: bool = False) -> None:
        """Keep the first `length` tokens and give the blocks past them back; `spoiled` ones are
        forgotten, with all that continues them.

        A sequence with promised blocks takes fresh ones in their place, as far as there are any.
        """
        table = self[sequence]
        if length == table.length:
            return
        keep, whole = self.blocks_for(length), length // self.block_size
        table.length = length
        table.version += 1
        table.borrowed = min(table.borrowed, whole)
        del table.tokens[length:], table.chain[whole:]
        self._cut.discard(table)
        gone = table.blocks[keep:]
        del table.blocks[keep:]
        for block in reversed(gone):
            if spoiled:
                self._contents.forget(block)
            self._release(block)
        if keep > whole:
            self._cut_back(table)
        while len(table.blocks) < table.promised and self.pool.available:
            table.blocks.append(self._contents.take())

    # Account

    def check_integrity(self) -> None:
        """Raises AssertionError where the books do not add up."""
        self._contents.check_integrity()
        holders: dict[int, list[int]] = {}  # block -> tokens each table has in it
        for table in self._tables.values():
            self._check_table(table)
            for index, block in enumerate(table.blocks):
                part = min(max(table.length - index * self.block_size, 0), self.block_size)
                holders.setdefault(block, []).append(part)
        for block in range(self.pool.blocks):
            parts = holders.get(block, [])
            assert self.pool.references(block) == len(parts), f"references of block {block}"
            assert self._contents.fill(block) == max(parts, default=0), f"tokens in block {block}"

    def _check_table(self, table: BlockTable) -> None:
        whole = table.length // self.block_size
        assert len(table.blocks) >= self.blocks_for(table.length), "every token has its place"
        assert len(set(table.blocks)) == len(table.blocks), "a table holds a block once"
        assert table.borrowed <= whole and len(table.chain) <= whole
        if not table.chained:
            return
        assert len(table.tokens) == table.length and len(table.chain) == whole
        flat = [token for node in table.chain for token in node.tokens]
        assert flat == table.tokens[: len(flat)], "a chain holds the sequence's own tokens"
        if table not in self._cut:
            for block in table.blocks[whole:]:
                assert self.pool.references(block) == 1 and not self._contents.is_registered(
                    block
                ), f"block {block} is yet to be written and others may read it"

    # Steps of the above

    def _match(self, prompt: Sequence[int]) -> Match:
        """What is known of all but the last token, which must be run to be answered.

        A request at the head of the queue asks again before every pass: the answer is kept while
        neither prompt nor index change.
        """
        if self._index is None:
            return NOTHING
        asked, changes, match = self._matched
        if changes != self._index.changes or asked != prompt:
            match = self._index.match(prompt, len(prompt) - 1)
            self._matched = (tuple(prompt), self._index.changes, match)
        return match

    def _needed(self, match: Match, prompt: Sequence[int], most: int, whole: bool) -> int:
        return self.blocks_for(most if whole else len(prompt)) - len(match.nodes)

    def _room(self, match: Match) -> int:
        """A matched block that is cached is no room: it is about to be held."""
        return self.pool.available - sum(self.pool.is_cached(node.block) for node in match.nodes)

    def _known(self, match: Match, source: Node | None) -> int:
        """Tokens found: those of whole blocks, and those that are copied."""
        return len(match.nodes) * self.block_size + (match.common if source else 0)

    def _source(self, match: Match, needed: int) -> Node | None:
        """The block whose beginning is copied on admission.

        Where it is the last that could be evicted it is taken like any other, and not copied.
        """
        source = match.partial
        if source is None or needed > self._room(match) - self.pool.is_cached(source.block):
            return None
        return source

    def _fresh_blocks(self, needed: int, source: Node | None, common: int) -> list[int]:
        """Take `needed` blocks, the first with the `common` tokens of `source`."""
        if source is None:
            return [self._contents.take() for _ in range(needed)]
        self.pool.share(source.block)  # held while blocks are taken, or it might be evicted for one
        fresh = [self._contents.take() for _ in range(needed)]
        self._contents.copy_into(fresh[0], source.block, common)
        self._release(source.block)
        return fresh

    def _growth(self, table: BlockTable, count: int) -> int:
        """Blocks to take for `count` more tokens."""
        more = max(self.blocks_for(table.length + count) - len(table.blocks), 0)
        if count and table in self._cut:
            more += self.pool.references(self._tail(table)) > 1
        return more

    def _fill_up(self, table: BlockTable, end: int) -> None:
        size = self.block_size
        for index in range(table.length // size, self.blocks_for(end)):
            self._contents.set_fill(table.blocks[index], min(end - index * size, size))

    def _register(self, table: BlockTable) -> None:
        """Make the blocks that are full now known to the index."""
        assert self._index is not None
        size = self.block_size
        for place in range(len(table.chain), table.length // size):
            parent = table.chain[-1] if table.chain else self._index.root
            run = table.tokens[place * size : (place + 1) * size]
            node = self._index.register(parent, run, table.blocks[place])
            if node is None:
                table.chained = False
                return
            table.chain.append(node)

    def _cut_back(self, table: BlockTable) -> None:
        """The last block is only part of what it was: make it the sequence's own, or mark it."""
        block = self._tail(table)
        if self.pool.references(block) > 1:
            self._cut.add(table)
            self._refresh(block)
        else:
            self._contents.forget(block)
            self._contents.set_fill(block, table.length % self.block_size)

    def _uncut(self, table: BlockTable) -> None:
        """About to write into a block it was rewound into: copy it if anybody else has it still."""
        block, part = self._tail(table), table.length % self.block_size
        self._cut.discard(table)
        if self.pool.references(block) == 1:
            self._contents.forget(block)
            return
        own = self._contents.take()
        self._contents.copy_into(own, block, part)
        table.blocks[table.length // self.block_size] = own
        self._release(block)

    def _tail(self, table: BlockTable) -> int:
        """The part-filled block."""
        return table.blocks[table.length // self.block_size]

    def _release(self, block: int) -> None:
        self._contents.release(block)
        if self._cut and self.pool.references(block):
            self._refresh(block)

    def _refresh(self, block: int) -> None:
        """The fill of a shared block, when sequences rewound into it may be all that hold it."""
        parts = [t.length % self.block_size for t in self._cut if self._tail(t) == block]
        others = self.pool.references(block) > len(parts)
        self._contents.set_fill(block, self.block_size if others else max(parts))
