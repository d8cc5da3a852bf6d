"""The tokenizer that a GGUF file carries in its metadata.

Two kinds are read, as llama.cpp names them: "gpt2", byte-level BPE with its merges, and "llama",
SentencePiece BPE, whose merges follow from the scores of its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from engine.model.byte_alphabet import spelled_bytes
from engine.model.chat_template import CHATML, ChatTemplate
from engine.model.errors import fault
from engine.model.gguf_header import GGUFHeader
from engine.model.sentencepiece import SPACE, merges_from_scores, piece_bytes
from engine.model.tokenizer import SpecialToken, Tokenizer, Vocabulary

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6

# How each vocabulary's makers cut text before merging. The first alternative that matches wins:
# contractions, words, numbers, punctuation, line ends, other white space.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_WORDS}|\p{{N}}|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Control tokens that end an answer, whatever the file names as its end token: chat models end a
# turn with one and a text with another, and a file has room for one of them.
_END_NAMES = frozenset(
    {"<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "</s>"}
)
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True)
class _PreTokenizer:
    """How text is cut before merging; `whole_words` takes a cut that is a token as that token."""

    build: Callable[[], pre_tokenizers.PreTokenizer]
    whole_words: bool = False
    composes: bool = False


def _split(pattern: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    return lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_PRE_TOKENIZERS: Mapping[str, _PreTokenizer] = {
    "smollm": _PreTokenizer(_smollm),
    "gpt-2": _PreTokenizer(_gpt2),
    "default": _PreTokenizer(_gpt2),
    "llama-bpe": _PreTokenizer(_split(_LLAMA3), whole_words=True),
    "qwen2": _PreTokenizer(_split(_QWEN2), composes=True),
    "deepseek-r1-qwen": _PreTokenizer(_split(_QWEN2), composes=True),
    "tekken": _PreTokenizer(_split(_TEKKEN), whole_words=True),
}


def gguf_tokenizer(header: GGUFHeader) -> Tokenizer:
    """Build the tokenizer of a GGUF file.

    Raises:
        ModelError: a kind of tokenizer that is not supported, or metadata that contradicts itself.
    """
    kind = header.text("tokenizer.ggml.model")
    tokens = header.texts("tokenizer.ggml.tokens")
    types = _types(header, tokens)
    special = _special_tokens(header, tokens, types)
    if kind == "gpt2":
        vocabulary = _byte_level(header, tokens, types, special)
    elif kind == "llama":
        vocabulary = _sentencepiece(header, tokens, types, special)
    else:
        raise fault(header.path, f"has a tokenizer of kind {kind!r}; supported: gpt2, llama")
    template = ChatTemplate(
        header.text("tokenizer.chat_template", CHATML),
        bos_token=_named_token(header, tokens, "bos_token_id"),
        eos_token=_named_token(header, tokens, "eos_token_id"),
    )
    return Tokenizer(vocabulary, template)


def _types(header: GGUFHeader, tokens: Sequence[str]) -> Sequence[float]:
    if len(set(tokens)) != len(tokens):
        raise fault(header.path, "lists a token twice in 'tokenizer.ggml.tokens'")
    key = "tokenizer.ggml.token_type"
    types = header.numbers(key) if key in header.metadata else (1,) * len(tokens)
    if len(types) != len(tokens):
        raise fault(header.path, f"gives {len(types)} token types for {len(tokens)} tokens")
    return types


def _special_tokens(
    header: GGUFHeader, tokens: Sequence[str], types: Sequence[float]
) -> tuple[SpecialToken, ...]:
    """Tokens typed as control, and those that begin or end a text whatever their type."""
    ids = {index for index, kind in enumerate(types) if kind == _CONTROL and tokens[index]}
    for key in ("bos_token_id", *_END_KEYS):
        index = _token_id(header, tokens, key)
        if index is not None and tokens[index]:
            ids.add(index)
    return tuple(SpecialToken(index, tokens[index]) for index in sorted(ids))


def _token_id(header: GGUFHeader, tokens: Sequence[str], key: str) -> int | None:
    full = f"tokenizer.ggml.{key}"
    if full not in header.metadata:
        return None
    index = header.integer(full)
    if not 0 <= index < len(tokens):
        raise fault(header.path, f"{full} is {index}; its {len(tokens)} tokens start at 0")
    return index


def _named_token(header: GGUFHeader, tokens: Sequence[str], key: str) -> str:
    index = _token_id(header, tokens, key)
    return "" if index is None else tokens[index]


def _ends(
    header: GGUFHeader, tokens: Sequence[str], special: Sequence[SpecialToken]
) -> frozenset[int]:
    named = {_token_id(header, tokens, key) for key in _END_KEYS} - {None}
    by_text = {token.id for token in special if token.text in _END_NAMES}
    return frozenset(index for index in named | by_text if index is not None)


def _first_token(header: GGUFHeader, tokens: Sequence[str], by_default: bool) -> int | None:
    adds = header.flag("tokenizer.ggml.add_bos_token", by_default)
    return _token_id(header, tokens, "bos_token_id") if adds else None


def _byte_level(
    header: GGUFHeader,
    tokens: Sequence[str],
    types: Sequence[float],
    special: tuple[SpecialToken, ...],
) -> Vocabulary:
    name = header.text("tokenizer.ggml.pre", "default")
    pre = _PRE_TOKENIZERS.get(name)
    if pre is None:
        known = ", ".join(_PRE_TOKENIZERS)
        raise fault(header.path, f"cuts its text by the rule {name!r}; supported: {known}")
    control = {token.id for token in special}
    merges = []
    for merge in header.texts("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        merges.append((left, right))
    encoder = _bpe(
        header,
        {token: index for index, token in enumerate(tokens) if index not in control},
        merges,
        ignore_merges=pre.whole_words,
    )
    encoder.pre_tokenizer = pre.build()
    if pre.composes:
        encoder.normalizer = normalizers.NFC()
    _add_user_defined(encoder, tokens, types)
    return Vocabulary(
        first=encoder,
        later=encoder,
        token_bytes=tuple(
            b"" if index in control else spelled_bytes(token) for index, token in enumerate(tokens)
        ),
        special=special,
        eos_ids=_ends(header, tokens, special),
        bos_id=_first_token(header, tokens, by_default=pre.whole_words),
    )


def _sentencepiece(
    header: GGUFHeader,
    tokens: Sequence[str],
    types: Sequence[float],
    special: tuple[SpecialToken, ...],
) -> Vocabulary:
    scores = header.numbers("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise fault(header.path, f"gives {len(scores)} scores for {len(tokens)} tokens")
    control = {token.id for token in special}
    unknown = next((tokens[i] for i, kind in enumerate(types) if kind == _UNKNOWN), None)
    vocab = {token: index for index, token in enumerate(tokens) if index not in control}
    mergeable = {
        token: scores[index]
        for token, index in vocab.items()
        if types[index] not in (_UNKNOWN, _USER_DEFINED, _UNUSED, _BYTE)
    }
    byte_tokens = sum(kind == _BYTE for kind in types)
    if byte_tokens not in (0, 256):
        raise fault(header.path, f"has {byte_tokens} byte tokens; a vocabulary has none or 256")
    encoder = _bpe(
        header,
        vocab,
        merges_from_scores(mergeable),
        unk_token=unknown if unknown in vocab else None,
        fuse_unk=True,
        byte_fallback=byte_tokens == 256,
    )
    spaced = header.flag("tokenizer.ggml.add_space_prefix", True)
    replace = normalizers.Replace(" ", SPACE)
    encoder.normalizer = (
        normalizers.Sequence([normalizers.Prepend(SPACE), replace]) if spaced else replace
    )
    _add_user_defined(encoder, tokens, types)
    return Vocabulary(
        first=encoder,
        later=encoder,
        token_bytes=tuple(
            b"" if index in control else piece_bytes(token) for index, token in enumerate(tokens)
        ),
        special=special,
        eos_ids=_ends(header, tokens, special),
        bos_id=_first_token(header, tokens, by_default=True),
        drops_first_space=spaced,
    )


def _bpe(
    header: GGUFHeader,
    vocab: dict[str, int],
    merges: list[tuple[str, str]],
    unk_token: str | None = None,
    fuse_unk: bool = False,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> tokenizers.Tokenizer:
    for left, right in merges:
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise fault(header.path, f"merges {left!r} and {right!r}, not all of them its tokens")
    model = models.BPE(
        vocab=vocab,
        merges=merges,
        unk_token=unk_token,
        fuse_unk=fuse_unk,
        byte_fallback=byte_fallback,
        ignore_merges=ignore_merges,
    )
    return tokenizers.Tokenizer(model)


def _add_user_defined(
    encoder: tokenizers.Tokenizer, tokens: Sequence[str], types: Sequence[float]
) -> None:
    """Tokens such as <think>, found whole in any text; they command nothing."""
    encoder.add_tokens(
        [
            AddedToken(token, normalized=False, special=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == _USER_DEFINED and token
        ]
    )
