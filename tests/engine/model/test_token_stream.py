"""A stream of tokens gives whole characters only, and in the end the whole text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.byte_alphabet import BYTE_OF, spelled_bytes
from engine.model.token_stream import TokenStream

TEXTS = ["plain", "naïve café", "延迟之壁", "🎉👩‍👩‍👧🏽", "a你🎉b", "\u0000\x7f", "𝔘𝔫𝔦"]


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    """`raw` in pieces, cut at the places, wherever they fall inside a character."""
    edges = sorted({0, len(raw), *(place % (len(raw) + 1) for place in places)})
    return [raw[a:b] for a, b in zip(edges, edges[1:], strict=False)]


@given(
    text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40),
    places=st.lists(st.integers(0, 200), max_size=40),
)
def test_any_cut_of_any_text_streams_back_whole(text: str, places: list[int]) -> None:
    pieces = cut(text.encode(), places)
    stream = TokenStream(lambda token: pieces[token])
    out: list[str] = []
    for index in range(len(pieces)):
        out.append(stream.push(index))
        so_far = b"".join(pieces[: index + 1])
        assert "".join(out) == so_far.decode(errors="ignore")  # all that is whole, and no more
        assert "\ufffd" not in out[-1] or "\ufffd" in text
    assert stream.flush() == ""
    assert "".join(out) == text


@pytest.mark.parametrize("text", TEXTS)
def test_a_byte_at_a_time(text: str) -> None:
    raw = text.encode()
    stream = TokenStream(lambda token: raw[token : token + 1])
    assert "".join(stream.push(i) for i in range(len(raw))) + stream.flush() == text


@given(raw=st.binary(max_size=60), places=st.lists(st.integers(0, 100), max_size=20))
def test_broken_bytes_become_what_utf8_decoders_make_of_them(raw: bytes, places: list[int]) -> None:
    pieces = cut(raw, places)
    stream = TokenStream(lambda token: pieces[token])
    streamed = "".join(stream.push(i) for i in range(len(pieces))) + stream.flush()
    assert streamed == raw.decode(errors="replace")


def test_an_open_character_is_held_and_marked_at_the_end() -> None:
    pieces = [b"ok ", "🎉".encode()[:3]]
    stream = TokenStream(lambda token: pieces[token])
    assert [stream.push(0), stream.push(1)] == ["ok ", ""]
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_control_tokens_do_not_break_a_character() -> None:
    pieces = ["你".encode()[:1], b"", "你".encode()[1:]]
    stream = TokenStream(lambda token: pieces[token])
    assert [stream.push(i) for i in range(3)] == ["", "", "你"]


def test_only_the_first_space_is_dropped() -> None:
    pieces = [b"", b" ", b" one", b" two"]
    stream = TokenStream(lambda token: pieces[token], drop_space=True)
    assert "".join(stream.push(i) for i in range(4)) + stream.flush() == " one two"


def test_byte_alphabet_is_the_librarys() -> None:
    from tokenizers import decoders, pre_tokenizers

    assert set(BYTE_OF) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(BYTE_OF.values()) == list(range(256))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for code in [*range(0x20, 0x400), 0x4F60, 0x1F389]:
        if unicodedata.category(chr(code)) == "Cs":
            continue
        ((spelled, _),) = level.pre_tokenize_str(chr(code))
        assert spelled_bytes(spelled) == chr(code).encode()
    assert decoders.ByteLevel().decode(["<think> 你"]) == spelled_bytes("<think> 你").decode()
