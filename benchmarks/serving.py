"""Serving many requests: the paged cache against the contiguous one, and against a static batch.

    python benchmarks/serving.py [--only steps budget static] [--pairs 8] [--json FILE]

Three comparisons, each on the default model, interleaved in one run so that a drift of the machine
falls on both sides alike; the median over pairs is what to read.

steps   one decode step at batch 8 over lengths from 32 to 1,024: each layout's step right after the
        other's, at equal lengths. Ratios are paged over contiguous: below 1 favours paging.
budget  the Paging Array's own load and vessel: output tokens a second, paged with prefix sharing
        over contiguous. Above 1 favours paging.
static  sixteen requests of mixed lengths, all there at the start: this engine's output tokens a
        second over those of transformers' padded batch, which runs until its longest answer ends.
        Only tokens that were asked for count, on both sides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from decode_vs_transformers import load_peer

from engine.config import (
    CacheConfig,
    EngineConfig,
    RunConfig,
    ScheduleConfig,
    WorkloadConfig,
)
from engine.detect import detect
from engine.domains import Value
from engine.load import RequestShape, draw_load
from engine.model.llama import DTYPES, Llama
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.resolve import resolve
from engine.run.engine import Engine, SamplingParams
from story.loader import load_stages

STEP_LENGTHS = (32, 64, 150, 300, 500, 700, 900, 1024)
STEP_TARGET, BUDGET_TARGET, STATIC_TARGET = 1.25, 1.5, 2.0
STATIC_WORKLOAD = WorkloadConfig(prompt=512, output=48, mix="mixed", requests=16)
PARTS = ("steps", "budget", "static")


@dataclass(frozen=True)
class Row:
    """Medians over the pairs of one comparison; `range` holds the smallest and largest ratio."""

    part: str
    name: str
    ratio: float
    range: tuple[float, float]
    candidate: float
    reference: float
    unit: str
    target: str
    met: bool | None
    kernel_path: str


Request = tuple[RequestShape, list[int]]
Serve = Callable[[Sequence[Request]], float]
"""Serves a load to its last token; gives its wall seconds."""


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    loaded = load_model(find_model("default"))
    rows: list[Row] = []
    for row in run(loaded, arguments):
        rows.append(row)
        print(describe(row), flush=True)
    if arguments.json:
        report = {
            "threads": arguments.threads,
            "pairs": arguments.pairs,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"], choices=DTYPES)
    parser.add_argument("--steps", type=int, default=48, help="timed decode steps of each layout")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of whole loads")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run(loaded: LoadedModel, arguments: argparse.Namespace) -> Iterator[Row]:
    for precision in arguments.precision:
        model = Llama(loaded.config, loaded.tensors, precision)
        if "steps" in arguments.only:
            yield from steps(model, arguments.steps)
        if "static" in arguments.only:
            yield static(loaded, model, arguments.pairs)
    if "budget" in arguments.only:
        yield budget(loaded, arguments.pairs)


# A decode step


def steps(model: Llama, count: int) -> Iterator[Row]:
    """The layouts and widths of the cache, each against the contiguous one at full width."""
    plain = CacheConfig()
    for name, cache in (
        ("paged, blocks of 16", CacheConfig("paged", 16)),
        ("paged, blocks of 1", CacheConfig("paged", 1)),
        ("paged, blocks of 64", CacheConfig("paged", 64)),
        ("paged, blocks of 256", CacheConfig("paged", 256)),
        ("contiguous, 8 bits", CacheConfig(bits=8)),
        ("contiguous, 4 bits", CacheConfig(bits=4)),
        ("paged, blocks of 16, 8 bits", CacheConfig("paged", 16, bits=8)),
        ("paged, blocks of 16, 4 bits", CacheConfig("paged", 16, bits=4)),
    ):
        reference = decoding(model, plain, count)
        candidate = decoding(model, cache, count)
        pairs = step_pairs(reference, candidate, count)
        wanted = cache == CacheConfig("paged", 16)
        yield summarise(
            "steps",
            f"{model.precision}, {name}",
            pairs,
            "ms a step",
            1e3,
            ("<=", STEP_TARGET) if wanted else None,
            candidate.kernel_path["attention"],
        )


def decoding(model: Llama, cache: CacheConfig, count: int) -> Engine:
    """An engine whose eight requests are prefilled and have `count` steps and more to go."""
    output = count + 8
    config = EngineConfig(
        WorkloadConfig(prompt=max(STEP_LENGTHS), output=output),
        ScheduleConfig(batch=len(STEP_LENGTHS)),
        RunConfig(model.precision),
        cache,
    )
    engine = Engine(model, config)
    source = torch.Generator().manual_seed(0)
    for length in STEP_LENGTHS:
        engine.add_request(words(length, source), SamplingParams(output, ignore_eos=True))
    while engine.step().phase == "prefill":
        pass
    return engine


def step_pairs(reference: Engine, candidate: Engine, count: int) -> list[tuple[float, float]]:
    """(candidate, reference) seconds a step, in ABBA order, after three steps of each."""
    for engine in (reference, candidate) * 3:
        engine.step()
    pairs = []
    for number in range(count):
        order = (reference, candidate) if number % 2 == 0 else (candidate, reference)
        seconds = {}
        for engine in order:
            begun = time.perf_counter()
            engine.step()
            seconds[id(engine)] = time.perf_counter() - begun
        pairs.append((seconds[id(candidate)], seconds[id(reference)]))
    return pairs


# Whole loads


def budget(loaded: LoadedModel, pairs: int) -> Row:
    """The Paging Array: its reference build and the build that its last hint gives away."""
    stage = next(stage for stage in load_stages() if stage.id == "paging")
    reference = configure(loaded, stage.reference)
    candidate = configure(loaded, {**stage.build, **stage.hint_build})
    model = Llama(loaded.config, loaded.tensors, candidate.run.precision)
    paged = Engine(model, candidate)
    measured = load_pairs(
        engine_server(paged),
        engine_server(Engine(model, reference)),
        lambda seed: draw_requests(candidate, seed),
        pairs,
    )
    return summarise(
        "budget",
        f"{candidate.run.precision}, {len(draw_load(candidate, 0))} requests, paged and shared",
        measured,
        "tokens/s",
        1.0,
        (">=", BUDGET_TARGET),
        paged.kernel_path["attention"],
    )


def configure(loaded: LoadedModel, build: dict[str, Value]) -> EngineConfig:
    return resolve(build, detect(), loaded.config, torch.get_num_threads()).config


def static(loaded: LoadedModel, model: Llama, pairs: int) -> Row:
    config = EngineConfig(
        STATIC_WORKLOAD,
        ScheduleConfig(batch=STATIC_WORKLOAD.requests),
        RunConfig(model.precision),
        CacheConfig("paged", 16),
    )
    engine = Engine(model, config)
    peer = load_peer(Path(loaded.source), DTYPES[model.precision])
    measured = load_pairs(
        engine_server(engine),
        peer_server(peer),
        lambda seed: draw_requests(config, seed),
        pairs,
    )
    return summarise(
        "static",
        f"{model.precision}, {STATIC_WORKLOAD.requests} requests against transformers",
        measured,
        "tokens/s",
        1.0,
        (">=", STATIC_TARGET),
        engine.kernel_path["attention"],
    )


def draw_requests(config: EngineConfig, seed: int) -> list[Request]:
    """A load with words: the shared beginning first, then what is each request's own."""
    source = torch.Generator().manual_seed(seed)
    shared = words(config.workload.system, source)
    return [
        (shape, shared + words(shape.prompt - len(shared), source))
        for shape in draw_load(config, seed)
    ]


def words(count: int, source: torch.Generator) -> list[int]:
    ids: list[int] = torch.randint(300, 40_000, (count,), generator=source).tolist()
    return ids


def engine_server(engine: Engine) -> Serve:
    def serve(requests: Sequence[Request]) -> float:
        engine.reset()
        begun = time.perf_counter()
        for shape, prompt in requests:
            engine.add_request(prompt, SamplingParams(shape.output, ignore_eos=True))
        while engine.has_work:
            engine.step()
        return time.perf_counter() - begun

    return serve


def peer_server(peer: Any) -> Serve:
    """transformers' `generate` over one batch, padded on the left, until its longest answer."""

    def serve(requests: Sequence[Request]) -> float:
        begun = time.perf_counter()
        longest = max(len(prompt) for _, prompt in requests)
        output = max(shape.output for shape, _ in requests)
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for _, prompt in requests])
        mask = torch.tensor(
            [[0] * (longest - len(prompt)) + [1] * len(prompt) for _, prompt in requests]
        )
        with torch.inference_mode():
            peer.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=output,
                min_new_tokens=output,
                do_sample=False,
                pad_token_id=0,
            )
        return time.perf_counter() - begun

    return serve


def load_pairs(
    candidate: Serve, reference: Serve, draw: Callable[[int], list[Request]], pairs: int
) -> list[tuple[float, float]]:
    """(candidate, reference) output tokens a second, in ABBA order on fresh loads.

    Two loads of each go first and are dropped.
    """
    for seed in (1_000_001, 1_000_002):
        candidate(draw(seed)), reference(draw(seed))
    measured = []
    for seed in range(pairs):
        requests = draw(seed)
        tokens = sum(shape.output for shape, _ in requests)
        sides = (candidate, reference) if seed % 2 else (reference, candidate)
        rates = {side: tokens / side(requests) for side in sides}
        measured.append((rates[candidate], rates[reference]))
    return measured


# Telling


def summarise(
    part: str,
    name: str,
    pairs: Sequence[tuple[float, float]],
    unit: str,
    scale: float,
    target: tuple[str, float] | None,
    kernel_path: str,
) -> Row:
    """`pairs` are (candidate, reference); `target` bounds the median of their ratios."""
    ratios = sorted(candidate / reference for candidate, reference in pairs)
    ratio = statistics.median(ratios)
    met = None
    if target is not None:
        met = ratio >= target[1] if target[0] == ">=" else ratio <= target[1]
    return Row(
        part=part,
        name=name,
        ratio=ratio,
        range=(ratios[0], ratios[-1]),
        candidate=scale * statistics.median(candidate for candidate, _ in pairs),
        reference=scale * statistics.median(reference for _, reference in pairs),
        unit=unit,
        target="" if target is None else f"{target[0]} {target[1]:g}",
        met=met,
        kernel_path=kernel_path,
    )


def describe(row: Row) -> str:
    low, high = row.range
    word = "" if row.met is None else f"  target {row.target}: {'met' if row.met else 'MISSED'}"
    return (
        f"{row.part:6} {row.name:44} x{row.ratio:.2f} [{low:.2f}, {high:.2f}]  "
        f"{row.candidate:.1f} against {row.reference:.1f} {row.unit}{word}  ({row.kernel_path})"
    )


if __name__ == "__main__":
    main()
