"""Plays of the Plaza of Two Gates: facts as a trial of it would give them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from story.facts import FactValue

Play = dict[str, FactValue]
KINDS = ("ngram", "self8", "self4", "exit", "trained", "model")
COSTS: Mapping[str, float] = {
    "ngram": 0.0, "self8": 53.0, "self4": 35.0, "exit": 92.0, "trained": 5.5, "model": 130.0,
}  # fmt: skip

BEFORE: Play = {
    "player": "Ada", "debt": 7, "attempts": 1, "hints_taken": 0, "batch": 1,
    "precision": "float32", "prompt": 128, "output": 48, "kv_bits": "full", "weight_bits": "full",
    "method": "rtn", "draft_kind": "exit", "draft_length": 4, "temperature": 0.0, "scar": False,
    "met": False, "floods": 0, "falls": 0,
}  # fmt: skip
MACHINE: Play = {"weights_mb": 538.0, "device": "a processor", "draft_cost_percent": 92.0}
TRIAL: Play = {
    "debt_before": 5, "debt_change": 2, "verdict": "pass", "broken_goal": "", "memory_ratio": 1.1,
    "decode_ms_token": 28.0, "build_tpot_ms": 11.0, "tpot_ratio": 0.4, "speed_up": 2.5,
    "acceptance_percent": 82.0, "step_tokens": 4.1, "draft_share_percent": 39.0,
    "even_tokens": 1.55, "even_percent": 14.0, "lossless": True, "compared": 6, "near_ties": 0,
    "story_percent": 71.0, "code_percent": 88.0, "list_percent": 95.0, "best_kind": "list",
    "worst_kind": "story",
}  # fmt: skip


class Proof(NamedTuple):
    """How drawn, and what came of the proof."""

    temperature: float
    lossless: bool
    ties: int


PROOFS = (
    Proof(0.0, True, 0), Proof(0.0, True, 2), Proof(0.0, False, 0),
    Proof(0.7, True, 0), Proof(0.7, False, 0),
)  # fmt: skip
_OF_TEXTS = ("compared", "near_ties")
_OF_DRAFTS = (
    "acceptance_percent", "step_tokens", "draft_share_percent", "even_tokens", "even_percent",
    "lossless", "story_percent", "code_percent", "list_percent", "best_kind", "worst_kind",
    *_OF_TEXTS,
)  # fmt: skip


def _proved(proof: Proof) -> Play:
    told: Play = {"temperature": proof.temperature, "lossless": proof.lossless}
    if proof.temperature:
        return told | {"drawn_tokens": 288, "drawn_percent": 41.0 if proof.lossless else 0.01}
    return told | {"compared": 6, "near_ties": proof.ties}


def _guessed(guess: float, stood: float) -> Play:
    sealed: Play = {"guess": guess, "guess_word": f"{guess:g}"}
    if stood <= 0:  # to nothing there is no ratio
        return sealed
    factor = max(guess / stood, stood / guess)
    return sealed | {
        "truth": stood, "truth_word": f"{stood:g}", "guess_factor": factor,
        "guess_close": factor <= 1.25,
    }  # fmt: skip


def plaza_plays(verdict: str) -> Iterator[Play]:
    """Trials in which somebody drafted; a passed one lost nothing and was quick enough."""
    passed = verdict == "pass"
    ratios = (0.4, 0.79) if passed else (0.9, 1.6)
    texts = (("list", "story"), ("code", "list"), ("story", "code"), ("story", "story"))
    for kind, length, proof, ratio, stood, share, guess, kinds, attempts in itertools.product(
        KINDS, (1, 4, 16), PROOFS, ratios, (0.0, 0.3, 0.82), (20.0, 70.0),
        (0.02, 0.25, 0.4, 0.9), texts, (1, 5),
    ):  # fmt: skip
        if passed and not proof.lossless:
            continue
        base = {name: fact for name, fact in TRIAL.items() if name not in _OF_TEXTS}
        yield {
            **BEFORE, **MACHINE, **base, **_proved(proof), **_guessed(guess, stood),
            "draft_cost_percent": COSTS[kind], "draft_kind": kind, "draft_length": length,
            "tpot_ratio": ratio, "speed_up": 1 / ratio,
            "acceptance_percent": 100 * stood, "draft_share_percent": share, "best_kind": kinds[0],
            "worst_kind": kinds[1], "attempts": attempts, "hints_taken": 3 if attempts > 1 else 0,
            "verdict": verdict, "met": passed, "debt_change": -1 if attempts > 1 else 2,
            "broken_goal": "" if passed else "tpot_ratio", "memory_ratio": 1.0 + share / 100,
        }  # fmt: skip


def sampled_plays() -> Iterator[Play]:
    """Answers that were drawn, fairly, in a trial that passed."""
    return (play for play in plaza_plays("pass") if play["temperature"])


def faulty_plays() -> Iterator[Play]:
    """Quick enough, and not the model's own text."""
    for play in plaza_plays("fail"):
        if not play["lossless"]:
            yield {**play, "tpot_ratio": 0.5, "speed_up": 2.0, "broken_goal": "lossless"}


def idle_play() -> Play:
    """Nobody drafts."""
    told = {name: fact for name, fact in TRIAL.items() if name not in _OF_DRAFTS}
    return {
        **BEFORE, **MACHINE, **told, "draft_cost_percent": 0.0, "draft_kind": "none",
        "tpot_ratio": 1.0, "speed_up": 1.0, "guess": 0.5, "guess_word": "0.5", "verdict": "fail",
        "broken_goal": "tpot_ratio",
    }  # fmt: skip
