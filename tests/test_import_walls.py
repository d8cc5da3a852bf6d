"""The interface stays light: nothing it imports brings in torch or numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import engine
from engine import TORCH_FREE

ROOT = Path(engine.__file__).parents[1]

HEAVY = ("torch", "numpy")
INTERFACE = ("saves", "story", "game")
DRAWING = ("textual", "rich")

LOOK = """
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
print(*sorted(set(sys.argv[1].split(",")) & set(sys.modules)))
"""


def loaded_by(modules: list[str], watched: tuple[str, ...]) -> list[str]:
    """Which of `watched` a fresh interpreter holds after importing `modules`."""
    run = subprocess.run(
        (sys.executable, "-c", LOOK, ",".join(watched), *modules),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TEXTUAL_ANIMATIONS": "none"},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def modules_of(package: str) -> list[str]:
    """The package and every module below it, from the files of the checkout under test."""
    folder = ROOT / package
    paths = [path.relative_to(ROOT).with_suffix("") for path in folder.rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    return sorted(name for name in names if not name.endswith("__main__"))


@pytest.mark.parametrize("module", TORCH_FREE)
def test_a_torch_free_module_of_the_engine_alone(module: str) -> None:
    assert loaded_by([module], (*HEAVY, *DRAWING)) == []


@pytest.mark.parametrize("package", INTERFACE)
def test_every_module_of_the_interface(package: str) -> None:
    assert loaded_by(modules_of(package), HEAVY) == []


def test_the_look_sees_what_is_there() -> None:
    """The check can fail: a module that does import numpy is caught."""
    assert loaded_by(["engine.detect"], HEAVY) == ["numpy", "torch"]


def test_engine_and_kernels_know_no_drawing() -> None:
    names = modules_of("engine") + modules_of("kernels")
    assert loaded_by(names, DRAWING) == []
