"""Canned trials of the plaza: builds that draft, beside the same build without.

A step without a draft takes 27 ms. A drafted one takes that times `verify` and `token` more for
each token drafted; of a draft of `length` as many stand as `stood` says, place by place, out of a
hundred steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from canned_memory import config_of
from canned_trials import Case, make_result, make_sample, make_work, spreads

from engine.domains import Value
from engine.draft_report import DraftedText, DraftReport, Drawn, Fate, Lossless, Piece
from engine.trial import Bound, DraftCounters, DraftSample, Pair, RunSample, TrialResult, TrialSpec

PLAZA: dict[str, Value] = {
    "workload.prompt": 128, "workload.output": 48, "schedule.batch": 1,
    "run.precision": "float32", "draft.kind": "ngram", "draft.length": 8, "draft.ngram": 3,
    "draft.exit_layer": 0,
}  # fmt: skip
REFERENCE: dict[str, Value] = {
    name: value for name, value in PLAZA.items() if not name.startswith("draft.")
} | {"draft.kind": "none"}
GOALS = (Bound("tpot_ratio", "<=", 0.8), Bound("lossless", ">=", 1))
FAIR = Drawn(tokens=384, distance=0.04, chance=0.56, least=1e-3)
UNFAIR = Drawn(tokens=384, distance=0.12, chance=2.1e-5, least=1e-3)
SAME = Lossless(requests=8, identical=8, near_ties=0, widest=0.0, allowed=0.01)


@dataclass(frozen=True)
class Drafting:
    """`token` and `verify` in steps; `stood` by place, of a hundred; all share of drafts whole."""

    token: float
    verify: float
    stood: tuple[int, ...]

    @property
    def step_tokens(self) -> float:
        return 1 + sum(self.stood) / 100

    @property
    def seconds(self) -> float:
        """A mean step over one without a draft."""
        return self.verify + len(self.stood) * self.token


WINS = Drafting(0.25, 1.2, (82, 67, 55, 45))  # 3.49 tokens for 2.2 steps: 1.59 x
TOO_LONG = Drafting(0.05, 2.6, (40, 16, 6, 3, 1, 0, 0, 0))  # 1.66 tokens for 3.0 steps
TOO_DEAR = Drafting(0.9, 1.3, (60, 40, 25, 15))  # 2.4 tokens for 4.9 steps, 73 % drafting
TOO_POOR = Drafting(0.2, 1.0, (30,))  # 1.3 tokens for 1.2 steps, already as short as can be
BUILDS: dict[tuple[str, int], Drafting] = {
    ("self4", 4): WINS,
    ("ngram", 8): TOO_LONG,
    ("exit", 4): TOO_DEAR,
    ("self8", 1): TOO_POOR,
}


def words(*parts: tuple[str, Fate]) -> tuple[Piece, ...]:
    return tuple(Piece(text, fate) for text, fate in parts)


TEXTS = (
    DraftedText(
        "story", "Tell me a short story about a lighthouse keeper and a storm.",
        words(
            ("Once", "plain"), (" upon a time, there was", "accepted"), (" an", "rejected"),
            (" a lighthouse", "corrected"), (" keeper who lived", "accepted"),
            (" alone", "rejected"), (" on", "corrected"), (" the edge of", "accepted"),
            (" a", "rejected"), (" the sea.", "corrected"), (" Every night he climbed", "accepted"),
            (" the", "rejected"), (" a hundred", "corrected"), (" steps", "accepted"),
            (" to", "added"),
        ), drafted=48, accepted=24, steps=20, tokens=44,
    ),
    DraftedText(
        "code", "Write a Python function that returns the largest number in a list.",
        words(
            ("def", "plain"), (" largest(numbers):\n    best = numbers[0]\n", "accepted"),
            ("   ", "added"), (" for number in numbers[1:]:\n        if number >", "accepted"),
            (" max", "rejected"), (" best", "corrected"), (":\n", "accepted"),
        ), drafted=40, accepted=33, steps=10, tokens=48,
    ),
    DraftedText(
        "list", "List the days of the week in order.",
        words(
            ("1", "plain"), (". Monday\n2. Tuesday\n3. Wednesday\n4. Thursday", "accepted"),
            ("\n5", "added"), (". Friday\n6. Saturday\n7. Sunday", "accepted"),
        ), drafted=36, accepted=34, steps=9, tokens=40,
    ),
)  # fmt: skip


def make_drafted(
    build: dict[str, Value] | None = None,
    case: Case = "pass",
    drafting: Drafting | None = None,
    lossless: Lossless | None = SAME,
    seed: int = 7,
    drawn: Drawn | None = None,
) -> TrialResult:
    """A trial of the plaza; the build decides what became of its drafts, unless `drafting` does.
    With `drawn` its answers were sampled."""
    if build is None:
        build = {"draft.kind": "self4", "draft.length": 4} if case == "pass" else {}
    warm: dict[str, Value] = {} if drawn is None else {"sampling.temperature": 0.7}
    whole, plain = PLAZA | build | warm, REFERENCE | warm
    config, reference = config_of(whole), config_of(plain)
    kind, length = config.draft.kind, config.draft.length
    if drafting is None and config.draft.most:
        drafting = BUILDS.get((kind, length), Drafting(0.3, 1.5, (50,) * length))
    left, right = spreads(8, 0.01, seed), spreads(8, 0.01, seed + 1)
    return msgspec.structs.replace(
        make_result("pendulum"),
        spec=TrialSpec("plaza", "paired", whole, plain, seed, bounds=GOALS),
        config=config,
        reference_config=reference,
        pairs=tuple(
            Pair(
                "BA" if number % 2 else "AB",
                make_sample(reference, one),
                drafted(make_sample(config, other), drafting),
            )
            for number, (one, other) in enumerate(zip(left, right, strict=True))
        ),
        candidate_work=make_work(config),
        reference_work=make_work(reference),
        draft=None
        if drafting is None
        else DraftReport(lossless if drawn is None else None, TEXTS, drawn),
    )


def drafted(run: RunSample, drafting: Drafting | None) -> RunSample:
    """`run` as if its steps had drafted: fewer, longer, each giving several tokens."""
    if drafting is None:
        return run
    step = run.step_seconds[0] * drafting.seconds
    tokens = run.output_tokens - 1
    count = round(tokens / drafting.step_tokens)
    given = (tokens / count,) * count  # a mean over episodes, as timed units have it
    decode = step * count
    wall = run.prefill_seconds + decode + run.other_seconds
    length = len(drafting.stood)
    return msgspec.structs.replace(
        run,
        step_seconds=(step,) * count,
        wall_seconds=wall,
        given=(given,),
        finished=(run.ttft[0] + decode,),
        draft=DraftSample(
            DraftCounters(100, 0, (100,) * length, drafting.stood),
            draft_seconds=decode * length * drafting.token / drafting.seconds,
            verify_seconds=0.9 * decode * drafting.verify / drafting.seconds,
        ),
    )
