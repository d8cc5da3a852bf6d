"""The alarm of a process's own trials: a build that lost more than a coarser one of its kind.

Pure. What is compared must differ in bits and groups alone; a build of mixed widths is not.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.quant.monotone import Row, monotone
from engine.quantised import Notice
from engine.recipe import Recipe, recipe_of

CODE = "not_monotone"


def row_of(config: EngineConfig, model: ModelConfig, digest: str, kl: float) -> Row | None:
    """A build's quality as a row that can be compared; None where its layers are not all of one
    width and group, or not quantised. `digest` is the model's.

    Its kind is everything else that moves the divergence: method, calibration, symmetry, how the
    embedding is kept, the run's precision and the cache's width.
    """
    recipe = recipe_of(config.weights, model)
    schemes = {scheme for layer in recipe.layers for scheme in (layer.attention, layer.mlp)}
    scheme = schemes.pop()
    if scheme is None or schemes:
        return None
    others = (
        digest,
        recipe.method,
        recipe.calibration,
        scheme.symmetric,
        scheme.activations,
        _embedding(recipe),
        config.run.precision,
        config.cache.bits,
    )
    return Row(msgspec.json.encode(others).decode(), scheme.bits, scheme.group, kl)


def alarm(row: Row, known: Iterable[Row]) -> Notice | None:
    """The notice that `row` is clearly worse than a coarser one of `known`; None where it is not.

    It names the coarser one and both divergences.
    """
    coarser = [other for other in known if other.kind == row.kind]
    for breach in monotone([row, *coarser]):
        if breach.finer == row:
            details = {
                "bits": str(row.bits),
                "group": str(row.group),
                "kl": f"{row.kl:.3f}",
                "coarser_bits": str(breach.coarser.bits),
                "coarser_group": str(breach.coarser.group),
                "coarser_kl": f"{breach.coarser.kl:.3f}",
            }
            return Notice(CODE, details)
    return None


def _embedding(recipe: Recipe) -> tuple[int, int] | None:
    scheme = recipe.embedding
    return None if scheme is None else (scheme.bits, scheme.group)
