"""Quantised weights on disk: what is read is what was written, or it is made again."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from small_models import small_config, small_recipe, small_tensors
from torch import Tensor

from engine.model.config import ModelConfig
from engine.paths import cache_home
from engine.quant import press, weight_file
from engine.quant.qat import train_layer
from engine.quant.quantise import quantise
from engine.quant.store import (
    FinishedLayers,
    make_room,
    quantised_home,
    quantised_weights,
    read,
    write,
)
from engine.quant.weights import QuantisedWeights
from engine.recipe import Recipe, matrices
from engine.weight_format import matrix_bytes


class Stopped(Exception):
    pass


@dataclass
class Letters:
    """A tokenizer of 96 letters that counts how often it is asked."""

    asked: int = 0

    def encode(self, text: str) -> list[int]:
        self.asked += 1
        return [ord(letter) % 96 for letter in text[:400]]


@dataclass
class Loaded:
    config: ModelConfig = field(default_factory=lambda: small_config(family="qwen2", qkv_bias=True,
                                                                     kv_heads=4))  # fmt: skip
    digest: str = "d" * 64
    tokenizer: Letters = field(default_factory=Letters)
    told: int = 0

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        return small_tensors(self.config)

    def weights(self, recipe: Recipe, folder: Path | None, **options: object) -> QuantisedWeights:
        def pressed(*_: object) -> None:
            self.told += 1

        return quantised_weights(
            self,
            recipe,
            "bfloat16",
            on_pressed=pressed,
            folder=folder,
            **options,  # type: ignore[arg-type]
        )


def awq(config: ModelConfig, **knobs: object) -> Recipe:
    return small_recipe(config, **{"bits": 4, "method": "awq", "calibration": 200, **knobs})


def assert_same(one: QuantisedWeights, other: QuantisedWeights) -> None:
    assert one.grids.keys() == other.grids.keys() and one.tensors.keys() == other.tensors.keys()
    for name, grid in one.grids.items():
        read_back = other.grids[name]
        assert read_back.scheme == grid.scheme
        assert torch.equal(read_back.codes, grid.codes)
        assert torch.equal(read_back.scale, grid.scale)
        if grid.zero is None:
            assert read_back.zero is None
        else:
            assert read_back.zero is not None and torch.equal(read_back.zero, grid.zero)
    for name, tensor in one.tensors.items():
        assert other.tensors[name].dtype == tensor.dtype and torch.equal(
            other.tensors[name], tensor
        )


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
@pytest.mark.parametrize("symmetric", ["on", "off"])
def test_what_is_read_is_what_was_written(tmp_path: Path, bits: int, symmetric: str) -> None:
    loaded = Loaded()
    recipe = awq(loaded.config, bits=bits, symmetric=symmetric, edges=3)
    made = loaded.weights(recipe, tmp_path)
    assert made.tensors.keys() >= {"layers.0.attention_norm", "layers.1.v_bias"}
    found = loaded.weights(recipe, tmp_path)
    assert_same(made, found)
    assert (found.report.cached, found.report.seconds) == (True, 0.0)
    assert not made.report.cached
    told_apart = {"cached": False, "seconds": made.report.seconds}
    assert msgspec.structs.replace(found.report, **told_apart) == made.report


def test_weights_on_disk_are_not_made_again(tmp_path: Path) -> None:
    loaded = Loaded()
    recipe = awq(loaded.config)
    loaded.weights(recipe, tmp_path)
    asked, told = loaded.tokenizer.asked, loaded.told
    loaded.weights(recipe, tmp_path)
    assert (loaded.tokenizer.asked, loaded.told) == (asked, told) == (1, 12)


def test_another_model_recipe_or_precision_is_another_file(tmp_path: Path) -> None:
    loaded, other = Loaded(), Loaded(digest="e" * 64)
    recipe = awq(loaded.config)
    for model in (loaded, other):
        for wanted in (recipe, awq(loaded.config, calibration=150)):
            quantised_weights(model, wanted, "bfloat16", folder=tmp_path)
    quantised_weights(loaded, recipe, "float32", folder=tmp_path)
    names = {path.stem for path in tmp_path.iterdir()}
    assert len(names) == 5 and recipe.digest("d" * 64, "float32") in names


def test_rounding_asks_for_no_text(tmp_path: Path) -> None:
    loaded = Loaded()
    loaded.weights(small_recipe(loaded.config, bits=4), tmp_path)
    assert loaded.tokenizer.asked == 0


def test_a_file_takes_the_bytes_of_its_codes_scales_and_zeros(tmp_path: Path) -> None:
    loaded = Loaded(config=small_config())
    recipe = small_recipe(loaded.config, bits=3, embedding=3)
    loaded.weights(recipe, tmp_path)
    (path,) = tmp_path.iterdir()
    held = sum(
        matrix_bytes(matrix.scheme, matrix.rows, matrix.columns, "packed", 2)
        for matrix in matrices(recipe, loaded.config)
        if matrix.scheme is not None
    )
    header = 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]
    assert path.stat().st_size - header == held


def test_the_cache_lies_with_the_engines_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))
    loaded = Loaded()
    loaded.weights(awq(loaded.config), None)
    assert quantised_home().parent == cache_home() == tmp_path / "cache"
    assert len(list(quantised_home().glob("*.safetensors"))) == 1


# Files that are not what they should be

Damage = Callable[[Path], None]


def _flip(place: Callable[[bytes], int]) -> Damage:
    def damage(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        whole[place(bytes(whole))] ^= 0x10
        path.write_bytes(whole)

    return damage


def _rewrite(change: Callable[[dict[str, Tensor], dict[str, str]], None]) -> Damage:
    def damage(path: Path) -> None:
        with safe_open(path, framework="pt") as file:
            about = file.metadata()
        tensors = load_file(path)
        change(tensors, about)
        save_file({name: tensor.clone() for name, tensor in tensors.items()}, path, about)

    return damage


def _truncate(path: Path) -> None:
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size * 2 // 3)


def _claim_much(path: Path) -> None:
    """A header that says a tensor has 2^40 bytes."""
    header = json.dumps({"codes/embedding": {"dtype": "U8", "shape": [1 << 20, 1 << 20],
                                             "data_offsets": [0, 1 << 40]}}).encode()  # fmt: skip
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def _take_away(tensors: dict[str, Tensor], _: dict[str, str]) -> None:
    del tensors["scale/layers.1.o"]


def _double(tensors: dict[str, Tensor], _: dict[str, str]) -> None:
    tensors["scale/layers.1.o"] = tensors["scale/layers.1.o"] * 2


def _turn(tensors: dict[str, Tensor], _: dict[str, str]) -> None:
    tensors["codes/layers.1.o"] = tensors["codes/layers.1.o"].T.contiguous()


def _widen(tensors: dict[str, Tensor], _: dict[str, str]) -> None:
    tensors["zero/layers.1.o"] = tensors["zero/layers.1.o"].float()


def _add(name: str) -> Damage:
    return _rewrite(lambda tensors, _: tensors.update({name: torch.zeros(1)}))


def _headed(**words: str) -> Damage:
    return _rewrite(lambda _, about: about.update(words))


DAMAGES: Mapping[str, Damage] = {
    "empty": lambda path: path.write_bytes(b"") and None,
    "no safetensors": lambda path: path.write_bytes(b"GGUF" * 99) and None,
    "truncated": _truncate,
    "a bit of the last tensor": _flip(lambda whole: len(whole) - 1),
    "a bit in the middle": _flip(lambda whole: len(whole) // 2),
    "a letter of the report": _flip(lambda whole: whole.index(b"changed_layers") + 2),
    "a claim of a terabyte": _claim_much,
    "another format": _headed(format="latency-wall quantised 0"),
    "a report of another time": _headed(report="{}"),
    "no digest": _headed(digest=""),
    "a tensor more": _add("x"),
    "a tensor that no model has": _add("tensor/layers.9.up"),
    "a tensor less": _rewrite(_take_away),
    "a scale changed": _rewrite(_double),
    "another shape": _rewrite(_turn),
    "another type": _rewrite(_widen),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_and_made_again(tmp_path: Path, damage: str) -> None:
    loaded = Loaded()
    recipe = awq(loaded.config)
    made = loaded.weights(recipe, tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    DAMAGES[damage](path)
    assert read(path, loaded.config, recipe) is None
    again = loaded.weights(recipe, tmp_path)
    assert_same(made, again)
    assert not again.report.cached and loaded.told == 24
    assert len(path.read_bytes()) == len(whole)
    assert read(path, loaded.config, recipe) is not None


def test_a_file_under_anothers_name_is_refused(tmp_path: Path) -> None:
    """Of the same shapes, so that its name alone tells."""
    loaded = Loaded()
    first, second = awq(loaded.config), awq(loaded.config, calibration=150)
    loaded.weights(first, tmp_path)
    (path,) = tmp_path.iterdir()
    foreign = path.with_stem(second.digest(loaded.digest, "bfloat16"))
    path.rename(foreign)
    assert read(foreign, loaded.config, second) is None


def test_a_folder_in_its_place_only_costs_the_work(tmp_path: Path) -> None:
    loaded = Loaded()
    recipe = awq(loaded.config)
    (tmp_path / f"{recipe.digest(loaded.digest, 'bfloat16')}.safetensors").mkdir()
    assert loaded.weights(recipe, tmp_path).grids
    assert not list(tmp_path.glob("*.part"))


def test_a_cache_that_cannot_be_written_only_costs_the_work(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no folder")
    loaded = Loaded()
    assert loaded.weights(awq(loaded.config), in_the_way / "quantised").grids


@pytest.mark.parametrize("error", [SafetensorError("No space left"), OSError(28, "No space left")])
def test_a_full_disk_only_costs_the_work_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(tensors: object, path: str, metadata: object) -> None:
        Path(path).write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(weight_file, "save_file", full)
    loaded = Loaded()
    assert loaded.weights(awq(loaded.config), tmp_path).grids
    assert not list(tmp_path.iterdir())


def test_a_job_that_was_stopped_leaves_nothing(tmp_path: Path) -> None:
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 30:
            raise Stopped

    loaded = Loaded()
    with pytest.raises(Stopped):
        loaded.weights(awq(loaded.config), tmp_path, check=check)
    assert not list(tmp_path.iterdir())


# Methods that take minutes


class Impatient:
    """Stops after so many checks."""

    def __init__(self, checks: int) -> None:
        self.left = checks

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stopped


def qat(config: ModelConfig) -> Recipe:
    return small_recipe(config, bits=4, method="qat", calibration=200)


def stop_after_layers(loaded: Loaded, folder: Path, layers: int) -> None:
    def check() -> None:
        if loaded.told >= 4 * layers:
            raise Stopped

    with pytest.raises(Stopped):
        loaded.weights(qat(loaded.config), folder, check=check)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> QuantisedWeights:
    """Trained at once, without a stop."""
    return Loaded().weights(qat(Loaded().config), tmp_path_factory.mktemp("at_once"))


def test_training_that_was_stopped_goes_on_where_it_was(
    whole: QuantisedWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, folder = Loaded(), tmp_path / "in two"
    stop_after_layers(loaded, folder, 2)
    (layers,) = folder.iterdir()
    assert sorted(path.name for path in layers.iterdir()) == ["0.safetensors", "1.safetensors"]
    trained: list[int] = []

    def counting(*given: object, **options: object) -> object:
        trained.append(1)
        return train_layer(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(press, "train_layer", counting)
    found = loaded.weights(qat(loaded.config), folder)
    assert len(trained) == 1  # of three layers
    assert_same(whole, found)
    assert found.report.errors == whole.report.errors
    assert [path.suffix for path in folder.iterdir()] == [".safetensors"]


def test_a_finished_layer_that_is_damaged_is_trained_again(
    whole: QuantisedWeights, tmp_path: Path
) -> None:
    loaded, folder = Loaded(), tmp_path / "in two"
    stop_after_layers(loaded, folder, 1)
    (file,) = folder.glob("*.layers/*.safetensors")
    _flip(lambda contents: len(contents) - 3)(file)
    assert_same(whole, loaded.weights(qat(loaded.config), folder))


def test_a_layer_of_another_recipe_is_not_taken(tmp_path: Path) -> None:
    config = small_config()
    made = quantise(small_tensors(config), config, small_recipe(config, bits=4))
    grids = {name: made.grids[f"layers.1.{name}"] for name in ("qkv", "o", "gate_up", "down")}
    kept = FinishedLayers(tmp_path / "a.layers", config, small_recipe(config, bits=4))
    kept.save(1, grids)
    read_back = kept.load(1)
    assert read_back is not None and torch.equal(read_back["down"].codes, grids["down"].codes)
    assert kept.load(0) is None
    other = FinishedLayers(tmp_path / "a.layers", config, small_recipe(config, bits=3))
    assert other.load(1) is None
    (tmp_path / "a.layers").rename(tmp_path / "b.layers")
    assert FinishedLayers(tmp_path / "b.layers", config, kept.recipe).load(1) is None


def test_beginning_afresh_forgets_finished_layers(tmp_path: Path) -> None:
    loaded = Loaded()
    stop_after_layers(loaded, tmp_path, 1)
    with pytest.raises(Stopped):
        loaded.weights(qat(loaded.config), tmp_path, check=Impatient(0), fresh=True)
    assert not list(tmp_path.iterdir())


# Room


def old_file(folder: Path, name: str, size: int, age: float) -> Path:
    path = folder / name
    path.write_bytes(b"\0" * size)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_whoever_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    files = [old_file(tmp_path, f"{age}.safetensors", 100, age) for age in (50, 40, 30, 20)]
    make_room(tmp_path, 250, files[3])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["20.safetensors", "30.safetensors"]


def test_what_was_just_written_stays_even_alone_too_large(tmp_path: Path) -> None:
    files = [old_file(tmp_path, f"{age}.safetensors", 100, age) for age in (50, 40)]
    make_room(tmp_path, 10, files[0])
    assert list(tmp_path.iterdir()) == [files[0]]


def test_only_its_own_files_are_removed(tmp_path: Path) -> None:
    note = old_file(tmp_path, "note.txt", 1000, 9e6)
    young = old_file(tmp_path, "a.part", 1000, 60)
    stale = old_file(tmp_path, "b.part", 1000, 7200)
    folders = {}
    for name, age in (("young", 86_400), ("old", 9e6)):
        folders[name] = tmp_path / f"{name}.layers"
        folders[name].mkdir()
        os.utime(folders[name], (time.time() - age,) * 2)
    make_room(tmp_path, 0, tmp_path / "kept.safetensors")
    assert note.exists() and young.exists() and not stale.exists()
    assert folders["young"].exists() and not folders["old"].exists()


def test_reading_counts_as_using(tmp_path: Path) -> None:
    loaded = Loaded()
    first, second = awq(loaded.config), awq(loaded.config, calibration=150)
    paths = []
    for age, recipe in ((500, first), (400, second)):
        loaded.weights(recipe, tmp_path)
        path = tmp_path / f"{recipe.digest(loaded.digest, 'bfloat16')}.safetensors"
        os.utime(path, (time.time() - age,) * 2)
        paths.append(path)
    assert loaded.weights(first, tmp_path).report.cached
    third = awq(loaded.config, calibration=120)
    loaded.weights(third, tmp_path, most=2 * paths[0].stat().st_size + 4096)
    assert paths[0].exists() and not paths[1].exists()


# Several at once


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    config = small_config()
    recipe = small_recipe(config, bits=4)
    made = quantise(small_tensors(config), config, recipe)
    path = tmp_path / f"{'a' * 64}.safetensors"
    write(path, made)
    faults: list[BaseException | str] = []

    def rewrite() -> None:
        try:
            for _ in range(20):
                write(path, made)
        except BaseException as error:
            faults.append(error)

    def reread() -> None:
        for _ in range(20):
            found = read(path, config, recipe)
            if found is None:
                faults.append("nothing was read")
            else:
                assert_same(made, found)

    threads = [threading.Thread(target=work) for work in (rewrite, rewrite, reread)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


_MAKER = """
import sys
from pathlib import Path
from test_quant_store import Loaded, awq
sys.stdin.readline()
loaded = Loaded()
found = loaded.weights(awq(loaded.config), Path(sys.argv[1]))
print(int(sum(int(grid.codes.sum()) for grid in found.grids.values())))
"""


@pytest.mark.process
def test_two_processes_may_make_the_same_weights_at_once(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", _MAKER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": here, "OMP_NUM_THREADS": "1"},
        )
        for _ in range(2)
    ]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("now\n")
        maker.stdin.flush()
    told = [maker.communicate(timeout=60)[0] for maker in makers]
    assert [maker.returncode for maker in makers] == [0, 0] and told[0] == told[1]
    (path,) = tmp_path.iterdir()
    loaded = Loaded()
    found = read(path, loaded.config, awq(loaded.config))
    assert found is not None
    assert int(sum(int(grid.codes.sum()) for grid in found.grids.values())) == int(told[0])
