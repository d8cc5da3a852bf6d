"""What runs in C for a few rows gives what mathematics does, in float64, wherever it is taken."""

from __future__ import annotations

import math

import pytest
import torch

from kernels import native
from kernels.attention import decode, fused
from kernels.gate.swiglu import is_native, swiglu
from kernels.norm.rms_norm import RMSNorm
from kernels.residual.add import add
from kernels.rope import rotation
from kernels.rope.rotation import Rotation

pytestmark = pytest.mark.usefixtures("compiled")

LOST = {torch.float32: 2e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}
"""A rounding to the type, relative to each value; float32 sums in another order."""


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(found: torch.Tensor, true: torch.Tensor, around: float) -> bool:
    lost = LOST[found.dtype]
    return torch.allclose(found.double(), true, rtol=lost, atol=lost * around)


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize(("rows", "width"), [(1, 576), (3, 37), (16, 64), (17, 64)])
def test_norms(dtype: torch.dtype, rows: int, width: int) -> None:
    x, weight = numbers(rows, width) * 7, numbers(width, seed=1)
    norm = RMSNorm(weight, 1e-5, dtype)
    assert norm.form == "hypot float32, in C to 16 rows"
    wide = x.double()
    true = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * weight.double()
    found = norm(x)
    assert found.dtype == dtype and close(found, true, 0.1)
    # a row of nothing stays one, and a fault stays a fault
    assert not norm(torch.zeros(1, width)).any()
    x[0, 5] = float("nan")
    assert bool(torch.isnan(norm(x)[0].float()).all())


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize(("rows", "width"), [(1, 1536), (5, 21), (17, 64)])
def test_gates(dtype: torch.dtype, rows: int, width: int) -> None:
    """Of numbers from far below to far above where e^x is one."""
    assert is_native(dtype)
    x = numbers(rows, 2 * width, dtype=dtype) * 30
    x[0, :8] = torch.tensor([0.0, -200.0, 200.0, -88.5, 88.5, -1e-3, 1e-3, -20.0]).to(dtype)
    gate, up = x.double().chunk(2, dim=-1)
    true = gate / (1 + torch.exp(-gate)) * up
    found = swiglu(x)
    lost = LOST[dtype] * (1 if rows <= native.FEW_ROWS else 2)  # torch rounds twice
    least = 1e-4 if dtype == torch.float16 else 1e-30  # what it can tell from nothing
    assert torch.allclose(found.double(), true, rtol=4 * lost, atol=least)
    x[0, 1] = float("nan")
    assert bool(torch.isnan(swiglu(x)[0, 1]))


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("rows", [1, 16, 17])
def test_rotations(dtype: torch.dtype, rows: int) -> None:
    """Of the first heads of rows that hold others behind them, as q and k lie before v."""
    x = numbers(rows, 7, 64, dtype=dtype)
    positions = torch.arange(rows) * 1_000 + 3
    frequencies = 10_000.0 ** (-torch.arange(32) / 32)
    found = Rotation.at(positions, frequencies)(x[:, :5])
    assert "in C" in rotation.form(64, dtype) and "in C" not in rotation.form(48, dtype)
    angle = (positions[:, None].float() * frequencies).double()[:, None]  # as it is made
    first, second = x[:, :5].double().chunk(2, dim=-1)
    true = (first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin())
    assert found.dtype == dtype and close(found, torch.cat(true, -1), 2.0)


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("rows", [1, 5, 17])
def test_sums_of_the_stream(dtype: torch.dtype, rows: int) -> None:
    stream, given = numbers(rows, 37), numbers(rows, 37, dtype=dtype, seed=1)
    true = stream + given.float()
    add(stream, given)
    assert torch.equal(stream, true)
    apart = torch.zeros(rows, 74)[:, ::2]  # what is not side by side goes to torch
    add(apart, given)
    assert torch.equal(apart, given.float())


def attended(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """float64 [B, heads · D]."""
    batch, heads, width = query.shape
    key, value = (
        one.double().repeat_interleave(heads // one.shape[1], dim=1) for one in (key, value)
    )
    scores = (key @ query.double()[..., None])[..., 0] / math.sqrt(width)
    weights = torch.softmax(scores, dim=-1)
    return (weights[..., None, :] @ value)[..., 0, :].reshape(batch, heads * width)


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "width"),
    [(1, 9, 3, 64), (2, 4, 4, 16), (3, 14, 2, 64), (1, 8, 1, 128), (1, 5, 1, 256)],
)
def test_attention_of_one_row(
    dtype: torch.dtype, batch: int, heads: int, kv_heads: int, width: int
) -> None:
    """Lengths around blocks of 64 and around the number of threads; places apart in memory."""
    assert decode.takes(width, dtype)
    before = torch.get_num_threads()
    try:
        for length in (1, 2, 63, 64, 65, 129, 300):
            torch.set_num_threads(1 + length % 3)
            query = numbers(batch, heads, width, dtype=dtype, seed=length) * 3
            room = numbers(2, batch, kv_heads, length + 9, width, dtype=dtype, seed=length + 1)
            key, value = room[:, :, :, 4 : 4 + length]
            found = fused.attention(query[:, None], key, value, None, causal=False)
            assert found.dtype == dtype
            assert close(found, attended(query, key, value), 1.0), length
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("places", [1, 3, 16, 64, 100])
def test_attention_over_tables(dtype: torch.dtype, places: int) -> None:
    """Groups anywhere, of any size, some of them two rows'; rows that see all, the last of it, or
    one key; what lies around is garbage, and is not looked at."""
    lengths, windows = (200, 1, 64, 97), (200, 1, 20, 1)
    counts = [-(-length // places) for length in lengths]
    pool = numbers(2, sum(counts) + 5, 3, places, 32, dtype=dtype)
    order = torch.randperm(pool.shape[1], generator=torch.Generator().manual_seed(places)).tolist()
    tables = [[order.pop() for _ in range(count)] for count in counts]
    tables[3][0] = tables[0][0]
    pool[:, order] = float("nan")
    query = numbers(4, 9, 32, dtype=dtype, seed=5)
    rows = zip(tables, lengths, windows, strict=True)
    reach = decode.Reach(
        tables, [n - w for n, w in zip(lengths, windows, strict=True)], list(lengths)
    )
    found = decode.decode_attention(query, pool[0], pool[1], reach)
    for row, (table, length, window) in enumerate(rows):
        sides = pool[:, table].transpose(1, 2).flatten(2, 3)[:, :, length - window : length]
        true = attended(query[row : row + 1], sides[0][None], sides[1][None])
        assert close(found[row : row + 1], true, 1.0), row


def alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    reach = decode.Reach([[0]], [0], [key.shape[2]])
    return decode.decode_attention(query, key, value, reach)


def test_attention_keeps_to_the_largest_scores_and_to_faults() -> None:
    """Scores hundreds apart, the largest last or first; what is not finite comes out as such."""
    query, key = torch.full((1, 1, 16), 40.0), torch.zeros(1, 1, 200, 16)
    value = torch.arange(200.0)[None, None, :, None].expand(1, 1, 200, 16).contiguous()
    for best in (0, 77, 199):
        key.zero_()
        key[0, 0, best] = 10.0
        assert torch.allclose(alone(query, key, value), torch.full((1, 16), float(best)))
    key[0, 0, 150] = float("nan")
    assert bool(torch.isnan(alone(query, key, value)).all())


def test_what_it_does_not_take_is_refused() -> None:
    query, key = numbers(1, 2, 24), numbers(1, 2, 5, 24)
    assert not decode.takes(24, query.dtype)
    with pytest.raises(ValueError, match="heads of 24"):
        alone(query, key, key)
    query, key = numbers(1, 2, 32), numbers(1, 2, 5, 32)
    with pytest.raises(ValueError, match="lie alike"):
        alone(query, key, numbers(1, 2, 32, 5).transpose(2, 3))
    with pytest.raises(ValueError, match="in the queries' dtype"):
        alone(query, key.to(torch.bfloat16), key.to(torch.bfloat16))


def test_without_a_compiler_all_run_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.SWITCH, "off")
    assert not is_native(torch.float32) and not decode.takes(64, torch.float32)
    assert RMSNorm(numbers(32), 1e-5, torch.float32).form == "hypot float32"
    assert rotation.form(64, torch.float32) == "roll float32"


def test_a_wrong_function_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(source: object, signatures: dict[str, str], *_: object) -> dict[str, object]:
        return dict.fromkeys(signatures, lambda *_: None)

    monkeypatch.setattr(native, "functions", idle)
    monkeypatch.setattr(torch, "empty", torch.zeros)  # what it leaves is nobody's luck
    assert not is_native(torch.float32) and not decode.takes(64, torch.float32)
    assert RMSNorm(numbers(32), 1e-5, torch.float32).form == "hypot float32"
    assert rotation.form(64, torch.float32) == "roll float32"
