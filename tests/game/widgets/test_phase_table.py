"""The table beside the timeline: every figure whole, whatever its size and language."""

from __future__ import annotations

import pytest

from game.widgets.figures import share
from game.widgets.ink import cells, plain
from game.widgets.phase_table import PhaseHeads, PhaseRow, draw_phases

HEADS = {
    "en": PhaseHeads("time", "of run", "of the bandwidth", "of the arithmetic"),
    "zh": PhaseHeads("用时", "占比", "达到带宽上限", "达到算力上限"),
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [76, 116])
@pytest.mark.parametrize("part", [0.00075, 0.0000123, 0.15, 1.0])
def test_no_share_is_cut(language: str, width: int, part: float) -> None:
    rows = [
        PhaseRow("其余 neither", "dim", 1.16e-3, part),
        PhaseRow("预填充 prefill", "bronze", 0.229, 0.15, 0.07, 0.53),
    ]
    lines = draw_phases(rows, HEADS[language], width)
    assert {cells(line) for line in lines} == {width}
    assert share(part) in plain(lines[1]) and "..." not in plain(lines[1])
