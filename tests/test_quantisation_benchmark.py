"""The table of quantisation tells what was measured, and marks what cannot be."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.quant.monotone import monotone
from engine.quant.quantise import METHODS
from engine.recipe import CALIBRATED

FOLDER = Path(__file__).parent.parent / "benchmarks"
ARGUMENTS = argparse.Namespace(prompt=128, output=24, threads=2, pairs=8)


@pytest.fixture(scope="module")
def table() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("quantisation", FOLDER / "quantisation.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quantisation"] = module
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("quantisation", None)


def line(table: ModuleType, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "method": "gptq",
        "bits": 4,
        "group": 64,
        "calibration": 12_288,
        "kl": 0.2,
        "top1": 0.755,
        "perplexity_ratio": 1.1,
        "megabytes": 88.5,
        "bits_held": 5.26,
        "tpot": (0.45, 11.2),
        "ttft": (1.02, 130.0),
        "changed_layers": 30,
        "seconds": 47.0,
        "notices": (),
        "kernel_path": "int4-group g64",
    }
    return table.Line(**{**fields, **changes})


def told(table: ModuleType, lines: list[Any]) -> str:
    return table.markdown(lines, monotone([one.row for one in lines]), ARGUMENTS)


def test_a_row_tells_its_figures(table: ModuleType) -> None:
    text = told(table, [line(table)])
    assert (
        "| gptq | 4 | 64 | 12,288 | 0.2000 | 75.5% | 88.5 | 5.26 | 0.45 (11.2) | 1.02 (130) "
        "| int4-group g64 |" in text
    )
    assert "**!**" not in text


def test_every_row_has_as_many_cells_as_the_head(table: ModuleType) -> None:
    rows = [row for row in told(table, [line(table)] * 2).splitlines() if row.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1 and len(rows) == 4


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"notices": ("calibration_short",), "calibration": 504}, "fewer than a layer is wide"),
        ({"kernel_path": "packed-4bit plain"}, "the kernels differ"),
        ({}, "more tokens"),
        ({"method": "rtn", "calibration": 0}, "fault in grid or packing"),
    ],
)
def test_a_finer_row_that_lost_more_is_marked_and_explained(
    table: ModuleType, changes: dict[str, Any], why: str
) -> None:
    shared = {key: changes[key] for key in ("method", "calibration") if key in changes}
    coarse = line(table, **shared)
    fine = line(table, group=32, kl=0.5, **changes)
    text = told(table, [coarse, fine])
    (marked,) = [row for row in text.splitlines() if row.startswith("|") and "**!**" in row]
    assert "| 32 |" in marked and why in text
    assert "KL 0.5000, above the 0.2000 of 4 bits, group 64" in text


def test_times_are_medians_of_ratios_pair_by_pair(table: ModuleType) -> None:
    assert table.summary([(0.01, 0.02), (0.04, 0.04), (0.03, 0.1)]) == (0.5, 30.0)
    assert table.summary([]) == (0.0, 0.0)


def test_every_method_has_rows_and_its_calibration(table: ModuleType) -> None:
    assert table.GRIDS.keys() == table.TOKENS.keys() == METHODS.keys()
    assert {method for method, tokens in table.TOKENS.items() if tokens} == CALIBRATED
    names = {field.name for field in dataclasses.fields(table.Line)}
    assert {"kl", "top1", "megabytes", "tpot", "ttft"} <= names
