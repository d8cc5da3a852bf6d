"""Records as a store would give them, of trials that never ran."""

from __future__ import annotations

import hashlib

from canned_trials import Case, make_result, make_verdict, plain

from saves.documents import GuessRecord, Record


def make_record(
    stage: str = "pendulum",
    case: Case = "pass",
    *,
    number: int = 0,
    guess: GuessRecord | None = None,
    profile: str = "",
    crowns: tuple[str, ...] = ("time",),
) -> Record:
    """One sealed trial; `number` sets its minute and its digest."""
    result = make_result(stage, case)
    return Record(
        digest=hashlib.sha256(f"{stage} {case} {number}".encode()).hexdigest(),
        version=1,
        profile=profile,
        stage=stage,
        recorded_at=f"2026-01-05T09:{number:02d}:00+00:00",
        build=result.spec.build,
        guess=guess,
        verdict=plain(make_verdict(stage, case, crowns)),
        result=plain(result),
    )


def a_climb(*halls: str) -> tuple[Record, ...]:
    """Each of `halls` passed under a seal; the abyss flooded and the wall fallen from as well."""
    records: list[Record] = []
    for number, stage in enumerate(halls):
        value, truth = SEALS[stage]
        guess = GuessRecord(value, truth, 1.0, True)
        records.append(make_record(stage, "pass", number=2 * number, guess=guess))
        if stage in SCARRING:
            shown = GuessRecord(value, truth, 1.0, None)
            case = SCARRING[stage]
            records.append(make_record(stage, case, number=2 * number + 1, guess=shown))
    return tuple(records)


SCARRING: dict[str, Case] = {"abyss": "flooded", "precision": "fallen"}
"""Halls that demand a scar, and the case that leaves it."""
SEALS: dict[str, tuple[float | str, float | str]] = {
    "gate": ("bandwidth", "bandwidth"),
    "pendulum": (19.3, 19.3),
    "abyss": (47.2, 47.2),
    "paging": (45.4, 45.4),
    "furnace": (2.0, 2.0),
    "precision": ("3", "3"),
}
"""(guess, truth) of a player who is always right."""


def a_journey() -> tuple[Record, ...]:
    """The gate guessed wrongly, the pendulum failed once and then passed."""
    wrong = GuessRecord("compute", "bandwidth", 0.0, False)
    far = GuessRecord(18.0, 34.0, 34 / 18, False)
    return (
        make_record("gate", "pass", number=1, guess=wrong, crowns=()),
        make_record("pendulum", "fail", number=7, guess=far),
        make_record("pendulum", "pass", number=12, guess=far, crowns=("time", "quality")),
    )
