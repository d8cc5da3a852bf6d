"""Names and values of settings as a player types them, and what a wrong one is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.domains import IntDomain, KnobError, RealDomain, nearest_name
from engine.knobs import KNOBS, find_knob, parse_setting
from engine.model.config import ModelConfig

TWO_CORES = Capabilities(
    device="cpu",
    device_name="test",
    physical_cores=1,
    logical_cores=2,
    memory_bytes=2**30,
    instruction_set="AVX2",
    torch_version="2.13.0",
    python_version="3.11",
    platform="test",
    precisions={"float32": "", "bfloat16": "", "float16": "no half-precision matrix product"},
    linear_forms=("plain",),
)
SHORT_MODEL = ModelConfig(
    family="llama",
    layers=1,
    hidden=64,
    heads=1,
    kv_heads=1,
    head_dim=64,
    intermediate=64,
    vocabulary=100,
    context=256,
    rope_base=1e4,
    norm_eps=1e-5,
    tied_head=True,
)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("batch=8", ("schedule.batch", 8)),
        ("schedule.batch=8", ("schedule.batch", 8)),
        (" batch = 8 ", ("schedule.batch", 8)),
        ("precision=bfloat16", ("run.precision", "bfloat16")),
        ("prefill_chunk=whole", ("schedule.prefill_chunk", 0)),
        ("prefill_chunk=0", ("schedule.prefill_chunk", 0)),
        ("threads=auto", ("run.threads", 0)),
        ("workload.prompt=33", ("workload.prompt", 33)),
        ("cache.bits=8", ("cache.bits", 8)),
        ("cache.bits=full", ("cache.bits", 0)),
        ("weights.bits=full", ("weights.bits", 0)),
        ("group=row", ("weights.group", -1)),
        ("embedding=full", ("weights.embedding", 16)),
        ("requests=batch", ("workload.requests", 0)),
        ("budget=none", ("memory.budget", 0)),
        ("block_size=48", ("cache.block_size", 48)),
        ("layout=paged", ("cache.layout", "paged")),
        ("temperature=0.7", ("sampling.temperature", 0.7)),
        ("temperature=1", ("sampling.temperature", 1.0)),
        ("temperature=greedy", ("sampling.temperature", 0.0)),
    ],
)
def test_settings_as_typed(text: str, setting: tuple[str, object]) -> None:
    assert parse_setting(text) == setting


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("batch=0", "schedule.batch: 0 is outside its range; legal: 1 to 64; nearest: 1"),
        ("batch=65", "nearest: 64"),
        ("batch=-3", "nearest: 1"),
        ("batch=8.0", "'8.0' is not a whole number"),
        ("batch=eight", "'eight' is not a whole number"),
        ("bacth=8", "no knob is named 'bacth'; nearest: schedule.batch"),
        ("precison=bfloat16", "nearest: run.precision"),
        ("precision=bf16", "nearest: bfloat16"),
        ("precision=float8", "legal: float32, bfloat16, float16; nearest: float"),
        ("prefill_chunk=8", "or whole; nearest: 16"),
        (
            "cache.bits=6",
            "cache.bits: 6 is not one of its values; legal: 16, 8, 4, or full; nearest: 8",
        ),
        ("cache.bits=5", "nearest: 4"),
        ("cache.bits=32", "nearest: 16"),
        ("cache.bits=-1", "nearest: 4"),
        ("weights.bits=6", "legal: 8, 4, 3, 2, or full; nearest: 8"),
        ("weights.attention=5", "legal: 8, 4, 3, 2, or same, or full; nearest: 4"),
        ("bits=4", "'bits' is ambiguous: cache.bits, weights.bits"),
        ("block_size=0", "legal: 1 to 256; nearest: 1"),
        ("block_size=512", "nearest: 256"),
        ("requests=300", "legal: 1 to 256, or batch; nearest: 256"),
        ("sharing=on", "nearest: cache.prefix_sharing"),
        ("layout=pages", "legal: contiguous, paged; nearest: paged"),
        ("overflow=wiat", "nearest: wait"),
        ("atch=8", "no knob is named 'atch'; nearest: schedule.batch"),
        ("temperature=2.5", "temperature: 2.5 is outside its range; legal: 0 to 2, or greedy"),
        ("temperature=2.5", "nearest: 2"),
        ("temperature=-0.1", "nearest: 0"),
        ("temperature=inf", "nearest: 2"),
        ("temperature=nan", "nan is not a number"),
        ("temperature=0,7", "'0,7' is not a number; legal: 0 to 2, or greedy"),
        ("temperature=hot", "'hot' is not a number"),
        ("batch", "write knob=value"),
        ("batch=", "write knob=value"),
        ("=8", "write knob=value"),
        ("", "write knob=value"),
    ],
)
def test_wrong_settings_are_told_what_would_be_right(text: str, told: str) -> None:
    with pytest.raises(KnobError) as error:
        parse_setting(text)
    assert told in str(error.value)


def test_an_ambiguous_ending_names_its_candidates() -> None:
    with pytest.raises(KnobError, match=r"'bits' is ambiguous: cache\.bits, weights\.bits"):
        find_knob("bits")
    assert find_knob("bits", ("cache.bits", "cache.layout")) is KNOBS["cache.bits"]
    assert find_knob("cache.bits") is KNOBS["cache.bits"]


def test_a_knob_a_hall_does_not_offer_is_unknown_there() -> None:
    with pytest.raises(KnobError, match=r"nearest: workload\.(prompt|output)"):
        find_knob("batch", ("workload.prompt", "workload.output"))


@pytest.mark.parametrize("knob", KNOBS.values(), ids=list(KNOBS))
def test_defaults_and_ladders_are_legal(knob: object) -> None:
    from engine.knobs import Knob

    assert isinstance(knob, Knob)
    assert knob.domain.check(knob.default) == knob.default
    for value in knob.domain.ladder:
        assert knob.domain.check(value) == value
        assert knob.domain.parse(knob.domain.show(value)) == value


def test_every_knob_is_the_path_of_a_field_of_the_config() -> None:
    config = EngineConfig()
    for name in KNOBS:
        section, key = name.split(".")
        assert hasattr(getattr(config, section), key)


@given(st.integers(-10, 200), st.integers(1, 50), st.integers(1, 50))
def test_the_nearest_legal_number_is_the_nearest(value: int, low: int, width: int) -> None:
    domain = IntDomain(low, low + width, ())
    legal = range(low, low + width + 1)
    if value in legal:
        assert domain.check(value) == value
        return
    best = min(legal, key=lambda number: abs(number - value))
    with pytest.raises(KnobError, match=rf"nearest: {best}$"):
        domain.check(value)


@given(st.sets(st.integers(0, 60), min_size=1, max_size=6), st.integers(-10, 90))
def test_between_the_values_of_a_ladder_that_is_all_there_is_nothing_is_legal(
    legal: set[int], value: int
) -> None:
    domain = IntDomain(0, 60, (99, *sorted(legal)), special={99: "none"}, only_ladder=True)
    if value in legal:
        assert domain.check(value) == value
        return
    with pytest.raises(KnobError) as caught:
        domain.check(value)
    named = int(str(caught.value).rpartition("nearest: ")[2])
    assert named in legal
    assert abs(named - value) == min(abs(number - value) for number in legal)
    assert domain.parse("none") == domain.check(99) == 99


@pytest.mark.parametrize("value", [True, 8.0, "8", None])
def test_a_number_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(KnobError, match="not a whole number"):
        KNOBS["schedule.batch"].domain.check(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [True, "0.7", None, float("nan")])
def test_a_real_number_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(KnobError, match="not a number"):
        KNOBS["sampling.temperature"].domain.check(value)  # type: ignore[arg-type]


@given(st.floats(allow_nan=False), st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_a_real_number_is_taken_or_told_the_end_it_is_beyond(
    value: float, low: float, width: float
) -> None:
    domain = RealDomain(low, low + width, (low,))
    if domain.low <= value <= domain.high:
        assert domain.check(value) == value
        return
    with pytest.raises(KnobError, match="outside its range") as caught:
        domain.check(value)
    end = domain.low if value < domain.low else domain.high
    assert str(caught.value).endswith(f"nearest: {end:g}")


def test_a_real_knob_is_shown_as_it_is_typed() -> None:
    domain = KNOBS["sampling.temperature"].domain
    shown = [domain.show(value) for value in (0, 0.0, 0.3, 1.0, 1, 1.25)]
    assert shown == ["greedy", "greedy", "0.3", "1", "1", "1.25"]
    assert isinstance(domain.check(1), float)


@given(st.text(max_size=20))
def test_some_name_is_always_nearest(word: str) -> None:
    assert nearest_name(word, KNOBS) in KNOBS


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("run.precision", "float16", "no half-precision matrix product"),
        ("run.threads", 3, "2 logical cores"),
        ("workload.prompt", 256, "context is 256 tokens"),
        ("cache.block_size", 24, "context of 256 tokens; nearest: 16"),
    ],
)
def test_what_this_machine_or_model_cannot_take(name: str, value: int | str, told: str) -> None:
    reason = KNOBS[name].unavailable(value, TWO_CORES, SHORT_MODEL)
    assert reason is not None
    assert told in reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run.precision", "bfloat16"),
        ("run.threads", 2),
        ("run.threads", 0),
        ("workload.prompt", 255),
        ("schedule.batch", 64),
        ("cache.block_size", 256),
        ("cache.bits", 4),
    ],
)
def test_what_it_can_take(name: str, value: int | str) -> None:
    assert KNOBS[name].unavailable(value, TWO_CORES, SHORT_MODEL) is None
    assert KNOBS[name].unavailable(value, None, None) is None
