"""Operator calls of a pass, from counts made with a dispatch mode.

Torch-free. A call costs the same however little it does, so a small model is bound by their number.
The figures hold to within 7 %, for prefill and decode alike; tests count again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.cache_tensors import CHUNK_BYTES, FEWEST_PLACES
from engine.config import EngineConfig
from engine.joined import Joined
from engine.model.config import ModelConfig
from engine.products import Products
from engine.weight_format import NATIVE, NATIVE_HEADS, NATIVE_PAIRS, NATIVE_ROWS, ROW_MAJOR, WIDENED

A_PASS, A_SHARPENED_HEAD = 41, 13
A_LAYER, A_QK_NORM = 31, 5
OF_FEW_ROWS, FEWEST_ROWS, MATRICES = 8, 4, 4
"""Of a pass; of a head whose largest scores are computed again; of each layer without what it does
with the cache; of norms in its heads; of filling fewer rows than four up to four, for each of its
four matrices."""

NATIVE_PASS, NATIVE_LAYER, NATIVE_TURN = 4, 10, 3
NATIVE_SPAN = 3
"""Fewer where a few rows run in C: of a pass, for its last norm; of a layer, for norms, gates and
sums; for rotations; of a span of single rows whose keys are made in float32, for attention."""

IN_PLACE = 1
"""Of a layer whose single rows attend in C where keys and values lie, beyond what it makes of them
in any case."""

ALONE = 3
"""Fewer of a sequence's span where it is the only one and no pass need be cut for it, if keys are
made in float32."""

_AS_THEY_LIE = frozenset({WIDENED, ROW_MAJOR})
"""Machines that fill no rows up."""

_FLOAT = 4


@dataclass(frozen=True)
class _Width:
    """Calls in a layer, by what is done with keys and values of one width: to encode them; to
    attend to one sequence side by side, or gathered; to attend over blocks, and over each further
    chunk of them."""

    encode: int
    span: int
    gathered: int
    blocks: int
    chunk: int


_PLAIN = _Width(encode=0, span=8, gathered=18, blocks=43, chunk=10)
_WIDTHS: Mapping[int, _Width] = {
    16: _Width(encode=0, span=22, gathered=20, blocks=48, chunk=19),
    8: _Width(encode=7, span=34, gathered=28, blocks=56, chunk=27),
    4: _Width(encode=12, span=54, gathered=44, blocks=74, chunk=45),
}


@dataclass(frozen=True)
class Calls:
    """Counts the calls of one build's passes; `size` is the run's bytes a number, `forms` this
    machine's low-bit forms."""

    config: EngineConfig
    model: ModelConfig
    size: int
    forms: Collection[str] = ()

    def prefill(self, rows: int, sequences: int) -> int:
        """A pass over `rows` tokens of some prompts, each of which attends by itself."""
        each = self._width.gathered if self._paged else self._width.span - self._alone(sequences)
        around = 7 + 9 * (sequences - 1) if self._paged else 6 * (sequences - 1)
        return self._pass(rows, sequences, sequences * each + self._width.encode, around)

    def decode(self, sequences: int, context: float) -> int:
        """A step of some sequences, each after about `context` cached tokens."""
        width, block = self._width, self.config.cache.block_size
        if self._in_place:
            return self._pass(sequences, sequences, IN_PLACE, 0)
        if not self._paged:
            spans = 1 if self._plain else sequences
            span = width.span - self._native_span - self._alone(sequences)
            return self._pass(sequences, sequences, spans * span + width.encode, 0)
        if block < FEWEST_PLACES:
            attend = sequences * width.gathered
            return self._pass(sequences, sequences, attend + width.encode, 8 + 10 * sequences)
        attend = width.blocks + (self._chunks(sequences * (context / block + 1 / 2)) - 1) * (
            width.chunk
        )
        return self._pass(sequences, sequences, attend + width.encode, 82)

    def _pass(self, rows: int, sequences: int, cache: int, around: int) -> int:
        """`cache` calls of each layer for its cache, `around` of the whole pass."""
        few = OF_FEW_ROWS if rows < FEWEST_ROWS and not _AS_THEY_LIE & set(self.forms) else 0
        layer = A_LAYER + few + cache + (A_QK_NORM if self.model.qk_norm else 0)
        if NATIVE in self.forms and rows <= NATIVE_ROWS:
            layer -= NATIVE_LAYER + (0 if self.model.head_dim % NATIVE_PAIRS else NATIVE_TURN)
        products = Products.of(self.config, self.model, self.forms)
        calls = A_PASS + around + self.model.layers * layer
        calls -= Joined.of(self.config, self.model, self.forms).fewer_calls(rows)
        if NATIVE in self.forms and sequences <= NATIVE_ROWS:
            calls -= NATIVE_PASS
        calls += products.more_calls(rows, sequences, dense=1 + few // MATRICES)
        if self.size < _FLOAT and (self.model.tied_head or products.quantised_head):
            calls += A_SHARPENED_HEAD + products.look_up_calls
        return calls

    def _chunks(self, blocks: float) -> int:
        """Chunks that blocks are made in where they are not kept in float32."""
        if self._plain and self.size == _FLOAT:
            return 1
        places = self.config.cache.block_size * self.model.kv_width * _FLOAT
        return max(-(-int(blocks) // max(CHUNK_BYTES // places, 1)), 1)

    @property
    def _paged(self) -> bool:
        return self.config.cache.layout == "paged"

    @property
    def _plain(self) -> bool:
        return self.config.cache.bits == 0 or (self.config.cache.bits == 16 and self.size == 2)

    @property
    def _native(self) -> bool:
        """Whether single rows attend in C."""
        return NATIVE in self.forms and self.model.head_dim % NATIVE_HEADS == 0

    @property
    def _in_place(self) -> bool:
        """Whether they do so over keys and values where they lie, whatever the layout."""
        return self._native and self._plain

    def _alone(self, sequences: int) -> int:
        return ALONE if sequences == 1 and not self._plain else 0

    @property
    def _native_span(self) -> int:
        return NATIVE_SPAN if self._native else 0

    @property
    def _width(self) -> _Width:
        return _PLAIN if self._plain else _WIDTHS[self.config.cache.bits]
