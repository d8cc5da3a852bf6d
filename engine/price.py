"""What a build will cost, by formula, before anything runs.

Torch-free: the forge shows these figures while the player turns the knobs. Bytes are exact for
weights and KV cache. Activations follow the tensors of one pass through `engine.model.llama` and
take the worst moment; buffers that kernels keep to themselves are not tensors and are not counted,
here or in the engine's own account. `Work` counts what a pass cannot avoid: bytes that must be read
or written, multiply-adds that must be done (2 operations each), and operator calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.trial import PhaseWork, Work

ELEMENT_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
JOIN_ROWS = 128
"""Rows within which whole prompts share a prefill pass; the scheduler's own figure."""

CALLS_A_PASS, CALLS_A_LAYER, CALLS_A_QK_NORM = 42, 35, 5
CALLS_A_SHARPENED_PASS = 13
CALLS_A_SPAN_LAYER = 6
CALLS_OF_FEW_ROWS, FEWEST_ROWS = 8, 4
"""Operator calls, counted with a dispatch mode: of a pass, of each layer, of a head whose largest
scores are computed again, of each further sequence that prefill attends to by itself, and of
filling fewer rows up to four in each layer."""

_FLOAT, _INDEX = 4, 8


@dataclass(frozen=True)
class Price:
    """Bytes by part, as the engine's own account names them, and the work of both phases.

    `prefill` is one run's whole prefill, `decode` one mean decode step of that run.
    """

    weights: int
    kv: int
    activations: int
    scratch: int
    prefill: Work
    decode: Work
    precision: str

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.activations + self.scratch

    @property
    def parts(self) -> dict[str, int]:
        """Keyed as `Engine.allocated()`: weights, kv, activations, scratch."""
        return {
            "weights": self.weights,
            "kv": self.kv,
            "activations": self.activations,
            "scratch": self.scratch,
        }

    @property
    def work(self) -> PhaseWork:
        return PhaseWork(precision=self.precision, prefill=self.prefill, decode=self.decode)


@dataclass(frozen=True)
class Slice:
    """`count` tokens of one prompt in one pass, after `start` that are already cached."""

    start: int
    count: int


def price(config: EngineConfig, model: ModelConfig, packed_head: bool = True) -> Price:
    """The cost of `config` on `model`.

    Args:
        packed_head: the machine multiplies by a packed copy of the weights, so that a tied head is
            a second copy of the embedding (look-up needs rows, the product a packed matrix).

    Raises:
        ValueError: a precision with no known width.
    """
    size = element_bytes(config.run.precision)
    return Price(
        weights=weight_bytes(model, size, packed_head),
        kv=kv_bytes(config, model, size),
        activations=activation_bytes(config, model, size),
        scratch=model.head_dim // 2 * _FLOAT,  # rotary frequencies
        prefill=prefill_work(config, model),
        decode=decode_work(config, model),
        precision=config.run.precision,
    )


def element_bytes(precision: str) -> int:
    """Bytes of one weight or activation. Raises ValueError for an unknown precision."""
    if precision not in ELEMENT_BYTES:
        legal = ", ".join(ELEMENT_BYTES)
        raise ValueError(f"no precision is named {precision!r}; legal: {legal}")
    return ELEMENT_BYTES[precision]


def weight_bytes(model: ModelConfig, size: int, packed_head: bool = True) -> int:
    """Every weight held: matrices at `size` bytes, norms in float32 with their floor constants."""
    table = model.vocabulary * model.hidden
    heads = 0 if model.tied_head and not packed_head else table
    biases = model.layers * (model.query_width + 2 * model.kv_width) if model.qkv_bias else 0
    matrices = model.layers * model.layer_matrix_elements + table + heads + biases
    norms = 2 * model.layers * (model.hidden + 1) + model.hidden + 1
    if model.qk_norm:
        norms += model.layers * (model.query_width + model.kv_width + 1)
    return matrices * size + norms * _FLOAT


def kv_bytes(config: EngineConfig, model: ModelConfig, size: int) -> int:
    """The contiguous cache: `batch` slots of prompt + output tokens, reserved at once."""
    tokens = config.schedule.batch * (config.workload.prompt + config.workload.output)
    return tokens * model.kv_elements_per_token * size


def prefill_passes(config: EngineConfig) -> tuple[tuple[Slice, ...], ...]:
    """Which tokens run in which pass until every prompt is in the cache.

    A chunk of c tokens fills each pass with up to c rows and splits a prompt where it must; without
    one, whole prompts share a pass while they stay within JOIN_ROWS.
    """
    prompt, chunk = config.workload.prompt, config.schedule.prefill_chunk
    if chunk == 0:
        together = max(JOIN_ROWS // prompt, 1)
        whole = [Slice(0, prompt)] * config.schedule.batch
        return tuple(
            tuple(whole[first : first + together]) for first in range(0, len(whole), together)
        )
    passes: list[tuple[Slice, ...]] = []
    done = [0] * config.schedule.batch
    while any(count < prompt for count in done):
        room, taken = chunk, []
        for request, start in enumerate(done):
            count = min(prompt - start, room)
            if count > 0:
                taken.append(Slice(start, count))
                done[request] += count
                room -= count
        passes.append(tuple(taken))
    return tuple(passes)


def prefill_work(config: EngineConfig, model: ModelConfig) -> Work:
    """One run's whole prefill: every pass reads every weight, whatever rows share it."""
    size = element_bytes(config.run.precision)
    passes = prefill_passes(config)
    slices = [part for one in passes for part in one]
    tokens = config.schedule.batch * config.workload.prompt
    cached = sum(part.start for part in slices)  # read back by later chunks
    seen = sum(_attended(part, model.sliding_window) for part in slices)
    layers = 2 * tokens * model.layers * model.layer_matrix_elements
    head = 2 * len(slices) * model.vocabulary * model.hidden
    calls = sum(_calls(model, size, sum(part.count for part in one)) for one in passes)
    calls += (len(slices) - len(passes)) * (model.layers + 1) * CALLS_A_SPAN_LAYER
    return Work(
        bytes_moved=float(
            size * (len(passes) * model.matrix_elements)
            + size * model.kv_elements_per_token * (tokens + cached)
        ),
        flops=float(layers + head + _attention_flops(model, seen)),
        dispatches=float(calls),
    )


def decode_work(config: EngineConfig, model: ModelConfig) -> Work:
    """One mean decode step: the weights once for the whole batch, each request's KV for itself."""
    size = element_bytes(config.run.precision)
    batch = config.schedule.batch
    context = config.workload.prompt + config.workload.output / 2
    if model.sliding_window is not None:
        context = min(context, model.sliding_window)
    return Work(
        bytes_moved=size
        * (model.matrix_elements + model.kv_elements_per_token * batch * (context + 1)),
        flops=2.0 * batch * model.matrix_elements + _attention_flops(model, batch * context),
        dispatches=float(_calls(model, size, batch)),
    )


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


def _calls(model: ModelConfig, size: int, rows: int) -> int:
    layer = CALLS_A_LAYER + (CALLS_A_QK_NORM if model.qk_norm else 0)
    layer += CALLS_OF_FEW_ROWS if rows < FEWEST_ROWS else 0
    sharpened = CALLS_A_SHARPENED_PASS if size < _FLOAT and model.tied_head else 0
    return CALLS_A_PASS + sharpened + model.layers * layer


def activation_bytes(config: EngineConfig, model: ModelConfig, size: int) -> int:
    """Temporary tensors at the worst moment of the largest prefill pass and of a decode step."""
    batch = config.schedule.batch
    prompt = config.workload.prompt
    largest = _largest_pass(config)
    end = prompt + config.workload.output - 1
    decode = [Slice(end - 1, 1)] * batch
    return max(_peak(largest, model, size, end), _peak(decode, model, size, end))


def _largest_pass(config: EngineConfig) -> list[Slice]:
    """The pass with the most rows, at its prompts' ends, where a chunk's mask is the longest."""
    prompt, room = config.workload.prompt, config.schedule.prefill_chunk
    room = room or max(JOIN_ROWS, prompt)
    whole_only = config.schedule.prefill_chunk == 0
    slices: list[Slice] = []
    for _ in range(config.schedule.batch):
        if room == 0 or (whole_only and prompt > room):
            break
        count = min(prompt, room)
        slices.append(Slice(prompt - count, count))
        room -= count
    return slices


def _peak(slices: Sequence[Slice], model: ModelConfig, size: int, end: int) -> int:
    """The largest of a pass's moments, for T rows and B sequences; every term is a live tensor."""
    rows, sequences = sum(part.count for part in slices), len(slices)
    residual = rows * model.hidden * _FLOAT
    stream = rows * model.hidden * size
    masked = [part for part in slices if part.start and part.count > 1]
    mask = sum(part.count * (part.start + part.count) for part in masked)
    places = sum(part.start + 2 * part.count for part in masked) * _INDEX
    layout = rows * _INDEX * (2 + model.kv_heads) + sequences * _INDEX + mask * size
    turn = 2 * rows * model.head_dim * _FLOAT  # cosines and signed sines
    layer = layout + turn + residual
    rotated = rows * (model.query_width + model.kv_width)
    qkv = rows * (model.query_width + 2 * model.kv_width) * size
    again = rotated * size if model.qk_norm else 0  # the normed copy of q and k
    attended = rows * model.query_width * size
    scores = sequences * model.vocabulary
    widened = scores * _FLOAT if size < _FLOAT else 0
    normed = rows * model.hidden * _FLOAT + (stream if size < _FLOAT else 0)
    moments = (
        layer + normed,
        layer + stream + qkv + again + rotated * (_FLOAT + size),
        layer + stream + qkv + rotated * size + 2 * attended,
        layer + 2 * stream + 3 * rows * model.intermediate * size,
        layout + residual + sequences * model.hidden * (_FLOAT + size) + scores * size + widened,
        # While masks are made: an int64 distance and a bool for every pair.
        layout - mask * size + mask * (_INDEX + 1) + places,
    )
    return max(moments)
