"""The tokenizer of a Hugging Face folder: tokenizer.json, its config, and a chat template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from engine.model.byte_alphabet import spelled_bytes
from engine.model.chat_template import CHATML, MAX_TEMPLATE_CHARACTERS, ChatTemplate
from engine.model.errors import fault
from engine.model.json_files import JSONObject, read_bounded, read_object
from engine.model.sentencepiece import piece_bytes
from engine.model.tokenizer import SpecialToken, Tokenizer, Vocabulary

MAX_TOKENIZER_BYTES = 64 * 2**20


def folder_tokenizer(folder: Path) -> Tokenizer:
    """Build the tokenizer of a Hugging Face folder.

    Raises:
        ModelError: tokenizer.json is missing, damaged, or of a kind that is not supported.
    """
    path = folder / "tokenizer.json"
    encoder, parts = _read(path, read_bounded(path, MAX_TOKENIZER_BYTES))
    settings = _optional(folder / "tokenizer_config.json")
    special = _special_tokens(parts)
    eos = _token_text(settings, "eos_token")
    bos = _token_text(settings, "bos_token")
    ids = {token.text: token.id for token in special}
    vocabulary = Vocabulary(
        first=encoder,
        later=_for_later(path, parts) or encoder,
        token_bytes=_token_bytes(path, encoder, parts, frozenset(ids.values())),
        special=special,
        eos_ids=_ends(folder) | ({ids[eos]} if eos in ids else frozenset()),
        bos_id=_first_token(encoder, settings, ids.get(bos)),
        drops_first_space=_drops_first_space(parts),
    )
    return Tokenizer(vocabulary, ChatTemplate(_template(folder, settings), bos, eos))


def _read(path: Path, raw: bytes) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """The encoder, blind to control tokens, and the JSON it was made from."""
    try:
        parts = msgspec.json.decode(raw, type=dict[str, Any])
        encoder = tokenizers.Tokenizer.from_buffer(raw)
    except RecursionError:
        raise fault(path, "nests its JSON too deep") from None
    except Exception as error:  # the library raises bare Exception for anything it cannot read
        raise fault(path, f"is not a tokenizer that can be read: {error}") from None
    encoder.encode_special_tokens = True
    encoder.no_truncation()
    encoder.no_padding()
    return encoder, parts


def _for_later(path: Path, parts: dict[str, Any]) -> tokenizers.Tokenizer | None:
    """An encoder for text after a control token, where that differs from text at the start."""
    pre_tokenizer = parts.get("pre_tokenizer")
    if not any(step.get("prepend_scheme") == "first" for step in _steps(pre_tokenizer)):
        return None
    changed = msgspec.json.decode(msgspec.json.encode(parts))
    for step in _steps(changed["pre_tokenizer"]):
        if step.get("prepend_scheme") == "first":
            step["prepend_scheme"] = "never"
    return _read(path, msgspec.json.encode(changed))[0]


def _steps(part: object) -> Iterator[dict[str, Any]]:
    """A pre-tokenizer or decoder, or those that a sequence of them is made of."""
    if not isinstance(part, dict):
        return
    inner = part.get("pretokenizers", part.get("decoders"))
    if isinstance(inner, list):
        for step in inner:
            yield from _steps(step)
    else:
        yield part


def _special_tokens(parts: dict[str, Any]) -> tuple[SpecialToken, ...]:
    """tokenizers checked the entries when it read them."""
    return tuple(
        SpecialToken(token["id"], token["content"], token["lstrip"], token["rstrip"])
        for token in parts.get("added_tokens") or ()
        if token["special"] and token["content"]
    )


def _token_bytes(
    path: Path, encoder: tokenizers.Tokenizer, parts: dict[str, Any], control: frozenset[int]
) -> tuple[bytes, ...]:
    kinds = {step.get("type") for step in _steps(parts.get("decoder"))}
    if "ByteLevel" in kinds:
        to_bytes = spelled_bytes
    elif kinds & {"Metaspace", "ByteFallback"}:
        to_bytes = piece_bytes
    else:
        shown = ", ".join(sorted(str(kind) for kind in kinds)) or "none"
        raise fault(
            path, f"has the decoder {shown}; supported: ByteLevel, or Metaspace and ByteFallback"
        )
    vocab = encoder.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocab.values(), default=-1) + 1)
    for token, index in vocab.items():
        if index not in control:
            table[index] = to_bytes(token)
    return tuple(table)


def _drops_first_space(parts: dict[str, Any]) -> bool:
    return any(
        (step.get("type") == "Strip" and step.get("start") == 1)
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme") != "never")
        for step in _steps(parts.get("decoder"))
    )


def _ends(folder: Path) -> frozenset[int]:
    """End tokens named by generation_config.json and config.json: a number, or a list of them."""
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        config = _optional(folder / name)
        value = config.values.get("eos_token_id")
        for index in value if isinstance(value, list) else [value]:
            if isinstance(index, int) and not isinstance(index, bool):
                ids.add(index)
    return frozenset(ids)


def _first_token(
    encoder: tokenizers.Tokenizer, settings: JSONObject, bos: int | None
) -> int | None:
    """The token put before a raw text: by the settings, or else by the tokenizer's own rule."""
    if settings.has("add_bos_token"):
        return bos if settings.flag("add_bos_token") else None
    ruled = encoder.encode("a", add_special_tokens=True).ids
    return bos if bos is not None and ruled[:1] == [bos] else None


def _template(folder: Path, settings: JSONObject) -> str:
    """The chat template: a file of its own, or in tokenizer_config.json, alone or by name."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return read_bounded(path, 4 * MAX_TEMPLATE_CHARACTERS).decode()
        except UnicodeDecodeError:
            raise fault(path, "is not UTF-8 text") from None
    template = settings.values.get("chat_template")
    if isinstance(template, list):
        named = {
            entry.get("name"): entry.get("template")
            for entry in template
            if isinstance(entry, dict)
        }
        template = named.get("default")
    return template if isinstance(template, str) else CHATML


def _token_text(settings: JSONObject, key: str) -> str:
    """A token is named by its text, or by an object that holds it."""
    value = settings.values.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _optional(path: Path) -> JSONObject:
    return read_object(path) if path.exists() else JSONObject(path, {})
