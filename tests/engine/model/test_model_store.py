"""A model is found by every name a player may give it, and refused with a reason."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from engine.model import store
from engine.model.errors import ModelError
from engine.model.fetch import default_path
from engine.model.hub import fetch_from_hub
from engine.model.store import ModelSource, add_model, find_model, list_models
from engine.paths import models_home

pytestmark = pytest.mark.usefixtures("own_cache")


def test_default_is_found_once_it_was_fetched() -> None:
    with pytest.raises(ModelError, match="latency-wall model fetch"):
        find_model("default")
    assert list_models() == ()
    models_home().mkdir(parents=True)
    default_path().write_bytes(b"GGUF")
    expected = ModelSource("gguf", default_path(), "SmolLM2-135M-Instruct")
    assert find_model("default") == expected
    assert find_model(expected.name) == expected
    assert list_models() == (expected,)


def test_paths_are_found(tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf().write(tmp_path / "Tiny Model.gguf")
    assert find_model(str(path)) == ModelSource("gguf", path, "Tiny Model")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert find_model(str(folder)) == ModelSource("folder", folder, "folder")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("weights.bin", "pickle"),
        ("weights.pt", "pickle"),
        ("model.safetensors", "name the folder"),
        ("notes.txt", "no model"),
        ("plain/", "without config.json"),
    ],
)
def test_things_that_are_no_models(name: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    else:
        path.touch()
    with pytest.raises(ModelError, match=words):
        find_model(str(path))


@pytest.mark.parametrize(
    "spec",
    ["", "nothing", "no/such/path.gguf", "\x1b[2Jevil", "x" * 5_000, "a\0b", "~nobody-here/x"],
)
def test_unknown_names_get_the_known_ones(spec: str) -> None:
    with pytest.raises(ModelError, match="known names: default") as caught:
        find_model(spec)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_added_models_are_remembered_by_name(tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf().write(tmp_path / "My Tiny (v1).gguf")
    added = add_model(path)
    assert added == ModelSource("gguf", path, "My-Tiny-v1")
    assert find_model("My-Tiny-v1") == added
    assert list_models() == (added,)
    assert add_model(str(path)) == added  # again changes nothing
    named = add_model(path, name="tiny")
    assert find_model("tiny") == named
    assert [source.name for source in list_models()] == ["My-Tiny-v1", "tiny"]
    with pytest.raises(ModelError, match="nearest: tiny"):
        find_model("tyni")


def test_a_name_means_one_model(tiny_gguf, tmp_path: Path) -> None:
    first = tiny_gguf().write(tmp_path / "first.gguf")
    second = tiny_gguf(tied=False).write(tmp_path / "second.gguf")
    add_model(first, name="tiny")
    with pytest.raises(ModelError, match=r"already names .*first\.gguf"):
        add_model(second, name="tiny")
    assert find_model("tiny").path == first


@pytest.mark.parametrize(
    "name", ["default", "SmolLM2-135M-Instruct", "../up", "a/b", ".hidden", "", "x" * 65, "a b"]
)
def test_names_that_are_not_legal(name: str, tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf().write(tmp_path / "…….gguf")  # leaves no name of its own either
    with pytest.raises(ModelError, match="cannot name a model"):
        add_model(path, name=name)
    assert list_models() == ()


def test_only_models_that_can_be_read_are_added(tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf(without={"output_norm.weight"}).write(tmp_path / "broken.gguf")
    with pytest.raises(ModelError, match=r"broken\.gguf.*output_norm"):
        add_model(path)
    with pytest.raises(ModelError, match="is missing"):
        add_model(tmp_path / "nothing.gguf")
    assert list_models() == ()


def test_a_model_that_went_away_is_said_to_be_gone(tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf().write(tmp_path / "tiny.gguf")
    add_model(path)
    path.unlink()
    assert list_models() == ()
    with pytest.raises(ModelError, match="nothing is any more"):
        find_model("tiny")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"kind": "gguf"}', '{"kind": "x", "path": "/"}']
)
def test_a_damaged_entry_is_named_and_harms_no_other(
    content: str, tiny_gguf, tmp_path: Path
) -> None:
    good = add_model(tiny_gguf().write(tmp_path / "good.gguf"))
    (models_home() / "added" / "bad.json").write_text(content)
    assert list_models() == (good,)
    with pytest.raises(ModelError, match=r"bad\.json"):
        find_model("bad")


def test_an_added_name_wins_over_a_file_and_a_path_over_a_name(
    tiny_gguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = add_model(tiny_gguf().write(tmp_path / "tiny.gguf"), name="same")
    (tmp_path / "same").mkdir()
    (tmp_path / "same" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert find_model("same") == added
    assert find_model("./same").kind == "folder"


class Hub(types.ModuleType):
    """The hub's client, as far as it is used."""

    def __init__(self, folder: Path | None, error: Exception | None = None) -> None:
        super().__init__("huggingface_hub")
        self.folder, self.error, self.asked = folder, error, {}

    def snapshot_download(self, repository: str, **options: object) -> str:
        self.asked = {"repository": repository, **options}
        if self.error is not None:
            raise self.error
        return str(self.folder)


def test_hub_models_are_fetched_by_the_hubs_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert find_model("hub:org/a.model-1") == ModelSource("folder", tmp_path, "org/a.model-1")
    assert hub.asked["repository"] == "org/a.model-1"
    assert hub.asked["revision"] is None
    fetch_from_hub("org/name@v1.0")
    assert (hub.asked["repository"], hub.asked["revision"]) == ("org/name", "v1.0")
    wanted = hub.asked["allow_patterns"]
    assert isinstance(wanted, list)
    assert "*.safetensors" in wanted
    assert not any(".bin" in pattern or pattern == "*" for pattern in wanted)


@pytest.mark.oracle
def test_hub_models_can_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(tmp_path))
    added = add_model("hub:org/tiny-1.5@main")
    assert added == ModelSource("folder", tmp_path, "tiny-1.5")
    assert find_model("tiny-1.5") == added


def test_hub_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(None, ConnectionError("no \x1b[31mroute\x1b[0m to host"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(ModelError, match="no route to host.*name its folder"):
        find_model("hub:org/name")


def test_hub_client_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"latency-wall\[hub\]"):
        find_model("hub:org/name")


@pytest.mark.parametrize("name", ["", "name", "org/../up", "/name", "a/b/c", "org/na me", "org/n@"])
def test_hub_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ModelError, match="no hub name"):
        find_model(f"hub:{name}")


def test_store_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, engine.model.store, engine.model.fetch;"
        "engine.model.store.list_models();"
        "print([m for m in ('torch', 'numpy', 'gguf', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names() -> None:
    assert store.ModelError is ModelError
