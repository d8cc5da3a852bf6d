"""The trained draft's network against its formula, and its file against what was written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.speculate.head import DraftHead, HeadShape
from engine.speculate.head_file import head_name, read_head, write_head

SHAPE = HeadShape(hidden=32, inner=24, steps=4)
WORDS = torch.tensor([3, 5, 8, 13, 21, 34])
CONFIG = ModelConfig(
    family="llama", layers=1, hidden=32, heads=2, kv_heads=2, head_dim=16, intermediate=48,
    vocabulary=40, context=64, rope_base=10_000.0, norm_eps=1e-5, tied_head=True,
)  # fmt: skip


def random(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed + sum(size)))


@pytest.fixture
def target() -> Llama:
    tensors = {"embedding": random(40, 32), "final_norm": random(32) + 2}
    shapes = {
        "attention_norm": (32,), "q": (32, 32), "k": (32, 32), "v": (32, 32), "o": (32, 32),
        "mlp_norm": (32,), "gate": (48, 32), "up": (48, 32), "down": (32, 48),
    }  # fmt: skip
    tensors |= {f"layers.0.{name}": random(*size) for name, size in shapes.items()}
    return Llama(CONFIG, tensors, "float32")


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    made = {n: random(*size, seed=3) for n, size in SHAPE.tensors(0).items() if n != "words"}
    return made | {"words": WORDS}


def normed(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gain


def test_a_step_and_its_scores_follow_the_formula(
    target: Llama, tensors: dict[str, Tensor]
) -> None:
    head = DraftHead(SHAPE, tensors, target)
    hidden, tokens, table = random(3, 32, seed=9), torch.tensor([4, 0, 39]), random(40, 32)
    state = normed(hidden, random(32) + 2)
    assert torch.allclose(head.begin(hidden), state, atol=1e-5)
    x = torch.cat(
        (normed(state, tensors["state_norm"]), normed(table[tokens], tensors["token_norm"])), 1
    )
    inner = functional.silu(x @ tensors["gate"].T) * (x @ tensors["up"].T)
    moved = state + inner @ tensors["down"].T
    assert torch.allclose(head.step(state, tokens), moved, atol=1e-3)
    scores = normed(moved, tensors["out_norm"]) @ table[WORDS].T
    assert torch.allclose(head.scores(moved), scores, atol=1e-3)


def test_what_does_not_fit_the_target_is_refused(target: Llama, tensors: dict[str, Tensor]) -> None:
    wide = HeadShape(hidden=64, inner=24, steps=4)
    with pytest.raises(ValueError, match="rows of 64 cannot read rows of 32"):
        DraftHead(wide, tensors, target)
    with pytest.raises(ValueError, match=r"down of shape \[32, 24\]"):
        DraftHead(SHAPE, tensors | {"down": random(24, 32)}, target)
    del tensors["words"]
    with pytest.raises(ValueError, match="words"):
        DraftHead(SHAPE, tensors, target)


def test_a_file_holds_it_in_eight_bits(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    path = tmp_path / "head.safetensors"
    write_head(path, SHAPE, tensors, "ab" * 32, {"trained": "9"})
    shape, found, about = read_head(path, "ab" * 32)
    assert shape == SHAPE and about["trained"] == "9" and found.keys() == tensors.keys()
    assert torch.equal(found["words"], WORDS)
    for name, tensor in tensors.items():
        if tensor.dim() == 2:
            step = tensor.abs().amax(1, keepdim=True) / 127
            assert bool(((found[name] - tensor).abs() <= 0.51 * step).all())
        else:
            assert torch.equal(found[name], tensor)


def test_a_file_of_another_model_or_a_damaged_one_is_refused(
    tmp_path: Path, tensors: dict[str, Tensor]
) -> None:
    path = tmp_path / "head.safetensors"
    with pytest.raises(ValueError, match="not a trained draft"):
        read_head(path, "ab" * 32)
    write_head(path, SHAPE, tensors, "ab" * 32, {})
    with pytest.raises(ValueError, match="not trained for this model"):
        read_head(path, "cd" * 32)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged"):
        read_head(path, "ab" * 32)
    path.write_bytes(whole.replace(b'"inner":"24"', b'"inner":"99"'))
    with pytest.raises(ValueError, match="damaged"):
        read_head(path, "ab" * 32)
    assert head_name("ab") != head_name("cd")
