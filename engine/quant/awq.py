"""AWQ: scale up the channels that carry much before rounding, and what feeds them down.

Rounding adds about the same error to every weight of a group; what it does to the output is that
error times the input. A channel j multiplied by s_j before rounding, its input divided by it, has
its error divided by s_j, while its neighbours pay only where it widens the group. The scale is
searched, a seam (see `fold`) at a time,

    s = mean|x| ^ α,   α in 0, 1/20 ... 19/20,   least ‖(W - Q(W diag s) diag s⁻¹) X‖

and folded exactly into what made the input. Then each group's range is cut by the share that leaves
the least error on the group's own inputs. α = 0 and the whole range are among the choices.

Source: Lin, Tang, Tang, Yang, Dang, Han: AWQ, 2023. Of the inputs both searches need Xᵀ X and
mean|x| alone: ‖A X‖² = tr(A Xᵀ X Aᵀ).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from engine.quant.folded import Given, press_folded
from engine.quant.grid import GridWeight, fit_grid, grid_between, middle, round_to
from engine.quant.method import Job, Pressed
from engine.quant.walk import nothing, output_error
from engine.weight_format import Scheme, groups_of

STRENGTHS = tuple(step / 20 for step in range(20))
"""The exponents α that are tried."""

CUTS = tuple(1 - 0.05 * step for step in range(9))
"""Shares of a group's range that its grid may cover."""

SEARCH_ROWS = 512
"""Rows of a matrix that the search for a scale looks at, evenly spread: a scale serves all rows."""

LEAST = 1e-4
"""Of the mean channel: one with hardly any input is scaled as if it had this much."""


def press_awq(job: Job) -> Iterator[Pressed]:
    """Every layer by AWQ, on the inputs that the full model gives it."""
    return press_folded(job, _Aware())


class _Aware:
    def scale(self, given: Given) -> Tensor | None:
        watched = given.watched
        return search_scale(
            given.weight, watched.gram, watched.mean, given.scheme, check=given.check
        )

    def round(self, given: Given) -> tuple[GridWeight, float]:
        gram = given.watched.gram
        grid = round_cut(given.weight, gram, given.scheme, name=given.name, check=given.check)
        return grid, output_error(given.weight, grid.dequantise(), gram)


@torch.no_grad()
def search_scale(
    weight: Tensor,
    gram: Tensor,
    mean: Tensor,
    scheme: Scheme,
    *,
    check: Callable[[], None] = nothing,
) -> Tensor | None:
    """The scale [K] whose rounding leaves the least output error; None where that is no scale.

    `weight` [N, K] float32; `gram` [K, K] and `mean` [K] of its inputs. `check` is called before
    each strength that is tried.
    """
    rows = weight[:: -(-len(weight) // SEARCH_ROWS)]
    best, found = torch.inf, None
    for strength in STRENGTHS:
        check()
        scale = scale_at(mean, strength)
        lost = (_rounded(rows * scale, scheme) / scale).sub_(rows)
        error = float(((lost @ gram) * lost).sum(dtype=torch.float64))
        if error < best:
            best, found = error, scale if strength else None
    return found


def scale_at(mean: Tensor, strength: float) -> Tensor:
    """mean|x| ^ α [K], brought to a geometric middle of 1 between its largest and its least."""
    level = mean / mean.mean().clamp_min(torch.finfo(torch.float32).tiny)
    scale = level.clamp_min(LEAST).pow(strength)
    return scale / (scale.max() * scale.min()).sqrt()


@torch.no_grad()
def round_cut(
    weight: Tensor,
    gram: Tensor,
    scheme: Scheme,
    *,
    name: str = "the matrix",
    check: Callable[[], None] = nothing,
) -> GridWeight:
    """`weight` [N, K] rounded to grids that each cover the best of `CUTS` of their group's range.

    The error of a group is that of its own part of the output, (W - Ŵ) X over its channels alone:
    the block [K / G, K / G] of `gram` on the diagonal. `check` is called before each cut.

    Raises:
        ValueError: as `fit_grid`.
    """
    rows, columns = weight.shape
    groups = groups_of(scheme, columns)
    size = columns // groups
    grouped = weight.reshape(rows, groups, size)
    low, high = torch.aminmax(grouped, dim=-1)  # [N, G]
    blocks = gram.reshape(groups, size, groups, size).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    scale, zero = fit_grid(weight, scheme, name)
    least = torch.full_like(scale, torch.inf)
    for share in CUTS:
        check()
        tried, offset = grid_between(low * share, high * share, scheme, name)
        kept = round_to(weight, tried, offset, scheme).dequantise().view_as(grouped)
        lost = kept.sub_(grouped).transpose(0, 1)  # [G, N, K / G]
        error = (torch.bmm(lost, blocks) * lost).sum(-1).T.contiguous()
        better = error < least
        least = torch.where(better, error, least)
        scale = torch.where(better, tried, scale)
        if zero is not None and offset is not None:
            zero = torch.where(better, offset, zero)
    return round_to(weight, scale, zero, scheme)


def _rounded(weight: Tensor, scheme: Scheme) -> Tensor:
    """`weight` [N, K] as rounding to nearest keeps it, but for the rounding of scale and zero: one
    candidate among many, of which no matrix is made. Overwrites `weight`."""
    grouped = weight.view(len(weight), groups_of(scheme, weight.shape[1]), -1)
    low, high = torch.aminmax(grouped, dim=-1, keepdim=True)
    half, tiny = middle(scheme), torch.finfo(torch.float32).tiny
    if scheme.symmetric:
        step = torch.maximum(high / (half - 1), -low / half).clamp_min(tiny)
        return grouped.div_(step).round_().mul_(step).view_as(weight)
    step = ((high - low) / (2 * half - 1)).clamp_min(tiny)
    return grouped.sub_(low).div_(step).round_().mul_(step).add_(low).view_as(weight)
