"""What the knobs of the weights mean together: what auto stands for, what has nothing to do, and
what is likely to do harm. Said before the trial, by formula alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.model.config import ModelConfig
from engine.recipe import FULL, Matrix, Recipe, inner_widths, matrices, recipe_of
from engine.weight_format import ROW
from game.widgets.ink import Line
from game.widgets.typesetting import paragraph
from game.widgets.weight_rows import method_words

Say = Callable[..., str]


@dataclass(frozen=True)
class ForgeNote:
    """A `warns` note says that the build may do worse than its player thinks."""

    words: str
    warns: bool = False


def forge_notes(
    say: Say, config: EngineConfig, model: ModelConfig, forms: Collection[str], knob: str = ""
) -> list[ForgeNote]:
    """Warnings first. `forms` are this machine's in the build's precision; `knob` is the one that
    is being turned: what it does not reach is said only while it is."""
    recipe = recipe_of(config.weights, model)
    if not recipe.quantises:
        return [ForgeNote(say("forge.note.bits_full"))]
    found = [matrix for matrix in matrices(recipe, model) if matrix.scheme is not None]
    warnings = [
        ForgeNote(words, warns=True)
        for words in _warnings(say, config, model, recipe, found, forms)
    ]
    return [*warnings, *(ForgeNote(words) for words in _meanings(say, config, recipe, found, knob))]


def _warnings(
    say: Say,
    config: EngineConfig,
    model: ModelConfig,
    recipe: Recipe,
    found: Sequence[Matrix],
    forms: Collection[str],
) -> Iterator[str]:
    weights, method = config.weights, method_words(say, config.weights.method)
    inner = any(matrix.layer is not None for matrix in found)
    if not inner:
        if weights.method != "rtn":
            yield say("forge.note.nothing_to_do", method=method)
        return
    widest = max(inner_widths(model))
    if 0 < recipe.calibration < widest:
        tokens = f"{recipe.calibration:,}"
        yield say("forge.note.calibration_short", method=method, tokens=tokens, width=f"{widest:,}")
    slow = sum(1 for matrix in found if _decodes(matrix, forms))
    if slow:
        yield say("forge.note.slow_form", matrices=slow)
    if weights.crossover == 0 and weights.method != "smoothquant":
        yield say("forge.note.never_dense", rows=f"{config.workload.prompt:,}")


def _decodes(matrix: Matrix, forms: Collection[str]) -> bool:
    """Whether every product by it decodes it first."""
    return matrix.form(forms) == "packed" and not matrix.is_compiled(forms)


def _meanings(
    say: Say, config: EngineConfig, recipe: Recipe, found: Sequence[Matrix], knob: str
) -> Iterator[str]:
    weights = config.weights
    if weights.method == "smoothquant":
        yield say("forge.note.smoothquant")
    if weights.method == "rtn" and knob == "weights.calibration":
        yield say("forge.note.reads_nothing")
    groups = {
        matrix.scheme.bits: matrix.scheme.group
        for matrix in found
        if matrix.scheme is not None and matrix.layer is not None
    }
    if weights.group == 0 and weights.method != "smoothquant" and groups:
        told = [
            say("forge.note.group.row", bits=bits)
            if group == ROW
            else say("forge.note.group.of", bits=bits, group=group)
            for bits, group in sorted(groups.items(), reverse=True)
        ]
        yield say("forge.note.group", groups=", ".join(told))
    if weights.embedding == 0 and recipe.embedding is not None:
        yield say("forge.note.embedding", bits=recipe.embedding.bits)
    if weights.edges not in (0, FULL, weights.bits):
        yield say("forge.note.edges", layers=weights.edge_layers, bits=weights.edges)


def note_lines(notes: Sequence[ForgeNote], width: int, most: int) -> list[Line]:
    """A paragraph of warnings, each after a sign, and one of meanings; `most` lines in all."""
    warnings = " ".join(f"! {note.words}" for note in notes if note.warns)
    meanings = " ".join(note.words for note in notes if not note.warns)
    lines = paragraph(warnings, width, "danger") if warnings else []
    told = paragraph(meanings, width, "dim") if meanings else []
    # What is only told, and does not fit whole, is left away: half a sentence helps nobody.
    return [*lines, *told][:most] if len(lines) + len(told) <= most else lines[:most]
