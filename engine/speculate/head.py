"""The trained draft's network: a state that one token moves on, and scores for the usual words.

    s0 = the target's last residual row, normalised as its own head reads it       [H]
    s  = s + Down · (silu(Gate · x) * (Up · x)),   x = (norm(s), norm(embedding of the token))
    scores = Head[usual words] · norm'(s)

The head's rows are the target's own, so that only Gate, Up, Down and two gains are learned. It has
no attention and so no cache: what it knows of the text is what the target's row says of it. Kin of
the recurrent drafter of Zhang et al. (2024) and of Hydra (Ankner et al., 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.llama import Llama
from kernels.gate.swiglu import swiglu
from kernels.linear.dispatch import Linear, resolve
from kernels.norm.rms_norm import RMSNorm


@dataclass(frozen=True)
class HeadShape:
    """`hidden` is the target's width H, `inner` the width F between; `steps` tokens were foretold
    in training."""

    hidden: int
    inner: int
    steps: int

    def tensors(self, words: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what a file of weights holds, for so many usual `words`."""
        return {
            "gate": (self.inner, 2 * self.hidden),
            "up": (self.inner, 2 * self.hidden),
            "down": (self.hidden, self.inner),
            "state_norm": (self.hidden,),
            "token_norm": (self.hidden,),
            "out_norm": (self.hidden,),
            "words": (words,),
        }


class DraftHead:
    """The network beside a `target`, in its precision. `tensors` as `HeadShape.tensors` names them:
    float32, and `words` int64, the ids of the usual words.

    Raises:
        ValueError: a tensor that is missing or of another shape, or a target whose embedding is not
            its head.
    """

    def __init__(self, shape: HeadShape, tensors: Mapping[str, Tensor], target: Llama) -> None:
        _check(shape, tensors, target)
        self.shape = shape
        self.words = tensors["words"]
        dtype, eps = target.dtype, target.config.norm_eps

        def matrix(weight: Tensor) -> Linear:
            return resolve(weight.to(dtype))

        self._target = target
        self._gate_up = matrix(torch.cat((tensors["gate"], tensors["up"])))
        self._down = matrix(tensors["down"])
        self._rows = matrix(target.embedding.rows(self.words))
        self._state_norm = RMSNorm(tensors["state_norm"], eps, dtype)
        self._token_norm = RMSNorm(tensors["token_norm"], eps, dtype)
        self._out_norm = RMSNorm(tensors["out_norm"], eps, dtype)

    @property
    def nbytes(self) -> int:
        """Bytes held beside the target."""
        parts = (self._gate_up, self._down, self._rows)
        norms = (self._state_norm, self._token_norm, self._out_norm)
        return sum(part.nbytes for part in (*parts, *norms)) + self.words.nbytes

    def begin(self, hidden: Tensor) -> Tensor:
        """The state after the target's residual rows: [B, H] float32 -> [B, H] float32."""
        return self._target.final_norm(hidden).to(torch.float32)

    def step(self, state: Tensor, tokens: Tensor) -> Tensor:
        """The state after one token more of each: [B, H], [B] -> [B, H] float32."""
        word = self._target.embedding.rows(tokens).to(torch.float32)
        x = torch.cat((self._state_norm(state), self._token_norm(word)), dim=1)
        return state + self._down(swiglu(self._gate_up(x))).to(torch.float32)

    def scores(self, state: Tensor) -> Tensor:
        """Scores of the usual words: [B, H] -> [B, W] float32."""
        return self._rows(self._out_norm(state)).to(torch.float32)


def _check(shape: HeadShape, tensors: Mapping[str, Tensor], target: Llama) -> None:
    if not target.config.tied_head:
        raise ValueError("a trained draft scores by the target's embedding, and this has a head")
    if shape.hidden != target.config.hidden:
        raise ValueError(
            f"a draft trained on rows of {shape.hidden} cannot read rows of {target.config.hidden}"
        )
    words = tensors.get("words")
    count = 0 if words is None else words.shape[0]
    for name, wanted in shape.tensors(count).items():
        if name not in tensors or tuple(tensors[name].shape) != wanted:
            raise ValueError(f"a trained draft has {name} of shape {list(wanted)}")
