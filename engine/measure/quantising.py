"""Weights being quantised: who is told, who may stop it, and what the trial says of it after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec

from engine.config import EngineConfig
from engine.measure.reporter import Reporter, Side
from engine.model.config import ModelConfig
from engine.quantised import Histogram, LayerError, Notice, Quantised
from engine.recipe import Matrix, Recipe, average_bits, matrices, recipe_of

OnPressed = Callable[[LayerError, Histogram | None, int, int], None]
"""One matrix is done: its error, its layer's histogram where there is one, how many of how many."""

Check = Callable[[], None]
"""Raises to stop."""


@dataclass(frozen=True)
class Watch:
    """`begin` is told of every recipe that is not yet at hand, before any work on it."""

    begin: Callable[[Recipe], None]
    pressed: OnPressed
    check: Check


UNWATCHED = Watch(lambda _: None, lambda *_: None, lambda: None)


def watched_at(desk: Reporter, side: Side) -> Watch:
    """Tells the desk of every matrix that is done; stops where the player does."""

    def begin(recipe: Recipe) -> None:
        phase = "calibrating" if recipe.calibration else "quantising"
        desk.progress(phase, 0, 1, detail=recipe.method)

    def pressed(error: LayerError, histogram: Histogram | None, done: int, total: int) -> None:
        desk.pressed(side, error, histogram, done, total)

    return Watch(begin, pressed, desk.check)


def wanted(config: EngineConfig, model: ModelConfig) -> Recipe | None:
    """The recipe that a build's weights are made by; None where they stay in its precision."""
    recipe = recipe_of(config.weights, model)
    return recipe if recipe.quantises else None


def told(
    report: Quantised, config: EngineConfig, model: ModelConfig, forms: Collection[str]
) -> Quantised:
    """What the trial says of how its weights were made.

    One recipe can come of several builds: the width is the knob's of this one, the average that of
    the forms it runs in; a width whose kernel could not be used is noticed.
    """
    slow = slow_matrices(config, model, forms)
    notices = report.notices
    if slow:
        widths = {matrix.scheme.bits for matrix in slow if matrix.scheme is not None}
        bits = ", ".join(str(width) for width in sorted(widths, reverse=True))
        details = {"bits": bits, "matrices": str(len(slow)), "form": "packed"}
        notices = (*notices, Notice("slow_form", details))
    return msgspec.structs.replace(
        report,
        bits=config.weights.bits,
        average_bits=average_bits(config, model, forms),
        notices=notices,
    )


_KERNELS: Mapping[int, frozenset[str]] = {
    8: frozenset({"int8-row", "int8-dynamic"}),
    4: frozenset({"int4-group"}),
}


def slow_matrices(
    config: EngineConfig, model: ModelConfig, forms: Collection[str]
) -> tuple[Matrix, ...]:
    """Those of 8 or 4 bits that are decoded for every product although a kernel stands ready: the
    group, the symmetry or the height of the matrix is not what it takes. Where the packed form is
    compiled, only what does not come in whole panels and runs."""
    return tuple(
        matrix
        for matrix in matrices(recipe_of(config.weights, model), model)
        if matrix.scheme is not None
        and matrix.form(forms) == "packed"
        and _KERNELS.get(matrix.scheme.bits, frozenset()) & set(forms)
        and not matrix.is_compiled(forms)
    )
