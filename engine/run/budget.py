"""The memory budget breaks: an event with the whole account in it, and the engine serves on.

Nothing is allocated past the budget: the cache was sized to fit. What breaks it is a request that
has a seat and finds no room, where the configuration says that it must not wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.cache_plan import CachePlan
from engine.trial import Flood, Ledger


class BudgetExceeded(RuntimeError):
    """A request asked for more memory than is left. `flood` is the account of that moment.

    The step that raised it changed nothing: it would raise again. Abort a request, or reset.
    """

    def __init__(self, flood: Flood) -> None:
        super().__init__(_message(flood))
        self.flood = flood


def make_flood(
    ledger: Ledger,
    plan: CachePlan,
    *,
    asked_tokens: int,
    vacant_tokens: int,
    running: int,
    needs: Iterable[int],
    working_bytes: int = 0,
) -> Flood:
    """The flood of a moment.

    A request asked for `asked_tokens` token slots and `vacant_tokens` were left of the cache;
    `running` are held, and `needs` holds the tokens that each request, held or in line, may come to
    keep. Sharing between them is not foreseen in `fits`. `working_bytes` are what passes would need
    more with the request among them.
    """
    tokens = tuple(needs)
    # What the budget leaves beyond all parts is less than one request takes, and nobody's.
    slack = 0 if ledger.budget is None else max(ledger.budget - ledger.reserved_bytes, 0)
    return Flood(
        ledger=ledger,
        asked_bytes=asked_tokens * plan.token_bytes + working_bytes,
        free_bytes=vacant_tokens * plan.token_bytes + slack,
        running=running,
        requests=len(tokens),
        fits=most_that_fit(tokens, plan),
    )


def most_that_fit(tokens: Iterable[int], plan: CachePlan) -> int:
    """The largest number of requests, which keep so many tokens each, that the cache holds."""
    needs = sorted(tokens)
    if plan.layout == "contiguous":
        return min(len(needs), plan.slots)
    left = plan.blocks
    for count, need in enumerate(needs):
        left -= -(-need // plan.block_size)
        if left < 0:
            return count
    return len(needs)


def _message(flood: Flood) -> str:
    ledger = flood.ledger
    parts = ", ".join(f"{name} {size:,}" for name, size in ledger.parts.items())
    budget = "memory" if ledger.budget is None else f"the memory budget of {ledger.budget:,} bytes"
    return (
        f"{budget} is full: {parts} bytes; with {flood.running} of {flood.requests} requests "
        f"running ({ledger.live_tokens:,} tokens in {ledger.held_bytes:,} bytes of kv) one asked "
        f"for {flood.asked_bytes:,} bytes more and {flood.free_bytes:,} were free; at most "
        f"{flood.fits} of these requests fit at once"
    )
