"""What a draft is, and who makes one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from engine.schedule.sequence import Sequence as Request


@dataclass(frozen=True, eq=False)
class Draft:
    """Tokens that may come next. `proposed` [k, V] are the distributions that they were drawn from,
    None where the draft was certain of each."""

    tokens: tuple[int, ...]
    proposed: Tensor | None = None


NOTHING = Draft(())


@dataclass(frozen=True)
class Asked:
    """A request in decode to draft for, and how many tokens at the most: at least one."""

    request: Request
    most: int

    @property
    def id(self) -> int:
        return self.request.id


class Proposer(ABC):
    """Drafts for the requests of an engine. A draft may be shorter than asked for, or empty."""

    @property
    @abstractmethod
    def form(self) -> str:
        """What drafts, as a kernel path names it."""

    @abstractmethod
    def propose(self, asked: Sequence[Asked]) -> Mapping[int, Draft]:
        """A draft for each of the requests, which lie in the target's cache up to, and without,
        the last token they said. That cache is left as it was found."""

    def hear(self, request: int, hidden: Tensor) -> None:  # noqa: B027 - most do not listen
        """The target's residual row [H] after the token before the request's last: what the last
        was drawn from."""

    def close(self, request: int) -> None:  # noqa: B027 - most keep nothing
        """`request` has ended, or was put back: forget what was kept for it."""
