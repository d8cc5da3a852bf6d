"""What is said under a draft is distributed as the target says it, whatever the draft was.

The oracle is the target's own chain rule in Python floats: the chance of two words is the product
of their chances. Chi-square over 100,000 draws, as one would judge a dice; rules that cheat, and
drafts that misstate how they drew, must fail the same test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from scipy import stats
from torch import Tensor

from engine.run.sampler import probabilities
from engine.speculate.accept import Outcome, verify_greedy, verify_sampled

WORDS, DRAWS = 5, 100_000
LEAST_P = 1e-4
Verify = Callable[[Sequence[int], Tensor | None, Tensor, torch.Generator], Outcome]


def language(seed: int) -> Tensor:
    """Logits [last word, next word] of a language in which the next word depends on the last."""
    return torch.randn(WORDS, WORDS, generator=torch.Generator().manual_seed(seed)) * 1.2


TARGET, DRAFT = language(3), language(4)


def rows(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    return torch.stack([probabilities(row, temperature, top_p) for row in logits])


def exact(logits: Sequence[float], temperature: float, top_p: float) -> list[float]:
    """One row of the target in Python floats, from the definition."""
    weights = [math.exp(logit / temperature) for logit in logits]
    ranked = sorted(range(WORDS), key=lambda word: -weights[word])
    kept, mass = set(), 0.0
    for word in ranked:
        kept.add(word)
        mass += weights[word] / sum(weights)
        if mass >= top_p:
            break
    whole = sum(weights[word] for word in kept)
    return [weights[word] / whole if word in kept else 0.0 for word in range(WORDS)]


def p_value(
    verify: Verify,
    drawn: Tensor | None,
    claimed: Tensor | None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    draws: int = DRAWS,
) -> float:
    """Of the first two words after word 0, under drafts of two words.

    Drafts are drawn from `drawn` [last, next] (None: the word after the last, for certain) and said
    to be drawn from `claimed` (None: for certain).
    """
    chance = torch.Generator().manual_seed(5)
    target = rows(TARGET, temperature, top_p)
    if drawn is None:
        first = torch.ones(draws, dtype=torch.int64)
        second = first + 1
    else:
        first = torch.multinomial(drawn[0], draws, replacement=True, generator=chance)
        second = torch.multinomial(drawn[first], 1, generator=chance)[:, 0]
    after = torch.stack([torch.multinomial(row, draws, True, generator=chance) for row in target])
    counts = [[0] * WORDS for _ in range(WORDS)]
    places = {
        (one, two): torch.tensor([0, one, two]) for one in range(WORDS) for two in range(WORDS)
    }
    for at, drafted in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        run = places[drafted]
        proposed = None if claimed is None else claimed[run[:-1]]
        outcome = verify(drafted, proposed, target[run], chance)
        said = [*drafted[: outcome.accepted], outcome.token]
        if len(said) == 1:  # the word after it is the target's own, whoever drafts next
            said.append(int(after[said[0], at]))
        counts[said[0]][said[1]] += 1
    start = exact(TARGET[0].tolist(), temperature, top_p)
    observed, expected = [], []
    for one in range(WORDS):
        then = exact(TARGET[one].tolist(), temperature, top_p)
        for two in range(WORDS):
            chances = start[one] * then[two]
            if chances == 0.0:
                assert counts[one][two] == 0, "a word that the target never says"
                continue
            observed.append(counts[one][two])
            expected.append(draws * chances)
    scale = draws / sum(expected)
    return float(stats.chisquare(observed, [scale * value for value in expected]).pvalue)


def test_words_under_a_sampled_draft_are_distributed_as_the_targets() -> None:
    draft = rows(DRAFT, 1.0, 1.0)
    assert p_value(verify_sampled, draft, draft) > LEAST_P


def test_so_they_are_where_both_are_cooled_and_cut() -> None:
    draft = rows(DRAFT, 0.6, 0.8)
    assert p_value(verify_sampled, draft, draft, 0.6, 0.8, draws=DRAWS // 5) > LEAST_P


def test_so_they_are_under_a_draft_that_is_certain() -> None:
    assert p_value(verify_sampled, None, None, 0.8, draws=DRAWS // 5) > LEAST_P


def always_accepts(
    drafted: Sequence[int], proposed: Tensor | None, target: Tensor, chance: torch.Generator
) -> Outcome:
    last = torch.multinomial(target[len(drafted)], 1, generator=chance)
    return Outcome(len(drafted), int(last))


def draws_again_from_the_whole_target(
    drafted: Sequence[int], proposed: Tensor | None, target: Tensor, chance: torch.Generator
) -> Outcome:
    outcome = verify_sampled(drafted, proposed, target, chance)
    token = torch.multinomial(target[outcome.accepted], 1, generator=chance)
    return Outcome(outcome.accepted, int(token))


@pytest.mark.parametrize("mutant", [always_accepts, draws_again_from_the_whole_target])
def test_a_rule_that_cheats_is_found_out(mutant: Verify) -> None:
    draft = rows(DRAFT, 1.0, 1.0)
    assert p_value(mutant, draft, draft, draws=DRAWS // 5) < LEAST_P


def test_a_draft_of_likeliest_words_that_claims_to_be_drawn_is_found_out() -> None:
    """Sampled decoding with an arg-max draft scored by its softmax."""
    likeliest = rows(DRAFT, 0.0, 1.0)
    assert p_value(verify_sampled, likeliest, rows(DRAFT, 1.0, 1.0), draws=DRAWS // 5) < LEAST_P


def test_a_draft_that_ignores_the_temperature_is_found_out() -> None:
    """It draws at temperature 1 and is scored at that of the target."""
    drawn, claimed = rows(DRAFT, 1.0, 1.0), rows(DRAFT, 0.4, 1.0)
    assert p_value(verify_sampled, drawn, claimed, 0.4, draws=DRAWS // 5) < LEAST_P


def test_a_draft_drawn_otherwise_than_the_target_is_no_fault_if_it_says_so() -> None:
    """It costs acceptance, and the words stay the target's."""
    drawn = rows(DRAFT, 2.0, 1.0)
    assert p_value(verify_sampled, drawn, drawn, 0.7, draws=DRAWS // 5) > LEAST_P


def test_acceptance_is_the_overlap_of_both_distributions() -> None:
    """sum min(p, q) is the chance that the first drafted word stands (Leviathan et al., 2023)."""
    target, draft = rows(TARGET, 1.0, 1.0), rows(DRAFT, 1.0, 1.0)
    chance = torch.Generator().manual_seed(6)
    words = torch.multinomial(draft[0], 20_000, replacement=True, generator=chance).tolist()
    both = torch.stack([target[0], target[1]])
    stood = sum(verify_sampled([w], draft[:1], both, chance).accepted for w in words)
    overlap = sum(min(p, q) for p, q in zip(target[0].tolist(), draft[0].tolist(), strict=True))
    deviation = math.sqrt(overlap * (1 - overlap) / len(words))
    assert abs(stood / len(words) - overlap) < 4 * deviation


@pytest.mark.parametrize(
    ("drafted", "best", "accepted", "token"),
    [
        ([4, 7, 9], [4, 7, 9, 2], 3, 2),
        ([4, 7, 9], [4, 8, 9, 2], 1, 8),
        ([4, 7, 9], [5, 7, 9, 2], 0, 5),
        ([], [6], 0, 6),
    ],
)
def test_greedy_tokens_stand_as_far_as_the_target_would_have_said_them(
    drafted: list[int], best: list[int], accepted: int, token: int
) -> None:
    assert verify_greedy(drafted, best) == Outcome(accepted, token)


def test_at_temperature_zero_both_rules_say_the_same() -> None:
    chance = torch.Generator().manual_seed(7)
    certain = torch.eye(WORDS)
    for drafted, best in (([1, 2], [1, 2, 3]), ([1, 2], [1, 4, 3]), ([1, 2], [0, 2, 3])):
        outcome = verify_sampled(drafted, None, certain[best], chance)
        assert outcome == verify_greedy(drafted, best)
        assert verify_sampled(drafted, certain[drafted], certain[best], chance) == outcome
