"""A chat on a network of random weights: what is streamed, how it is timed, when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import msgspec
import pytest
import torch

from engine.cache_plan import BudgetError
from engine.config import (
    CacheConfig,
    EngineConfig,
    MemoryConfig,
    RunConfig,
    SamplingConfig,
    ScheduleConfig,
    WeightsConfig,
)
from engine.messages import Chat, ChatDone, Event, Tokens
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.model.loader import LoadedModel
from engine.model.tensor_names import expected_shapes
from engine.model.token_stream import TokenStream
from engine.run.engine import Engine, SamplingParams
from engine.serve.chat import answer, single_request
from engine.serve.failures import Aborted, InputError, failure
from engine.serve.jobs import Desk
from engine.serve.workbench import warm

TINY = ModelConfig(
    family="llama",
    layers=2,
    hidden=32,
    heads=2,
    kv_heads=1,
    head_dim=16,
    intermediate=48,
    vocabulary=256,
    context=64,
    rope_base=1e4,
    norm_eps=1e-5,
    tied_head=True,
)
CONFIG = EngineConfig(schedule=ScheduleConfig(batch=8), run=RunConfig(threads=1))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class ByteTokenizer:
    """A token is a byte; a message is framed by nothing."""

    def __init__(self, eos_ids: Iterable[int] = ()) -> None:
        self.eos_ids = frozenset(eos_ids)

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        return list("".join(text for _, text in messages).encode())

    def stream(self) -> TokenStream:
        return TokenStream(lambda token: bytes([token]))


@dataclass
class Bench:
    """One tiny model, and a desk that keeps what was emitted."""

    eos_ids: tuple[int, ...] = ()
    stop_after: int | None = None
    config: EngineConfig = CONFIG
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.tensors = {
            name: torch.randn(shape, generator=generator)
            for name, shape in expected_shapes(TINY).items()
        }
        self.network = Llama(TINY, self.tensors, "float32")

    def aborted(self) -> bool:
        return self.stop_after is not None and len(self.events) >= self.stop_after

    def ask(self, prompt: str = "hello", **options: Any) -> ChatDone:
        """The clock ticks one second whenever it is read."""
        ticks = count()
        loaded = cast(LoadedModel, _Loaded(TINY, ByteTokenizer(self.eos_ids)))
        return answer(
            Chat(7, prompt, {}, **{"max_tokens": 6, **options}),
            loaded,
            self.network,
            self.config,
            Desk(7, self.events.append, self.aborted),
            clock=lambda: float(next(ticks)),
        )

    def greedy(self, prompt: str, length: int) -> list[int]:
        """What the engine itself says to the same tokens."""
        ids = list(prompt.encode())
        engine = Engine(self.network, single_request(CONFIG, len(ids), length))
        request = engine.add_request(ids, SamplingParams(max_tokens=length))
        tokens: list[int] = []
        while engine.has_work:
            tokens.extend(engine.step().tokens[request])
        return tokens


@dataclass
class _Loaded:
    config: ModelConfig
    tokenizer: ByteTokenizer


def test_the_text_is_the_engines_tokens_and_was_streamed_whole() -> None:
    bench = Bench()
    done = bench.ask()
    assert done.text == bytes(bench.greedy("hello", 6)).decode(errors="replace")
    assert "".join(cast(Tokens, event).text for event in bench.events) == done.text
    assert all(event.job == 7 for event in bench.events)
    assert (done.prompt_tokens, done.output_tokens, done.finish) == (5, 6, "length")


def test_ttft_ends_with_the_first_token_and_tpot_is_the_mean_gap_after_it() -> None:
    """Read once at the request and once a token: first token at 1 s, one more each second."""
    done = Bench().ask(max_tokens=5)
    assert done.ttft == 1.0
    assert done.tpot == 1.0


def test_one_token_has_no_tpot() -> None:
    done = Bench().ask(max_tokens=1)
    assert (done.output_tokens, done.tpot) == (1, None)


def test_the_end_token_ends_the_answer_and_is_not_text() -> None:
    tokens = Bench().greedy("hello", 6)
    place = next(i for i, token in enumerate(tokens) if tokens.index(token) == i > 0)
    done = Bench(eos_ids=(tokens[place],)).ask()
    assert done.finish == "stop"
    assert done.output_tokens == place + 1
    assert done.text == bytes(tokens[:place]).decode(errors="replace")


def test_a_seed_repeats_an_answer_and_another_gives_another() -> None:
    bench = Bench()
    bench.config = msgspec.structs.replace(bench.config, sampling=SamplingConfig(2.0))
    first, again, other = (bench.ask(max_tokens=20, seed=seed).text for seed in (1, 1, 2))
    assert first == again != other


def test_memory_is_the_engines_account_for_one_request_whatever_the_batch() -> None:
    bench = Bench()
    done = bench.ask(max_tokens=6)
    weights = bench.network.weight_bytes
    kv = 2 * TINY.layers * TINY.kv_width * 4 * (5 + 6)
    assert weights + kv <= done.memory_bytes < weights + 4 * kv + 2**20
    assert done.kernel_path["linear"]


PAGED = CacheConfig(layout="paged", block_size=4, prefix_sharing="on")


@pytest.mark.parametrize(
    "cache",
    [PAGED, CacheConfig(bits=8), CacheConfig(layout="paged", block_size=16, bits=8)],
    ids=["paged", "8 bits", "paged 8 bits"],
)
def test_an_answer_from_another_cache(cache: CacheConfig) -> None:
    """The same words (8 bits hardly change a score here), and the account of that cache."""
    done = Bench(config=msgspec.structs.replace(CONFIG, cache=cache)).ask()
    assert done.text == Bench().ask().text
    slots = 11 if cache.layout == "contiguous" else -(-11 // cache.block_size) * cache.block_size
    vector = TINY.head_dim + 2 if cache.bits else TINY.head_dim * 4
    kv = 2 * TINY.layers * TINY.kv_heads * slots * vector
    weights = Bench().network.weight_bytes
    assert weights + kv < done.memory_bytes < weights + kv + 2**20


def test_an_answer_within_its_budget_and_one_that_has_none() -> None:
    matrices = 4 * TINY.matrix_elements
    wide = msgspec.structs.replace(CONFIG, memory=MemoryConfig(budget=400, overflow="break"))
    done = Bench(config=wide).ask()
    assert done.memory_bytes <= 4 * matrices and done.output_tokens == 6
    tight = msgspec.structs.replace(CONFIG, memory=MemoryConfig(budget=100))
    with pytest.raises(BudgetError, match="the vessel holds"):
        Bench(config=tight).ask()


def test_a_budget_that_is_too_small_is_told_as_a_lack_of_memory() -> None:
    tight = msgspec.structs.replace(CONFIG, memory=MemoryConfig(budget=100))
    with pytest.raises(BudgetError) as caught:
        Bench(config=tight).ask()
    failed = failure(7, caught.value)
    assert failed.kind == "memory" and failed.detail == ""
    assert failed.message == f"not enough memory: {caught.value}"


def test_abort_stops_between_two_tokens() -> None:
    bench = Bench(stop_after=2)
    with pytest.raises(Aborted):
        bench.ask(max_tokens=50)
    assert 2 <= len(bench.events) <= 3


@pytest.mark.parametrize(
    ("prompt", "options", "told"),
    [
        ("  \n", {}, "empty"),
        ("hello", {"max_tokens": 0}, "at least 1"),
        ("hello", {"max_tokens": 60}, "takes 5 tokens of the model's 64.*at most 59 fit"),
        ("x" * 70, {}, "shorten the prompt"),
        ("hello", {"top_p": 0.0}, "top_p is 0"),
    ],
)
def test_what_cannot_be_asked_is_said(prompt: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Bench().ask(prompt, **options)


def test_an_answer_that_just_fills_the_context() -> None:
    assert Bench().ask("hello", max_tokens=59).output_tokens == 59


def test_warming_runs_both_phases_and_changes_nothing() -> None:
    bench = Bench()
    before = bench.greedy("hello", 6)
    warm(bench.network, WeightsConfig())
    assert bench.greedy("hello", 6) == before
