"""Which full blocks hold which beginnings: prompts that begin alike find each other's work.

What a block holds follows from its tokens and all tokens before them, so a full block has a name:

    digest = SHA-256(digest of the block before it, its tokens)

Blocks that continue one another form a tree, and a prompt is matched from the root down. A digest
only finds a candidate: its tokens are compared, and its parent must be the very node matched
before. Equal digests of different beginnings can therefore never share wrong keys and values.

The chained hash is that of vLLM's automatic prefix caching (Kwon et al., 2023); the tree, that of
RadixAttention (Zheng et al., 2024).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

Hash = Callable[[bytes], bytes]


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


@dataclass(eq=False)
class Node:
    """A full block that can be shared. The root holds no block and stands before every prompt.

    `children` are the registered blocks that continue it, by digest; `parent` is None at the root
    and once the node has been dropped.
    """

    block: int
    tokens: tuple[int, ...]
    digest: bytes
    parent: Node | None
    children: dict[bytes, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """How far a prompt is known: whole blocks `nodes`, then `common` first tokens of `partial`."""

    nodes: tuple[Node, ...]
    partial: Node | None = None
    common: int = 0


class PrefixIndex:
    """The tree of registered blocks, each of `block_size` tokens, named by `digest`."""

    def __init__(self, block_size: int, digest: Hash = sha256) -> None:
        self._size = block_size
        self._hash = digest
        self._by_block: dict[int, Node] = {}
        self.changes = 0
        """Grows whenever a match may come out differently: until then a match can be kept."""
        self.root = Node(block=-1, tokens=(), digest=b"", parent=None)

    def match(self, prompt: Sequence[int], limit: int) -> Match:
        """The longest known beginning of `prompt` within its first `limit` tokens.

        First whole blocks, then the child of the last one that begins most like what follows
        (among equals the lowest block).
        """
        nodes: list[Node] = []
        node = self.root
        for start in range(0, limit - self._size + 1, self._size):
            tokens = tuple(prompt[start : start + self._size])
            child = node.children.get(self._digest(node, tokens))
            if child is None or child.tokens != tokens:
                break
            nodes.append(child)
            node = child
        matched = len(nodes) * self._size
        rest = prompt[matched : min(limit, matched + self._size)]
        best: Node | None = None
        common = 0
        for child in node.children.values():
            length = _common(child.tokens, rest)
            if length > common or (
                best is not None and length == common and child.block < best.block
            ):
                best, common = child, length
        return Match(tuple(nodes), best, common)

    def register(self, parent: Node, tokens: Sequence[int], block: int) -> Node | None:
        """Make the full `block`, which holds `tokens` after `parent`, known; gives its node.

        Where another block is known for that beginning already, gives that one's node and leaves
        `block` unknown. None where neither can be: `parent` has been dropped, or its digests
        collide.
        """
        if parent is not self.root and parent.parent is None:
            return None
        run = tuple(tokens)
        digest = self._digest(parent, run)
        known = parent.children.get(digest)
        if known is not None:
            return known if known.tokens == run else None
        node = Node(block, run, digest, parent)
        parent.children[digest] = node
        self.changes += 1
        self._by_block[block] = node
        return node

    def node(self, block: int) -> Node | None:
        """The node of `block`; None where it is not registered."""
        return self._by_block.get(block)

    def drop(self, block: int) -> tuple[int, ...]:
        """Forget a block and all that continue it; gives the blocks forgotten, itself first.

        A block behind a forgotten one could be found no more.
        """
        top = self._by_block.get(block)
        if top is None:
            return ()
        assert top.parent is not None
        del top.parent.children[top.digest]
        self.changes += 1
        dropped = tuple(_subtree(top))
        for node in dropped:
            node.parent = None
            del self._by_block[node.block]
        for node in dropped:
            node.children.clear()
        return tuple(node.block for node in dropped)

    def clear(self) -> None:
        for node in self._by_block.values():
            node.parent = None
        self.changes += 1
        self._by_block.clear()
        self.root.children.clear()

    @property
    def blocks(self) -> frozenset[int]:
        """Every registered block."""
        return frozenset(self._by_block)

    def check_integrity(self) -> None:
        """Raises AssertionError where tree and directory disagree."""
        reached = {node.block: node for node in _subtree(self.root) if node is not self.root}
        assert reached == self._by_block, "every registered block hangs on the root"
        for node in reached.values():
            assert node.parent is not None and len(node.tokens) == self._size
            assert node.parent.children.get(node.digest) is node
            assert node.digest == self._digest(node.parent, node.tokens)

    def _digest(self, parent: Node, tokens: tuple[int, ...]) -> bytes:
        return self._hash(parent.digest + array("q", tokens).tobytes())


def _subtree(top: Node) -> Iterator[Node]:
    waiting = [top]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children.values())


def _common(tokens: tuple[int, ...], rest: Sequence[int]) -> int:
    """How many first tokens agree."""
    length = 0
    for left, right in zip(tokens, rest, strict=False):
        if left != right:
            break
        length += 1
    return length
