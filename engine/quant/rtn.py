"""Round to nearest: every weight to the closest point of its group's grid, and nothing else.

What every other method must beat. It looks at no activations, so an error in a column that carries
much counts as little as one in a column that carries nothing.
"""

from __future__ import annotations

from torch import Tensor

from engine.quant.grid import GridWeight, fit_grid, round_to
from engine.weight_format import Scheme


def rtn(weight: Tensor, scheme: Scheme, name: str = "the matrix") -> GridWeight:
    """The matrix [N, K], of any float type, rounded to the narrowest grid of `scheme`.

    No weight is further than half a step of its group from the value kept. Raises as `fit_grid`.
    """
    scale, zero = fit_grid(weight, scheme, name)
    return round_to(weight, scale, zero, scheme)
