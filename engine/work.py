"""What a phase cannot avoid: bytes that must move, operations that must run, operator calls.

Torch-free. Bytes are those read or written at least once: every weight in every pass, in as many
bits as it is kept in; each token's keys and values where they are made and where they are looked
at. Operations are multiply-adds, two each. What a build will do is counted from its workload, at
mean lengths where those are drawn; what a served load has done, from what was counted while it ran.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from engine.activations import JOIN_ROWS
from engine.cache_plan import CachePlan, token_bytes
from engine.calls import Calls
from engine.config import EngineConfig
from engine.load import RequestShape, mean_load
from engine.model.config import ModelConfig
from engine.precision import element_bytes
from engine.recipe import Matrix, matrices, read_bytes, recipe_of
from engine.trial import LoadSample, PhaseWork, Work


@dataclass(frozen=True, slots=True)
class Slice:
    """`count` tokens of one prompt in one pass, after `start` that are already cached."""

    start: int
    count: int


# What runs together


def running(config: EngineConfig, plan: CachePlan) -> int:
    """Requests that decode together at mean lengths: seats taken, and room for what they hold."""
    load = mean_load(config)
    most = min(config.schedule.batch, len(load), plan.units)
    if plan.layout == "contiguous":
        return most
    size = plan.block_size
    shared = config.workload.system // size if config.cache.prefix_sharing == "on" else 0
    own = fmean(-(-(shape.prompt + shape.output - 1) // size) for shape in load) - shared
    return max(min(most, int((plan.blocks - shared) / own)), 1)


def prefill_passes(config: EngineConfig, seats: int | None = None) -> tuple[tuple[Slice, ...], ...]:
    """Which tokens run in which pass until every prompt is in the cache, `seats` at a time.

    A chunk of c tokens fills each pass with up to c rows and splits a prompt where it must; without
    one, whole prompts share a pass while they stay within JOIN_ROWS. With prefix sharing, prompts
    after the first pass begin where their shared beginning ends.
    """
    prompts = [shape.prompt for shape in mean_load(config)]
    shared = config.workload.system if config.cache.prefix_sharing == "on" else 0
    together = seats or config.schedule.batch
    passes: list[tuple[Slice, ...]] = []
    for first in range(0, len(prompts), together):
        waiting = [(shared if passes else 0, prompt) for prompt in prompts[first:][:together]]
        while waiting:
            taken = _take(waiting, config.schedule.prefill_chunk)
            passes.append(tuple(taken))
            start, prompt = waiting[len(taken) - 1]
            done = start + taken[-1].count
            rest = [(done, prompt)] if done < prompt else []
            waiting = rest + waiting[len(taken) :]
            if len(passes) == 1:
                waiting = [(start or shared, prompt) for start, prompt in waiting]
    return tuple(passes)


def _take(waiting: Sequence[tuple[int, int]], chunk: int) -> list[Slice]:
    """One pass over (start, prompt) in order; only the last one taken may stay unfinished."""
    room = chunk or max(JOIN_ROWS, waiting[0][1] - waiting[0][0])
    taken: list[Slice] = []
    for start, prompt in waiting:
        if room == 0 or (not chunk and prompt - start > room):
            break
        count = min(prompt - start, room)
        taken.append(Slice(start, count))
        room -= count
    return taken


# What a build will do


def prefill_work(
    config: EngineConfig,
    model: ModelConfig,
    seats: int | None = None,
    forms: Collection[str] = (),
) -> Work:
    """One run's whole prefill: every pass reads every weight, whatever rows share it.

    `forms` are this machine's low-bit forms, here and in what follows.
    """
    weights = _Weights.of(config, model, forms)
    size = element_bytes(config.run.precision)
    passes = prefill_passes(config, seats)
    slices = [part for one in passes for part in one]
    tokens = sum(part.count for part in slices)
    cached = sum(part.start for part in slices)  # read back: by later chunks, by those who share
    seen = sum(_attended(part, model.sliding_window) for part in slices)
    head = 2 * len(slices) * weights.head
    calls = Calls(config, model, size, forms)
    dispatches = sum(calls.prefill(sum(part.count for part in one), len(one)) for one in passes)
    return Work(
        bytes_moved=float(
            len(passes) * weights.nbytes + token_bytes(config, model, size) * (tokens + cached)
        ),
        flops=2.0 * tokens * weights.layers + head + _attention_flops(model, seen),
        dispatches=float(dispatches),
    )


def decode_work(
    config: EngineConfig,
    model: ModelConfig,
    sequences: int | None = None,
    forms: Collection[str] = (),
) -> Work:
    """One mean decode step of `sequences` (the batch): the weights once for all of them, each
    one's keys and values for itself."""
    weights = _Weights.of(config, model, forms)
    size = element_bytes(config.run.precision)
    batch = sequences or config.schedule.batch
    context = fmean(_mean_context(shape, model.sliding_window) for shape in mean_load(config))
    return Work(
        bytes_moved=weights.nbytes + token_bytes(config, model, size) * batch * (context + 1),
        flops=2.0 * batch * weights.all + _attention_flops(model, batch * context),
        dispatches=float(Calls(config, model, size, forms).decode(batch, context)),
    )


def _mean_context(shape: RequestShape, window: int | None) -> float:
    """Keys a mean decode step sees: from prompt + 1 at the first to prompt + output - 1."""
    context = shape.prompt + shape.output / 2
    return context if window is None else min(context, window)


# What a served load has done


def load_work(
    sample: LoadSample, config: EngineConfig, model: ModelConfig, forms: Collection[str] = ()
) -> PhaseWork:
    """The work that a load could not avoid, from what was counted while it was served.

    `prefill` is all of its prefill, `decode` its mean decode step. A floor: keys and values found
    in the prefix cache may be read once for all who share them, so each request is charged for its
    own alone; one that was put back gets its next token from prefill, and is charged for the
    shortest steps it can have made.
    """
    weights = _Weights.of(config, model, forms)
    size = element_bytes(config.run.precision)
    each, window = token_bytes(config, model, size), model.sliding_window
    requests, steps = sample.requests, max(sample.decode_steps, 1)
    prompts = [Slice(r.cached_tokens, r.prompt_tokens - r.cached_tokens) for r in requests]
    calls = Calls(config, model, size, forms)
    rows_a_pass = sample.prefilled_tokens // max(sample.prefill_passes, 1)
    prefill_seen = sum(_attended(part, window) for part in prompts)
    prefill = Work(
        bytes_moved=float(sample.prefill_passes * weights.nbytes + each * sample.prefilled_tokens),
        flops=2.0 * sample.prefilled_tokens * weights.layers
        + 2 * len(requests) * weights.head
        + _attention_flops(model, prefill_seen),
        dispatches=float(sample.prefill_passes * calls.prefill(rows_a_pass, 1)),
    )
    answers = [
        Slice(r.prompt_tokens, max(r.output_tokens - 1 - r.preemptions, 0)) for r in requests
    ]
    rows = sum(part.count for part in answers)
    seen = sum(_attended(part, window) for part in answers)
    own = sum(
        max(_attended(part, window) - r.cached_tokens * part.count, 0)
        for part, r in zip(answers, requests, strict=True)
    )
    decode = Work(
        bytes_moved=weights.nbytes + each * (own + rows) / steps,
        flops=(2.0 * rows * weights.all + _attention_flops(model, seen)) / steps,
        dispatches=float(calls.decode(max(rows // steps, 1), seen / max(rows, 1))),
    )
    return PhaseWork(precision=config.run.precision, prefill=prefill, decode=decode)


# Counts


_OPERAND_BYTES: Mapping[str, int] = {"int8-dynamic": 1, "int8-row": 3, "int4-group": 2}
"""Bytes of an activation, or of all its pieces, as a low-bit form multiplies it, where that is less
than the run's own."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """What one pass does with the weights: the bytes it reads, and multiply-adds a row, of the
    layers and of the head.

    A multiply-add counts in numbers as wide as the run's, whose rate was measured. Of narrower ones
    more fit a register, and each counts so much less: a floor must not be above what a kernel can.
    """

    nbytes: int
    layers: float
    head: float

    @classmethod
    def of(cls, config: EngineConfig, model: ModelConfig, forms: Collection[str]) -> _Weights:
        size = element_bytes(config.run.precision)
        recipe = recipe_of(config.weights, model)
        head = model.vocabulary * model.hidden
        if not recipe.quantises:
            layers = model.layers * model.layer_matrix_elements
            return cls(size * (layers + head), layers, head)

        def operations(matrix: Matrix) -> float:
            width = _OPERAND_BYTES.get(matrix.form(forms) or "", size)
            return matrix.elements * min(width, size) / size

        found = list(matrices(recipe, model))
        return cls(
            read_bytes(recipe, model, size, forms),
            sum(operations(matrix) for matrix in found if matrix.layer is not None),
            operations(found[-1]),
        )

    @property
    def all(self) -> float:
        return self.layers + self.head


def _attention_flops(model: ModelConfig, seen: float) -> float:
    """Scores and their weighted sum over `seen` (query, key) pairs: 4 · width · layers each."""
    return 4.0 * model.layers * model.query_width * seen


def _attended(part: Slice, window: int | None) -> int:
    """Keys seen by a slice's queries under the causal mask: the sum of position + 1."""
    first, last = part.start + 1, part.start + part.count
    if window is None or last <= window:
        return (first + last) * part.count // 2
    growing = max(window - first + 1, 0)
    return (2 * first + growing - 1) * growing // 2 + window * (part.count - growing)
