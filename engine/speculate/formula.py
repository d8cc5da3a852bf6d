"""What speculation can gain, by formula. Torch-free.

With r the chance that a drafted token stands, k the draft's length and c its cost a token in steps
of the target (Leviathan et al., 2023, theorem 3.8):

    tokens a step    (1 - r^(k+1)) / (1 - r)
    cost of a step   k c + v,   v the verifying pass in steps of the target
    speed-up         tokens a step / cost of a step

The paper has v = 1: verifying k + 1 rows costs one step. Where it costs more, v says so.
"""

from __future__ import annotations


def tokens_a_step(acceptance: float, length: int) -> float:
    """Mean tokens that one verifying pass gives, when each drafted token stands with `acceptance`
    whatever came before: 1 to length + 1."""
    return sum(acceptance**place for place in range(length + 1))


def speed_up(acceptance: float, length: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """Against the same build without a draft; costs in steps of that build."""
    return tokens_a_step(acceptance, length) / (length * draft_cost + verify_cost)


def break_even(length: int, draft_cost: float, verify_cost: float = 1.0) -> float | None:
    """The acceptance from which on drafting `length` tokens wins; None where none does."""
    if speed_up(1.0, length, draft_cost, verify_cost) <= 1.0:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if speed_up(middle, length, draft_cost, verify_cost) < 1.0:
            low = middle
        else:
            high = middle
    return high


def best_length(acceptance: float, draft_cost: float, verify_costs: dict[int, float]) -> int:
    """The length, among those whose verifying pass was measured, that gains most; 0 where none
    gains."""
    gains = {k: speed_up(acceptance, k, draft_cost, v) for k, v in verify_costs.items()}
    best = max(gains, key=lambda k: gains[k], default=0)
    return best if gains.get(best, 0.0) > 1.0 else 0
