"""Plays of the Furnace and of the Precision Wall: facts as a trial of each would give them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from story.facts import FactValue
from story.loader import load_text

Play = dict[str, FactValue]

ANSWER = "x" * 159
"""The longest that an answer is quoted."""

BEFORE: Play = {
    "player": "Ada", "debt": 7, "attempts": 1, "hints_taken": 0, "batch": 1,
    "precision": "bfloat16", "prompt": 1024, "output": 24, "kv_bits": "full",
    "weight_bits": "4", "method": "awq", "group": "64", "symmetric": "off", "calibration": 4096,
    "crossover": 32, "attention_bits": "same", "mlp_bits": "same", "embedding_bits": "auto",
    "edge_bits": "same", "cliff_kl": 1.0, "falls": 0, "scar": False, "met": False, "floods": 0,
}  # fmt: skip
MACHINE: Play = {
    "sixteen_mb": 269.0, "share_percent": 35.0, "lesson_hidden": False, "bytes_ms": 10.4,
    "launch_ms": 1.2, "shown_elsewhere": False, "shown_by": "",
}  # fmt: skip
TRIAL: Play = {
    "debt_before": 5, "debt_change": 2, "verdict": "pass", "broken_goal": "", "fallen": False,
    "kl": 0.231, "top1": 0.7, "tpot_ratio": 0.5, "ttft_ratio": 1.14, "decode_ms_token": 17.0,
    "weight_share_percent": 35.2, "average_bits": 5.63, "pressed_seconds": 5.0,
    "changed_layers": 28, "layers": 30, "calibration_short": False,
    "worst_layer": 30, "worst_matrix": "gate_up", "worst_error_percent": 12.3,
    "probes_known": 18, "probes_right": 15, "probes_percent": 83.0, "same_answers": 1,
    "answers": 3, "asked": "Tell me a short story about a fox.", "full_answer": ANSWER,
    "babble": ANSWER,
}  # fmt: skip
LADDER: Play = {
    "breaking_bits": "3", "rung8_kl": 0.0052, "rung4_kl": 0.36, "rung3_kl": 1.63, "rung2_kl": 11.4,
}  # fmt: skip


def _gained(guess: float) -> Play:
    """A guess at the gain of four bits, which is 2."""
    factor = max(guess / 2, 2 / guess)
    return {
        "guess": guess, "guess_word": f"{guess:g}", "truth": 2.0, "truth_word": "2",
        "guess_factor": factor, "guess_close": factor <= 1.25, "four_bit_gain": 2.0,
    }  # fmt: skip


def furnace_plays(verdict: str) -> Iterator[Play]:
    """Only a build of four bits answers the guess."""
    goals = ("weight_share", "tpot_ratio", "ttft_ratio", "kl") if verdict == "fail" else ("",)
    for bits, method, group, short, crossover, goal, tpot, guess, attempts in itertools.product(
        ("full", "8", "4", "3", "2"), ("rtn", "gptq", "awq", "smoothquant", "qat"),
        ("auto", "32", "row"), (True, False), (0, 32, 1024), goals, (0.5, 0.8, 1.7),
        (1.0, 2.2, 2.9, 20.0), (1, 5),
    ):  # fmt: skip
        sealed: Play = {"guess": guess, "guess_word": f"{guess:g}"}
        yield {
            **BEFORE, **MACHINE, **TRIAL, **(_gained(guess) if bits == "4" else sealed),
            "weight_bits": bits, "method": method, "group": group, "calibration_short": short,
            "crossover": crossover, "broken_goal": goal, "tpot_ratio": tpot, "attempts": attempts,
            "verdict": verdict, "met": verdict == "pass", "hints_taken": 3 if attempts > 1 else 0,
        }  # fmt: skip


def _chosen(guess: str, truth: str) -> Play:
    words = load_text("precision", "en").choices
    return {
        "guess": guess, "guess_word": words[guess], "truth": truth,
        "truth_word": words.get(truth, truth), "guess_close": guess == truth,
    }  # fmt: skip


def cliff_plays(verdict: str) -> Iterator[Play]:
    """Trials that did not fall."""
    goals = ("average_bits", "kl", "probes_right") if verdict == "fail" else ("",)
    guesses = (("8", "3"), ("3", "3"), ("2", "none"), ("4", "8"), ("3", "2"), ("2", "4"))
    for (guess, truth), bits, method, table, cache, attempts, change, scar, tpot, right, goal in (
        itertools.product(
            guesses, ("full", "8", "4", "3", "2"), ("rtn", "awq", "gptq"), ("auto", "4", "8"),
            ("full", "4"), (1, 5), (-1, 2), (False, True), (0.5, 1.2), (87.0, 100.0), goals,
        )
    ):  # fmt: skip
        yield {
            **BEFORE, **MACHINE, **TRIAL, **LADDER, **_chosen(guess, truth), "weight_bits": bits,
            "method": method, "embedding_bits": table, "kv_bits": cache, "attempts": attempts,
            "debt_change": change, "scar": scar, "tpot_ratio": tpot, "probes_percent": right,
            "verdict": verdict, "broken_goal": goal, "met": verdict == "pass", "prompt": 64,
            "breaking_bits": truth, "calibration_short": True,
            "hints_taken": 3 if attempts > 1 else 0,
        }  # fmt: skip


def falls() -> Iterator[Play]:
    for guess, truth, met, number, kl, change in itertools.product(
        ("8", "3"), ("3", "none"), (False, True), (1, 2, 9), (1.2, 11.4), (-1, 2)
    ):
        yield {
            **BEFORE, **MACHINE, **TRIAL, **LADDER, **_chosen(guess, truth), "met": met,
            "scar": True, "falls": number, "kl": kl, "debt_change": change, "verdict": "fail",
            "fallen": True, "broken_goal": "kl", "weight_bits": "2", "method": "rtn",
        }  # fmt: skip
