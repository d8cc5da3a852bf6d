"""The set-up files agree with one another: what is promised to a newcomer is what is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def constraints() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {pin.name.lower().replace("_", "-"): pin for pin in pins}


def requirements(extras: tuple[str, ...]) -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *(text for name in extras for text in optional[name])]
    return [Requirement(text) for text in texts]


def test_everything_that_make_installs_is_pinned_inside_its_range():
    pins = constraints()
    for wanted in requirements(("dev", "oracle", "report")):
        pin = pins[wanted.name.lower().replace("_", "-")]
        (only,) = pin.specifier
        assert only.operator == "==", pin
        assert wanted.specifier.contains(only.version), (str(wanted), str(pin))


@pytest.mark.parametrize("name", ["torch", "textual", "plotext"])
def test_the_pins_that_the_game_depends_on_stand(name):
    exact = {"torch": "2.13.0", "textual": "8.2.8", "plotext": "5.3.2"}
    assert str(constraints()[name].specifier) == f"=={exact[name]}"


def test_both_commands_install_through_the_constraints_and_test_includes_check():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = [line for line in makefile.splitlines() if "$(PIP)" in line]
    assert len(installs) == 2
    assert re.search(r"^PIP := .*-c constraints\.txt", makefile, re.M)
    assert re.search(r"^test: check model$", makefile, re.M)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_packages_have_the_names_of_their_folders():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = data["tool"]["importlinter"]["root_packages"]
    assert all((ROOT / name / "__init__.py").is_file() for name in listed)


def test_every_data_file_of_a_package_travels_with_it():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = data["tool"]["setuptools"]["package-data"]
    carried = {
        file
        for package, globs in patterns.items()
        for glob in globs
        for file in (ROOT / package.replace(".", "/")).glob(glob)
    }
    rooms = data["tool"]["importlinter"]["root_packages"]
    present = {
        file
        for room in rooms
        for file in (ROOT / room).rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc")
    }
    assert carried == present
