"""Where keys and values of past tokens live, behind an interface that two layouts fill.

The engine asks five things of a cache: room for a sequence, addresses for its next tokens (the slot
mapping), how a pass is to attend over what is kept, an account of what is held, and to forget (a
finished sequence, a preempted one, or a rejected ending).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.page_map import PageMap


@dataclass(frozen=True)
class Addresses:
    """The slot mapping of a pass: a pool row for every vector, `rows` [T · kv_heads] int64.

    Vector (t, h) of a layer's keys [T, kv_heads, D] goes to row `rows[t · kv_heads + h]`.
    """

    rows: Tensor


class Span(Protocol):
    """Some rows of a pass that attend in one kernel call; spans follow one another in row order."""

    @property
    def rows(self) -> int: ...

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """The span's own rows: [rows, heads, D] -> [rows, heads · D]."""
        ...


class KVCache(ABC):
    """Keys and values of many sequences over all layers."""

    capacity: int
    """Most tokens one sequence can hold."""

    # Room

    @abstractmethod
    def ever_fits(self, tokens: int) -> bool:
        """Whether a sequence of `tokens` could be held by this cache with nothing else in it."""

    @abstractmethod
    def can_admit(
        self, prompt: Sequence[int], most: int, whole: bool = False, spare: int = 0
    ) -> bool:
        """Whether a sequence with this prompt, which may grow to `most` tokens, can enter now.

        A paged cache asks for the prompt's blocks, less those it shares; with `whole` for all that
        `most` tokens need. `spare` blocks must be left afterwards, for those running to grow into.
        A contiguous one asks for a slot, and spares nothing: its sequences have all their room.
        """

    def matched(self, prompt: Sequence[int]) -> int:
        """How many of the prompt's first tokens `admit` would find now; changes nothing."""
        return 0

    @abstractmethod
    def admit(self, sequence: int, prompt: Sequence[int], most: int, whole: bool = False) -> int:
        """Take in `sequence` and set aside its room, in one step: match, then allocate.

        Returns how many of the prompt's first tokens are in the cache already (a shared beginning),
        always fewer than the prompt has: the last token is always run.

        Raises:
            ValueError: it is there already, there is no room now, or it could never fit.
        """

    @abstractmethod
    def shortage(self, sequences: Sequence[int], counts: Sequence[int]) -> int:
        """Blocks that are missing for each sequence to append its count; 0 where all can."""

    @abstractmethod
    def free(self, sequence: int, spoiled: bool = False) -> None:
        """Forget `sequence` and give its room back.

        What it computed may be kept for others that begin alike, unless it is `spoiled` (its last
        pass failed, and what that wrote cannot be trusted).
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget every sequence, and everything kept for others."""

    # Growing and shrinking

    @abstractmethod
    def length(self, sequence: int) -> int:
        """Tokens of `sequence` in the cache."""

    @abstractmethod
    def slot(self, sequence: int) -> int:
        """A key that orders sequences so that those attended together are neighbours."""

    @abstractmethod
    def append(self, sequences: Sequence[int], runs: Sequence[Sequence[int]]) -> Addresses:
        """Grow each sequence by its run of token ids and say where the new vectors go.

        Raises:
            ValueError: a sequence would outgrow its room; nothing has grown then.
        """

    @abstractmethod
    def rewind(self, sequence: int, length: int, spoiled: bool = False) -> None:
        """Keep only the first `length` tokens of `sequence`; the next append goes after them.

        Speculation drafts past the end and takes back what the target rejects. What is taken back
        may be kept for others that go on alike, unless it is `spoiled`: written by a draft.

        Raises:
            ValueError: `length` is negative or past the present end.
        """

    # Vectors

    @abstractmethod
    def write(self, layer: int, addresses: Addresses, keys: Tensor, values: Tensor) -> None:
        """Store one layer's `keys` and `values` [T, kv_heads, D] at `addresses`, in place."""

    @abstractmethod
    def spans(
        self,
        sequences: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        window: int | None,
        dtype: torch.dtype,
        by_row: bool = False,
    ) -> tuple[Span, ...]:
        """How a pass attends: sequence b has `counts[b]` rows after `starts[b]` cached tokens.

        Called after `append` and before the first `write`; `sequences` are in the order of their
        slots, `window` is the model's sliding window, `dtype` that of the queries. `by_row`: where
        single rows can read the cache in place, several of a sequence are to do so one by one. A
        row then comes out the same to the last bit, whatever company it has.
        """

    # Account

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes reserved, used or not."""

    @property
    @abstractmethod
    def token_bytes(self) -> int:
        """Bytes of one token over all layers."""

    @property
    @abstractmethod
    def held_tokens(self) -> int:
        """Distinct tokens of sequences now in the cache: a shared one counts once."""

    @property
    @abstractmethod
    def reserved_tokens(self) -> int:
        """Token slots set aside for sequences now in the cache, filled or not."""

    @property
    def vacant_tokens(self) -> int:
        """Token slots set aside for no sequence: the next may have them."""
        return self.nbytes // self.token_bytes - self.reserved_tokens

    def needed_tokens(self, prompt: Sequence[int], most: int, whole: bool = False) -> int:
        """Token slots out of the vacant ones that `admit` would set aside now."""
        return self.capacity

    @property
    def copies(self) -> int:
        """Blocks copied on write since the last `clear`; none where nothing is shared."""
        return 0

    @abstractmethod
    def page_map(self) -> PageMap:
        """What every part holds, to be drawn."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Raises AssertionError where the books do not add up."""
