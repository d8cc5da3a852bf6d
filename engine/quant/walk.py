"""Calibration text going through the network layer by layer, all of it at once, in float32.

Methods look at one layer at a time: what its matrices are given, [T, K] rows for T tokens. The
residual stream of every window is kept and moved on a layer at a time, so that nothing is computed
twice and a layer may be replaced before what it says reaches the next: a quantised predecessor's
errors are then the next one's to make up for.

Memory, in float32 numbers: T · H for the stream, T · K for the inputs at hand (K at most
max(H, heads · D, F)), T · (2 H + heads · D + F) where all of a layer's are asked for, and one
window's temporaries. 12,288 tokens of the default model: 28 MB and 75 MB, or 160 MB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.config import ModelConfig
from engine.model.rotary import rotary_frequencies
from kernels.attention import fused
from kernels.attention.mask import additive, visible
from kernels.norm.rms_norm import RMSNorm
from kernels.rope.rotation import Rotation

WINDOW = 512
"""Tokens that see one another: windows are cut from the text end to end."""

MATRICES = ("qkv", "o", "gate_up", "down")
"""In the order of the network."""


def nothing() -> None:
    """What `check` does where nobody can abort."""


def layer_tensors(tensors: Mapping[str, Tensor], layer: int) -> dict[str, Tensor]:
    """One layer's tensors by their names in it ("q", "attention_norm", ...), in float32.

    Raises:
        ValueError: the model has no such layer.
    """
    prefix = f"layers.{layer}."
    found = {
        name.removeprefix(prefix): tensor.to(torch.float32)
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    if not found:
        raise ValueError(f"the model has no layer {layer}")
    return found


class Walk:
    """Windows of text on their way through a model.

    `hidden` [T, H] float32 is the residual stream before the next layer; T are all tokens, window
    after window, the last of which may be shorter. `check` is called before each window's share of
    a stage, some tens of milliseconds apart, and may raise to abort; the walk is then of no use.

    Raises:
        ValueError: no tokens, a token the model does not have, or a window it cannot hold.
    """

    def __init__(
        self,
        embedding: Tensor,
        config: ModelConfig,
        token_ids: Sequence[int],
        *,
        window: int = WINDOW,
        check: Callable[[], None] = nothing,
    ) -> None:
        if not token_ids:
            raise ValueError("calibration needs at least one token")
        if window < 1:
            raise ValueError(f"a window of {window} tokens; at least 1")
        ids = torch.tensor(token_ids, dtype=torch.int64)
        if int(ids.min()) < 0 or int(ids.max()) >= config.vocabulary:
            raise ValueError(
                f"tokens {int(ids.min())} to {int(ids.max())} are not all in the vocabulary: "
                f"0 to {config.vocabulary - 1}"
            )
        self.config = config
        self._check = check
        self._window = min(window, config.context)
        self.hidden = embedding[ids].to(torch.float32)
        self._turn = Rotation.at(torch.arange(self._window), rotary_frequencies(config))

    @property
    def tokens(self) -> int:
        return self.hidden.shape[0]

    def stages(self, layer: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """What each matrix of the next layer is given: (name, [T, K]) in the order of `MATRICES`.

        After each, the walk goes on with what `layer` holds *then*: a caller that replaces "o" when
        given o's inputs hands gate and up the inputs that they will meet. When the last has been
        taken, `hidden` has passed the layer.
        """
        return self._stages(self.hidden, layer)

    def inputs(self, layer: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What all matrices of the next layer are given, by name; the walk stays where it is."""
        found: dict[str, Tensor] = {}
        for name, rows in self._stages(self.hidden.clone(), layer):
            found[name] = rows
            if name == MATRICES[-1]:
                break
        return found

    def advance(self, layer: Mapping[str, Tensor]) -> None:
        """Pass `hidden` through the next layer with these weights."""
        for _ in self.stages(layer):
            pass

    def _stages(self, hidden: Tensor, layer: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        rows = self._norm(hidden, layer["attention_norm"])
        yield "qkv", rows
        rows = self._attend(rows, layer)
        yield "o", rows
        self._add(hidden, rows, layer["o"])
        rows = self._norm(hidden, layer["mlp_norm"])
        yield "gate_up", rows
        rows = self._gate(rows, layer)
        yield "down", rows
        self._add(hidden, rows, layer["down"])

    def _windows(self) -> Iterator[slice]:
        for start in range(0, self.tokens, self._window):
            self._check()
            yield slice(start, min(start + self._window, self.tokens))

    @torch.no_grad()
    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        norm = RMSNorm(weight, self.config.norm_eps)
        rows = torch.empty_like(hidden)
        for part in self._windows():
            rows[part] = norm(hidden[part])
        return rows

    @torch.no_grad()
    def _attend(self, rows: Tensor, layer: Mapping[str, Tensor]) -> Tensor:
        """Attention of each window to itself: [T, H] -> [T, heads · D], what o is given."""
        config = self.config
        names = ("q", "k", "v")
        qkv = torch.cat([layer[name] for name in names])
        bias = torch.cat([layer[f"{name}_bias"] for name in names]) if config.qkv_bias else None
        attended = torch.empty(self.tokens, config.query_width)
        for part in self._windows():
            vectors = functional.linear(rows[part], qkv, bias)
            vectors = vectors.view(len(vectors), -1, config.head_dim)  # [L, heads + 2 kv, D]
            attended[part] = self._attention(vectors, layer)
        return attended

    def _attention(self, vectors: Tensor, layer: Mapping[str, Tensor]) -> Tensor:
        """[L, heads + 2 kv, D] of one window -> [L, heads · D]."""
        config = self.config
        length = len(vectors)
        query, key, value = vectors.split_with_sizes(
            (config.heads, config.kv_heads, config.kv_heads), dim=1
        )
        if config.qk_norm:
            query = RMSNorm(layer["q_norm"], config.norm_eps)(query)
            key = RMSNorm(layer["k_norm"], config.norm_eps)(key)
        turn = Rotation(self._turn.cosine[:length], self._turn.signed_sine[:length])
        reach = config.sliding_window
        mask = None
        if reach is not None and reach < length:
            mask = additive(visible(torch.arange(length)[None], 0, length, reach), torch.float32)
        return fused.attention(
            turn(query)[None],
            turn(key)[None].transpose(1, 2),
            value[None].transpose(1, 2),
            mask,
            causal=mask is None,
        )

    @torch.no_grad()
    def _gate(self, rows: Tensor, layer: Mapping[str, Tensor]) -> Tensor:
        """[T, H] -> [T, F], what down is given."""
        inner = torch.empty(self.tokens, self.config.intermediate)
        for part in self._windows():
            gate = functional.linear(rows[part], layer["gate"])
            up = functional.linear(rows[part], layer["up"])
            inner[part] = functional.silu(gate).mul_(up)
        return inner

    @torch.no_grad()
    def _add(self, hidden: Tensor, rows: Tensor, weight: Tensor) -> None:
        for part in self._windows():
            hidden[part] += functional.linear(rows[part], weight)


@torch.no_grad()
def gram(rows: Tensor) -> Tensor:
    """Xᵀ X of inputs X [T, K]: [K, K] float32, half the Hessian of ‖W Xᵀ - Ŵ Xᵀ‖² in a row of W."""
    return rows.T @ rows


@torch.no_grad()
def output_error(weight: Tensor, kept: Tensor, hessian: Tensor) -> float:
    """‖(W - Ŵ) X‖ / ‖W X‖ from the Gram matrix [K, K] of X alone: ‖A X‖² = tr(A Xᵀ X Aᵀ).

    `weight`, `kept` [N, K]. 0 where the matrix says nothing at all.
    """
    wide = weight.to(torch.float32)

    def norm(matrix: Tensor) -> float:
        square = ((matrix @ hessian) * matrix).sum(dtype=torch.float64)
        return math.sqrt(max(float(square), 0.0))

    whole = norm(wide)
    return norm(wide - kept) / whole if whole else 0.0
