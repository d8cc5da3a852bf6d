"""The shapes give the parameters that their publishers count."""

from __future__ import annotations

import pytest

from engine.model.config import ModelConfig
from engine.model.published import PUBLISHED

PARAMETERS = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134_515_008,
    "HuggingFaceTB/SmolLM2-360M-Instruct": 361_821_120,
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1_711_376_384,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
}
"""Of the hub's pages: the sum over each model's safetensors files."""


def parameters(model: ModelConfig) -> int:
    tables = model.vocabulary * model.hidden * (1 if model.tied_head else 2)
    norms = model.layers * (2 * model.hidden + (2 * model.head_dim if model.qk_norm else 0))
    return tables + model.layers * model.layer_matrix_elements + norms + model.hidden


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_shape_has_its_models_parameters(name: str) -> None:
    assert parameters(PUBLISHED[name]) == PARAMETERS[name]


def test_they_grow_and_none_is_left_unchecked() -> None:
    weights = [model.matrix_elements for model in PUBLISHED.values()]
    assert weights == sorted(weights) and set(PUBLISHED) == set(PARAMETERS)
