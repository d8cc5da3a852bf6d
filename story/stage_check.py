"""What a stage file may say: legal knobs, known metrics, a guess that can be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.domains import KnobError, Value, nearest_name
from engine.knobs import KNOBS
from engine.metrics import METRICS
from engine.trial import TrialKind
from engine.weight_format import WIDTHS
from story.schema import Stage
from story.yaml_reader import Document, Step

_ONE_BATCH: tuple[TrialKind, ...] = ("timeline", "paired", "hold")
_ONLY_IN: Mapping[str, tuple[TrialKind, ...]] = {
    "decode_throughput_ratio": ("paired",),
    "prefill_throughput_ratio": ("paired",),
    "tpot_ratio": ("paired", "serve"),
    "ttft_ratio": ("paired", "serve"),
    "decode_throughput": _ONE_BATCH,
    "prefill_throughput": _ONE_BATCH,
    "decode_cost_ratio": _ONE_BATCH,
    "four_bit_gain": ("paired",),
    "break_even_length": ("paired",),
    "break_even_acceptance": ("paired",),
    "lossless": ("paired",),
    **dict.fromkeys(("acceptance_rate", "acceptance_length", "draft_time_share"), _ONE_BATCH),
    **dict.fromkeys(
        ("throughput_ratio", "throughput", "memory_use", "reference_use", "prefix_hit_rate",
         "queueing", "recomputed_share"),
        ("serve",),
    ),
}  # fmt: skip
"""Metrics that not every kind of trial measures, and the kinds that do."""

_SCORED: tuple[TrialKind, ...] = ("timeline", "paired")
"""Kinds whose build always runs to its end, so that it is always asked and the ladder measured."""
_UNBROKEN = "none"
"""The choice that no width of the ladder breaks."""


def check_stage(document: Document, stage: Stage) -> None:
    """Raises StoryError at the first line that names what is not there or cannot be."""
    if stage.id != document.file.stem:
        raise document.error(("id",), f"the file is named {document.file.stem!r}, not {stage.id!r}")
    if not stage.open:
        _check_closed(document)
        return
    _check_ladder(document, stage)
    _check_guess(document, stage)
    _check_names(document, stage)
    _check_scar(document, stage)
    _check_probes(document, stage)
    for name in ("build", "reference", "hint_build"):
        _check_build(document, (name,), getattr(stage, name), KNOBS)
    for index, knob in enumerate(stage.hint_build):
        if knob not in stage.knobs:
            fault = f"{knob!r} is not a knob of this hall: {', '.join(stage.knobs)}"
            raise document.error(("hint_build", tuple(stage.hint_build)[index]), fault, True)
    if stage.proof is not None:
        for kind in ("losers", "winners"):
            for number, build in enumerate(getattr(stage.proof, kind)):
                _check_build(document, ("proof", kind, number), build, stage.knobs)


def _check_closed(document: Document) -> None:
    for key in document.value:
        if key not in ("id", "order", "open", "opens_after"):
            raise document.error((key,), f"a closed hall has no {key!r}", True)


def _check_guess(document: Document, stage: Stage) -> None:
    guess = stage.guess
    if guess is None:
        raise document.error((), "an open hall asks for a guess; write `guess:`")
    _check_measured(document, ("guess", "metric"), guess.metric, stage.trial)
    word = METRICS[guess.metric].kind == "word"
    if guess.metric == "breaking_bits" and not stage.ladder:
        raise document.error(("guess", "metric"), "the breaking width needs rungs; write `ladder:`")
    if guess.kind == "choice":
        if not word:
            fault = f"{guess.metric!r} is a number; a choice needs a metric that is a word"
            raise document.error(("guess", "metric"), fault)
        if len(set(guess.choices)) != len(guess.choices) or len(guess.choices) < 2:
            raise document.error(("guess", "choices"), "two or more choices, each once")
        legal = (*map(str, stage.ladder), _UNBROKEN)
        foreign = [one for one in guess.choices if one not in legal]
        if guess.metric == "breaking_bits" and foreign:
            fault = f"{foreign[0]!r} is no rung of the ladder; legal: {', '.join(legal)}"
            raise document.error(("guess", "choices"), fault)
        return
    if word:
        fault = f"{guess.metric!r} is a word; a dial needs a metric that is a number"
        raise document.error(("guess", "metric"), fault)
    if not 0 < guess.low < guess.high:
        end = "low" if guess.low <= 0 else "high"
        raise document.error(("guess", end), "a dial needs 0 < low < high")
    if guess.close <= 1:
        raise document.error(("guess", "close"), "`close` is a factor above 1, for example 1.5")


def _check_scar(document: Document, stage: Stage) -> None:
    """A scar that no build can leave would close the mountain for ever."""
    if stage.scar is None:
        return
    if stage.scar == "cliff":
        _check_cliff(document, stage)
        return
    if not stage.build.get("memory.budget"):
        fault = f"a scar of {stage.scar!r} needs a budget that can break; set memory.budget"
        raise document.error(("scar",), fault)
    if stage.build.get("memory.overflow") != "break":
        fault = f"a scar of {stage.scar!r} needs memory.overflow: break; otherwise requests wait"
        raise document.error(("scar",), fault)


def _check_cliff(document: Document, stage: Stage) -> None:
    if "weights.bits" not in stage.knobs:
        fault = "a scar of 'cliff' needs weights that can lose bits; offer weights.bits"
        raise document.error(("scar",), fault)
    if not any(goal.metric == "kl" for goal in stage.goals):
        fault = "a scar of 'cliff' needs a goal that a fall breaks; bound kl"
        raise document.error(("scar",), fault)


def _check_ladder(document: Document, stage: Stage) -> None:
    if not stage.ladder:
        return
    foreign = [bits for bits in stage.ladder if bits not in WIDTHS]
    if foreign:
        legal = ", ".join(map(str, WIDTHS))
        raise document.error(("ladder",), f"no rung has {foreign[0]} bits; legal: {legal}")
    if list(stage.ladder) != sorted(set(stage.ladder), reverse=True):
        raise document.error(
            ("ladder",), "the ladder leads down: each width once, the widest first"
        )
    _check_scored(document, "ladder", stage.trial)


def _check_probes(document: Document, stage: Stage) -> None:
    if stage.probes:
        _check_scored(document, "probes", stage.trial)
        return
    for part in ("goals", "crowns"):
        for index, one in enumerate(getattr(stage, part)):
            if one.metric == "probes_right":
                fault = "nobody is asked in this hall; write `probes: true`"
                raise document.error((part, index, "metric"), fault)


def _check_scored(document: Document, key: str, trial: TrialKind) -> None:
    if trial not in _SCORED:
        fault = f"{key!r} needs a trial that runs to its end: {', '.join(_SCORED)}; not {trial!r}"
        raise document.error((key,), fault)


def _check_names(document: Document, stage: Stage) -> None:
    if not stage.knobs:
        raise document.error((), "an open hall offers at least one knob; write `knobs:`")
    for index, knob in enumerate(stage.knobs):
        _check_knob(document, ("knobs", index), knob, KNOBS)
    for index, knob in enumerate(stage.shared):
        _check_knob(document, ("shared", index), knob, stage.knobs)
    for index, goal in enumerate(stage.goals):
        _check_goal_metric(document, ("goals", index, "metric"), goal.metric, stage.trial)
    for index, crown in enumerate(stage.crowns):
        _check_goal_metric(document, ("crowns", index, "metric"), crown.metric, stage.trial)


def _check_metric(document: Document, path: tuple[Step, ...], name: str) -> None:
    if name not in METRICS:
        fault = f"no metric is named {name!r}; nearest: {nearest_name(name, METRICS)}"
        raise document.error(path, fault)


def _check_measured(
    document: Document, path: tuple[Step, ...], name: str, trial: TrialKind
) -> None:
    """A metric that this kind of trial never measures can be neither reached nor guessed."""
    _check_metric(document, path, name)
    kinds = _ONLY_IN.get(name)
    if kinds is not None and trial not in kinds:
        fault = f"a {trial!r} trial does not measure {name!r}; it is measured in: "
        raise document.error(path, fault + ", ".join(kinds))


def _check_goal_metric(
    document: Document, path: tuple[Step, ...], name: str, trial: TrialKind
) -> None:
    _check_measured(document, path, name, trial)
    if METRICS[name].kind == "word":
        raise document.error(path, f"{name!r} is a word and has no bound")


def _check_knob(
    document: Document,
    path: tuple[Step, ...],
    name: str,
    legal: Mapping[str, object] | Sequence[str],
) -> None:
    if name not in legal:
        fault = f"no knob is named {name!r}; nearest: {nearest_name(name, legal)}"
        raise document.error(path, fault, True)


def _check_build(
    document: Document,
    path: tuple[Step, ...],
    build: Mapping[str, Value],
    legal: Mapping[str, object] | Sequence[str],
) -> None:
    for name, value in build.items():
        _check_knob(document, (*path, name), name, legal)
        try:
            KNOBS[name].domain.check(value)
        except KnobError as error:
            raise document.error((*path, name), f"{name}: {error}") from None


def check_order(stages: Sequence[tuple[Document, Stage]]) -> tuple[Stage, ...]:
    """The stages by order. Raises StoryError for an order used twice or a hall that never opens."""
    ids = [stage.id for _, stage in stages]
    ordered = sorted(stages, key=lambda pair: pair[1].order)
    for (_, before), (document, stage) in zip(ordered, ordered[1:], strict=False):
        if stage.order == before.order:
            raise document.error(("order",), f"{before.id!r} has the order {stage.order} already")
    seen: set[str] = set()
    for document, stage in ordered:
        after = stage.opens_after
        if after is not None and after not in ids:
            fault = f"no hall is named {after!r}; nearest: {nearest_name(after, ids)}"
            raise document.error(("opens_after",), fault)
        if after is not None and after not in seen:
            raise document.error(("opens_after",), f"{after!r} does not come before this hall")
        seen.add(stage.id)
    return tuple(stage for _, stage in ordered)
