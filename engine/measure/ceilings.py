"""The best this machine was seen to do: read bandwidth, matmul rate, cost of an operator call.

A ceiling is the best of many tries, never their mean: it is what no honest run can beat. Each rate
is tried in the forms the engine itself uses (`kernels.linear`), because a ceiling that the engine's
own kernels pass is no ceiling. Every function measures with torch's present thread count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from engine.machine import Ceilings
from engine.measure.timing import Clock, collector_off, system_clock
from engine.model.llama import DTYPES
from engine.trial import PhaseWork
from kernels.linear.dispatch import Linear, resolve
from kernels.linear.plain import PlainLinear

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
FALLBACK_CACHE_BYTES = 64 << 20
BUFFER_LOW, BUFFER_HIGH = 256 << 20, 1 << 30

READ_SHAPE = (1536, 576)  # a layer's matrix in a small model; many of them make the buffer
READ_ROWS = (1, 4, 8)
MATMUL_SHAPES = ((1536, 576), (576, 1536), (2048, 2048))
MATMUL_ROWS = (128, 512, 256, 1024, 64)

DISPATCH_CALLS = 2000


def measure_ceilings(
    precisions: Iterable[str], seconds: float = 6.0, clock: Clock = system_clock
) -> Ceilings:
    """All ceilings of this machine, in about `seconds`: a third for reading, half for products.

    Raises:
        ValueError: no precision, or an unknown one.
    """
    names = tuple(precisions)
    for name in names:
        if name not in DTYPES:
            raise ValueError(f"no precision is named {name!r}; legal: {', '.join(DTYPES)}")
    if not names:
        raise ValueError("ceilings need at least one precision to multiply in")
    return Ceilings(
        read_bytes_per_second=read_bandwidth(read_buffer_bytes(), seconds / 3, clock),
        flops_per_second={
            name: matmul_rate(name, seconds / 2 / len(names), clock=clock) for name in names
        },
        dispatch_seconds=dispatch_cost(clock),
    )


def last_level_cache_bytes(caches: Path = CACHES) -> int:
    """The largest cache the first core sees; a cautious 64 MiB where the system does not say."""
    sizes = []
    for file in caches.glob("index*/size"):
        try:
            text = file.read_text().strip()
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
            sizes.append(int(text.rstrip("KMG")) * unit)
        except (OSError, ValueError):
            continue
    return max(sizes, default=FALLBACK_CACHE_BYTES)


def read_buffer_bytes() -> int:
    """Much larger than the last-level cache, so that what is read comes from memory."""
    return min(max(4 * last_level_cache_bytes(), BUFFER_LOW), BUFFER_HIGH)


def read_bandwidth(buffer_bytes: int, seconds: float = 2.0, clock: Clock = system_clock) -> float:
    """Best bytes/s at which `buffer_bytes` were read, over every way of reading tried.

    The ways: a plain sum, and products of a few rows with a set of packed matrices, which is how
    decode reads its weights. With a buffer no larger than a run's own weights this is the honest
    floor of that run even where they fit in a large cache.
    """
    best = 0.0
    for build in (_summing, _multiplying):
        read, size = build(buffer_bytes)
        best = max(best, size / _best(read, seconds / 2, clock))
    return best


def _summing(buffer_bytes: int) -> tuple[Callable[[int], object], int]:
    """A sum over one long float32 vector."""
    buffer = torch.ones(max(buffer_bytes // 4, 1))
    return lambda _: buffer.sum(), buffer.nbytes


def _multiplying(buffer_bytes: int) -> tuple[Callable[[int], object], int]:
    """A pass over many float32 matrices in the engine's linear form, by a few rows each."""
    outputs, inputs = READ_SHAPE
    count = max(buffer_bytes // (outputs * inputs * 4), 1)
    weight = torch.ones(outputs, inputs)
    matrices = [resolve(weight) for _ in range(count)]
    rows = [torch.ones(rows, inputs) for rows in READ_ROWS]

    def read(attempt: int) -> None:
        x = rows[attempt % len(rows)]
        for matrix in matrices:
            matrix(x)

    return read, count * outputs * inputs * 4


def matmul_rate(
    precision: str,
    seconds: float = 1.5,
    shapes: Iterable[tuple[int, int]] = MATMUL_SHAPES,
    rows: Iterable[int] = MATMUL_ROWS,
    clock: Clock = system_clock,
) -> float:
    """Best FLOP/s of X W^T over shapes (N, K), row counts, and the forms torch and the engine use.

    A product of [R, K] by [N, K] is 2 · R · N · K operations. `seconds` are shared out evenly; a
    precision so slow that they are spent early keeps the best of what was tried.
    """
    dtype = DTYPES[precision]
    weights = [torch.full(shape, 0.5, dtype=dtype) for shape in shapes]
    forms: list[Linear] = [form for w in weights for form in (PlainLinear(w), resolve(w))]
    sizes = [weight.shape for weight in weights for _ in range(2)]
    counts = tuple(rows)
    share = seconds / (len(forms) * len(counts))
    best, start = 0.0, clock()
    for count in counts:
        for form, (outputs, inputs) in zip(forms, sizes, strict=True):
            if best and (clock() - start) / 1e9 > seconds:
                return best
            x = torch.full((count, inputs), 0.5, dtype=dtype)
            work = 2 * count * outputs * inputs
            best = max(best, work / _best(_product(form, x), share, clock))
    return best


def _product(form: Linear, x: Tensor) -> Callable[[int], object]:
    return lambda _: form(x)


def dispatch_cost(clock: Clock = system_clock, tries: int = 9) -> float:
    """Fewest seconds an operator call took whose work is nothing: adding one number in place."""
    x, y = torch.zeros(1), torch.zeros(1)
    best = math.inf
    with torch.inference_mode(), collector_off():
        for _ in range(tries):
            start = clock()
            for _ in range(DISPATCH_CALLS):
                x.add_(y)
            best = min(best, (clock() - start) / 1e9 / DISPATCH_CALLS)
    return max(best, 1e-9)


@torch.inference_mode()
def _best(work: Callable[[int], object], seconds: float, clock: Clock) -> float:
    """Fewest seconds `work` took, over at least 2 tries and until `seconds` are spent."""
    best, attempt = math.inf, 0
    with collector_off():
        start = clock()
        while attempt < 2 or (clock() - start) / 1e9 < seconds:
            began = clock()
            work(attempt)
            best = min(best, (clock() - began) / 1e9)
            attempt += 1
    return max(best, 1e-9)


def highest(first: Ceilings, second: Ceilings) -> Ceilings:
    """The better of two measurements, rate by rate: a ceiling only ever rises."""
    rates: Mapping[str, float] = {
        name: max(first.flops_per_second.get(name, 0.0), second.flops_per_second.get(name, 0.0))
        for name in {**first.flops_per_second, **second.flops_per_second}
    }
    return Ceilings(
        read_bytes_per_second=max(first.read_bytes_per_second, second.read_bytes_per_second),
        flops_per_second=dict(rates),
        dispatch_seconds=min(first.dispatch_seconds, second.dispatch_seconds),
    )


def measure_again(
    before: Ceilings, work: PhaseWork, shapes: Iterable[tuple[int, int]] = MATMUL_SHAPES
) -> Ceilings:
    """The ceilings after a second look, when a run seemed to beat them; never lower than `before`.

    Reads both a buffer far beyond the caches and one of the run's own size: weights that fit in a
    large cache are honestly read faster than memory allows. Multiplies in the run's precision, on
    the model's own `shapes` beside the usual ones.
    """
    sizes = (read_buffer_bytes(), int(min(work.decode.bytes_moved, BUFFER_HIGH)))
    again = Ceilings(
        read_bytes_per_second=max(read_bandwidth(size, 2.0) for size in sizes),
        flops_per_second={
            work.precision: matmul_rate(work.precision, 3.0, {*MATMUL_SHAPES, *shapes})
        },
        dispatch_seconds=before.dispatch_seconds,
    )
    return highest(before, again)
