"""The table of speculation: who drafts x how much x for what, and where it loses.

    python benchmarks/speculation.py [--only WORD ...] [--pairs 8] [--markdown FILE] [--json FILE]

Every row is one build of the default model beside the same build without a draft, both timed in
A B B A order on the same fresh prompts, in one process. Rows are named target/draft/length/batch;
--only takes those whose name has one of the words in it. Rows that the JSON file holds already,
made with the same settings, are kept and not run again.

TPOT        ratio to the build without a draft: below 1 where drafting is faster
stood       accepted over drafted tokens, in the timed runs
a step      mean tokens of a decode step, and what it would take to break even here
drafting    share of decode that went into drafting
by kind     acceptance while telling a story, writing code, writing a list
same        greedy answers that are those without a draft, of all that were compared; near-ties
            of rounding are counted apart, with the widest. Of sampled answers, how many tokens
            were placed within the model's own distribution, and how often fair draws lie as far
            from evenness (p)

OpenMP's threads wait actively, as calibration sets it for trials on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "active")

import torch

from engine.detect import detect
from engine.domains import Value
from engine.intervals import decide
from engine.machine import load_profile
from engine.measure.calibrate import calibrate
from engine.measure.shelf import Shelf
from engine.measure.trial_runner import TrialRunner
from engine.metrics import Evidence, point_estimates, samples
from engine.model.loader import load_model
from engine.model.store import find_model
from engine.trial import Bound, TrialResult, TrialSpec

TARGETS: dict[str, dict[str, Value]] = {
    "float32": {"run.precision": "float32"},
    "float32 at 0.7": {"run.precision": "float32", "sampling.temperature": 0.7},
    "float32 at 1": {"run.precision": "float32", "sampling.temperature": 1.0},
    "bfloat16": {"run.precision": "bfloat16"},
    "int4": {
        "run.precision": "bfloat16",
        "weights.bits": 4,
        "weights.method": "awq",
        "weights.group": 32,
    },
}
Row = tuple[str, str, int, int]
"""(target, draft, length, batch)."""

ROWS: tuple[Row, ...] = (
    *(("float32", "self4", length, 1) for length in (1, 2, 4, 6, 8, 16)),
    *(("float32", "trained", length, 1) for length in (1, 2, 4, 8, 16)),
    ("float32", "self8", 4, 1),
    ("float32", "exit", 4, 1),
    ("float32", "ngram", 4, 1),
    ("float32", "ngram", 8, 1),
    *(("bfloat16", "self4", length, 1) for length in (2, 4, 8, 16)),
    ("bfloat16", "trained", 2, 1),
    ("bfloat16", "trained", 4, 1),
    ("bfloat16", "self8", 4, 1),
    ("float32", "self4", 4, 4),
    ("float32", "self4", 4, 16),
    ("bfloat16", "self4", 4, 16),
    ("int4", "self4", 4, 1),
    ("int4", "trained", 2, 1),
    ("int4", "ngram", 4, 1),
    ("float32 at 0.7", "self4", 4, 1),
    ("float32 at 1", "self4", 4, 1),
    ("float32 at 1", "trained", 2, 1),
    ("float32 at 1", "ngram", 4, 1),
)
WORKLOAD: dict[str, Value] = {"workload.prompt": 128, "workload.output": 48}


@dataclass(frozen=True)
class Line:
    """One row. `tpot` is the ratio with its confidence interval; None where nothing tells it."""

    target: str
    draft: str
    length: int
    batch: int
    tpot: tuple[float, float, float]
    stood: float
    step_tokens: float
    even_tokens: float
    even_acceptance: float | None
    drafting: float
    by_kind: dict[str, float | None]
    compared: int
    identical: int
    near_ties: int
    widest_tie: float
    faults: tuple[str, ...]
    form: str
    drawn: int = 0
    chance: float = 1.0

    @property
    def name(self) -> str:
        return name_of((self.target, self.draft, self.length, self.batch))


def name_of(row: Row) -> str:
    return "/".join(map(str, row))


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    settings = {
        "threads": arguments.threads,
        "pairs": arguments.pairs,
        "torch": torch.__version__,
        "workload": WORKLOAD,
    }
    made = kept(arguments.json, settings)
    for line in run(arguments, made):
        made[line.name] = line
        print(describe(line), file=sys.stderr, flush=True)
        if arguments.json:
            report = settings | {"rows": [asdict(line) for line in in_order(made)]}
            arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    table = markdown(in_order(made), arguments)
    print(table)
    if arguments.markdown:
        arguments.markdown.write_text(table + "\n", encoding="utf-8")


def kept(file: Path | None, settings: dict[str, Any]) -> dict[str, Line]:
    """The rows that an earlier run of the same settings has left, by name."""
    if file is None or not file.exists():
        return {}
    report = json.loads(file.read_text(encoding="utf-8"))
    rows = report.pop("rows")
    return {(line := Line(**row)).name: line for row in rows} if report == settings else {}


def in_order(made: Mapping[str, Line]) -> list[Line]:
    return [made[name] for row in ROWS if (name := name_of(row)) in made]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run(arguments: argparse.Namespace, made: Mapping[str, Line]) -> Iterator[Line]:
    """The rows that can run here and are not made yet, in their order."""
    capabilities = detect()
    shelf = Shelf(load_model(find_model("default")))
    machine = load_profile(capabilities.fingerprint) or calibrate(
        capabilities, lambda _: None, lambda: False, model=shelf.config
    )
    runner = TrialRunner(shelf, machine, capabilities, lambda _: None, lambda: False)
    for row in ROWS:
        name = name_of(row)
        if name in made or not any(word in name for word in arguments.only):
            continue
        if shelf.drafters.why_not(row[1]) is not None:
            print(f"{name}: {shelf.drafters.why_not(row[1])}", file=sys.stderr)
            continue
        yield line_of(row, runner.run(1, spec(row, arguments.pairs)))


def spec(row: Row, pairs: int) -> TrialSpec:
    target, draft, length, batch = row
    plain = TARGETS[target] | WORKLOAD | {"schedule.batch": batch}
    return TrialSpec(
        stage="speculation",
        kind="paired",
        build=plain | {"draft.kind": draft, "draft.length": length},
        reference=plain,
        seed=7,
        looks=(pairs,),
        quality=False,
    )


def line_of(row: Row, result: TrialResult) -> Line:
    evidence = Evidence.of(result)
    figures = point_estimates(evidence)
    ratio = decide(samples(evidence, ["tpot_ratio"]), [Bound("tpot_ratio", "<=", 1.0)], 0.05, 0.0)
    estimate = ratio[0].estimate
    report = result.draft
    proof = report.lossless if report is not None else None
    drawn = report.drawn if report is not None else None
    texts = report.texts if report is not None else ()
    return Line(
        *row,
        tpot=(estimate.point, estimate.low, estimate.high),
        stood=figures["acceptance_rate"],
        step_tokens=figures["acceptance_length"],
        even_tokens=figures["break_even_length"],
        even_acceptance=figures.get("break_even_acceptance"),
        drafting=figures["draft_time_share"],
        by_kind={one.kind: one.acceptance for one in texts},
        compared=proof.requests if proof else 0,
        identical=proof.identical if proof else 0,
        near_ties=proof.near_ties if proof else 0,
        widest_tie=proof.widest if proof else 0.0,
        faults=tuple(fault.code for fault in result.faults),
        form=result.kernel_path.get("draft", ""),
        drawn=drawn.tokens if drawn else 0,
        chance=drawn.chance if drawn else 1.0,
    )


def describe(line: Line) -> str:
    point, low, high = line.tpot
    return (
        f"{line.name}: TPOT {point:.3f} "
        f"({low:.3f} to {high:.3f}), stood {line.stood:.2f}, {line.step_tokens:.2f} a step of "
        f"{line.even_tokens:.2f}, drafting {line.drafting:.2f}, {proved(line)}"
        f"{' ' + ', '.join(line.faults) if line.faults else ''}"
    )


def proved(line: Line) -> str:
    if line.drawn:
        return f"{line.drawn} tokens drawn, p {line.chance:.2g}"
    same = f"{line.identical + line.near_ties} of {line.compared}"
    if line.near_ties:
        same += f", {line.near_ties} near-ties up to {line.widest_tie:.2g}"
    return same


def markdown(lines: list[Line], arguments: argparse.Namespace) -> str:
    """The table, and beneath it how it was made."""
    head = (
        "| target | draft | length | batch | TPOT | stood | a step | to break even | drafting "
        "| story | code | list | same |"
    )
    rows = [head, "|" + "---|" * 13]
    for line in lines:
        point, low, high = line.tpot
        kinds = [
            "-" if (rate := line.by_kind.get(kind)) is None else f"{rate:.2f}"
            for kind in ("story", "code", "list")
        ]
        even = f"{line.even_tokens:.2f}"
        if line.even_acceptance is not None:
            even += f" ({line.even_acceptance:.2f})"
        marks = "".join(f", {fault}" for fault in line.faults)
        rows.append(
            f"| {line.target} | {line.draft} | {line.length} | {line.batch} "
            f"| {point:.2f} ({low:.2f} to {high:.2f}){marks} | {line.stood:.2f} "
            f"| {line.step_tokens:.2f} | {even} | {line.drafting:.0%} "
            f"| {' | '.join(kinds)} | {proved(line)} |"
        )
    made = (
        f"{arguments.pairs} pairs a row in A B B A order, prompts of "
        f"{WORKLOAD['workload.prompt']} tokens and answers of {WORKLOAD['workload.output']}, "
        f"{arguments.threads} threads. TPOT is a ratio to the same build without a draft, with its "
        "95 % interval; in brackets after the tokens to break even, the acceptance that gives them."
    )
    return "\n".join([*rows, "", made])


if __name__ == "__main__":
    main()
