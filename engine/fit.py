"""How a build fills the vessel: weights first, then working memory, and the cache takes the rest.

Torch-free. The engine sizes its cache here with the bytes its weights really take, the price with
those they take by formula; both get the same seats.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.activations import activation_bytes
from engine.cache_plan import CachePlan, plan_cache
from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.precision import element_bytes
from engine.recipe import Recipe, matrices

_FLOAT = 4


def fit_cache(
    config: EngineConfig,
    model: ModelConfig,
    weights: int,
    capacity: int | None = None,
    forms: Collection[str] = (),
) -> CachePlan:
    """The largest cache that fits the vessel beside `weights` bytes and its own working memory.

    `capacity` is the longest request in tokens: the workload's prompt + output unless said.
    `forms` are this machine's low-bit forms.

    Raises:
        BudgetError: not one request of that length fits.
        ValueError: a precision with no known width.
    """
    size = element_bytes(config.run.precision)

    def others(plan: CachePlan) -> int:
        working = activation_bytes(config, model, size, plan, forms)
        return weights + working + scratch_bytes(model)

    return plan_cache(config, model, size, others, capacity)


def footprint(
    config: EngineConfig,
    model: ModelConfig,
    weights: int,
    plan: CachePlan,
    forms: Collection[str] = (),
) -> int:
    """Bytes of the whole build beside and in its cache `plan`."""
    size = element_bytes(config.run.precision)
    working = activation_bytes(config, model, size, plan, forms) + scratch_bytes(model)
    return weights + working + plan.nbytes


def weight_bytes(
    model: ModelConfig,
    size: int,
    packed_head: bool = True,
    recipe: Recipe | None = None,
    forms: Collection[str] = (),
) -> int:
    """Every weight held: matrices at `size` bytes, or as the recipe quantises them in the low-bit
    `forms` of this machine; norms in float32 with their floor constants.

    `packed_head`: the machine multiplies by a packed copy of the weights, so that a tied head is a
    second copy of the embedding (look-up needs rows, the product a packed matrix). A quantised one
    serves both.
    """
    table = model.vocabulary * model.hidden
    biases = model.layers * (model.query_width + 2 * model.kv_width) if model.qkv_bias else 0
    if recipe is None or not recipe.quantises:
        held = (model.layers * model.layer_matrix_elements + table) * size
        held += 0 if model.tied_head else table * size
    else:
        held = sum(matrix.nbytes(size, forms) for matrix in matrices(recipe, model))
    whole = recipe is None or recipe.embedding is None
    held += table * size if model.tied_head and whole and packed_head else 0
    norms = 2 * model.layers * (model.hidden + 1) + model.hidden + 1
    if model.qk_norm:
        norms += model.layers * (model.query_width + model.kv_width + 1)
    return held + biases * size + norms * _FLOAT


def weight_elements(model: ModelConfig) -> int:
    """Distinct weights of the model's matrices: a tied head is the embedding."""
    tables = model.vocabulary * model.hidden * (1 if model.tied_head else 2)
    return model.layers * model.layer_matrix_elements + tables


def scratch_bytes(model: ModelConfig) -> int:
    """What is made once and kept beside the weights: the rotary frequencies."""
    return model.head_dim // 2 * _FLOAT
