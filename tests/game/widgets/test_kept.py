"""How a build keeps its weights, by kind: against counts by hand for SmolLM2-135M."""

from __future__ import annotations

import pytest
from known_machines import SMOLLM2

from engine.config import WeightsConfig
from engine.weight_format import ROW
from game.widgets.ink import cells, plain
from game.widgets.kept import KINDS, keeping_of
from game.widgets.kind_bars import KindWords, draw_kinds

ATTENTION = 576 * (576 + 2 * 192) + 576 * 576
MLP = 3 * 576 * 1536
TABLE = 49_152 * 576
WORDS = KindWords(
    dict(zip(KINDS, ("注意力", "MLP", "词嵌入", "首尾层"), strict=True)),
    lambda bits: f"{bits} bits",
    lambda group: f"groups of {group}",
    "rows",
    lambda part: f"{part} of all",
    "as the rest",
)


def test_every_weight_is_of_one_kind() -> None:
    keeping = keeping_of(WeightsConfig(bits=4, edges=8, edge_layers=2), SMOLLM2)
    assert [kept.elements for kept in keeping.kinds] == [
        26 * ATTENTION,
        26 * MLP,
        TABLE,
        4 * (ATTENTION + MLP),
    ]
    assert sum(kept.elements for kept in keeping.kinds) == keeping.elements


def test_a_width_follows_the_rest_unless_it_is_set() -> None:
    keeping = keeping_of(WeightsConfig(bits=4, attention=8, group=64), SMOLLM2)
    assert [kept.bits for kept in keeping.kinds[:3]] == [8, 4, 8]
    assert keeping.of("edges").elements == 0
    mlp, table = keeping.of("mlp").scheme, keeping.of("embedding").scheme
    assert mlp is not None and mlp.group == 64
    assert table is not None and table.group == ROW


def test_full_weights_have_nothing_pressed() -> None:
    keeping = keeping_of(WeightsConfig(), SMOLLM2)
    assert keeping.full and keeping.pressed is None
    alone = keeping_of(WeightsConfig(embedding=4), SMOLLM2)
    assert not alone.full and alone.pressed is None


def test_the_press_is_about_most_of_the_layers() -> None:
    pressed = keeping_of(WeightsConfig(bits=4), SMOLLM2).pressed
    assert pressed is not None and pressed.kind == "mlp"
    only = keeping_of(WeightsConfig(attention=3), SMOLLM2).pressed
    assert only is not None and (only.kind, only.bits) == ("attention", 3)


def test_bars_are_shares_of_sixteen_bits() -> None:
    keeping = keeping_of(WeightsConfig(bits=4, mlp=16, group=32), SMOLLM2)
    lines = [plain(line) for line in draw_kinds(keeping, WORDS, 100)]
    full = [line.count("⣶") for line in lines]
    assert full[0] == 8 and full[1] >= 31 and full[3] == 0
    assert "4 bits  groups of 32" in lines[0] and "16 bits" in lines[1]
    assert "8 bits  rows" in lines[2] and lines[3].endswith("as the rest")


@pytest.mark.parametrize("columns", [40, 56, 76, 116])
def test_every_line_fits(columns: int) -> None:
    keeping = keeping_of(WeightsConfig(bits=3, edges=8), SMOLLM2)
    assert all(cells(line) <= columns for line in draw_kinds(keeping, WORDS, columns))
