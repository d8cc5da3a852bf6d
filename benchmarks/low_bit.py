"""Products by quantised weights against bfloat16, and the row count where dense overtakes them.

    python benchmarks/low_bit.py [--threads 2] [--rounds 7] [--rows 1 2 4 8 16 32 64 128 256]
                                 [--form NAME ...] [--no-compile] [--json FILE]

The matrices are the default model's: qkv, o, gate_up, down and the tied head. Each form goes
through copies of one that hold 48 million weights, so that they come from memory as in a model; the
three columns take turns within a round, so that a drift of the machine falls on all alike. The
fewest microseconds of the rounds are what a product takes. For each form:

product   the low-bit kernel
dense     the weight made dense and multiplied: what a crossover runs above its rows
bf16      the packed bfloat16 weight, what the low-bit form competes with

The break-even is the first row count from which dense stays the faster; none where it never does.
A last table adds up a model's layers: one decode step's products, and a prefill of 1,024 tokens.

OpenMP's threads wait actively, as calibration sets it for trials on a quiet machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "active")

import torch
from torch import Tensor

from kernels.linear.crossover import LowBit
from kernels.linear.dispatch import dense_product, resolve
from kernels.linear.fused import fused_functions
from kernels.linear.low_bit_forms import make_low_bit

SHAPES = {
    "qkv": (960, 576),
    "o": (576, 576),
    "gate_up": (3072, 576),
    "down": (576, 1536),
    "head": (49_152, 576),
}
LAYERS = 30
WORKING_SET = 48_000_000
"""Weights a form goes through in one round: more than a third-level cache holds, at 8 bits."""

PREFILL = 1_024


@dataclass(frozen=True)
class Kind:
    """A way to keep weights: what `make_low_bit` is asked for. `group` 0 is the whole row."""

    form: str
    bits: int
    group: int
    symmetric: bool


KINDS = {
    "int8-row": Kind("int8-row", 8, 0, True),
    "int8-dynamic": Kind("int8-dynamic", 8, 0, True),
    "int4-g64": Kind("int4-group", 4, 64, False),
    "int4-g32": Kind("int4-group", 4, 32, False),
    "packed-8bit": Kind("packed", 8, 0, True),
    "packed-4bit": Kind("packed", 4, 96, False),
    "packed-3bit": Kind("packed", 3, 32, False),
    "packed-2bit": Kind("packed", 2, 32, False),
}


@dataclass(frozen=True)
class Row:
    """Microseconds of one product."""

    kind: str
    form: str
    matrix: str
    rows: int
    product: float
    dense: float
    bf16: float


Product = Callable[[Tensor], Tensor]


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    with torch.inference_mode():
        compiled = {} if arguments.no_compile else compile_all(arguments.form)
        rows = [
            row
            for name in arguments.form
            for matrix in SHAPES
            for row in measure(name, matrix, arguments.rows, arguments.rounds, arguments.no_compile)
        ]
    even = {name: break_evens(rows, name) for name in arguments.form}
    print_rows(rows, even)
    totals = {name: layer_totals(rows, name) for name in arguments.form}
    print_totals(totals)
    if arguments.json:
        report = {
            "threads": arguments.threads,
            "torch": str(torch.__version__),
            "compile_seconds": compiled,
            "rows": [asdict(row) for row in rows],
            "break_even_rows": even,
            "milliseconds_of_all_layers": totals,
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128, PREFILL]
    )
    parser.add_argument("--form", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def compile_all(names: Sequence[str]) -> dict[str, float]:
    """Seconds that compiling took, by width: none of them inside a timed product."""
    widths = sorted({KINDS[name].bits for name in names if KINDS[name].form == "packed"})
    seconds = {}
    for bits in widths:
        fused = fused_functions(bits, torch.bfloat16)
        if fused is not None:
            seconds[f"{bits} bits"] = round(fused.seconds, 2)
            print(f"compiled the functions of {bits} bits in {fused.seconds:.1f} s")
    return seconds


def measure(
    name: str, matrix: str, counts: Sequence[int], rounds: int, plain: bool
) -> Iterator[Row]:
    """One form and matrix at every row count; the head only at decode's."""
    kind, (outputs, inputs) = KINDS[name], SHAPES[matrix]
    if kind.group and inputs % kind.group:
        return
    copies = max(2, WORKING_SET // (outputs * inputs))
    low = [make(kind, outputs, inputs, plain) for _ in range(copies)]
    packed = [resolve(torch.randn(outputs, inputs).to(torch.bfloat16)) for _ in range(copies)]
    for count in counts:
        if matrix == "head" and count > 64:
            continue
        x = torch.randn(count, inputs).to(torch.bfloat16)
        times = race(
            {
                "product": low,
                "dense": [dense_form(one) for one in low],
                "bf16": packed,
            },
            x,
            rounds if count < 128 else max(2, rounds // 3),
        )
        yield Row(name, low[0].form, matrix, count, **times)
    del low, packed
    gc.collect()


def make(kind: Kind, outputs: int, inputs: int, plain: bool) -> LowBit:
    groups = inputs // (kind.group or inputs)
    codes = torch.randint(0, 1 << kind.bits, (outputs, inputs), dtype=torch.uint8)
    scale = torch.rand(outputs, groups) / 100
    zero = None if kind.symmetric else torch.randn(outputs, groups) / 100
    return make_low_bit(
        codes,
        scale,
        zero,
        bits=kind.bits,
        dtype=torch.bfloat16,
        form=kind.form,
        compiled=not plain,
    )


def dense_form(low: LowBit) -> Product:
    return lambda x: dense_product(x, low.dense())


def race(contenders: Mapping[str, Sequence[Product]], x: Tensor, rounds: int) -> dict[str, float]:
    """Microseconds of one product: the best of rounds in which everyone goes through its copies."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds + 1):  # the first warms up
        for name, copies in contenders.items():
            used = copies if x.shape[0] <= 128 else copies[:2]
            began = time.perf_counter()
            for product in used:
                product(x)
            best[name] = min(best[name], (time.perf_counter() - began) / len(used))
    return {name: round(1e6 * seconds, 1) for name, seconds in best.items()}


def break_evens(rows: Sequence[Row], name: str) -> dict[str, int | None]:
    """By matrix, the least row count from which on dense is the faster at every count measured."""
    found: dict[str, int | None] = {}
    for matrix in SHAPES:
        own = [row for row in rows if row.kind == name and row.matrix == matrix]
        even: int | None = None
        for row in sorted(own, key=lambda row: -row.rows):
            if row.dense >= row.product:
                break
            even = row.rows
        if own:
            found[matrix] = even
    return found


def layer_totals(rows: Sequence[Row], name: str) -> dict[str, dict[str, float]]:
    """Milliseconds of all layers' products at one row and at a prefill, where all four matrices
    were measured: the low-bit kernel, its dense form, bfloat16."""
    totals = {}
    for count in (1, PREFILL):
        own = [
            row for row in rows if row.kind == name and row.rows == count and row.matrix != "head"
        ]
        if len(own) == len(SHAPES) - 1:
            totals[f"{count} rows"] = {
                column: round(LAYERS * sum(getattr(row, column) for row in own) / 1e3, 2)
                for column in ("product", "dense", "bf16")
            }
    return totals


def print_rows(rows: Sequence[Row], even: Mapping[str, Mapping[str, int | None]]) -> None:
    print(f"{'form':36} {'matrix':8} {'rows':>5} {'product':>9} {'dense':>9} {'bf16':>9}  µs")
    for row in rows:
        numbers = f"{row.product:9.1f} {row.dense:9.1f} {row.bf16:9.1f}"
        print(f"{row.form:36} {row.matrix:8} {row.rows:5} {numbers}")
    for name, found in even.items():
        words = ", ".join(f"{matrix} {count or 'none'}" for matrix, count in found.items())
        print(f"break-even of {name} with dense, rows: {words}")


def print_totals(totals: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    print(f"{'all layers, ms':16} {'rows':>10} {'product':>9} {'dense':>9} {'bf16':>9}")
    for name, found in totals.items():
        for count, columns in found.items():
            numbers = " ".join(f"{value:9.2f}" for value in columns.values())
            print(f"{name:16} {count:>10} {numbers}")


if __name__ == "__main__":
    main()
