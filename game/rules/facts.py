"""The facts of one play, by the names of `story.facts.FACTS`: what scenes quote and depend on.

Numbers are rounded to three significant digits, as they are read. Words that conditions compare
(`verdict`, `bound_by`, ...) stay the judge's own; words made for showing (`guess_word`,
`truth_word`) are in the player's language. A fact that this play does not have is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

from engine.capabilities import Capabilities
from engine.clean import clean
from engine.domains import Value
from engine.drafters import NO_OTHERS, Drafters
from engine.knobs import KNOBS
from engine.machine import MachineProfile
from engine.metrics import Evidence, MetricError, prefill_throughput, tpot
from engine.model.config import ModelConfig
from engine.trial import TrialResult
from game.rules import draft_facts
from game.rules.lesson import lesson_facts, lesson_of
from game.rules.memory_facts import (
    build_config,
    build_facts,
    held_facts,
    room_facts,
    served_facts,
)
from game.rules.standing import Standing
from game.rules.verdict import Verdict
from game.rules.weight_facts import asked_facts, floor_facts, made_facts, size_facts
from saves.documents import GuessRecord
from story.facts import FACTS, FactValue
from story.schema import Stage, StageText

NAME_LIMIT = 80
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_RATIOS = ("decode_cost_ratio", "decode_throughput_ratio", "tpot_ratio", "ttft_ratio",
           "throughput_ratio", "memory_ratio", "kl", "top1", "kv_request_mb")  # fmt: skip
_PERCENTS = {
    "decode_share_percent": "decode_time_share",
    "prefill_share_percent": "prefill_time_share",
    "decode_ceiling_percent": "decode_ceiling_share",
    "prefill_ceiling_percent": "prefill_ceiling_share",
    "vessel_percent": "vessel_share",
    "memory_use_percent": "memory_use",
    "hit_percent": "prefix_hit_rate",
}
_FIGURES = {
    "prefill_tokens_s": "prefill_throughput",
    "decode_tokens_s": "decode_throughput",
    "throughput_tokens_s": "throughput",
    "reference_use_percent": "reference_use",
}


def stage_facts(
    stage: Stage,
    build: Mapping[str, Value],
    standing: Standing,
    player: str = "",
    hints_taken: int = 0,
    capabilities: Capabilities | None = None,
    model: ModelConfig | None = None,
    model_name: str = "",
    machine: MachineProfile | None = None,
    drafters: Drafters = NO_OTHERS,
) -> dict[str, FactValue]:
    """What is known of a hall before its trial: the player, the build, and the machine if met."""
    hall = standing.halls.get(stage.id)
    positions = {**stage.build, **build}
    precision = str(_position("run.precision", positions))
    facts: dict[str, FactValue] = {
        "player": clean(player, NAME_LIMIT, one_line=True),
        "debt": standing.debt,
        "attempts": hall.attempts if hall else 0,
        "hints_taken": hints_taken,
        "scar": hall is not None and hall.scar is not None,
        "met": hall is not None and hall.met,
        "floods": hall.floods if hall else 0,
        "falls": hall.falls if hall else 0,
        "batch": int(_position("schedule.batch", positions)),
        "precision": precision,
        "prompt": int(_position("workload.prompt", positions)),
        "output": int(_position("workload.output", positions)),
        **build_facts(positions),
        **asked_facts(positions),
        **draft_facts.asked_facts(positions),
    }
    if model is not None:
        config = build_config(positions)
        facts |= room_facts(config, model, capabilities) | size_facts(config, model, capabilities)
        if capabilities is not None:
            facts |= draft_facts.cost_facts(config, model, capabilities, drafters)
    if capabilities is not None:
        facts["device"] = clean(capabilities.device_name, NAME_LIMIT, one_line=True)
    if model_name:
        facts["model"] = clean(model_name, NAME_LIMIT, one_line=True)
    _add_costs(facts, precision, model, machine)
    if model is not None and machine is not None:
        bandwidth = machine.ceilings.read_bytes_per_second
        facts |= floor_facts(build_config(positions), model, bandwidth, capabilities)
        facts |= lesson_facts(lesson_of(stage, model, capabilities, machine))
    return _known(facts)


def guess_facts(guess: float | str, text: StageText | None) -> dict[str, FactValue]:
    """What is known once the guess is sealed."""
    return _known({"guess": _read(guess), "guess_word": shown(guess, text)})


def trial_facts(
    stage: Stage,
    text: StageText | None,
    verdict: Verdict,
    result: TrialResult | None,
    guess: GuessRecord | None,
    truth: float | str | None,
    debt_before: int,
    debt_after: int,
) -> dict[str, FactValue]:
    """What a trial adds. `truth` is what was measured of the hall's question, None if nothing."""
    broken = next((goal.metric for goal in verdict.goals if goal.holds is False), "")
    facts: dict[str, FactValue] = {
        "flooded": verdict.flooded,
        "fallen": verdict.fallen,
        "debt_before": debt_before,
        "debt_change": debt_after - debt_before,
        "verdict": verdict.word,
        "bound_by": verdict.bound_by,
        "broken_goal": broken,
    }
    if not verdict.flooded:
        facts["bound_share"] = verdict.bound_share
    for phase, bound in verdict.phase_bounds.items():
        facts[f"{phase}_bound"] = bound
    if truth is not None:
        facts |= {"truth": truth, "truth_word": shown(truth, text)}
    if guess is not None:
        facts |= guess_facts(guess.value, text)
        if guess.factor is not None:
            close = stage.guess.close if stage.guess else 1.0
            dial = not isinstance(guess.value, str)
            # The record leaves `close` open where the guess was charged before; the fact holds.
            facts["guess_close"] = guess.factor <= close if dial else guess.factor == 1.0
            if dial:
                facts["guess_factor"] = guess.factor
    facts |= _measured(verdict.metrics) | made_facts(result, verdict.metrics)
    facts |= draft_facts.drafted_facts(result, verdict.metrics)
    if result is not None:
        facts |= _reference(result) | held_facts(result) | served_facts(result)
    return _known(facts)


def shown(value: float | str, text: StageText | None) -> str:
    """A guess or a truth as the player reads it: a choice's own words, or the number."""
    if isinstance(value, str):
        words = text.choices.get(value, value) if text is not None else value
        return clean(words, NAME_LIMIT, one_line=True)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _add_costs(
    facts: dict[str, FactValue],
    precision: str,
    model: ModelConfig | None,
    machine: MachineProfile | None,
) -> None:
    """Formulas with this model and machine in them; a precision of unknown width has none."""
    width = _BYTES.get(precision)
    weights = model.matrix_elements * width if model is not None and width is not None else None
    if model is not None and width is not None and weights is not None:
        facts["weights_mb"] = weights / 1e6
    if machine is not None:
        ceilings = machine.ceilings
        facts["bandwidth_gb"] = ceilings.read_bytes_per_second / 1e9
        if precision in ceilings.flops_per_second:
            facts["flops_t"] = ceilings.flops_per_second[precision] / 1e12
        if weights is not None:
            facts["floor_ms"] = weights / ceilings.read_bytes_per_second * 1e3


def _measured(metrics: Mapping[str, float]) -> dict[str, FactValue]:
    facts: dict[str, FactValue] = {name: metrics[name] for name in _RATIOS if name in metrics}
    for fact, metric in _PERCENTS.items():
        if metric in metrics:
            facts[fact] = metrics[metric] * 100
    for fact, metric in _FIGURES.items():
        if metric in metrics:
            facts[fact] = metrics[metric]
    if "live_tokens" in metrics:
        facts["live_tokens"] = round(metrics["live_tokens"])
    return facts


def _reference(result: TrialResult) -> dict[str, FactValue]:
    """Seconds a token of the reference build, by phase; nothing where no run was kept."""
    runs = Evidence.of(result).reference_runs
    if not runs:
        return {}
    try:
        return {
            "prefill_ms_token": median(1e3 / prefill_throughput(run) for run in runs),
            "decode_ms_token": median(1e3 * tpot(run) for run in runs),
        }
    except (MetricError, ZeroDivisionError):
        return {}


def _position(name: str, positions: Mapping[str, Value]) -> Value:
    return positions.get(name, KNOBS[name].default)


def _known(facts: Mapping[str, FactValue]) -> dict[str, FactValue]:
    """Only names the story knows, rounded; a number that is not finite is no fact."""
    return {
        name: _read(value)
        for name, value in facts.items()
        if name in FACTS and not (isinstance(value, float) and not math.isfinite(value))
    }


def _read(value: FactValue) -> FactValue:
    """A float to three significant digits."""
    return float(f"{value:.3g}") if isinstance(value, float) else value
