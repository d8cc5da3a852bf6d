"""Decode and prefill against transformers' `generate`: same weights, dtype and threads, same run.

    python benchmarks/decode_vs_transformers.py [--pairs 8] [--output 24] [--json FILE]

Both run greedy at batch 1 in ABBA order, so that a drift of the machine falls on both alike. Of
each run: prefill is the time to the first token, TPOT the mean gap after it. Ratios above 1 favour
this engine; the median over pairs is what to read. GB/s counts the weights a step must read.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from engine.config import EngineConfig, RunConfig, WorkloadConfig
from engine.model.llama import DTYPES, Llama
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.run.engine import Engine, SamplingParams

TARGETS = {"decode": 1.15, "prefill": 1.0}


@dataclass(frozen=True)
class Run:
    """Seconds to the first token, and seconds a token after it."""

    prefill: float
    tpot: float


@dataclass(frozen=True)
class Row:
    """Medians over the pairs of one precision and prompt length; ratios are peer over engine."""

    precision: str
    prompt: int
    prefill_ratio: float
    decode_ratio: float
    decode_ratio_range: tuple[float, float]
    prefill_ms: float
    peer_prefill_ms: float
    tpot_ms: float
    peer_tpot_ms: float
    gigabytes_per_second: float
    peer_gigabytes_per_second: float
    kernel_path: dict[str, str]


Runner = Callable[[Sequence[int]], Run]


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    loaded = load_model(find_model("default"))
    rows = [
        row
        for precision in arguments.precision
        for row in compare(loaded, precision, arguments.prompt, arguments.output, arguments.pairs)
    ]
    for name, target in TARGETS.items():
        worst = min(getattr(row, f"{name}_ratio") for row in rows)
        word = "met" if worst >= target else "MISSED"
        print(f"{name}: worst median ratio {worst:.2f}, target {target:.2f}: {word}")
    if arguments.json:
        report = {"threads": arguments.threads, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"], choices=DTYPES)
    parser.add_argument("--prompt", nargs="+", type=int, default=[128, 512], help="tokens")
    parser.add_argument("--output", type=int, default=24, help="tokens, at least 2")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def compare(
    loaded: LoadedModel, precision: str, prompts: Sequence[int], output: int, pairs: int
) -> Iterator[Row]:
    """One row a prompt length, printed as it is measured."""
    model = Llama(loaded.config, loaded.tensors, precision)
    peer = load_peer(Path(loaded.source), DTYPES[precision])
    weight_bytes = loaded.config.matrix_elements * DTYPES[precision].itemsize
    for length in prompts:
        ours = engine_runner(model, length, output)
        theirs = peer_runner(peer, output)
        row = summarise(
            precision, length, measure(ours, theirs, length, pairs), weight_bytes, model
        )
        print(describe(row), flush=True)
        yield row


def engine_runner(model: Llama, prompt: int, output: int) -> Runner:
    config = EngineConfig(WorkloadConfig(prompt, output), run=RunConfig(model.precision))
    engine = Engine(model, config)
    params = SamplingParams(max_tokens=output, ignore_eos=True)

    def run(ids: Sequence[int]) -> Run:
        moments = [time.perf_counter()]
        engine.add_request(ids, params)
        while engine.has_work:
            engine.step()
            moments.append(time.perf_counter())
        return from_moments(moments)

    return run


class Moments:
    """A streamer that notes when it is given something: the prompt first, then every token."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def put(self, value: object) -> None:
        self.seen.append(time.perf_counter())

    def end(self) -> None:
        pass


def peer_runner(peer: Any, output: int) -> Runner:
    def run(ids: Sequence[int]) -> Run:
        given = torch.tensor([list(ids)])
        streamer = Moments()
        with torch.inference_mode():
            begun = time.perf_counter()
            peer.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=output,
                min_new_tokens=output,
                do_sample=False,
                streamer=streamer,
            )
        return from_moments([begun, *streamer.seen[1:]])

    return run


def load_peer(path: Path, dtype: torch.dtype) -> Any:
    """transformers' model of the same file, with its fused attention."""
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    peer = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="sdpa"
    )
    return peer.to(dtype).eval()


def from_moments(moments: Sequence[float]) -> Run:
    """`moments`: the start, then the arrival of every token."""
    begun, first, last = moments[0], moments[1], moments[-1]
    return Run(prefill=first - begun, tpot=(last - first) / (len(moments) - 2))


def measure(ours: Runner, theirs: Runner, length: int, pairs: int) -> list[tuple[Run, Run]]:
    """(engine, peer) pairs in ABBA order on fresh prompts, after two warm-up runs of each."""
    generator = torch.Generator().manual_seed(length)

    def fresh() -> list[int]:
        ids: list[int] = torch.randint(300, 40_000, (length,), generator=generator).tolist()
        return ids

    for _ in range(2):
        ours(fresh()), theirs(fresh())
    measured = []
    for pair in range(pairs):
        ids = fresh()
        if pair % 2 == 0:
            engine = ours(ids)
            measured.append((engine, theirs(ids)))
        else:
            peer = theirs(ids)
            measured.append((ours(ids), peer))
    return measured


def summarise(
    precision: str,
    prompt: int,
    measured: Sequence[tuple[Run, Run]],
    weight_bytes: int,
    model: Llama,
) -> Row:
    def median(values: Iterator[float]) -> float:
        return statistics.median(values)

    ratios = sorted(peer.tpot / ours.tpot for ours, peer in measured)
    tpot = median(ours.tpot for ours, _ in measured)
    peer_tpot = median(peer.tpot for _, peer in measured)
    return Row(
        precision=precision,
        prompt=prompt,
        prefill_ratio=median(peer.prefill / ours.prefill for ours, peer in measured),
        decode_ratio=statistics.median(ratios),
        decode_ratio_range=(ratios[0], ratios[-1]),
        prefill_ms=1e3 * median(ours.prefill for ours, _ in measured),
        peer_prefill_ms=1e3 * median(peer.prefill for _, peer in measured),
        tpot_ms=1e3 * tpot,
        peer_tpot_ms=1e3 * peer_tpot,
        gigabytes_per_second=weight_bytes / tpot / 1e9,
        peer_gigabytes_per_second=weight_bytes / peer_tpot / 1e9,
        kernel_path=model.kernel_path,
    )


def describe(row: Row) -> str:
    low, high = row.decode_ratio_range
    return (
        f"{row.precision:9} prompt {row.prompt:4}  "
        f"decode x{row.decode_ratio:.2f} [{low:.2f}, {high:.2f}]  "
        f"TPOT {row.tpot_ms:.1f} against {row.peer_tpot_ms:.1f} ms  "
        f"{row.gigabytes_per_second:.1f} against {row.peer_gigabytes_per_second:.1f} GB/s  "
        f"prefill x{row.prefill_ratio:.2f}  "
        f"{row.prefill_ms:.0f} against {row.peer_prefill_ms:.0f} ms  ({row.kernel_path['linear']})"
    )


if __name__ == "__main__":
    main()
