"""The order of a paired trial, as letters: A the reference, B the player's build, A B B A."""

from __future__ import annotations

from game.widgets.ink import Line, Run


def letters(pairs: int) -> str:
    """The runs of `pairs` pairs in the order they are timed: AB, BA, AB, ..."""
    return "".join("AB" if pair % 2 == 0 else "BA" for pair in range(pairs))


def place_of(done: int, order: str) -> int | None:
    """Which run is on the clock, from 0, when `done` pairs are complete; None between runs."""
    if order not in ("A", "B"):
        return None
    first = "A" if done % 2 == 0 else "B"
    return 2 * done + (0 if order == first else 1)


def draw_order(done: int, total: int, order: str, width: int) -> Line:
    """Runs timed, the one on the clock in brackets, and those to come, round the present one."""
    row = letters(total)
    now = place_of(done, order)
    reached = now if now is not None else 2 * done
    signs = [(f"[{sign}]" if place == now else f" {sign} ") for place, sign in enumerate(row)]
    room = max(width // 3, 1)
    first = min(max(reached - room // 2, 0), max(len(signs) - room, 0))
    return tuple(
        Run(
            sign,
            "strong"
            if first + offset == now
            else ("bronze" if row[first + offset] == "B" else "wall")
            if first + offset < reached
            else "faint",
        )
        for offset, sign in enumerate(signs[first : first + room])
    )
