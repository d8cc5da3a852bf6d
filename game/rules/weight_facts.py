"""Facts of weights in fewer bits: what a build asks for, how it was made, what was left of it.

Every function leaves out what it cannot tell; `game.rules.facts` rounds and names-checks the rest.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from engine.capabilities import Capabilities
from engine.clean import clean
from engine.config import EngineConfig
from engine.domains import Value
from engine.fit import weight_bytes, weight_elements
from engine.knobs import KNOBS
from engine.model.config import ModelConfig
from engine.precision import element_bytes
from engine.quality_report import Answer, Quality
from engine.quantised import LayerError, Quantised
from engine.recipe import read_bytes, recipe_of
from engine.trial import TrialResult
from game.rules.cliff import CLIFF_KL, ladder_words
from story.fact_table import TABLE
from story.facts import FactValue

Facts = dict[str, FactValue]

ANSWER_CELLS = 160
"""Cells that a scene has for what a model said: two lines of its box, and a little."""

_CUT = "..."
_SHOWN: Mapping[str, str] = {
    "weight_bits": "weights.bits",
    "group": "weights.group",
    "attention_bits": "weights.attention",
    "mlp_bits": "weights.mlp",
    "embedding_bits": "weights.embedding",
    "edge_bits": "weights.edges",
}
"""Facts that are a knob's position as the knob itself writes it."""

_MEASURED: Mapping[str, tuple[str, float]] = {
    "weight_share_percent": ("weight_share", 100.0),
    "average_bits": ("average_bits", 1.0),
    "four_bit_gain": ("four_bit_gain", 1.0),
    "probes_percent": ("probes_right", 100.0),
}
"""Fact -> (metric, factor)."""

_MATRICES = next(fact.words for fact in TABLE if fact.name == "worst_matrix")


def asked_facts(positions: Mapping[str, Value]) -> Facts:
    """What the build asks for, known before any machine is."""

    def position(name: str) -> Value:
        return positions.get(name, KNOBS[name].default)

    facts: Facts = {fact: KNOBS[name].domain.show(position(name)) for fact, name in _SHOWN.items()}
    facts |= {
        "method": str(position("weights.method")),
        "symmetric": str(position("weights.symmetric")),
        "calibration": int(position("weights.calibration")),
        "crossover": int(position("weights.crossover")),
        "cliff_kl": CLIFF_KL,
    }
    return facts


def size_facts(
    config: EngineConfig | None, model: ModelConfig, machine: Capabilities | None = None
) -> Facts:
    """By formula: the weights in 16 bits, and this build's share of that.

    In the kernel forms of `machine`; where it is not known, packed at full width.
    """
    sixteen = 2 * weight_elements(model)
    facts: Facts = {"sixteen_mb": sixteen / 1e6}
    if config is None:
        return facts
    packed = machine is None or machine.packs(config.run.precision)
    forms = machine.low_bit_forms.get(config.run.precision, ()) if machine is not None else ()
    try:
        size = element_bytes(config.run.precision)
        recipe = recipe_of(config.weights, model)
        held = weight_bytes(model, size, packed, recipe, forms)
    except ValueError:  # a build that cannot be; the forge says why
        return facts
    return facts | {"share_percent": 100 * held / sixteen}


def floor_facts(
    config: EngineConfig | None, model: ModelConfig, bandwidth: float, machine: Capabilities | None
) -> Facts:
    """The least time of a decode step of a build that keeps weights in fewer bits, `bandwidth` in
    bytes/s; nothing for others, whose floor their precision tells."""
    if config is None or machine is None:
        return {}
    recipe = recipe_of(config.weights, model)
    forms = machine.low_bit_forms.get(config.run.precision, ())
    try:
        read = read_bytes(recipe, model, element_bytes(config.run.precision), forms)
    except ValueError:  # as above
        return {}
    return {"floor_ms": read / bandwidth * 1e3} if recipe.quantises else {}


def made_facts(result: TrialResult | None, metrics: Mapping[str, float]) -> Facts:
    """How the build's weights were made and what they cost, as far as the trial measured it."""
    facts: Facts = {
        fact: metrics[metric] * factor
        for fact, (metric, factor) in _MEASURED.items()
        if metric in metrics
    }
    quantised = result.quantised if result is not None else None
    notices = quantised.notices if quantised is not None else ()
    facts["calibration_short"] = any(notice.code == "calibration_short" for notice in notices)
    if result is None:
        return facts
    facts |= _rungs(result)
    if quantised is not None:
        facts |= _quantised(quantised)
    if result.quality is not None:
        facts |= _probes(result.quality) | answer_facts(result.quality)
    return facts


def answer_facts(quality: Quality) -> Facts:
    """What was said side by side, and one of it whole: the first answer that the build gave
    otherwise than the full model, else the first."""
    if not quality.answers:
        return {}
    answer = chosen_answer(quality.answers)
    return {
        "answers": len(quality.answers),
        "same_answers": sum(one.differs is None for one in quality.answers),
        "asked": quotation(answer.prompt),
        "full_answer": quotation(answer.full),
        "babble": quotation(answer.build),
    }


def chosen_answer(answers: tuple[Answer, ...]) -> Answer:
    """Of one answer or more."""
    return next((one for one in answers if one.differs is not None), answers[0])


def quotation(text: str, cells: int = ANSWER_CELLS) -> str:
    """Foreign text as one clean line of at most `cells` cells; what is cut ends in "..."."""
    line = clean(text, one_line=True)
    if sum(map(_cells, line)) <= cells:
        return line
    kept, used = "", len(_CUT)
    for sign in line:
        used += _cells(sign)
        if used > cells:
            break
        kept += sign
    return kept.rstrip() + _CUT


def worst_error(quantised: Quantised) -> LayerError | None:
    """The matrix of a layer with the largest error; the embedding (layer -1) has a scale of its
    own. None where no error was told."""
    layers = [one for one in quantised.errors if one.layer >= 0 and one.name in _MATRICES]
    return max(layers, key=lambda one: one.error, default=None)


def _quantised(quantised: Quantised) -> Facts:
    facts: Facts = {
        "pressed_seconds": quantised.seconds,
        "changed_layers": quantised.changed_layers,
        "layers": quantised.layers,
    }
    worst = worst_error(quantised)
    if worst is not None:
        facts["worst_layer"] = worst.layer + 1
        facts["worst_matrix"] = worst.name
        facts["worst_error_percent"] = 100 * worst.error
    return facts


def _probes(quality: Quality) -> Facts:
    if quality.probes is None:
        return {}
    return {"probes_known": quality.probes.known, "probes_right": quality.probes.right}


def _rungs(result: TrialResult) -> Facts:
    facts: Facts = {f"rung{rung.bits}_kl": rung.kl for rung in result.ladder}
    return facts | dict(ladder_words(result))


def _cells(sign: str) -> int:
    """A wide sign takes two cells, a mark on another none."""
    if unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1
