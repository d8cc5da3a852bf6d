"""KL, top-1 and perplexity against naive float64 formulas and a distribution worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from rounded_weights import meant_tensors, rounded

import engine.measure.comparison as comparison_module
from engine.config import WeightsConfig
from engine.measure.comparison import (
    FEWEST_SCORED,
    QualityError,
    compare_scores,
    compare_with,
    read_text,
    windows,
)
from engine.measure.quality import measure_quality
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.run.scoring import logits, score_chunks

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]


def naive(
    reference: torch.Tensor, candidate: torch.Tensor, targets: list[int]
) -> tuple[float, int, float, float]:
    kl = equal = theirs = ours = 0.0
    for p_row, q_row, target in zip(reference.tolist(), candidate.tolist(), targets, strict=True):
        p_sum, q_sum = sum(map(math.exp, p_row)), sum(map(math.exp, q_row))
        p = [math.exp(value) / p_sum for value in p_row]
        q = [math.exp(value) / q_sum for value in q_row]
        kl += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        equal += p.index(max(p)) == q.index(max(q))
        theirs -= math.log(p[target])
        ours -= math.log(q[target])
    return kl, int(equal), theirs, ours


def test_comparison_equals_the_naive_formula() -> None:
    generator = torch.Generator().manual_seed(1)
    reference = torch.randn(40, 50, generator=generator) * 3
    candidate = reference + torch.randn(40, 50, generator=generator)
    targets = torch.randint(50, (40,), generator=generator)
    found = compare_scores(reference, candidate, targets)
    kl, equal, theirs, ours = naive(reference, candidate, targets.tolist())
    assert sum(found.divergences) == pytest.approx(kl, rel=1e-5)
    assert (found.equal, found.scored) == (equal, 40)
    assert found.reference_nll == pytest.approx(theirs, rel=1e-5)
    assert found.candidate_nll == pytest.approx(ours, rel=1e-5)


def test_a_distribution_worked_by_hand() -> None:
    """P = (1/2, 1/4, 1/4), Q = (1/4, 1/2, 1/4): KL = ln 2 / 4, and the tops differ."""
    p = torch.tensor([[0.5, 0.25, 0.25]]).log()
    q = torch.tensor([[0.25, 0.5, 0.25]]).log()
    found = compare_scores(p, q, torch.tensor([0]))
    assert found.kl == pytest.approx(math.log(2) / 4, rel=1e-6)
    assert found.equal == 0
    assert math.exp(found.candidate_nll - found.reference_nll) == pytest.approx(2.0)


def test_windows_cover_the_text_from_end_to_end_and_score_enough() -> None:
    text = list(range(3000))
    found = windows(text, context=8192)
    assert found[0][0] == 0 and found[-1][-1] == 2999
    assert sum(len(window) - 1 for window in found) >= FEWEST_SCORED
    assert all(window == text[window[0] : window[0] + len(window)] for window in found)


def test_a_small_context_gets_more_and_shorter_windows() -> None:
    found = windows(list(range(5000)), context=65)
    assert all(len(window) == 65 for window in found)
    assert sum(len(window) - 1 for window in found) >= FEWEST_SCORED


def test_a_text_too_short_to_score_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        windows(list(range(2000)), context=8192)
    with pytest.raises(ValueError, match="too short"):
        windows([1], context=8192)


@pytest.fixture
def small_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 tokens are enough for a test: three windows of 101."""
    monkeypatch.setattr(comparison_module, "FEWEST_SCORED", 300)
    monkeypatch.setattr(comparison_module, "WINDOW", 101)


TEXT = [(37 * place + place // 7) % 256 for place in range(400)]


def test_quality_of_a_rounded_model_equals_the_formula_on_its_scores(
    tiny_config: Configs, tiny_tensors: Tensors, small_score: None
) -> None:
    config = tiny_config()
    reference = Llama(config, tiny_tensors(config), "float32")
    candidate = Llama(config, tiny_tensors(config), "bfloat16")
    heard: list[tuple[int, int]] = []
    found = measure_quality(reference, candidate, TEXT, lambda *done: heard.append(done))
    kl = equal = theirs = ours = 0.0
    for start in (0, 150, 299):
        window = TEXT[start : start + 101]
        rows = naive(
            logits(reference, window[:-1]).double(),
            logits(candidate, window[:-1]).double(),
            window[1:],
        )
        kl, equal = kl + rows[0], equal + rows[1]
        theirs, ours = theirs + rows[2], ours + rows[3]
    assert found.scored_tokens == 300 and heard[-1] == (300, 300)
    assert found.kl == pytest.approx(kl / 300, rel=0.05, abs=1e-6) and found.kl > 0
    assert found.top1 == pytest.approx(equal / 300, abs=0.01)
    assert found.perplexity_ratio == pytest.approx(math.exp((ours - theirs) / 300), rel=1e-3)


def test_fewer_bits_in_the_cache_cost_more_quality(
    tiny_config: Configs, tiny_tensors: Tensors, small_score: None
) -> None:
    """The full-precision weights on narrow caches, against the formula on scores read from them;
    the reference's own cache stays full."""
    config = tiny_config()
    model = Llama(config, tiny_tensors(config), "float32")
    found = {bits: measure_quality(model, model, TEXT, bits=bits) for bits in (0, 16, 8, 4)}
    assert found[0].kl == 0.0
    assert found[16].kl > 0 and 0 < found[8].kl < found[4].kl
    kl = 0.0
    for start in (0, 150, 299):
        window = TEXT[start : start + 101]
        narrow = torch.cat(list(score_chunks(model, window[:-1], 128, 4)))
        kl += naive(logits(model, window[:-1]).double(), narrow.double(), window[1:])[0]
    assert found[4].kl == pytest.approx(kl / 300, rel=0.02)


def test_full_precision_against_itself_is_the_identity(
    tiny_config: Configs, tiny_tensors: Tensors, small_score: None
) -> None:
    config = tiny_config()
    model = Llama(config, tiny_tensors(config), "float32")
    found = measure_quality(model, model, TEXT)
    assert (found.kl, found.top1, found.perplexity_ratio) == (0.0, 1.0, 1.0)
    twin = Llama(config, tiny_tensors(config), "float32")
    measured = measure_quality(model, twin, TEXT)
    assert (measured.kl, measured.top1) == (pytest.approx(0.0, abs=1e-9), 1.0)


def test_a_broken_model_is_named_by_precision_and_layer(
    tiny_config: Configs, tiny_tensors: Tensors, small_score: None
) -> None:
    config = tiny_config(layers=3)
    tensors = tiny_tensors(config)
    reference = Llama(config, tensors, "float32")
    tensors["layers.1.down"] = tensors["layers.1.down"].clone()
    tensors["layers.1.down"][0, 0] = math.inf
    broken = Llama(config, tensors, "bfloat16")
    with pytest.raises(QualityError, match=r"bfloat16 .* layer 1: down gave"):
        measure_quality(reference, broken, TEXT)


def test_the_reference_must_be_full_precision(tiny_config: Configs, tiny_tensors: Tensors) -> None:
    config = tiny_config()
    rounded = Llama(config, tiny_tensors(config), "bfloat16")
    with pytest.raises(ValueError, match="against the float32 model"):
        measure_quality(rounded, rounded, TEXT)


def test_divergence_is_told_by_position_of_a_window(
    tiny_config: Configs, tiny_tensors: Tensors, small_score: None
) -> None:
    """Position p of every window, in runs of 64 and a shorter last one, by the naive formula."""
    config = tiny_config()
    reference = Llama(config, tiny_tensors(config), "float32")
    candidate = Llama(config, tiny_tensors(config), "bfloat16")
    rows = []
    for start in (0, 150, 299):
        window = TEXT[start : start + 101]
        full, build = (logits(model, window[:-1]).double() for model in (reference, candidate))
        rows.append([naive(full[p : p + 1], build[p : p + 1], [0])[0] for p in range(100)])
    found = measure_quality(reference, candidate, TEXT)
    first = sum(sum(row[:64]) for row in rows) / (3 * 64)
    last = sum(sum(row[64:]) for row in rows) / (3 * 36)
    assert found.position_tokens == 64
    assert found.kl_by_position == pytest.approx((first, last), rel=0.05, abs=1e-6)
    whole = (64 * found.kl_by_position[0] + 36 * found.kl_by_position[1]) / 100
    assert found.kl == pytest.approx(whole, rel=1e-9)


def test_a_text_that_was_read_before_gives_the_same_figures(
    tiny_config: Configs, tiny_tensors: Tensors, small_score: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept residual stream stands for the full model: its layers do not run again."""
    config = tiny_config()
    reference = Llama(config, tiny_tensors(config), "float32")
    candidate = Llama(config, tiny_tensors(config), "bfloat16")
    plain = measure_quality(reference, candidate, TEXT)
    text = read_text(reference, TEXT)
    assert text.scored == 300 and [tuple(kept.shape) for kept in text.hidden] == [(100, 64)] * 3
    monkeypatch.setattr(reference, "forward", None)
    assert measure_quality(reference, candidate, TEXT, text=text) == plain


@pytest.mark.parametrize("crossover", [0, 8, 32, 4096])
def test_both_kinds_of_kernels_are_judged(
    tiny_config: Configs,
    tiny_tensors: Tensors,
    small_score: None,
    monkeypatch: pytest.MonkeyPatch,
    crossover: int,
) -> None:
    """With a crossover the last rows of a window run in a pass of few rows, the rest in one."""
    config = tiny_config()
    tensors = tiny_tensors(config)
    reference = Llama(config, tensors, "float32")
    weights = rounded(config, tensors, WeightsConfig(bits=4))
    candidate = Llama(config, tensors, "bfloat16", quantised=weights, crossover=crossover)
    passes: list[int] = []
    forward = candidate.forward

    def heard(input_ids: torch.Tensor, *others: object) -> torch.Tensor:
        passes.append(len(input_ids))
        return forward(input_ids, *others)  # type: ignore[arg-type]

    text = read_text(reference, TEXT)
    monkeypatch.setattr(candidate, "forward", heard)
    found = compare_with(reference, text, candidate)
    few = min(crossover, 32)
    assert passes == ([100 - few, few] if few else [100]) * 3
    judge = Llama(config, meant_tensors(config, tensors, weights), "float32")
    assert found.kl == pytest.approx(compare_with(reference, text, judge).kl, rel=0.1)


def test_a_broken_quantised_build_names_matrix_and_width(
    tiny_config: Configs, tiny_tensors: Tensors, small_score: None
) -> None:
    config = tiny_config(layers=3)
    tensors = tiny_tensors(config)
    weights = rounded(config, tensors, WeightsConfig(bits=4))
    weights.grids["layers.2.gate_up"].scale[3, 0] = math.inf
    broken = Llama(config, tensors, "bfloat16", quantised=weights)
    with pytest.raises(
        QualityError,
        match=r"weights of 8, 4 bits .* position 0 .* layer 2: gate_up \(4 bits, .*\) gave",
    ):
        measure_quality(Llama(config, tensors, "float32"), broken, TEXT)


def test_a_model_beyond_all_measure_has_a_finite_perplexity() -> None:
    """-ln p of 2,000 nats: its exponential is no float, and JSON knows no infinity."""
    reference, candidate = torch.zeros(1, 2), torch.tensor([[0.0, 2000.0]])
    found = compare_scores(reference, candidate, torch.tensor([0]))
    assert math.isfinite(found.perplexity_ratio) and found.perplexity_ratio > 1e200


def test_reading_stops_where_it_is_told_to(tiny_config: Configs, tiny_tensors: Tensors) -> None:
    config = tiny_config()
    reference = Llama(config, tiny_tensors(config), "float32")

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_text(reference, TEXT * 8, stop)
