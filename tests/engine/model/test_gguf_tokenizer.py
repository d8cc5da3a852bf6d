"""A GGUF file's tokenizer cuts and merges as its makers' own does, whichever kind it is."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import tokenizers
from text_samples import SAMPLES
from tokenizers import models, pre_tokenizers, trainers

from engine.model.errors import ModelError
from engine.model.gguf_reader import read_header
from engine.model.gguf_tokenizer import gguf_tokenizer

CORPUS = [text * 3 for text in SAMPLES.values()] + ["The wall takes every bet, 12 345 678 times."]


def write_tokenizer_gguf(path: Path, metadata: dict[str, object], architecture: str) -> Path:
    """A file of metadata alone, and one tensor so that it has some."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        full = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, str):
            writer.add_string(full, value)
        elif value is not None:
            writer.add_array(full, value)
    writer.add_tensor("t", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def trained(pre: pre_tokenizers.PreTokenizer) -> tuple[list[str], list[str]]:
    """Tokens and merges learned from the samples, cut by `pre`."""
    learner = tokenizers.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    learner.train_from_iterator(CORPUS, trainer)
    model = json.loads(learner.to_str())["model"]
    return list(model["vocab"]), [" ".join(merge) for merge in model["merges"]]


def byte_level_metadata(pre_name: str, pre: pre_tokenizers.PreTokenizer) -> dict[str, object]:
    tokens, merges = trained(pre)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return {
        "model": "gpt2",
        "pre": pre_name,
        "tokens": [*tokens, *control, "<think>"],
        "token_type": [1] * len(tokens) + [3] * len(control) + [4],
        "merges": merges,
        "eos_token_id": len(tokens) + 2,
    }


def whole_text() -> pre_tokenizers.PreTokenizer:
    """Learning over whole texts makes merges across every cut, so that a wrong cut shows."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("pre_name", "architecture"),
    [("llama-bpe", "llama"), ("qwen2", "qwen2"), ("gpt-2", "llama"), ("tekken", "llama")],
)
def test_cuts_equal_those_of_transformers(pre_name: str, architecture: str, tmp_path: Path) -> None:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import (
        convert_gguf_tokenizer,
        get_gguf_tokenizer,
    )

    metadata = byte_level_metadata(pre_name, whole_text())
    path = write_tokenizer_gguf(tmp_path / "t.gguf", metadata, architecture)
    tokenizer = gguf_tokenizer(read_header(path))
    arch, parts, _ = get_gguf_tokenizer(str(path))
    oracle, _ = convert_gguf_tokenizer(arch, parts)
    for name, text in SAMPLES.items():
        if pre_name == "qwen2" and name == "mixed":
            text = text.replace("e\u0301", "é").replace("Å", "Å")  # Qwen composes first
        ids = tokenizer.encode(text + " <think>", special=True)
        merged_words = pre_name in ("llama-bpe", "tekken")
        expected = oracle.encode(text + " <think>", add_special_tokens=False).ids
        assert (
            tokenizer.decode(ids)
            == text.replace("<|im_start|>", "")
            .replace("<|im_end|>", "")
            .replace("<|endoftext|>", "")
            + " <think>"
        )
        if not merged_words:
            assert ids == expected
        else:
            # Those take a word that is a token whole, which transformers' reading leaves out.
            assert len(ids) <= len(expected)
            assert tokenizer.decode(ids) == tokenizer.decode(expected)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("I'll pay 12345 now", ["I", "'ll", " pay", " ", "123", "45", " now"]),
        ("WE'RE  two\n\n x", ["WE", "'RE", " ", " two", "\n\n", " x"]),
        ("a,b!! c", ["a", ",b", "!!", " c"]),
    ],
)
def test_llama3_cuts(text: str, pieces: list[str], tmp_path: Path) -> None:
    """Every piece is given a token of its own: what comes back is where the text was cut."""
    assert tokens_of_cut("llama-bpe", text, pieces, tmp_path) == pieces


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("I'll pay 12345", ["I", "'ll", " pay", " ", "1", "2", "3", "4", "5"]),
        ("x=1;\n", ["x", "=", "1", ";\n"]),
    ],
)
def test_qwen2_cuts(text: str, pieces: list[str], tmp_path: Path) -> None:
    encoder = read_cutter("qwen2", tmp_path)
    assert [text[a:b] for _, (a, b) in encoder.pre_tokenize_str(text)] == pieces


def read_cutter(pre_name: str, tmp_path: Path) -> pre_tokenizers.PreTokenizer:
    metadata = byte_level_metadata(pre_name, whole_text())
    path = write_tokenizer_gguf(tmp_path / "t.gguf", metadata, "llama")
    pre = gguf_tokenizer(read_header(path))._vocabulary.first.pre_tokenizer
    assert pre is not None
    return pre


def tokens_of_cut(pre_name: str, text: str, pieces: list[str], tmp_path: Path) -> list[str]:
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [level.pre_tokenize_str(piece)[0][0] for piece in dict.fromkeys(pieces)]
    tokens = [*letters, *(word for word in words if len(word) > 1)]
    metadata = {"model": "gpt2", "pre": pre_name, "tokens": [*tokens, "ab"], "merges": ["a b"]}
    path = write_tokenizer_gguf(tmp_path / "t.gguf", metadata, "llama")
    tokenizer = gguf_tokenizer(read_header(path))
    return [tokenizer.decode([token]) for token in tokenizer.encode(text)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "bert"}, "'bert'.*gpt2, llama"),
        ({"pre": "viking"}, "'viking'.*smollm"),
        ({"merges": None}, "merges.*missing"),
        ({"merges": ["a b", "zz yy"]}, "'zz'"),
        ({"merges": ["nospace"]}, "'nospace'"),
        ({"token_type": [1, 1]}, "2 token types"),
        ({"eos_token_id": 10**6}, "eos_token_id is 1000000"),
        ({"tokens": ["a", "b", "a"], "token_type": None}, "twice"),
        ({"tokens": [1, 2, 3]}, "texts"),
    ],
)
def test_metadata_that_contradicts_itself(
    changes: dict[str, object], words: str, tmp_path: Path
) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    metadata: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*letters, "ab"],
        "merges": ["a b"],
    }
    path = write_tokenizer_gguf(tmp_path / "t.gguf", metadata | changes, "llama")
    with pytest.raises(ModelError, match=words):
        gguf_tokenizer(read_header(path))


@pytest.fixture(scope="module")
def sentencepiece_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece BPE model with byte fallback, trained on the samples by its own library."""
    spm = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("spm")
    corpus = folder / "corpus.txt"
    lines = [line for text in CORPUS for line in text.splitlines() if line.isprintable()]
    corpus.write_text("\n".join(lines * 4))
    spm.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(folder / "spm"),
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        minloglevel=2,
    )
    return folder / "spm.model"


def sentencepiece_gguf(path: Path, processor, **changes: object) -> Path:
    count = processor.get_piece_size()

    def kind(index: int) -> int:
        if processor.is_unknown(index):
            return 2
        if processor.is_control(index):
            return 3
        return 6 if processor.is_byte(index) else 1

    metadata: dict[str, object] = {
        "model": "llama",
        "tokens": [processor.id_to_piece(i) for i in range(count)],
        "scores": [float(processor.get_score(i)) for i in range(count)],
        "token_type": [kind(i) for i in range(count)],
        "bos_token_id": processor.bos_id(),
        "eos_token_id": processor.eos_id(),
    }
    return write_tokenizer_gguf(path, metadata | changes, "llama")


@pytest.mark.oracle
@pytest.mark.parametrize("name", SAMPLES)
def test_sentencepiece_ids_equal_its_own_library(
    sentencepiece_file: Path, tmp_path: Path, name: str
) -> None:
    import sentencepiece

    if name == "controls":
        pytest.skip("the library's own trainer and encoder treat NUL as the end of a text")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_file))
    tokenizer = gguf_tokenizer(read_header(sentencepiece_gguf(tmp_path / "t.gguf", processor)))
    text = SAMPLES[name]
    ids = tokenizer.encode(text)
    assert ids == processor.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.bos_id == processor.bos_id()
    assert tokenizer.eos_ids == {processor.eos_id()}


@pytest.mark.oracle
def test_sentencepiece_starts_anew_after_a_control_token(
    sentencepiece_file: Path, tmp_path: Path
) -> None:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_file))
    tokenizer = gguf_tokenizer(read_header(sentencepiece_gguf(tmp_path / "t.gguf", processor)))
    ids = tokenizer.encode("<s>the wall</s>it was", special=True)
    expected = [1, *processor.encode("the wall"), 2, *processor.encode("it was")]
    assert ids == expected
    assert not {1, 2} & set(tokenizer.encode("<s>the wall</s>"))


@pytest.mark.oracle
def test_sentencepiece_metadata_is_checked(sentencepiece_file: Path, tmp_path: Path) -> None:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_file))
    for changes, words in (
        ({"scores": [0.0]}, "1 scores"),
        ({"scores": None}, "scores.*missing"),
        ({"token_type": [1] * 599 + [6]}, "1 byte tokens"),
    ):
        path = sentencepiece_gguf(tmp_path / "t.gguf", processor, **changes)
        with pytest.raises(ModelError, match=words):
            gguf_tokenizer(read_header(path))
