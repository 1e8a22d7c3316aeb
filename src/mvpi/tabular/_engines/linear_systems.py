"""Linear systems `(I - B) x = b` for the `B` of a Markov chain: the interface and the choice.

Dense LU and sparse LU are those of LAPACK and SuperLU. `banded` has an LU of narrow bands,
`krylov` BiCGSTAB for everything else.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.tabular._engines import kernels

_FEW = 4.5
"""Entries per row, on average, up to which ordered sweeps are the better preconditioner."""
PASSES = 125
"""Default limit of a Krylov solve, in preconditioner applications."""

Evaluation = Literal["auto", "direct", "krylov"]
"""How policies are evaluated: by LU, by a Krylov method, or by what suits the chain."""


class System(Protocol):
    """`(I - B) x = b` for one `B`, solved for one right-hand side after another."""

    effort: int
    """What it has cost so far, in applications of a preconditioner."""
    is_direct: bool
    """Whether a matrix is factorised once, so that every solution is exact and cheap."""

    def solve(self, right: Array, target: float, limit: int = PASSES) -> Array:
        """`x` with `max |b - (I - B) x| <= target`, or as close to it as rounding or `limit`
        allows.

        A Krylov solve stops after `limit` applications of its preconditioner.
        """

    def solve_directly(self, right: Array) -> Array:
        """`x` by LU, however long it takes."""


def has_few_successors(table: csr_array) -> bool:
    """Whether rows have four entries or fewer on average, as in grids and shortest paths."""
    return bool(table.nnz <= _FEW * table.shape[0])


def rows_of(
    table: csr_array, rows: npt.NDArray[np.int64], precision: type[np.floating[Any]] = np.float64
) -> csr_array:
    """Some rows of a table, as scipy's indexing gives them, but on all cores."""
    lengths = np.diff(table.indptr)[rows]
    indptr = np.zeros(len(rows) + 1, table.indptr.dtype)
    np.cumsum(lengths, out=indptr[1:])
    indices, data = np.empty(indptr[-1], table.indices.dtype), np.empty(indptr[-1], precision)
    source = kernels.unsigned(table.indptr), kernels.unsigned(table.indices), table.data
    target = kernels.unsigned(indptr), kernels.unsigned(indices), data
    kernels.gather(kernels.partition(len(rows)), *source, rows, *target)
    return csr_array((data, indices, indptr), (len(rows), table.shape[1]))


def row_means(table: csr_array, values: Array, centre: float = 0.0) -> Array:
    """The mean of `values - centre`, a value for each entry of the table, over each of its rows."""
    means, blocks = np.empty(table.shape[0]), kernels.partition(table.shape[0])
    kernels.weigh(blocks, kernels.unsigned(table.indptr), table.data, values, centre, means)
    return means


def image(matrix: csr_array, factor: float, x: Array) -> Array:
    """`(I - B) x`, `B = factor matrix`, on all cores."""
    table = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices), matrix.data
    found = np.empty_like(x)
    kernels.image(kernels.partition(len(x)), *table, factor, x, found)
    return found
