"""Rotary frequencies of a model, in closed form."""

from __future__ import annotations

import math

import msgspec
import pytest
from known_machines import SMOLLM2

from engine.model.config import RopeScaling
from engine.model.rotary import rotary_frequencies


def test_a_pair_turns_by_the_base_to_minus_its_share_of_the_head() -> None:
    found = rotary_frequencies(SMOLLM2).tolist()
    assert found == pytest.approx([100_000.0 ** (-2 * i / 64) for i in range(32)], rel=1e-5)


def test_linear_scaling_slows_every_pair() -> None:
    slow = msgspec.structs.replace(SMOLLM2, rope_scaling=RopeScaling("linear", 4.0))
    assert (rotary_frequencies(SMOLLM2) / rotary_frequencies(slow)).tolist() == pytest.approx(
        [4.0] * 32
    )


def test_llama3_scaling_slows_only_pairs_of_long_wavelength() -> None:
    scaling = RopeScaling("llama3", 8.0, 1.0, 4.0, 2048)
    scaled = msgspec.structs.replace(SMOLLM2, rope_scaling=scaling)
    plain = rotary_frequencies(SMOLLM2).tolist()
    ratios = (rotary_frequencies(SMOLLM2) / rotary_frequencies(scaled)).tolist()
    for frequency, ratio in zip(plain, ratios, strict=True):
        wavelength = 2 * math.pi / frequency
        if wavelength < 2048 / 4:
            assert ratio == pytest.approx(1.0)
        elif wavelength > 2048:
            assert ratio == pytest.approx(8.0)
        else:
            assert 1.0 <= ratio <= 8.0
