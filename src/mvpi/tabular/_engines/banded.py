"""LU factorisation of a matrix with a narrow band (Golub and Van Loan, section 4.3).

    L U = I - g B,     B(i, j) = 0  unless  -below <= j - i <= above

Used for chains whose transitions lead to neighbouring states only, as in queues and inventories:
`O(S below above)` operations, no fill-in.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.tabular._engines import band_kernels, kernels
from mvpi.tabular._engines.linear_systems import PASSES

_NARROW = 63
"""Widest band, below and above the diagonal together, that is factorised directly."""


def bandwidths(table: csr_array) -> tuple[int, int]:
    """Largest decrease and increase of the state number in a table of all actions or one."""
    indptr, indices = kernels.unsigned(table.indptr), kernels.unsigned(table.indices)
    below, above = band_kernels.bandwidths(indptr, indices, table.shape[0] // table.shape[1])
    return int(below), int(above)


def is_narrow(widths: tuple[int, int]) -> bool:
    """Whether a band is narrow enough to be factorised directly."""
    return sum(widths) <= _NARROW


class Banded:
    """LU of `I - discount B` whose entries all lie within a narrow band around the diagonal.

    `B` consists of `rows` of `table` and as many columns, from `first` on.
    """

    is_direct = True

    def __init__(
        self,
        table: csr_array,
        rows: npt.NDArray[Any],
        widths: tuple[int, int],
        first: int = 0,
        discount: float = 1.0,
    ):
        self.effort = 0
        self._widths = widths
        indptr, indices = kernels.unsigned(table.indptr), kernels.unsigned(table.indices)
        self._factors = band_kernels.band_factors(
            indptr, indices, table.data, rows, first, discount, *widths
        )

    def solve(self, right: Array, target: float, limit: int = PASSES) -> Array:
        return self.solve_directly(right)

    def solve_directly(self, right: Array) -> Array:
        self.effort += 1
        x: Array = band_kernels.band_solve(self._factors, self._widths[0], right)
        return x
