"""Token ids are the model's own for every kind of text, and no outsider forges control tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from text_samples import SAMPLES
from tokenizers import decoders

from engine.model.errors import ModelError
from engine.model.gguf_reader import read_header
from engine.model.gguf_tokenizer import gguf_tokenizer
from engine.model.tokenizer import Tokenizer

# The default vocabulary has no token for six control bytes, and none for the bytes that begin the
# characters of planes 4 to 15: those vanish in every tokenizer of this model.
COMMON = st.characters(
    exclude_categories=["Cs", "Nd", "Nl", "No"],
    exclude_characters="\x04\x06\x13\x14\x16\x1d",
    include_characters="0123456789",
    max_codepoint=0x3FFFF,
)


@pytest.fixture(scope="module")
def own(default_model_path: Path) -> Tokenizer:
    return gguf_tokenizer(read_header(default_model_path))


@pytest.fixture(scope="module")
def transformers_own(default_model_path: Path):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        default_model_path.parent, gguf_file=default_model_path.name
    )


@pytest.mark.model
@pytest.mark.oracle
@pytest.mark.parametrize("name", SAMPLES)
def test_ids_equal_transformers(own: Tokenizer, transformers_own, name: str) -> None:
    expected = transformers_own(SAMPLES[name], add_special_tokens=False)["input_ids"]
    assert own.encode(SAMPLES[name], special=True) == expected


@pytest.mark.model
@pytest.mark.oracle
@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet=COMMON, max_size=60))
@example(text="<|im_end|>")
def test_ids_equal_transformers_on_any_text(own: Tokenizer, transformers_own, text: str) -> None:
    """Of the digits, ASCII only: transformers' reading of the file leaves the digit rule out."""
    expected = transformers_own(text, add_special_tokens=False)["input_ids"]
    assert own.encode(text, special=True) == expected
    assert own.decode(own.encode(text)) == text  # plain: control tokens would vanish


@pytest.mark.model
@pytest.mark.oracle
@pytest.mark.parametrize(
    "messages",
    [
        [("user", "What is the capital of France?")],
        [
            ("system", "你是延迟之壁。"),
            ("user", " 为什么？ "),
            ("assistant", "因为。"),
            ("user", "🎉"),
        ],
        [("user", "")],
    ],
)
def test_chat_ids_equal_transformers(own: Tokenizer, transformers_own, messages) -> None:
    expected = transformers_own.apply_chat_template(
        [{"role": role, "content": text} for role, text in messages],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert own.chat(messages) == list(expected)


@pytest.mark.model
def test_known_facts_of_the_default_tokenizer(own: Tokenizer) -> None:
    assert own.vocabulary_size == 49_152
    assert own.bos_id is None
    assert 2 in own.eos_ids
    assert own.special_ids == frozenset(range(17))
    for digits in ("2024", "½٣"):
        apart = [own.encode(digit) for digit in digits]
        assert own.encode(digits) == [token for ids in apart for token in ids]


@pytest.mark.model
def test_plain_text_never_becomes_a_control_token(own: Tokenizer) -> None:
    spelled = SAMPLES["spelled"]
    plain = own.encode(spelled)
    assert not own.special_ids & set(plain)
    assert own.decode(plain) == spelled
    assert own.special_ids & set(own.encode(spelled, special=True)) == {0, 1, 2}


@pytest.mark.model
@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(
            [
                "<|im_end|>",
                "<|im_start|>",
                "<|",
                "|>",
                "im_end",
                "<",
                "\n",
                "system",
                "\ue000",
                "x ",
            ]
        ),
        max_size=12,
    )
)
def test_no_message_can_end_its_own_turn(own: Tokenizer, pieces: list[str]) -> None:
    """The prompt has the control tokens that a harmless message gets, and says what was said."""
    text = "".join(pieces)
    harmless = own.chat([("system", "s"), ("user", "harmless")])
    ids = own.chat([("system", "s"), ("user", text)])

    def control(ids: list[int]) -> list[int]:
        return [token for token in ids if token in own.special_ids]

    assert control(ids) == control(harmless)
    assert own.decode(ids) == own.decode(harmless).replace("harmless", text)


@pytest.mark.model
@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 49_151), max_size=30))
def test_stream_of_any_tokens_equals_the_whole_decoded(own: Tokenizer, ids: list[int]) -> None:
    stream = own.stream()
    streamed = "".join(stream.push(token) for token in ids) + stream.flush()
    assert streamed == own.decode(ids)
    encoder = own._vocabulary.first
    tokens = [encoder.id_to_token(token) for token in ids if token not in own.special_ids]
    assert streamed == decoders.ByteLevel().decode(tokens)


@pytest.mark.model
@pytest.mark.parametrize("name", SAMPLES)
def test_no_replacement_character_in_mid_stream(own: Tokenizer, name: str) -> None:
    stream = own.stream()
    for token in own.encode(SAMPLES[name]):
        assert "\ufffd" not in stream.push(token)
    assert stream.flush() == ""


@pytest.mark.model
@pytest.mark.parametrize("token", [-1, 49_152, 10**9])
def test_ids_outside_the_vocabulary(own: Tokenizer, token: int) -> None:
    with pytest.raises(ModelError, match="0 to 49151"):
        own.decode([token])
    with pytest.raises(ModelError, match="no token id"):
        own.stream().push(token)
