"""What is measured of one run: definitions that turn its raw times into figures.

Torch-free and pure. The definitions are the field's: TTFT is request start to first token; TPOT is
(end-to-end - TTFT) / (n - 1) for n >= 2 output tokens, so the first token belongs to prefill;
throughput counts the tokens that were really given over the time they took.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean
from typing import Literal

from engine.machine import Ceilings
from engine.roofline import FLOOR_SLACK, PHASES, MetricError, Phase, phase_floor
from engine.trial import DraftSample, LoadSample, PhaseWork, RunSample


def ttft(sample: RunSample) -> float:
    """Mean over the run's requests of start to first token, in seconds."""
    return fmean(sample.ttft)


def tpot(sample: RunSample) -> float:
    """Mean over requests of (end-to-end - TTFT) / (n - 1), in seconds a token.

    Without a draft every request of a run ends with its last step, so end-to-end is the run's wall
    time. A request that had its first token while others still prefilled pays for that wait here.

    Raises:
        MetricError: fewer than two output tokens: there is no gap to time.
    """
    if sample.output_tokens < 2:
        raise MetricError(f"TPOT needs at least 2 output tokens, not {sample.output_tokens}")
    ended = fmean(sample.finished) if sample.finished else sample.wall_seconds
    return (ended - ttft(sample)) / (sample.output_tokens - 1)


def inter_token_latencies(sample: RunSample, request: int) -> tuple[tuple[float, float], ...]:
    """The gaps a request's reader sees, each with the tokens that ended it: one, and what stood of
    a draft. A step that gave it none is part of the next gap."""
    gap = sample.wall_seconds - sample.decode_seconds - sample.ttft[request]
    given = sample.given[request] if sample.given else (1,) * len(sample.step_seconds)
    found: list[tuple[float, float]] = []
    for seconds, tokens in zip(sample.step_seconds, given, strict=True):
        gap += seconds
        if tokens:
            found.append((gap, tokens))
            gap = 0.0
    return tuple(found)


def steady_seconds(sample: RunSample) -> float:
    """Seconds a run would take if every step gave a request one token: its wall time where nobody
    drafts, and where somebody does, what it would be whatever stood. How far these lie apart over
    runs is the machine's doing; how many steps a draft saved is the text's."""
    if sample.draft is None or not sample.step_seconds:
        return sample.wall_seconds
    around = sample.wall_seconds - sample.decode_seconds
    return around + fmean(sample.step_seconds) * (sample.output_tokens - 1)


def acceptance_rate(sample: RunSample) -> float:
    """Accepted over drafted tokens: 0 where nothing was drafted."""
    if sample.draft is None or not sample.draft.counters.drafted:
        return 0.0
    return sample.draft.counters.accepted / sample.draft.counters.drafted


def acceptance_length(sample: RunSample) -> float:
    """Mean tokens a decode step gives a request: 1 + accepted / steps, bare ones among them."""
    if sample.draft is None:
        return 1.0
    counted = sample.draft.counters
    return 1 + counted.accepted / max(counted.steps + counted.bare, 1)


def draft_share(sample: RunSample) -> float:
    """Share of the decode phase that went into drafting."""
    return sample.draft.draft_seconds / sample.decode_seconds if sample.draft is not None else 0.0


def decode_throughput(sample: RunSample) -> float:
    """Tokens/s of the decode phase: batch x (n - 1), since prefill gave each first token."""
    return sample.batch * (sample.output_tokens - 1) / sample.decode_seconds


def prefill_throughput(sample: RunSample) -> float:
    """Prompt tokens/s of the prefill phase."""
    return sample.batch * sample.prompt_tokens / sample.prefill_seconds


def decode_cost_ratio(sample: RunSample) -> float:
    """A decoded token's seconds over a prefilled one's: TPOT against prefill seconds a token."""
    return tpot(sample) * prefill_throughput(sample)


def time_share(
    sample: RunSample | LoadSample, phase: Literal["prefill", "decode", "other"]
) -> float:
    """Share of a run's or a load's wall time that one phase took; the three sum to 1."""
    seconds = {
        "prefill": sample.prefill_seconds,
        "decode": sample.decode_seconds,
        "other": sample.other_seconds,
    }[phase]
    return seconds / sample.wall_seconds


def phase_seconds(sample: RunSample, phase: Phase) -> float:
    """Measured seconds of what `PhaseWork` counts: the whole prefill, or a mean decode step."""
    if phase == "prefill":
        return sample.prefill_seconds
    return fmean(sample.step_seconds)


def ceiling_share(sample: RunSample, work: PhaseWork, ceilings: Ceilings, phase: Phase) -> float:
    """Physical floor over measured time: 1 is the machine's own ceiling."""
    return phase_floor(work, ceilings, phase) / phase_seconds(sample, phase)


def faster_than_physics(
    sample: RunSample, work: PhaseWork, ceilings: Ceilings, slack: float = FLOOR_SLACK
) -> tuple[Phase, float] | None:
    """The phase of a run that beat its physical floor by more than `slack`, and by what factor."""
    for phase in PHASES:
        share = ceiling_share(sample, work, ceilings, phase)
        if share > slack:
            return phase, share
    return None


def check_sample(sample: RunSample, tolerance: float = 1e-6) -> None:
    """Refuses a run whose parts do not add up: nothing is judged on a sample that cannot be true.

    Raises:
        MetricError: naming the identity that broke. `tolerance` is seconds.
    """
    steps, wall = sample.step_seconds, sample.wall_seconds
    total = sample.prefill_seconds + sample.decode_seconds + sample.other_seconds
    durations = (sample.prefill_seconds, *steps, wall, *sample.ttft)
    checks = (
        (sample.batch >= 1 and sample.prompt_tokens >= 1, "a run has requests and prompts"),
        (sample.output_tokens >= 2, "a run gives each request at least 2 tokens"),
        (len(sample.ttft) == sample.batch, "one TTFT a request"),
        (_given_adds_up(sample), "one decode step a token after the first, or a draft's more"),
        (all(math.isfinite(value) and value > 0 for value in durations), "durations are positive"),
        (sample.other_seconds >= -tolerance, "no phase claims more than there was"),
        (abs(total - wall) <= tolerance, "wall = prefill + decode + other"),
        (
            max(sample.ttft, default=0.0)
            <= sample.prefill_seconds + sample.other_seconds + tolerance,
            "first tokens come before the decode phase",
        ),
        (
            max(steps, default=0.0) >= fmean(steps or (0.0,)) - tolerance,
            "the peak is at least the mean",
        ),
    )
    for holds, identity in checks:
        if not holds:
            raise MetricError(f"a run breaks an identity: {identity}")
    if sample.draft is not None:
        _check_draft(sample, sample.draft, tolerance)


def _given_adds_up(sample: RunSample, slack: float = 1e-6) -> bool:
    """Whether the steps gave each request its tokens after the first."""
    later = sample.output_tokens - 1
    if not sample.given:
        return len(sample.step_seconds) == later
    return len(sample.given) == sample.batch and all(
        len(tokens) == len(sample.step_seconds) and abs(sum(tokens) - later) <= slack
        for tokens in sample.given
    )


def _check_draft(sample: RunSample, draft: DraftSample, tolerance: float) -> None:
    """Raises MetricError where what is said of drafts cannot be true."""
    spent = draft.draft_seconds + draft.verify_seconds
    offered, stood = draft.counters.offered, draft.counters.stood
    checks = (
        (bool(sample.given) and len(sample.finished) == sample.batch, "a draft tells what it gave"),
        (
            all(0 < end <= sample.wall_seconds + tolerance for end in sample.finished),
            "requests end within the run",
        ),
        (
            spent <= sample.decode_seconds + tolerance,
            "drafting and verifying are of decode",
        ),
        (len(offered) == len(stood), "places that stood were offered"),
        (
            all(a >= b for a, b in zip(offered, stood, strict=False)),
            "places that stood were offered",
        ),
        (
            all(b <= a for a, b in pairwise(stood)) and all(b <= a for a, b in pairwise(offered)),
            "a place stands only after those before it",
        ),
    )
    for holds, identity in checks:
        if not holds:
            raise MetricError(f"a drafted run breaks an identity: {identity}")
