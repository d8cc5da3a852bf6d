"""GPTQ: closed forms where there are any, and never worse than rounding where it claims to help."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from engine.quant.clip import fit_narrower
from engine.quant.gptq import DAMPING, MOST_DAMPING, HessianError, gptq, inverse_factor
from engine.quant.grid import round_to
from engine.quant.rtn import rtn
from engine.quant.walk import gram, output_error
from engine.weight_format import ROW, Scheme


class Stopped(Exception):
    pass


def source(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def correlated(tokens: int, columns: int, seed: int = 5) -> Tensor:
    """Inputs [T, K] whose channels depend on one another and differ in size."""
    generator = source(seed)
    mix = torch.randn(columns, columns, generator=generator)
    size = torch.rand(columns, generator=generator) * 4
    return torch.randn(tokens, columns, generator=generator) @ mix * size


def positive_definite(columns: int, seed: int = 5) -> Tensor:
    return gram(correlated(4 * columns, columns, seed))


@pytest.mark.parametrize("act_order", [True, False])
@pytest.mark.parametrize("scheme", [Scheme(4, 8), Scheme(3, ROW), Scheme(8, 16, symmetric=True)])
def test_channels_that_do_not_depend_on_one_another_are_rounded_to_nearest(
    scheme: Scheme, act_order: bool
) -> None:
    weight = torch.randn(6, 32, generator=source())
    found = gptq(weight, torch.eye(32) * 3.0, scheme, act_order=act_order, narrow=False)
    nearest = rtn(weight, scheme)
    assert torch.equal(found.codes, nearest.codes)
    assert torch.equal(found.scale, nearest.scale)
    if not scheme.symmetric:
        assert found.zero is not None and nearest.zero is not None
        assert torch.equal(found.zero, nearest.zero)


def test_narrow_grids_are_those_of_least_cost_where_nothing_depends_on_anything() -> None:
    weight = torch.randn(6, 32, generator=source())
    scheme = Scheme(2, 16)
    found = gptq(weight, torch.eye(32), scheme)
    for group in range(2):
        part = weight[:, 16 * group : 16 * (group + 1)]
        scale, zero = fit_narrower(part, torch.ones(16), scheme)
        assert zero is not None and found.zero is not None
        assert torch.equal(found.scale[:, group], scale)
        assert torch.equal(found.zero[:, group], zero)
    nearest = round_to(weight, found.scale, found.zero, scheme)
    assert torch.equal(found.codes, nearest.codes)


def test_narrow_grids_keep_more_of_the_outputs_at_two_bits() -> None:
    weight = torch.randn(40, 96, generator=source())
    hessian = gram(correlated(400, 96))
    wide, narrow = (
        output_error(weight, gptq(weight, hessian, Scheme(2, 32), narrow=n).dequantise(), hessian)
        for n in (False, True)
    )
    assert narrow < 0.8 * wide


def test_the_factor_is_the_cholesky_factor_of_the_damped_inverse() -> None:
    hessian = positive_definite(12)
    factor, damping = inverse_factor(hessian)
    assert damping == DAMPING
    wide = hessian.to(torch.float64)
    damped = wide + torch.eye(12) * damping * wide.diagonal().mean()
    expected = torch.linalg.cholesky(torch.linalg.inv(damped), upper=True)
    assert torch.equal(factor, factor.triu())
    torch.testing.assert_close(factor.to(torch.float64), expected, rtol=1e-4, atol=1e-7)


def test_the_second_of_two_channels_makes_up_for_the_first() -> None:
    """With H = [[a, b], [b, c]] and the first weight off by e, the best second weight is
    w + e b / (c + d), d the damping: the lowest point of a parabola."""
    hessian = torch.zeros(4, 4)
    hessian[:2, :2] = torch.tensor([[4.0, 3.0], [3.0, 5.0]])
    hessian[2:, 2:] = torch.eye(2)  # the ends of the range, which depend on nothing
    weight = torch.tensor([[0.30, 0.32, -1.0, 1.0]])
    scheme = Scheme(3, ROW)
    found = gptq(weight, hessian, scheme, act_order=False, narrow=False)
    first = float(found.dequantise()[0, 0])
    wished = 0.32 + (0.30 - first) * 3.0 / (5.0 + DAMPING * float(hessian.diagonal().mean()))
    target = torch.tensor([[0.30, wished, -1.0, 1.0]])
    assert found.codes.tolist() == round_to(target, found.scale, found.zero, scheme).codes.tolist()
    assert found.codes[0, 1] != rtn(weight, scheme).codes[0, 1]  # it did make a difference


def test_two_channels_come_out_as_well_as_the_best_of_all_codes_given_the_first() -> None:
    """Tried out: of all second codes, GPTQ takes the one of least output error."""
    generator = source(11)
    scheme = Scheme(2, 2, symmetric=True)
    for _ in range(20):
        rows = torch.randn(200, 2, generator=generator) @ torch.randn(2, 2, generator=generator)
        hessian = gram(rows)
        weight = torch.randn(1, 2, generator=generator)
        found = gptq(weight, hessian, scheme, act_order=False)
        kept = found.dequantise()
        step = float(found.scale)
        damped = hessian + torch.eye(2) * DAMPING * hessian.diagonal().mean()

        def loss(
            second: float, kept: Tensor = kept, w: Tensor = weight, h: Tensor = damped
        ) -> float:
            error = torch.tensor([float(kept[0, 0]), second]) - w[0]
            return float(error @ h @ error)

        best = min(loss(step * code) for code in (-2, -1, 0, 1))
        assert loss(float(kept[0, 1])) == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("act_order", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("bits", "group"), [(4, 16), (4, 48), (3, ROW), (2, 32), (8, ROW)])
def test_outputs_on_dependent_inputs_are_nearer_than_after_rounding(
    bits: int, group: int, symmetric: bool, act_order: bool
) -> None:
    weight = torch.randn(40, 96, generator=source())
    hessian = gram(correlated(400, 96))
    scheme = Scheme(bits, group, symmetric)
    found = output_error(
        weight, gptq(weight, hessian, scheme, act_order=act_order).dequantise(), hessian
    )
    rounded = output_error(weight, rtn(weight, scheme).dequantise(), hessian)
    assert found < 0.85 * rounded


def test_inputs_never_seen_are_nearer_too_if_enough_were_seen() -> None:
    weight = torch.randn(40, 64, generator=source())
    rows = correlated(1200, 64)
    seen, unseen = rows[:1000], gram(rows[1000:])
    scheme = Scheme(3, 16)
    found = output_error(weight, gptq(weight, gram(seen), scheme).dequantise(), unseen)
    assert found < 0.85 * output_error(weight, rtn(weight, scheme).dequantise(), unseen)


@pytest.mark.parametrize("group", [16, 48, ROW])
def test_blocks_change_only_when_updates_are_added(
    group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = torch.randn(24, 96, generator=source())
    hessian = positive_definite(96)
    found = []
    for block in (4096, 32, 1):
        monkeypatch.setattr("engine.quant.gptq.BLOCK", block)
        kept = gptq(weight, hessian, Scheme(4, group)).dequantise()
        found.append(output_error(weight, kept, hessian))
    assert found[1] == pytest.approx(found[0], rel=0.02)
    assert found[2] == pytest.approx(found[0], rel=0.02)


def test_the_order_of_rounding_does_not_mix_up_channels() -> None:
    """Channels and their Hessian permuted within groups of one: the result is permuted too."""
    weight = torch.randn(5, 12, generator=source())
    hessian = positive_definite(12)
    swap = torch.randperm(12, generator=source(2))
    scheme = Scheme(4, ROW)
    plain = gptq(weight, hessian, scheme, act_order=True)
    swapped = gptq(weight[:, swap], hessian[swap][:, swap], scheme, act_order=True)
    assert torch.equal(swapped.codes, plain.codes[:, swap])


def test_a_group_is_fitted_to_what_its_weights_have_become() -> None:
    """Every code in the range of its group's grid would be luck if grids were fitted before."""
    weight = torch.randn(30, 32, generator=source())
    grid = gptq(weight, positive_definite(32), Scheme(2, 8), act_order=False, narrow=False)
    fitted_before = rtn(weight, Scheme(2, 8)).scale
    assert torch.equal(grid.scale[:, 0], fitted_before[:, 0])  # nothing came before it
    assert not torch.equal(grid.scale[:, 1], fitted_before[:, 1])


@pytest.mark.parametrize("act_order", [True, False])
def test_a_channel_no_input_uses_is_rounded_and_disturbs_nothing(act_order: bool) -> None:
    weight = torch.randn(8, 16, generator=source())
    rows = correlated(100, 16)
    rows[:, 3] = 0.0
    scheme = Scheme(4, 8)
    found = gptq(weight, gram(rows), scheme, act_order=act_order, narrow=False)
    value = found.dequantise()[:, 3]
    assert bool(((value - weight[:, 3]).abs() <= found.scale[:, 0] * 0.51).all())
    without = weight.clone()
    without[:, 3] = weight[:, 3] + torch.where(weight[:, 3] > 0, -0.2, 0.2)
    low, high = without[:, :8].aminmax(dim=1)
    same_range = (low == weight[:, :8].amin(dim=1)) & (high == weight[:, :8].amax(dim=1))
    assert bool(same_range.any())
    other = gptq(without, gram(rows), scheme, act_order=act_order, narrow=False)
    kept = [column for column in range(16) if column != 3]
    assert torch.equal(found.codes[same_range][:, kept], other.codes[same_range][:, kept])


def test_inputs_of_nothing_but_zeros_leave_rounding_to_nearest() -> None:
    weight = torch.randn(4, 16, generator=source())
    found = gptq(weight, torch.zeros(16, 16), Scheme(4, 8), narrow=False)
    assert torch.equal(found.codes, rtn(weight, Scheme(4, 8)).codes)


def test_few_tokens_are_damped_into_an_inverse() -> None:
    rows = correlated(3, 24)  # rank 3 of 24
    weight = torch.randn(8, 24, generator=source())
    factor, damping = inverse_factor(gram(rows))
    assert damping == DAMPING and bool(torch.isfinite(factor).all())
    assert bool(torch.isfinite(gptq(weight, gram(rows), Scheme(4, 8)).dequantise()).all())


def test_damping_is_raised_tenfold_until_there_is_a_factor() -> None:
    """diag(1, 1, 1, 1) but for one pair that correlates by 1.3: eigenvalue -0.3, so 0.01 and 0.1 of
    the mean diagonal are too little and 1 is enough."""
    hessian = torch.eye(4)
    hessian[0, 1] = hessian[1, 0] = 1.3
    factor, damping = inverse_factor(hessian)
    assert damping == pytest.approx(1.0)
    assert bool(torch.isfinite(factor).all())


def test_a_matrix_that_is_no_hessian_is_refused_at_the_limit() -> None:
    hessian = torch.eye(4)
    hessian[0, 1] = hessian[1, 0] = 2 * MOST_DAMPING
    with pytest.raises(HessianError, match=r"layers\.2\.down .*1000%"):
        gptq(torch.ones(2, 4), hessian, Scheme(4, 4), name="layers.2.down")


def test_bad_input_is_named() -> None:
    weight = torch.ones(2, 4)
    with pytest.raises(ValueError, match=r"layers\.0\.o needs a Hessian \[4, 4\], not \[3, 3\]"):
        gptq(weight, torch.eye(3), Scheme(4, 4), name="layers.0.o")
    hessian = torch.eye(4)
    hessian[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"layers\.0\.o is not finite"):
        gptq(weight, hessian, Scheme(4, 4), name="layers.0.o")
    weight[1, 1] = float("inf")
    with pytest.raises(ValueError, match=r"layers\.0\.o holds inf in row 1, column 1"):
        gptq(weight, torch.eye(4), Scheme(4, 4), name="layers.0.o")
    with pytest.raises(ValueError, match="do not divide"):
        gptq(torch.ones(2, 4), torch.eye(4), Scheme(4, 3))


def test_an_abort_is_heard_between_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.quant.gptq.BLOCK", 8)
    calls = itertools.count(1)

    def check() -> None:
        if next(calls) == 3:
            raise Stopped

    with pytest.raises(Stopped):
        gptq(torch.ones(2, 64), torch.eye(64), Scheme(4, 8), check=check)


def test_the_weights_given_are_left_alone() -> None:
    weight = torch.randn(4, 16, generator=source())
    hessian = positive_definite(16)
    before = weight.clone(), hessian.clone()
    gptq(weight, hessian, Scheme(4, 8))
    assert torch.equal(weight, before[0]) and torch.equal(hessian, before[1])
