"""GPTQ: round one input channel at a time, and let the channels still to come make up for it.

The error that counts is that of the outputs, ‖(W - Ŵ) X‖², a quadratic form in each row of W with
the Hessian H = Xᵀ X of the inputs. Rounding channel i of a row by e changes the best values of the
channels after it by -e · U[i, j] / U[i, i], where U is the upper Cholesky factor of H⁻¹ (Hassibi
and Stork's optimal brain surgeon, with one order for all rows). The updates reach the rest of a
block at once, and the rest of the matrix once a block, in one product.

Default model, every layer at 4 bits in asymmetric groups of 32, 4,096 tokens of calibration, KL on
the evaluation text: 0.101; with `act_order` 0.115; in the order of all channels' activations, with
grids fitted to the weights as given (the paper's static groups), 0.123; rounding to nearest 0.230.

Source: Frantar, Ashkboos, Hoefler, Alistarh: GPTQ, 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.quant.clip import fit_narrower
from engine.quant.grid import GridWeight, fit_grid, grid_between, middle, nearest_codes
from engine.quant.walk import nothing
from engine.weight_format import Scheme

BLOCK = 128
DAMPING = 0.01
"""Of the mean diagonal, added to the diagonal: a Hessian of few tokens has no inverse."""

MOST_DAMPING = 10.0
"""Where tenfold steps stop: the diagonal is then so lifted that hardly anything is made up for."""


class HessianError(ArithmeticError):
    """A Hessian that no damping makes positive definite: it holds values that are no Gram
    matrix's."""


@torch.no_grad()
def gptq(
    weight: Tensor,
    hessian: Tensor,
    scheme: Scheme,
    *,
    act_order: bool = False,
    narrow: bool = True,
    name: str = "the matrix",
    check: Callable[[], None] = nothing,
) -> GridWeight:
    """The matrix [N, K] in codes that keep its outputs on inputs with this Hessian [K, K].

    A group's grid is fitted when its turn comes, to its weights as they have become: as narrow as
    costs least (`engine.quant.clip`), or with `narrow` false as wide as they are. `act_order` takes
    the groups with the largest activations first, and in each the largest channels, while most
    others can still make up for them: the codes of a group stay together, so it costs nothing when
    the matrix is used (group-aware reordering, Gafni et al., 2025). The default model does better
    without. A channel that no input uses is rounded to nearest and makes up for nothing. `check` is
    called once a block and may raise.

    Raises:
        ValueError: as `fit_grid`, or a Hessian of another shape or with values that are not finite.
        HessianError: it has no Cholesky factor, however damped.
    """
    scale, zero = fit_grid(weight, scheme, name)
    rows, columns = weight.shape
    _check_hessian(hessian, columns, name)
    groups = scale.shape[1]
    order = _order(hessian.diagonal(), groups) if act_order else torch.arange(columns)
    factor, _ = inverse_factor(hessian[order][:, order], name)
    sweep = _Sweep(
        rest=weight.to(torch.float32).T[order].contiguous(),
        factor=factor,
        codes=torch.empty(columns, rows, dtype=torch.uint8),
        groups=(order // (columns // groups)).tolist(),
        scale=scale.T.contiguous(),
        zero=None if zero is None else zero.T.contiguous(),
        scheme=scheme,
        name=name,
        narrow=narrow,
    )
    for start, stop in sweep.blocks():
        check()
        sweep.round_block(start, stop)
    codes = torch.empty(rows, columns, dtype=torch.uint8)
    codes[:, order] = sweep.codes.T
    kept = None if sweep.zero is None else sweep.zero.T.contiguous()
    return GridWeight(codes, sweep.scale.T.contiguous(), kept, scheme)


def inverse_factor(hessian: Tensor, name: str = "the matrix") -> tuple[Tensor, float]:
    """(U, damping): U [K, K] upper triangular, float32, with Uᵀ U = (H + damping · mean diag)⁻¹.

    Damping begins at 1 % and is raised tenfold, to at most 1000 %, while there is no factor. H
    reversed in both directions, P H P = L Lᵀ, gives U = P L⁻¹ P without H⁻¹ itself ever being
    formed. A channel that no input uses stands apart, with the damping alone on the diagonal.

    Raises:
        HessianError: no factor exists even then.
    """
    wide = hessian.to(torch.float64, copy=True)
    diagonal = wide.diagonal().clone()
    mean = float(diagonal.mean()) or 1.0
    damping = DAMPING
    while damping <= MOST_DAMPING * (1 + 1e-9):
        wide.diagonal().copy_(diagonal + damping * mean)
        lower, info = torch.linalg.cholesky_ex(wide.flip(0, 1))
        if not int(info):
            identity = torch.eye(len(wide), dtype=torch.float64)
            inverse = torch.linalg.solve_triangular(lower, identity, upper=False)
            return inverse.flip(0, 1).to(torch.float32), damping
        damping *= 10
    raise HessianError(
        f"the Hessian of {name} is not positive definite even with {MOST_DAMPING:.0%} of its mean "
        "diagonal added; were the calibration inputs finite?"
    )


def _order(importance: Tensor, groups: int) -> Tensor:
    """[K] channels from the most important, no group torn apart: groups by their sum, then each."""
    members = importance.view(groups, -1)  # [G, group]
    first = torch.argsort(members.sum(dim=1), descending=True, stable=True)
    inside = torch.argsort(members, dim=1, descending=True, stable=True)[first]
    return (first[:, None] * members.shape[1] + inside).flatten()


def _check_hessian(hessian: Tensor, columns: int, name: str) -> None:
    if hessian.shape != (columns, columns):
        raise ValueError(
            f"{name} needs a Hessian [{columns}, {columns}], not {list(hessian.shape)}"
        )
    if not bool(torch.isfinite(hessian).all()):
        raise ValueError(f"the Hessian of {name} is not finite: some calibration input was not")


@dataclass(frozen=True)
class _Sweep:
    """One matrix on its way, transposed so that a channel is a row of memory.

    Channels stand in the order of rounding: `rest` [K, N], the weights still to be rounded, changed
    in place; `factor` [K, K] of `inverse_factor`; `codes` [K, N], filled in; `groups`, the group
    of each: no group in two pieces. `scale`, `zero` [G, N] are fitted anew as each group begins.
    """

    rest: Tensor
    factor: Tensor
    codes: Tensor
    groups: Sequence[int]
    scale: Tensor
    zero: Tensor | None
    scheme: Scheme
    name: str
    narrow: bool

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Spans of whole groups, of about `BLOCK` channels: a grid needs all of its weights up to
        date. A group of its own row is fitted once, before the first block, and may be cut."""
        columns = len(self.rest)
        group = columns // len(self.scale)
        size = BLOCK if group == columns else group * max(BLOCK // group, 1)
        for start in range(0, columns, size):
            yield start, min(start + size, columns)

    def round_block(self, start: int, stop: int) -> None:
        errors = torch.empty(stop - start, self.rest.shape[1])  # [block, N], in units of U[i, i]
        for index in range(start, stop):
            group = self.groups[index]
            if index == 0 or group != self.groups[index - 1]:
                self._refit(group, index)
            weight = self.rest[index]
            value = self._round(index, weight, group)
            error = (weight - value).div_(self.factor[index, index])
            errors[index - start] = error
            later = self.rest[index + 1 : stop]
            later.addr_(self.factor[index, index + 1 : stop], error, alpha=-1)
        self.rest[stop:].addmm_(self.factor[start:stop, stop:].T, errors, alpha=-1)

    def _round(self, index: int, weight: Tensor, group: int) -> Tensor:
        """Keep the codes of channel `index` and give the values [N] they stand for."""
        scale = self.scale[group]
        zero = None if self.zero is None else self.zero[group]
        codes = nearest_codes(weight, scale, zero, self.scheme)
        self.codes[index] = codes.to(torch.uint8)
        value = codes.sub_(middle(self.scheme)).mul_(scale)
        return value if zero is None else value.add_(zero)

    def _refit(self, group: int, first: int) -> None:
        """Fit the grid of `group`, whose channels begin at `first`, to its weights as they are.

        Moving channel i by e costs e² / U[i, i]² when all later ones have made up for it: a narrow
        grid's width is chosen by that.
        """
        members = slice(first, first + len(self.rest) // len(self.scale))
        weight = self.rest[members].T  # [N, group]
        if self.narrow:
            importance = self.factor.diagonal()[members].pow(-2)
            scale, zero = fit_narrower(weight, importance, self.scheme, self.name)
        else:
            low, high = weight.aminmax(dim=1)
            scale, zero = grid_between(low, high, self.scheme, self.name)
        self.scale[group] = scale
        if self.zero is not None and zero is not None:
            self.zero[group] = zero
