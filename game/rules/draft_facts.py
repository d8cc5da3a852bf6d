"""Facts of a build that drafts: who drafts and how much, what stood, what it cost, and the proof.

Every function leaves out what it cannot tell; `game.rules.facts` rounds and names-checks the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.domains import Value
from engine.drafters import Drafters, cost_ratio
from engine.knobs import KNOBS
from engine.model.config import ModelConfig
from engine.trial import TrialResult
from story.facts import FactValue

Facts = dict[str, FactValue]

_MEASURED: Mapping[str, tuple[str, float]] = {
    "acceptance_percent": ("acceptance_rate", 100.0),
    "step_tokens": ("acceptance_length", 1.0),
    "draft_share_percent": ("draft_time_share", 100.0),
    "even_tokens": ("break_even_length", 1.0),
    "even_percent": ("break_even_acceptance", 100.0),
}
"""Fact -> (metric, factor)."""


def asked_facts(positions: Mapping[str, Value]) -> Facts:
    """What the build asks for, known before any machine is."""

    def position(name: str) -> Value:
        return positions.get(name, KNOBS[name].default)

    return {
        "draft_kind": str(position("draft.kind")),
        "draft_length": int(position("draft.length")),
        "temperature": float(position("sampling.temperature")),
    }


def cost_facts(
    config: EngineConfig | None, model: ModelConfig, machine: Capabilities, drafters: Drafters
) -> Facts:
    """By formula: the weights that a drafted token reads, in percent of the target's."""
    if config is None:
        return {}
    forms = machine.low_bit_forms.get(config.run.precision, ())
    try:
        ratio = cost_ratio(config, model, drafters, forms)
    except ValueError:  # a build that cannot be; the forge says why
        return {}
    return {"draft_cost_percent": 100 * ratio}


def drafted_facts(result: TrialResult | None, metrics: Mapping[str, float]) -> Facts:
    """What became of the drafts, as far as the trial measured it."""
    facts: Facts = {
        fact: metrics[metric] * factor
        for fact, (metric, factor) in _MEASURED.items()
        if metric in metrics
    }
    if metrics.get("tpot_ratio"):
        facts["speed_up"] = 1 / metrics["tpot_ratio"]
    report = result.draft if result is not None else None
    if report is None:
        return facts
    rates = {one.kind: one.acceptance for one in report.texts}
    told = {kind: rate for kind, rate in rates.items() if rate is not None}
    facts |= {f"{kind}_percent": 100 * rate for kind, rate in told.items()}
    if told:
        facts["best_kind"] = max(told, key=lambda kind: told[kind])
        facts["worst_kind"] = min(told, key=lambda kind: told[kind])
    proof, drawn = report.lossless, report.drawn
    if drawn is not None:
        facts |= {
            "drawn_tokens": drawn.tokens,
            "drawn_percent": 100 * drawn.chance,
            "lossless": drawn.fair,
        }
    if proof is not None:
        facts |= {
            "compared": proof.requests,
            "near_ties": proof.near_ties,
            "lossless": proof.same == proof.requests,
        }
    return facts
