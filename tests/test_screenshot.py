"""A picture for the README shows every glyph in its own cells, and braille as its dots."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip


@pytest.fixture(scope="module")
def screenshot() -> ModuleType:
    path = Path(__file__).parent.parent / "benchmarks" / "screenshot.py"
    spec = importlib.util.spec_from_file_location("screenshot", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules["screenshot"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", ["ab⣿⡇x延迟⠁ c", "延", "⣿", "plain", "⣿延⣿"])
def test_runs_lie_side_by_side_and_lose_nothing(screenshot: ModuleType, text: str) -> None:
    found = list(screenshot.runs(Strip([Segment(text, Style(color="#ffffff"))])))
    assert "".join(run.text for run in found) == text
    at = 0
    for run in found:
        assert run.x == at and run.cells == cell_len(run.text)
        at += run.cells


@pytest.mark.parametrize(("char", "dots"), [("⣿", 8), ("⠁", 1), ("⡇", 4), ("⠀", 0)])
def test_a_braille_cell_becomes_as_many_dots(screenshot: ModuleType, char: str, dots: int) -> None:
    drawn = screenshot.svg([Strip([Segment(char, Style(color="#ffffff"))])], 1, "t")
    path = drawn.partition('<path d="')[2].partition('"')[0]
    assert path.count("M") == dots
    assert char not in drawn


def test_foreign_text_is_escaped(screenshot: ModuleType) -> None:
    drawn = screenshot.svg([Strip([Segment("<b>&", Style(color="#ffffff"))])], 4, "a<b")
    assert "&lt;b&gt;&amp;" in drawn and "<b>" not in drawn
