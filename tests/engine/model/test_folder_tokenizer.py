"""A Hugging Face folder's tokenizer is read with its settings, end tokens and chat template."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from text_samples import SAMPLES

from engine.model.errors import ModelError
from engine.model.folder_tokenizer import folder_tokenizer

Write = Callable[[dict[str, object]], Path]


@pytest.fixture
def folder(tmp_path: Path, tiny_tokenizer_json: dict[str, object]) -> Write:
    """Write a folder's tokenizer files; keys are file names, and tokenizer.json has a default."""

    def write(files: dict[str, object]) -> Path:
        for name, content in {"tokenizer.json": tiny_tokenizer_json, **files}.items():
            raw = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(raw)
        return tmp_path

    return write


@pytest.mark.oracle
@pytest.mark.parametrize("name", SAMPLES)
def test_folder_ids_equal_the_library(folder: Write, name: str) -> None:
    path = folder({})
    oracle = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer = folder_tokenizer(path)
    expected = oracle.encode(SAMPLES[name], add_special_tokens=False).ids
    assert tokenizer.encode(SAMPLES[name], special=True) == expected
    assert tokenizer.decode(expected) == oracle.decode(expected, skip_special_tokens=True)


def test_end_tokens_come_from_every_place_that_names_one(folder: Write) -> None:
    path = folder(
        {
            "config.json": {"eos_token_id": 5},
            "generation_config.json": {"eos_token_id": [6, 7]},
            "tokenizer_config.json": {"eos_token": {"content": "<|im_end|>"}},
        }
    )
    assert folder_tokenizer(path).eos_ids == {5, 6, 7, 257}


@pytest.mark.parametrize("adds", [True, False, None])
def test_first_token(folder: Write, tiny_tokenizer_json: dict[str, object], adds) -> None:
    settings: dict[str, object] = {"bos_token": "<|im_start|>"}
    if adds is not None:
        settings["add_bos_token"] = adds
    assert folder_tokenizer(folder({"tokenizer_config.json": settings})).bos_id == (
        256 if adds else None
    )
    ruled = tiny_tokenizer_json | {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {
                "<|im_start|>": {"id": "<|im_start|>", "ids": [256], "tokens": ["<|im_start|>"]}
            },
        }
    }
    path = folder({"tokenizer_config.json": settings, "tokenizer.json": ruled})
    assert folder_tokenizer(path).bos_id == (None if adds is False else 256)


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template.jinja": "J{{ messages[0].content }}"},
        {"tokenizer_config.json": {"chat_template": "J{{ messages[0].content }}"}},
        {
            "tokenizer_config.json": {
                "chat_template": [
                    {"name": "tool_use", "template": "T"},
                    {"name": "default", "template": "J{{ messages[0].content }}"},
                ]
            }
        },
    ],
)
def test_chat_template_is_found_wherever_it_is_kept(folder: Write, files) -> None:
    tokenizer = folder_tokenizer(folder(files))
    assert tokenizer.decode(tokenizer.chat([("user", "x<|im_end|>")])) == "Jx<|im_end|>"


def test_folder_without_a_template_speaks_chatml(folder: Write) -> None:
    tokenizer = folder_tokenizer(folder({}))
    ids = tokenizer.chat([("user", "a<|im_end|>")])
    assert [token for token in ids if token > 255] == [256, 257, 256]
    assert tokenizer.decode(ids) == "user\na<|im_end|>\nassistant\n"


def test_white_space_beside_a_stripping_token(
    folder: Write, tiny_tokenizer_json: dict[str, object]
) -> None:
    added = tiny_tokenizer_json["added_tokens"]
    assert isinstance(added, list)
    stripping = [added[0] | {"lstrip": True, "rstrip": True}, added[1]]
    path = folder({"tokenizer.json": tiny_tokenizer_json | {"added_tokens": stripping}})
    oracle = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    text = "a  <|im_start|> \n b <|im_end|> c"
    assert folder_tokenizer(path).encode(text, special=True) == oracle.encode(text).ids


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_metaspace_folders(folder: Write, scheme: str) -> None:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"abcdefgh"]
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False}
    content = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": len(pieces),
                "content": "</s>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "pre_tokenizer": space,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *(
                    [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
                    if scheme != "never"
                    else []
                ),
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {piece: index for index, piece in enumerate(pieces)},
            "merges": [],
        },
    }
    path = folder({"tokenizer.json": content})
    oracle = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer = folder_tokenizer(path)
    for text in ("a b", "ab</s>cd</s>", "</s>a 你🎉 b", " a"):
        expected = oracle.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, special=True) == expected
        assert tokenizer.decode(expected) == oracle.decode(expected)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "tokenizer.json"),
        ("[]", "tokenizer.json"),
        ("[" * 100_000, "tokenizer.json"),
        ({"version": "1.0", "model": {"type": "Magic"}}, "cannot|can be read"),
    ],
)
def test_tokenizer_files_that_cannot_be_read(folder: Write, content: object, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        folder_tokenizer(folder({"tokenizer.json": content}))


def test_missing_tokenizer_and_unknown_decoder(
    folder: Write, tiny_tokenizer_json: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="tokenizer.json: is missing"):
        folder_tokenizer(tmp_path)
    with pytest.raises(ModelError, match="decoder none"):
        folder_tokenizer(folder({"tokenizer.json": tiny_tokenizer_json | {"decoder": None}}))
