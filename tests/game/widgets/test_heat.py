"""Error as heat: a place a layer, denser the larger its error, blank where none is known."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.quantised import LayerError
from game.widgets.heat import MATRICES, SHADES, draw_heat, draw_scale, shade_of, steps_of, worst
from game.widgets.ink import cells, plain

NAMES = {name: name for name in (*MATRICES, "layer", "mean", "from", "embedding")}
ZH = {**NAMES, "layer": "层", "mean": "平均", "from": "误差起自", "embedding": "词嵌入"}


def errors_of(layers: int) -> list[LayerError]:
    """Larger from layer to layer: 1 %, 2 %, 3 % ..."""
    return [LayerError(at, name, 0.01 * (at + 1)) for at in range(layers) for name in MATRICES]


def test_shades_grow_denser_and_are_told_apart_without_colour() -> None:
    dots = [(ord(glyph) - 0x2800).bit_count() for glyph, _, _ in SHADES]
    assert dots == sorted(set(dots))
    assert len({sign for _, sign, _ in SHADES}) == len(SHADES)


@given(st.floats(1e-6, 1), st.floats(1e-6, 1), st.floats(1e-6, 1), st.floats(1e-6, 1))
def test_a_larger_error_is_never_drawn_cooler(a: float, b: float, c: float, d: float) -> None:
    least, lower, upper, most = sorted((a, b, c, d))
    assert shade_of(lower, least, most) <= shade_of(upper, least, most)


def test_a_shade_begins_where_the_scale_says() -> None:
    starts = steps_of(0.01, 0.32)
    assert starts == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16]), "five doublings, five shades"
    for number, start in enumerate(starts):
        assert shade_of(start * 1.001, 0.01, 0.32) == number
    assert shade_of(0.32, 0.01, 0.32) == len(SHADES) - 1


def test_each_layer_stands_in_its_column() -> None:
    lines = [plain(line) for line in draw_heat(errors_of(5), 5, NAMES, 60, 9, plain=True)]
    row = next(line for line in lines if line.startswith("qkv"))
    # "gate_up" and a gap: 9 cells; three cells a layer. Logarithms of 1 ... 5 over that of 5, in
    # fifths: 0, 2.2, 3.4, 4.3, 5.
    assert row[9:24] == ".. ++ %% ## ## "
    axis = next(line for line in lines if line.startswith("layer"))
    assert axis[9] == "1" and axis[9 + 4 * 3] == "5"


def test_what_is_not_known_yet_is_blank() -> None:
    lines = draw_heat(errors_of(5)[:6], 5, NAMES, 60, 9, plain=True)
    rows = {plain(line).split()[0]: plain(line)[9:24] for line in lines if plain(line).strip()}
    assert rows["qkv"][3:] == "## " + " " * 9 and rows["down"][3:].isspace()


def test_the_mean_of_a_matrix_stands_beside_it() -> None:
    lines = [plain(line) for line in draw_heat(errors_of(5), 5, NAMES, 60, 9)]
    assert next(line for line in lines if line.startswith("down")).endswith("3 %")


def test_more_layers_than_room_share_a_place_and_show_its_worst() -> None:
    errors = [LayerError(at, "o", 0.9 if at == 7 else 0.1) for at in range(90)]
    lines = [plain(line) for line in draw_heat(errors, 90, NAMES, 45, 9, plain=True)]
    row = next(line for line in lines if line.startswith("o "))
    # 30 places of three layers each; layer 7 is in the third.
    assert row[9:39] == ".." + "#" + "." * 27


def test_the_embedding_is_told_in_figures_and_is_no_layer() -> None:
    errors = [*errors_of(2), LayerError(-1, "embedding", 0.5)]
    assert worst(errors) == LayerError(1, "qkv", 0.02)
    lines = [plain(line) for line in draw_heat(errors, 2, NAMES, 60, 9)]
    assert any(line.startswith("embedding") and line.endswith("50 %") for line in lines)


def test_equal_errors_have_one_shade() -> None:
    scale = plain(draw_scale(0.1, 0.1, "from", 60))
    assert scale.count("%") == 1


@pytest.mark.parametrize("names", [NAMES, ZH], ids=["en", "zh"])
@pytest.mark.parametrize("columns", [56, 76, 116, 196])
@pytest.mark.parametrize("rows", [9, 14])
@pytest.mark.parametrize("layers", [1, 30, 80])
def test_every_line_fits(names: dict[str, str], columns: int, rows: int, layers: int) -> None:
    lines = draw_heat([*errors_of(layers), LayerError(-1, "embedding", 0.1)], layers, names,
                      columns, rows)  # fmt: skip
    assert len(lines) <= rows
    assert all(cells(line) <= columns for line in lines)


def test_shades_are_drawn_in_the_order_of_errors() -> None:
    found = [shade_of(0.01 * at, 0.01, 0.3) for at in range(1, 31)]
    assert all(left <= right for left, right in pairwise(found)) and set(found) == set(range(5))
