"""Whether a model's weights are those that a configuration speaks of."""

from __future__ import annotations

from engine.config import WeightsConfig
from engine.model.llama import Llama
from engine.quant.weights import matrix_name
from engine.recipe import matrices, recipe_of
from engine.weight_format import ROW, Scheme


def check_made_for(model: Llama, weights: WeightsConfig) -> None:
    """Every matrix must be in the bits, groups and symmetry that `weights` asks for, and the passes
    that multiply by dense weights those it names: the memory account is planned by them.

    Raises:
        ValueError: they are not; names the first matrix that is otherwise.
    """
    recipe = recipe_of(weights, model.config)
    for matrix in matrices(recipe, model.config):
        name = matrix_name(matrix)
        held, asked = model.schemes.get(name), matrix.scheme
        if held != asked:
            raise ValueError(
                f"the model's {name} is {_words(held)} and the configuration asks for "
                f"{_words(asked)}; quantise it again by that recipe"
            )
    if recipe.quantises and model.crossover != weights.crossover:
        raise ValueError(
            f"the model multiplies by dense weights above {model.crossover} rows and the "
            f"configuration asks for {weights.crossover}; use with_crossover"
        )


def _words(scheme: Scheme | None) -> str:
    if scheme is None:
        return "in the run's precision"
    group = "by the row" if scheme.group == ROW else f"in groups of {scheme.group}"
    return f"{scheme.bits} bits {group}" + ", symmetric" * scheme.symmetric
