"""The table of quantisation: method x bits x group in quality, bytes and time.

    python benchmarks/quantisation.py [--only METHOD ...] [--pairs 8] [--fresh]
                                      [--markdown FILE] [--json FILE]

Every row is one build of the default model in bfloat16: its weights are made (or found where an
earlier run left them), laid out for this machine's kernels, scored against the float32 model on
2,048 tokens of the evaluation text, and timed beside the bfloat16 model in A B B A order.

KL          nats a token
top-1       share of equal first choices
MB          weights as they are held, and their bits a weight, scales and zeros counted in
TPOT, TTFT  ratios to bfloat16, below 1 where the build is faster (and its milliseconds)

A row that lost clearly more than one with fewer bits or wider groups of the same method is marked,
and below the table it is said what may be wrong. Exit status 1 says that there is such a row.

OpenMP's threads wait actively, as calibration sets it for trials on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "active")

import torch

from engine.config import EngineConfig, RunConfig, WeightsConfig, WorkloadConfig
from engine.measure.comparison import FullText, read_text
from engine.measure.quality import measure_quality
from engine.measure.workload import corpus_text
from engine.model.llama import Llama
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.quant.monotone import Breach, Row, monotone
from engine.quant.store import quantised_weights
from engine.quantised import Quantised
from engine.recipe import CALIBRATED, recipe_of
from engine.run.engine import Engine, SamplingParams
from engine.weight_format import ROW

PRECISION = "bfloat16"
TOKENS = {"rtn": 0, "awq": 4_096, "smoothquant": 4_096, "gptq": 12_288, "qat": 4_096}
"""Calibration tokens of each method: what it needs to be at its best, or near it."""

GRIDS: dict[str, tuple[tuple[int, int], ...]] = {
    "rtn": ((8, ROW), (4, 32), (4, 64), (4, 192), (3, 32), (3, 64), (2, 32)),
    "awq": ((8, ROW), (4, 32), (4, 64), (4, 192), (3, 32), (3, 64), (2, 32)),
    "gptq": ((8, ROW), (4, 32), (4, 64), (4, 192), (3, 32), (3, 64), (2, 32)),
    "smoothquant": ((8, ROW),),
    "qat": ((4, 32), (4, 64), (3, 32), (2, 32)),
}
"""(bits, group) of each method's rows; the embedding is in 8 bits by rows throughout."""


@dataclass(frozen=True)
class Line:
    """One build. `bits_held` counts scales and zeros in; `tpot` and `ttft` are (candidate over
    bfloat16, candidate's milliseconds), medians over the pairs."""

    method: str
    bits: int
    group: int
    calibration: int
    kl: float
    top1: float
    perplexity_ratio: float
    megabytes: float
    bits_held: float
    tpot: tuple[float, float]
    ttft: tuple[float, float]
    changed_layers: int
    seconds: float
    notices: tuple[str, ...]
    kernel_path: str

    @property
    def row(self) -> Row:
        return Row(f"{self.method} {self.calibration}", self.bits, self.group, self.kl)


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    lines: list[Line] = []
    for line in run(load_model(find_model("default")), arguments):
        lines.append(line)
        print(describe(line), file=sys.stderr, flush=True)
    breaches = monotone([line.row for line in lines])
    table = markdown(lines, breaches, arguments)
    print(table)
    if arguments.markdown:
        arguments.markdown.write_text(table + "\n", encoding="utf-8")
    if arguments.json:
        report = {
            "threads": arguments.threads,
            "pairs": arguments.pairs,
            "prompt": arguments.prompt,
            "output": arguments.output,
            "torch": torch.__version__,
            "rows": [asdict(line) for line in lines],
            "not_monotone": [asdict(breach) for breach in breaches],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    sys.exit(1 if breaches else 0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(GRIDS), choices=GRIDS, metavar="METHOD")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of timed runs; 0 times nothing")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the timed prompt")
    parser.add_argument("--output", type=int, default=24, help="tokens of the timed answer")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--fresh", action="store_true", help="make all weights anew")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run(loaded: LoadedModel, arguments: argparse.Namespace) -> Iterator[Line]:
    """The full bfloat16 model first, then every method's rows from many bits to few."""
    truth = Llama(loaded.config, loaded.tensors, "float32")
    full = Llama(loaded.config, loaded.tensors, PRECISION)
    text = read_text(truth, loaded.tokenizer.encode(corpus_text()))
    yield measure(truth, full, full, text, "full", WeightsConfig(), None, arguments)
    for method in arguments.only:
        for bits, group in GRIDS[method]:
            weights = WeightsConfig(
                bits=bits,
                group=0 if group == ROW else group,
                method=method,
                calibration=TOKENS[method] or WeightsConfig().calibration,
            )
            candidate, report = build(loaded, weights, arguments.fresh)
            yield measure(truth, full, candidate, text, method, weights, report, arguments)


def build(loaded: LoadedModel, weights: WeightsConfig, fresh: bool) -> tuple[Llama, Quantised]:
    recipe = recipe_of(weights, loaded.config)
    made = quantised_weights(loaded, recipe, PRECISION, fresh=fresh)
    model = Llama(
        loaded.config, loaded.tensors, PRECISION, quantised=made, crossover=weights.crossover
    )
    return model, made.report


def measure(
    truth: Llama,
    full: Llama,
    candidate: Llama,
    text: FullText,
    method: str,
    weights: WeightsConfig,
    report: Quantised | None,
    arguments: argparse.Namespace,
) -> Line:
    quality = measure_quality(truth, candidate, (), text=text)
    elements = candidate.config.matrix_elements
    runs = timed(full, candidate, weights, arguments)
    return Line(
        method=method,
        bits=weights.bits or 16,
        group=recipe_group(weights, candidate),
        calibration=weights.calibration if method in CALIBRATED else 0,
        kl=quality.kl,
        top1=quality.top1,
        perplexity_ratio=quality.perplexity_ratio,
        megabytes=candidate.weight_bytes / 1e6,
        bits_held=8 * candidate.weight_bytes / elements,
        tpot=summary([(one.tpot, other.tpot) for one, other in runs]),
        ttft=summary([(one.ttft, other.ttft) for one, other in runs]),
        changed_layers=report.changed_layers if report else 0,
        seconds=report.seconds if report else 0.0,
        notices=tuple(notice.code for notice in report.notices) if report else (),
        kernel_path=candidate.kernel_path["linear"],
    )


def recipe_group(weights: WeightsConfig, model: Llama) -> int:
    scheme = recipe_of(weights, model.config).layers[0].mlp
    return ROW if scheme is None else scheme.group


# Time


@dataclass(frozen=True)
class Run:
    """Seconds to the first token, and seconds a token after it."""

    ttft: float
    tpot: float


def timed(
    full: Llama, candidate: Llama, weights: WeightsConfig, arguments: argparse.Namespace
) -> list[tuple[Run, Run]]:
    """(candidate, full) runs in A B B A order on prompts drawn afresh, after one of each."""
    if not arguments.pairs:
        return []
    workload = WorkloadConfig(prompt=arguments.prompt, output=arguments.output)
    source = torch.Generator().manual_seed(0)

    def runner(model: Llama, kept: WeightsConfig) -> Callable[[list[int]], Run]:
        run = RunConfig(PRECISION, arguments.threads)
        engine = Engine(model, EngineConfig(workload, run=run, weights=kept))

        def serve(prompt: list[int]) -> Run:
            engine.reset()
            begun = time.perf_counter()
            engine.add_request(prompt, SamplingParams(arguments.output, ignore_eos=True))
            while engine.step().phase == "prefill":  # its last pass gives the first token
                first = time.perf_counter()
            while engine.has_work:
                engine.step()
            spent = time.perf_counter() - first
            return Run(first - begun, spent / (arguments.output - 1))

        return serve

    ours, theirs = runner(candidate, weights), runner(full, WeightsConfig())
    pairs = []
    for number in range(arguments.pairs + 1):
        prompt = torch.randint(300, 40_000, (arguments.prompt,), generator=source).tolist()
        order = (ours, theirs) if number % 2 else (theirs, ours)
        done = {serve: serve(prompt) for serve in order}
        pairs.append((done[ours], done[theirs]))
    return pairs[1:]


def summary(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(median ratio, median of the first in milliseconds); zeros where nothing was timed."""
    if not pairs:
        return (0.0, 0.0)
    ratio = statistics.median(one / other for one, other in pairs)
    return (ratio, 1e3 * statistics.median(one for one, _ in pairs))


# Telling


def describe(line: Line) -> str:
    return (
        f"{line.method:12}{line.bits:3} bits  group {group_name(line.group):>4}  "
        f"KL {line.kl:7.4f}  top-1 {line.top1:5.1%}  {line.megabytes:6.1f} MB  "
        f"TPOT x{line.tpot[0]:.2f}  "
        f"TTFT x{line.ttft[0]:.2f}  {line.seconds:5.1f} s  ({line.kernel_path})"
    )


def group_name(group: int) -> str:
    return "row" if group == ROW else str(group)


def markdown(
    lines: Sequence[Line], breaches: Sequence[Breach], arguments: argparse.Namespace
) -> str:
    """The table, and below it what is wrong with any row that is marked."""
    marked = {breach.finer for breach in breaches}
    told = [
        "| method | bits | group | calibration | KL | top-1 | MB | bits held | TPOT, x bf16 (ms) "
        "| TTFT, x bf16 (ms) | products by |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        mark = " **!**" if line.row in marked else ""
        cells = (
            line.method,
            str(line.bits),
            "" if line.method == "full" else group_name(line.group),
            f"{line.calibration:,}" if line.calibration else "",
            f"{line.kl:.4f}{mark}",
            f"{line.top1:.1%}",
            f"{line.megabytes:.1f}",
            f"{line.bits_held:.2f}",
            f"{line.tpot[0]:.2f} ({line.tpot[1]:.1f})",
            f"{line.ttft[0]:.2f} ({line.ttft[1]:.0f})",
            line.kernel_path,
        )
        told.append(f"| {' | '.join(cells)} |")
    told += [
        "",
        f"Prompt {arguments.prompt} tokens, answer {arguments.output}, batch 1, "
        f"{arguments.threads} threads, {arguments.pairs} pairs; bfloat16 throughout.",
        *(explain(breach, lines) for breach in breaches),
    ]
    return "\n".join(told)


def explain(breach: Breach, lines: Sequence[Line]) -> str:
    """What is odd about a marked row, and where to look."""
    finer, coarser = (
        next(line for line in lines if line.row == row) for row in (breach.finer, breach.coarser)
    )
    if "calibration_short" in finer.notices:
        why = f"{finer.calibration} calibration tokens are fewer than a layer is wide"
    elif finer.kernel_path != coarser.kernel_path:
        why = f"the kernels differ ({finer.kernel_path} against {coarser.kernel_path}): look there"
    elif finer.method in CALIBRATED:
        why = "the method chose otherwise on the calibration text: try it with more tokens"
    else:
        why = "rounding to nearest chooses nothing: look for a fault in grid or packing"
    return (
        f"\n**!** {finer.method}, {finer.bits} bits, group {group_name(finer.group)}: KL "
        f"{finer.kl:.4f}, above the {coarser.kl:.4f} of {coarser.bits} bits, group "
        f"{group_name(coarser.group)}; {why}."
    )


if __name__ == "__main__":
    main()
