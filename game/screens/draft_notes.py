"""What the knobs of a draft mean together: what it reads, what auto stands for, what has nothing to
do, and what cannot pay. Said before the trial, by formula alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from engine.config import EngineConfig
from engine.drafters import Drafters, cost_ratio, exit_layers
from engine.model.config import ModelConfig
from engine.speculate.formula import break_even
from game.screens.forge_notes import ForgeNote
from game.widgets.figures import plain_number, share

Say = Callable[..., str]


def draft_notes(
    say: Say,
    config: EngineConfig,
    model: ModelConfig,
    drafters: Drafters,
    forms: Collection[str],
    knob: str = "",
) -> list[ForgeNote]:
    """A warning first. `forms` are this machine's in the build's precision; `knob` is the one that
    is being turned: what it does not reach is said only while it is."""
    draft = config.draft
    if draft.kind == "none":
        return [ForgeNote(say("forge.note.nobody_drafts"))]
    ratio = cost_ratio(config, model, drafters, forms)
    if ratio >= 1:
        notes = [ForgeNote(say("forge.note.draft_too_large", ratio=plain_number(ratio)), True)]
    elif draft.kind == "ngram":
        notes = [ForgeNote(say("forge.note.look_up"))]
    else:
        whole = share(ratio * draft.length)
        read = say("forge.note.draft_reads", each=share(ratio), length=draft.length, whole=whole)
        notes = [ForgeNote(f"{read} {_pays_from(say, draft.length, ratio)}")]
    return [*notes, *(ForgeNote(words) for words in _meanings(say, config, model, knob))]


def _pays_from(say: Say, length: int, ratio: float) -> str:
    """By formula, were verifying as dear as a step: measured, it is seldom less."""
    chance = break_even(length, ratio)
    assert chance is not None  # a drafted token costs less than a step
    return say("forge.note.draft_pays_from", chance=share(chance))


def _meanings(say: Say, config: EngineConfig, model: ModelConfig, knob: str) -> Iterator[str]:
    draft = config.draft
    if draft.kind == "exit" and draft.exit_layer == 0:
        layers = exit_layers(draft, model.layers)
        yield say("forge.note.exit_auto", layers=layers, all=model.layers)
    for name, kind in (("draft.ngram", "ngram"), ("draft.exit_layer", "exit")):
        if knob == name and draft.kind != kind:
            yield say("forge.note.of_another_draft", kind=say(f"knob.value.{kind}"))
