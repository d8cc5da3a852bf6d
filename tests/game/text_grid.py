"""A screen as plain lines of text, by cells, and its comparison with a stored snapshot.

`LATENCY_WALL_UPDATE_SNAPSHOTS=1` writes the snapshots instead of comparing.
"""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from textual.app import App
from textual.pilot import Pilot

SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = ((80, 24), (120, 40))


def grid(app: App[Any]) -> list[str]:
    """The lines of the top screen as a terminal shows them, trailing blanks removed.

    Raises AssertionError where a line takes more cells than the terminal has.
    """
    screen = app.screen
    strips = screen._compositor.render_strips(screen.size)
    lines = ["".join(segment.text for segment in strip) for strip in strips]
    for number, line in enumerate(lines):
        assert cell_len(line) <= screen.size.width, (
            f"line {number} takes {cell_len(line)} of {screen.size.width} cells: {line!r}"
        )
    assert len(lines) <= screen.size.height, f"{len(lines)} lines of {screen.size.height}"
    return [line.rstrip() for line in lines]


def text_of(app: App[Any]) -> str:
    return "\n".join(grid(app))


async def until(pilot: Pilot[Any], holds: Callable[[], bool]) -> None:
    """Let the application run until `holds`; AssertionError after far longer than it can take."""
    for _ in range(2000):
        await pilot.pause()
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("what was waited for never came:\n" + text_of(pilot.app))


async def at_rest(pilot: Pilot[Any]) -> None:
    """Until the engine's state has stopped changing and the screen with it."""
    seen: tuple[object, str] | None = None
    same = 0
    for _ in range(2000):
        await pilot.pause()
        now = (pilot.app.engine_state, text_of(pilot.app))
        same = same + 1 if now == seen and now[0].phase not in ("asleep", "waking") else 0
        seen = now
        if same == 3:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the screen never came to rest:\n" + text_of(pilot.app))


def check_snapshot(app: App[Any], name: str) -> None:
    """Compare the screen with `snapshots/<name>.txt`; raises AssertionError with a diff."""
    file = SNAPSHOTS / f"{name}.txt"
    found = text_of(app) + "\n"
    if os.environ.get("LATENCY_WALL_UPDATE_SNAPSHOTS") == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found, encoding="utf-8")
        return
    assert file.exists(), f"no snapshot {file.name}; set LATENCY_WALL_UPDATE_SNAPSHOTS=1"
    expected = file.read_text(encoding="utf-8")
    if found != expected:
        changes = difflib.unified_diff(
            expected.splitlines(), found.splitlines(), f"{file.name} (kept)", "now", lineterm=""
        )
        raise AssertionError("the screen differs from its snapshot:\n" + "\n".join(changes))
