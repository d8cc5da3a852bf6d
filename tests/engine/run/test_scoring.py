"""Teacher-forced scores: the same in any chunks, and refused where they cannot be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.model.llama import Llama
from engine.run.scoring import first_bad_layer, hidden_chunks, logits, score_chunks

Prompt = Callable[..., list[int]]


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("chunk", [1, 5, 39, 40, 64])
def test_chunks_do_not_change_the_scores(
    make_model: Callable[..., Llama], prompt: Prompt, window: int | None, chunk: int
) -> None:
    model = make_model(window=window)
    ids = prompt(40)
    parts = list(score_chunks(model, ids, chunk))
    assert [part.shape[0] for part in parts[:-1]] == [chunk] * (len(parts) - 1)
    got = torch.cat(parts)
    assert got.dtype == torch.float32 and got.shape == (40, 96)
    torch.testing.assert_close(got, logits(model, ids), rtol=0, atol=2e-5)


@pytest.mark.parametrize("counts", [[40], [1, 38, 1], [7, 33]])
def test_scores_can_be_made_later_of_the_residual_stream(
    model: Llama, prompt: Prompt, counts: list[int]
) -> None:
    ids = prompt(40)
    parts = list(hidden_chunks(model, ids, counts))
    assert [tuple(part.shape) for part in parts] == [(count, 32) for count in counts]
    with torch.inference_mode():
        scores = torch.cat([model.logits(part) for part in parts])
    torch.testing.assert_close(scores, logits(model, ids), rtol=0, atol=2e-5)


def test_a_score_knows_nothing_of_what_follows(model: Llama, prompt: Prompt) -> None:
    ids = prompt(30)
    changed = [*ids[:20], *prompt(10, 9)]
    before, after = logits(model, ids), logits(model, changed)
    assert torch.equal(before[:20], after[:20])
    assert not torch.allclose(before[21:], after[21:], atol=1e-2)


def test_a_narrower_cache_costs_more_the_fewer_bits_it_keeps(model: Llama, prompt: Prompt) -> None:
    ids = prompt(60)
    truth = logits(model, ids)
    errors = {
        bits: float((torch.cat(list(score_chunks(model, ids, 20, bits))) - truth).abs().mean())
        for bits in (0, 16, 8, 4)
    }
    assert errors[0] < 1e-5 < errors[16] <= errors[8] < errors[4] / 3
    assert errors[4] < float(truth.std())


def test_the_first_layer_that_breaks_is_named(make_model: Callable[..., Llama]) -> None:
    def poison(tensors: dict[str, torch.Tensor]) -> None:
        tensors["layers.1.mlp_norm"][0] = float("inf")

    found = first_bad_layer(make_model(spoil=poison), [1, 2, 3])
    assert found in ("layer 1: gate_up was given inf", "layer 1: gate_up was given -inf")


def test_what_cannot_be_scored_is_refused(model: Llama) -> None:
    for ids in ([], [1] * 201):
        with pytest.raises(ValueError, match="1 to 200 can"):
            score_chunks(model, ids)
    with pytest.raises(ValueError, match="at least 1"):
        score_chunks(model, [1, 2], 0)
    with pytest.raises(ValueError, match="no KV format has 5 bits"):
        score_chunks(model, [1, 2], bits=5)
    for counts in ([], [1], [2, 0], [3]):
        with pytest.raises(ValueError, match="and 2 in all"):
            hidden_chunks(model, [1, 2], counts)
