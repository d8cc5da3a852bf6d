"""Which matrix is quantised how: the knobs spelled out, bytes and bits by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_machines import SMOLLM2

from engine.config import EngineConfig, RunConfig, WeightsConfig
from engine.fit import weight_bytes, weight_elements
from engine.recipe import (
    Recipe,
    average_bits,
    inner_widths,
    matrices,
    read_bytes,
    recipe_of,
)
from engine.weight_format import (
    FUSED_FIRST,
    ROW,
    Scheme,
    choose_form,
    crosses,
    groups_of,
    matrix_bytes,
    nearest_group,
)

FORMS = ("int8-row", "int4-group", "int8-dynamic", "packed", "int8-blocked")
EMBEDDING = Scheme(8, ROW, symmetric=True)


def layer_schemes(weights: WeightsConfig) -> list[tuple[Scheme | None, Scheme | None]]:
    return [(one.attention, one.mlp) for one in recipe_of(weights, SMOLLM2).layers]


def test_nothing_is_quantised_unless_it_is_asked_for() -> None:
    recipe = recipe_of(WeightsConfig(), SMOLLM2)
    assert not recipe.quantises and recipe.schemes == frozenset()
    assert all(matrix.scheme is None for matrix in matrices(recipe, SMOLLM2))


@pytest.mark.parametrize(
    ("bits", "scheme"),
    [
        (8, Scheme(8, ROW, symmetric=True)),
        (4, Scheme(4, 64)),
        (3, Scheme(3, 32)),
        (2, Scheme(2, 32)),
    ],
)
def test_a_width_has_the_group_its_kernels_like_and_words_stay_at_eight(
    bits: int, scheme: Scheme
) -> None:
    recipe = recipe_of(WeightsConfig(bits), SMOLLM2)
    assert recipe.schemes == {scheme} and recipe.embedding == EMBEDDING
    assert len(recipe.layers) == 30


def test_kinds_and_edges_have_widths_of_their_own() -> None:
    build = WeightsConfig(4, attention=8, mlp=3, edges=16, edge_layers=2, embedding=16)
    found = layer_schemes(build)
    middle = (Scheme(8, ROW, symmetric=True), Scheme(3, 32))
    assert found == [(None, None)] * 2 + [middle] * 26 + [(None, None)] * 2
    assert recipe_of(build, SMOLLM2).embedding is None


def test_edges_that_meet_in_the_middle_are_all_there_is() -> None:
    found = layer_schemes(WeightsConfig(4, edges=2, edge_layers=64))
    assert set(found) == {(Scheme(2, 32), Scheme(2, 32))} and len(found) == 30


def test_one_kind_alone_leaves_the_embedding_whole() -> None:
    recipe = recipe_of(WeightsConfig(mlp=4), SMOLLM2)
    assert recipe.quantises and recipe.embedding is None
    named = [matrix.name for matrix in matrices(recipe, SMOLLM2) if matrix.scheme]
    assert named == ["gate_up", "down"] * 30


def test_smoothquant_is_eight_by_eight_by_the_row_whatever_the_symmetry_says() -> None:
    for symmetric in ("on", "off"):
        build = WeightsConfig(8, method="smoothquant", symmetric=symmetric)
        recipe = recipe_of(build, SMOLLM2)
        assert recipe.schemes == {Scheme(8, ROW, symmetric=True, activations=8)}
        assert recipe.embedding == EMBEDDING, "nobody rounds what the head multiplies"


def test_calibration_counts_for_methods_that_look_at_activations() -> None:
    assert recipe_of(WeightsConfig(4), SMOLLM2).calibration == 0
    one, other = (
        recipe_of(WeightsConfig(4, method="awq", calibration=tokens), SMOLLM2)
        for tokens in (512, 4096)
    )
    assert (one.calibration, other.calibration) == (512, 4096)
    assert one.digest("m", "bfloat16") != other.digest("m", "bfloat16")


def test_a_digest_names_model_recipe_and_precision_and_nothing_else() -> None:
    recipe = recipe_of(WeightsConfig(4), SMOLLM2)
    same = recipe_of(WeightsConfig(4, crossover=0, calibration=99), SMOLLM2)
    assert recipe.digest("m", "bfloat16") == same.digest("m", "bfloat16")
    changed = {
        recipe.digest("m", "bfloat16"),
        recipe.digest("n", "bfloat16"),
        recipe.digest("m", "float32"),
        recipe_of(WeightsConfig(4, group=32), SMOLLM2).digest("m", "bfloat16"),
        recipe_of(WeightsConfig(4, symmetric="on"), SMOLLM2).digest("m", "bfloat16"),
        msgspec.structs.replace(recipe, version=99).digest("m", "bfloat16"),
    }
    assert len(changed) == 6
    again = msgspec.json.decode(msgspec.json.encode(recipe), type=Recipe)
    assert again == recipe and again.digest("m", "bfloat16") == recipe.digest("m", "bfloat16")


def test_the_default_model_s_matrices_are_those_it_multiplies_by() -> None:
    found = list(matrices(recipe_of(WeightsConfig(4), SMOLLM2), SMOLLM2))
    shapes = {matrix.name: (matrix.rows, matrix.columns) for matrix in found}
    assert shapes == {
        "qkv": (960, 576),
        "o": (576, 576),
        "gate_up": (3072, 576),
        "down": (576, 1536),
        "embedding": (49_152, 576),
    }
    assert sum(matrix.elements for matrix in found) == weight_elements(SMOLLM2) == 134_479_872
    untied = msgspec.structs.replace(SMOLLM2, tied_head=False)
    assert weight_elements(untied) - weight_elements(SMOLLM2) == 49_152 * 576


# Bytes


def test_bytes_of_the_default_model_at_four_bits_by_hand() -> None:
    """106 million weights at half a byte, a scale and a zero of two bytes for 64 of them; the
    embedding at a byte, a scale and oneDNN's sum for each of its rows."""
    layers = 30 * SMOLLM2.layer_matrix_elements
    table = 49_152 * (576 + 2 + 4)
    norms = (2 * 30 + 1) * (576 + 1) * 4
    by_hand = layers // 2 + layers // 64 * 4 + table + norms
    recipe = recipe_of(WeightsConfig(4), SMOLLM2)
    assert weight_bytes(SMOLLM2, 2, True, recipe, FORMS) == by_hand
    assert weight_bytes(SMOLLM2, 2, False, recipe, FORMS) == by_hand, "held once, packed or not"
    config = EngineConfig(run=RunConfig("bfloat16"), weights=WeightsConfig(4))
    assert average_bits(config, SMOLLM2, FORMS) == pytest.approx(
        8 * (by_hand - norms) / 134_479_872
    )
    assert read_bytes(recipe, SMOLLM2, 2, FORMS) == by_hand - norms


def test_an_untied_head_is_read_in_every_step_and_the_embedding_is_not() -> None:
    untied = msgspec.structs.replace(SMOLLM2, tied_head=False)
    recipe = recipe_of(WeightsConfig(4, embedding=16), untied)
    tied = read_bytes(recipe_of(WeightsConfig(4, embedding=16), SMOLLM2), SMOLLM2, 2, FORMS)
    assert read_bytes(recipe, untied, 2, FORMS) == tied


def test_a_full_build_reads_every_matrix_in_its_precision() -> None:
    recipe = recipe_of(WeightsConfig(), SMOLLM2)
    for size in (2, 4):
        assert read_bytes(recipe, SMOLLM2, size, FORMS) == size * SMOLLM2.matrix_elements


@pytest.mark.parametrize(
    ("scheme", "form", "row"),
    [
        (Scheme(8, ROW, symmetric=True), "int8-row", 100 + 2),
        (Scheme(4, 20), "packed", 50 + 5 * 4),
        (Scheme(4, 20, symmetric=True), "packed", 50 + 5 * 2),
        (Scheme(4, 20, symmetric=True), "int4-group", 50 + 5 * 4),  # zeros of 0 are kept as well
        (Scheme(3, 50), "packed", 38 + 2 * 4),  # 300 bits in 38 bytes
        (Scheme(2, ROW), "packed", 25 + 4),
    ],
)
def test_bytes_of_a_row(scheme: Scheme, form: str, row: int) -> None:
    assert matrix_bytes(scheme, 7, 100, form, 2) == 7 * row  # type: ignore[arg-type]


# Groups and forms


@given(st.integers(1, 4096), st.lists(st.integers(1, 4096), min_size=1, max_size=3))
def test_the_nearest_group_divides_every_row_and_none_that_does_is_nearer(
    wished: int, widths: list[int]
) -> None:
    found = nearest_group(wished, widths)
    divisors = [size for size in range(1, min(widths) + 1) if not any(w % size for w in widths)]
    legal = [size for size in divisors if size >= 16] or divisors
    assert found in legal
    assert min(abs(size - wished) for size in legal) == abs(found - wished)


def test_a_group_that_does_not_divide_names_one_that_does() -> None:
    with pytest.raises(ValueError, match=r"groups of 128 do not divide rows of 576.*nearest: 144"):
        groups_of(Scheme(4, 128), 576)
    assert groups_of(Scheme(4, ROW), 576) == 1 and groups_of(Scheme(4, 64), 576) == 9
    assert inner_widths(SMOLLM2) == (576, 1536)


@pytest.mark.parametrize(
    ("scheme", "forms", "form"),
    [
        (Scheme(8, ROW, symmetric=True), FORMS, "int8-row"),
        (Scheme(8, 576, symmetric=True), FORMS, "int8-row"),
        (Scheme(8, ROW), FORMS, "packed"),
        (Scheme(8, 64, symmetric=True), FORMS, "packed"),
        (Scheme(8, ROW, symmetric=True), ("packed",), "packed"),
        (Scheme(8, ROW, symmetric=True, activations=8), FORMS, "int8-dynamic"),
        # a machine without it rounds activations all the same: the values, not the speed
        (Scheme(8, ROW, symmetric=True, activations=8), ("int8-row", "packed"), "packed"),
        (Scheme(4, 64), FORMS, "int4-group"),
        (Scheme(4, 96), FORMS, "packed"),
        (Scheme(4, ROW), FORMS, "packed"),
        (Scheme(3, 32), FORMS, "packed"),
        # where the fused product is the fastest: in whole runs of 32, activations as they are
        (Scheme(4, 64), (*FORMS, FUSED_FIRST), "packed"),
        (Scheme(8, ROW, symmetric=True), (*FORMS, FUSED_FIRST), "packed"),
        (Scheme(8, 576, symmetric=True), (*FORMS, FUSED_FIRST), "packed"),
        (Scheme(4, 48), (*FORMS, FUSED_FIRST), "packed"),
        (Scheme(8, ROW, symmetric=True, activations=8), (*FORMS, FUSED_FIRST), "int8-dynamic"),
    ],
)
def test_a_form_is_the_fastest_that_can_hold_the_grid(
    scheme: Scheme, forms: tuple[str, ...], form: str
) -> None:
    assert choose_form(scheme, 960, 576, forms) == form


def test_rows_that_torch_s_int4_product_cannot_take_stay_packed() -> None:
    assert choose_form(Scheme(4, 64), 40, 576, FORMS) == "packed"


def test_a_matrix_whose_activations_are_rounded_is_never_made_dense() -> None:
    assert crosses(Scheme(8, ROW, symmetric=True)) and crosses(Scheme(4, 64))
    assert not crosses(Scheme(8, ROW, symmetric=True, activations=8))
