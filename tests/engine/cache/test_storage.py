"""The store of vectors against a dictionary, and its bytes against the formula and the memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.cache.storage import KEYS, VALUES, KVStorage, Side
from engine.kv_format import KV_WIDTHS, vector_bytes
from kernels.kv_store import reference

LAYERS, GROUPS, HEADS, PLACES, WIDTH = 2, 5, 3, 4, 16
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def make(bits: int, dtype: torch.dtype = torch.float32) -> KVStorage:
    return KVStorage(LAYERS, GROUPS, HEADS, PLACES, WIDTH, bits, dtype)


def draw(tokens: int, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, tokens, HEADS, WIDTH, generator=generator).to(dtype)
    return keys, values


def rows_of(places: list[tuple[int, int]]) -> Tensor:
    """Flat rows of some (group, place), head by head."""
    return torch.tensor([(g * HEADS + h) * PLACES + p for g, p in places for h in range(HEADS)])


def kept(vectors: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """What a width makes of vectors, number by number."""
    if bits in (8, 4):
        form = reference.kept_in_8_bits if bits == 8 else reference.kept_in_4_bits
        made = [form(row) for row in vectors.flatten(0, -2).tolist()]
        return torch.tensor(made).view(vectors.shape).to(dtype)
    half = bits == 16 and dtype == torch.float32
    return vectors.to(torch.bfloat16).to(dtype) if half else vectors


@pytest.mark.parametrize("bits", KV_WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_vector_is_read_where_it_was_written(bits: int, dtype: torch.dtype) -> None:
    storage = make(bits, dtype)
    places = [(3, 2), (0, 0), (4, 3), (3, 1)]
    keys, values = draw(len(places), dtype, 0)
    storage.write(1, rows_of(places), keys, values)
    read = storage.view(1, slice(0, GROUPS), slice(0, PLACES))
    for got, given in zip(read, (keys, values), strict=True):
        assert (got.dtype, got.shape) == (dtype, (GROUPS, HEADS, PLACES, WIDTH))
        expected = torch.zeros_like(got)
        for token, (group, place) in enumerate(places):
            expected[group, :, place] = kept(given[token], bits, dtype)
        # Ties between two codes may fall either way: none does in these 192 vectors but by 1 code.
        step = {8: 0.05, 4: 0.5}.get(bits, 0.0)
        assert float((got - expected).abs().max()) <= step
        assert float((got != expected).float().mean()) <= (0.02 if step else 0.0)
    untouched = storage.view(0, slice(0, GROUPS), slice(0, PLACES))
    assert not any(bool(side.any()) for side in untouched)


@pytest.mark.parametrize("bits", KV_WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_ways_of_reading_agree(bits: int, dtype: torch.dtype) -> None:
    storage = make(bits, dtype)
    places = [(g, p) for g in range(GROUPS) for p in range(PLACES)]
    storage.write(0, rows_of(places), *draw(len(places), dtype, 1))
    whole = storage.view(0, slice(0, GROUPS), slice(0, PLACES))
    sides: tuple[Side, Side] = (KEYS, VALUES)
    for side, vectors in zip(sides, whole, strict=True):
        part = storage.view(0, slice(1, 4), slice(1, 3))[side]
        assert torch.equal(part, vectors[1:4, :, 1:3])
        picked = storage.view(0, torch.tensor([4, 0, 4]), slice(0, 2))[side]
        assert torch.equal(picked, vectors[[4, 0, 4], :, :2])
        out = torch.empty(2, HEADS, 3, WIDTH)
        storage.read(side, 0, slice(2, 4), slice(1, 4), out)
        assert torch.equal(out.to(dtype), vectors[2:4, :, 1:4])
        rows = rows_of([(3, 1), (0, 2)])
        flat = torch.empty(len(rows), WIDTH)
        storage.gather(side, 0, rows, flat)
        assert torch.equal(flat.to(dtype), torch.cat([vectors[3, :, 1], vectors[0, :, 2]]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vectors_of_the_run_s_own_width_are_read_in_place(dtype: torch.dtype) -> None:
    storage = make(0, dtype)
    keys, _ = storage.view(1, slice(1, 3), slice(0, 2))
    views = storage.layer_views(slice(1, 3), slice(0, 2))
    storage.write(1, rows_of([(1, 1)]), *draw(1, dtype, 2))
    assert bool(keys[0, :, 1].any())
    assert torch.equal(views[1][KEYS], keys)
    assert torch.equal(views[1][VALUES], storage.view(1, slice(1, 3), slice(0, 2))[VALUES])
    assert not bool(views[0][KEYS].any())


def test_scaled_vectors_cannot_be_read_in_place() -> None:
    with pytest.raises(ValueError, match=r"vectors of 8 bits are not kept as torch\.float32"):
        make(8).layer_views(slice(0, 1), slice(0, 1))


@pytest.mark.parametrize("bits", KV_WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 5, 3, 4, 16), (1, 1, 1, 1, 2), (3, 7, 8, 16, 128)])
def test_bytes_are_those_of_the_formula_and_of_the_memory(
    bits: int, dtype: torch.dtype, shape: tuple[int, int, int, int, int]
) -> None:
    layers, groups, heads, places, width = shape
    storage = KVStorage(layers, groups, heads, places, width, bits, dtype)
    each = 2 * layers * heads * vector_bytes(width, bits, dtype.itemsize)
    assert storage.token_bytes == each
    assert storage.nbytes == each * groups * places
    memory = {plane.untyped_storage().data_ptr(): plane for plane in storage._planes}
    held = sum(plane.untyped_storage().nbytes() for plane in memory.values())
    assert held == storage.nbytes


@pytest.mark.parametrize("bits", KV_WIDTHS)
def test_copying_a_beginning_leaves_the_rest_of_the_target(bits: int) -> None:
    storage = make(bits)
    places = [(g, p) for g in range(GROUPS) for p in range(PLACES)]
    for layer in range(LAYERS):
        storage.write(layer, rows_of(places), *draw(len(places), torch.float32, layer))
    before = [storage.view(i, slice(0, GROUPS), slice(0, PLACES)) for i in range(LAYERS)]
    before = [(keys.clone(), values.clone()) for keys, values in before]
    storage.copy(1, 4, 3)
    for layer, sides in enumerate(before):
        after = storage.view(layer, slice(0, GROUPS), slice(0, PLACES))
        for old, new in zip(sides, after, strict=True):
            old[4, :, :3] = old[1, :, :3]
            assert torch.equal(new, old)


@pytest.mark.parametrize("bits", KV_WIDTHS)
def test_wiping_clears_a_fault_in_every_layer(bits: int) -> None:
    storage = make(bits)
    faulty = torch.full((2, HEADS, WIDTH), math.nan)
    fine = torch.ones(1, HEADS, WIDTH)
    for layer in range(LAYERS):
        storage.write(layer, rows_of([(2, 0), (2, 3)]), faulty, faulty)
        storage.write(layer, rows_of([(3, 0)]), fine, fine)
    assert not bool(torch.isfinite(storage.view(0, slice(2, 3), slice(0, 4))[KEYS]).all())
    storage.wipe([2])
    for layer in range(LAYERS):
        for side in storage.view(layer, slice(0, GROUPS), slice(0, PLACES)):
            assert not bool(side[2].any())
            assert bool(side[3, :, 0].any())


def test_large_activations_survive_sixteen_bits_in_a_float32_run() -> None:
    """float16 ends at 65,504."""
    storage = make(16)
    large = torch.full((1, HEADS, WIDTH), 2.0**20)
    storage.write(0, rows_of([(0, 0)]), large, -large)
    keys, values = storage.view(0, slice(0, 1), slice(0, 1))
    assert bool((keys == 2.0**20).all()) and bool((values == -(2.0**20)).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": 0}, "groups=0 holds nothing; at least 1"),
        ({"places": -2}, "places=-2 holds nothing; at least 1"),
        ({"bits": 5}, "no KV format has 5 bits; legal: 0, 16, 8, 4"),
        ({"bits": 4, "head_dim": 7}, "two to a byte; a head of 7 is odd"),
    ],
)
def test_an_impossible_store_is_refused(change: dict[str, int], message: str) -> None:
    sizes = {"layers": 1, "groups": 1, "kv_heads": 1, "places": 1, "head_dim": 8, "bits": 0}
    with pytest.raises(ValueError, match=message):
        KVStorage(dtype=torch.float32, device="cpu", **(sizes | change))
