"""Decode and prefill at four bits against llama.cpp: same file, same threads, same run.

    pip install -c constraints.txt -e '.[peers]'
    python benchmarks/decode_vs_llama_cpp.py [--pairs 8] [--output 48] [--json FILE]

llama.cpp multiplies by the default model's file as it is: Q4_1, groups of 32, five bits a weight
with scales and minima. This engine runs the builds of BUILDS, quantised from the same file.

Each side has a process of its own, for their thread pools wait in different ways, and one that
waits by spinning would take a core from the other. The one that is not measured is stopped
(SIGSTOP) while the other runs. Both are greedy at batch 1, on the same fresh prompts, in A B B A
order. Of each run: prefill is the time to the first token, TPOT the mean gap after it. Ratios above
1 favour this engine; the median over pairs is what to read.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import importlib.metadata
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "active")

from engine.model.store import find_model

TARGET = 1.1
"""Times llama.cpp's decode speed, at four bits."""

BUILDS: Mapping[str, Mapping[str, int | str]] = {
    "int4 g64, head int8": {"bits": 4, "group": 64},
    "int4 g32, head int8": {"bits": 4, "group": 32},
    "int4 g64, head int4": {"bits": 4, "group": 64, "embedding": 4},
}
"""`weights` knobs by name; rounded to nearest, since no method changes what a step reads."""

VOCABULARY = (300, 40_000)
"""Token ids that prompts are drawn from: plain ones, in every model of this family."""

Serve = Callable[[Sequence[int], int], list[float]]
"""(prompt, output tokens) -> moments: the start, then the arrival of every token."""


@dataclass(frozen=True)
class Run:
    """Seconds to the first token, and seconds a token after it."""

    prefill: float
    tpot: float


@dataclass(frozen=True)
class Row:
    """Medians over the pairs of one build and prompt length; ratios are llama.cpp over engine."""

    build: str
    prompt: int
    decode_ratio: float
    decode_ratio_range: tuple[float, float]
    prefill_ratio: float
    tpot_ms: float
    peer_tpot_ms: float
    prefill_ms: float
    peer_prefill_ms: float
    kernel_path: Mapping[str, str]


def main() -> None:
    arguments = parse_arguments()
    if arguments.serve:
        serve(arguments.serve, arguments.threads)
        return
    rows: list[Row] = []
    with side("llama.cpp", arguments.threads) as peer:
        for build in arguments.build:
            with side(build, arguments.threads) as ours:
                for prompt in arguments.prompt:
                    rows.append(compare(build, ours, peer, prompt, arguments))
                    print(describe(rows[-1]), flush=True)
    best = max(row.decode_ratio for row in rows)
    print(f"decode: best median ratio {best:.2f}, target {TARGET:.2f}: ", end="")
    print("met" if best >= TARGET else "MISSED")
    if arguments.json:
        report = {
            "threads": arguments.threads,
            "pairs": arguments.pairs,
            "output": arguments.output,
            "wait_policy": os.environ["OMP_WAIT_POLICY"],
            "llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--build", nargs="+", default=list(BUILDS), choices=BUILDS)
    parser.add_argument("--prompt", nargs="+", type=int, default=[64, 512], help="tokens")
    parser.add_argument("--output", type=int, default=48, help="tokens, at least 3")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


class Side:
    """The process of one side, asleep but while it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.about: dict[str, str] = json.loads(self._read())
        process.send_signal(signal.SIGSTOP)

    def run(self, prompt: Sequence[int], output: int) -> Run:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        print(json.dumps([list(prompt), output]), file=self._process.stdin, flush=True)
        begun, first, *rest = json.loads(self._read())
        self._process.send_signal(signal.SIGSTOP)
        return Run(prefill=first - begun, tpot=(rest[-1] - first) / len(rest))

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("one side ended; its own words are above")
        return line


@contextlib.contextmanager
def side(name: str, threads: int) -> Iterator[Side]:
    command = [sys.executable, __file__, "--serve", name, "--threads", str(threads)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Side(process)
    finally:
        process.kill()
        process.wait()


def serve(name: str, threads: int) -> None:
    """One side: says what it is, then answers each line [prompt, output] with its moments."""
    answer, about = llama_cpp_side(threads) if name == "llama.cpp" else engine_side(name, threads)
    print(json.dumps(dict(about)), flush=True)
    for line in sys.stdin:
        prompt, output = json.loads(line)
        print(json.dumps(answer(prompt, output)), flush=True)


def engine_side(name: str, threads: int) -> tuple[Serve, Mapping[str, str]]:
    import torch

    from engine.config import EngineConfig, RunConfig, WeightsConfig, WorkloadConfig
    from engine.model.llama import Llama
    from engine.model.loader import load_model
    from engine.quant.quantise import quantise
    from engine.recipe import recipe_of
    from engine.run.engine import Engine, SamplingParams

    torch.set_num_threads(threads)
    loaded = load_model(find_model("default"))
    weights = WeightsConfig(**BUILDS[name])  # type: ignore[arg-type]
    grids = quantise(loaded.tensors, loaded.config, recipe_of(weights, loaded.config))
    model = Llama(loaded.config, loaded.tensors, "bfloat16", quantised=grids, crossover=32)

    def answer(prompt: Sequence[int], output: int) -> list[float]:
        config = EngineConfig(
            WorkloadConfig(len(prompt), output), run=RunConfig("bfloat16", threads), weights=weights
        )
        engine = Engine(model, config)
        engine.add_request(prompt, SamplingParams(max_tokens=output, ignore_eos=True))
        moments = [time.perf_counter()]
        while engine.has_work:
            engine.step()
            moments.append(time.perf_counter())
        return moments

    return answer, model.kernel_path


def llama_cpp_side(threads: int) -> tuple[Serve, Mapping[str, str]]:
    """The library's own calls, one batch a step, and the largest score by one pass over them."""
    numpy: Any = importlib.import_module("numpy")
    library: Any = importlib.import_module("llama_cpp")
    model = library.Llama(
        str(find_model("default").path),
        n_ctx=2_048,
        n_batch=2_048,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )
    vocabulary = model.n_vocab()

    def step(ids: Sequence[int]) -> int:
        array = (ctypes.c_int32 * len(ids))(*ids)
        batch = library.llama_batch_get_one(array, len(ids))
        if library.llama_decode(model.ctx, batch) != 0:
            raise SystemExit("llama_decode refused the batch")
        scores = library.llama_get_logits_ith(model.ctx, -1)
        return int(numpy.ctypeslib.as_array(scores, (vocabulary,)).argmax())

    def answer(prompt: Sequence[int], output: int) -> list[float]:
        library.llama_memory_clear(library.llama_get_memory(model.ctx), True)
        moments = [time.perf_counter()]
        token = step(prompt)
        moments.append(time.perf_counter())
        for _ in range(output - 1):
            token = step([token])
            moments.append(time.perf_counter())
        return moments

    return answer, {"linear": "Q4_1"}


def compare(build: str, ours: Side, peer: Side, prompt: int, arguments: argparse.Namespace) -> Row:
    """Pairs in ABBA order on fresh prompts, after two warm-up runs of each."""
    chance = random.Random(prompt)

    def fresh() -> list[int]:
        return [chance.randrange(*VOCABULARY) for _ in range(prompt)]

    for _ in range(2):
        for one in (ours, peer):
            one.run(fresh(), arguments.output)
    pairs: list[tuple[Run, Run]] = []
    for number in range(arguments.pairs):
        ids = fresh()
        order = (ours, peer) if number % 2 == 0 else (peer, ours)
        found = {id(one): one.run(ids, arguments.output) for one in order}
        pairs.append((found[id(ours)], found[id(peer)]))
    ratios = sorted(theirs.tpot / mine.tpot for mine, theirs in pairs)
    return Row(
        build=build,
        prompt=prompt,
        decode_ratio=statistics.median(ratios),
        decode_ratio_range=(ratios[0], ratios[-1]),
        prefill_ratio=statistics.median(theirs.prefill / mine.prefill for mine, theirs in pairs),
        tpot_ms=1e3 * statistics.median(mine.tpot for mine, _ in pairs),
        peer_tpot_ms=1e3 * statistics.median(theirs.tpot for _, theirs in pairs),
        prefill_ms=1e3 * statistics.median(mine.prefill for mine, _ in pairs),
        peer_prefill_ms=1e3 * statistics.median(theirs.prefill for _, theirs in pairs),
        kernel_path=ours.about,
    )


def describe(row: Row) -> str:
    low, high = row.decode_ratio_range
    forms = ", ".join(f"{name} {form}" for name, form in row.kernel_path.items())
    return (
        f"{row.build}  prompt {row.prompt:4}  decode x{row.decode_ratio:.2f} "
        f"[{low:.2f}, {high:.2f}]  TPOT {row.tpot_ms:.1f} against {row.peer_tpot_ms:.1f} ms  "
        f"prefill x{row.prefill_ratio:.2f}  {row.prefill_ms:.0f} against "
        f"{row.peer_prefill_ms:.0f} ms  ({forms})"
    )


if __name__ == "__main__":
    main()
