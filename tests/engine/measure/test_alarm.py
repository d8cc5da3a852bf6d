"""The alarm of finer builds that lost more: which are compared, and what is clearly worse."""

from __future__ import annotations

import pytest
from known_machines import SMOLLM2

from engine.config import CacheConfig, EngineConfig, RunConfig, WeightsConfig
from engine.measure.alarm import alarm, row_of
from engine.quant.monotone import Row
from engine.weight_format import ROW


def build(precision: str = "bfloat16", kv: int = 0, **weights: object) -> EngineConfig:
    return EngineConfig(
        run=RunConfig(precision),
        cache=CacheConfig(bits=kv),
        weights=WeightsConfig(**{"bits": 4, "method": "awq", **weights}),  # type: ignore[arg-type]
    )


def row(kl: float, digest: str = "model", **settings: object) -> Row:
    found = row_of(build(**settings), SMOLLM2, digest, kl)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_row_holds_the_grid_that_runs() -> None:
    assert (row(0.1, group=32).bits, row(0.1, group=32).group, row(0.1, group=32).kl) == (
        4,
        32,
        0.1,
    )
    assert row(0.1).group == 64  # what suits four bits where nothing is said
    assert row(0.1, bits=8).group == ROW


@pytest.mark.parametrize(
    "weights",
    [
        {"bits": 0},
        {"bits": 4, "attention": 8},
        {"bits": 4, "mlp": 16},
        {"bits": 0, "mlp": 4},
        {"bits": 4, "edges": 8},
    ],
)
def test_full_and_mixed_builds_have_no_row(weights: dict[str, object]) -> None:
    assert row_of(build(**weights), SMOLLM2, "model", 0.1) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finer", "coarser"),
    [
        ({"group": 32}, {"group": 64}),
        ({"bits": 4}, {"bits": 3, "group": 64}),
        ({"bits": 4, "group": 32}, {"bits": 3, "group": 64}),
    ],
)
def test_finer_and_clearly_worse_is_noticed(
    finer: dict[str, object], coarser: dict[str, object]
) -> None:
    ours, theirs = row(0.5, **finer), row(0.2, **coarser)
    notice = alarm(ours, [theirs, ours])
    assert notice is not None and notice.code == "not_monotone"
    assert notice.details["kl"] == "0.500" and notice.details["coarser_kl"] == "0.200"
    assert notice.details["coarser_bits"] == str(theirs.bits)
    assert notice.details["coarser_group"] == str(theirs.group)
    assert alarm(theirs, [theirs, ours]) is None  # the coarser one did nothing wrong


def test_what_is_no_worse_or_only_just_is_not() -> None:
    coarse = row(0.2, group=64)
    for kl in (0.0, 0.1, 0.2, 0.205):
        assert alarm(row(kl, group=32), [coarse]) is None
    assert alarm(row(0.5, group=32), []) is None
    assert alarm(row(0.5, group=64), [coarse]) is None  # the same grid twice


@pytest.mark.parametrize(
    "other",
    [
        {"method": "gptq"},
        {"symmetric": "on"},
        {"calibration": 512},
        {"embedding": 4},
        {"precision": "float32"},
        {"kv": 8},
        {"digest": "another"},
    ],
)
def test_only_bits_and_groups_may_differ(other: dict[str, object]) -> None:
    finer = row(0.5, group=32)
    assert alarm(finer, [row(0.2, group=64)]) is not None
    assert alarm(finer, [row(0.2, group=64, **other)]) is None  # type: ignore[arg-type]


def test_calibration_says_nothing_of_a_method_that_has_none() -> None:
    plain = {"method": "rtn", "group": 64, "calibration": 512}
    assert alarm(row(0.5, method="rtn", group=32), [row(0.2, **plain)]) is not None
