"""Linear systems `(I - B) x = b` for the `B` of a Markov chain: LU, Krylov, and which one suits.

A narrow band, as of chains whose transitions lead to neighbouring states only (queues,
inventories), is factorised without fill-in in `O(S below above)` operations (Golub and Van Loan,
section 4.3). Anything else is left to BiCGSTAB (van der Vorst, 1992), which makes policy iteration
inexact: each evaluation is only as exact as the improvement needs. Its iterations are in single
precision, which halves the memory traffic; residuals are in double precision, and the solve is
repeated on them until they are small (Saad, Iterative Methods for Sparse Linear Systems, sections
7.4, 10.2 and 13.2). Dense LU and sparse LU are those of LAPACK and SuperLU.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from mvpi._types import Array
from mvpi.tabular._engines import band_kernels, kernels
from mvpi.tabular._engines.sweeps import Sweeps, depths

_NARROW = 63
"""Widest band, below and above the diagonal together, that is factorised directly."""
_FEW = 4.5
"""Entries per row, on average, up to which ordered sweeps are the better preconditioner."""
PASSES = 125
"""Default limit of a Krylov solve, in preconditioner applications."""
_PER_PASS = 8
"""Iterations with Gauss-Seidel that cost as much as a pass of windowed sweeps."""
_EPS = float(np.finfo(np.float64).eps)

Evaluation = Literal["auto", "direct", "krylov"]
"""How policies are evaluated: by LU, by a Krylov method, or by what suits the chain."""


def make_system(
    matrix: csr_array, *, bordered: bool = False, evaluation: Evaluation = "auto"
) -> System:
    """The kind of system that suits the pattern of `matrix`.

    A `bordered` one has a full column: the unknown there is subtracted from all others.
    """
    widths = (0, 0) if bordered else bandwidths(matrix)
    if not bordered and evaluation != "krylov" and is_narrow(widths):
        return Banded(matrix, np.arange(matrix.shape[0]), widths)
    if bordered or not has_few_successors(matrix):
        return GaussSeidelKrylov(matrix)
    return SweepKrylov(matrix)


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


class _Krylov:
    """BiCGSTAB in single precision, refined with residuals in double precision."""

    is_direct = False

    def __init__(self, matrix: csr_array):
        self.effort = 0
        """What it has cost so far, in applications of a preconditioner."""
        self._matrix = matrix

    def solve(self, right: Array, target: float, limit: int = PASSES) -> Array:
        """`x` with `max |b - (I - B) x| <= target`, or as close to it as rounding allows, or
        `limit`, the largest number of applications of the preconditioner.
        """
        x = np.zeros_like(right)
        residual, error = right, float(np.abs(right).max())
        failures = 0
        while error > max(target, 4 * _EPS * float(np.abs(x).max())) and failures < 2:
            goal = max(0.7 * target, 1e-4 * error)
            shadow = residual if failures == 0 else residual * _signs(len(right))
            with np.errstate(over="ignore", invalid="ignore"):
                step, used = self._bicgstab(residual / error, shadow / error, goal / error, limit)
            self.effort += used
            candidate = x + error * step.astype(np.float64)
            remaining = right - image(self._matrix, 1.0, candidate)
            new_error = float(np.abs(remaining).max())
            failures += not new_error < 0.7 * error
            if new_error < error:
                x, residual, error = candidate, remaining, new_error
            if used >= limit:
                break
        return x

    def _bicgstab(
        self, right: Array, shadow: Array, target: float, limit: int
    ) -> tuple[npt.NDArray[Any], int]:
        """`x` with residuals of about `target`, and how many passes it took.

        Stops after `limit` of them, or when residuals diverge. Single precision needs a `right`
        with entries around 1; the `shadow` is any vector not orthogonal to it.
        """
        raise NotImplementedError

    def solve_directly(self, right: Array) -> Array:
        """`x` by sparse LU, however long it takes."""
        identity = eye_array(self._matrix.shape[0], format="csc")
        x: Array = splu(identity - self._matrix.tocsc()).solve(right)
        return x


class SweepKrylov(_Krylov):
    """Preconditioned by one pass of windowed Gauss-Seidel sweeps in breadth-first order."""

    def __init__(self, matrix: csr_array):
        super().__init__(matrix)
        self._sweeps = Sweeps(matrix, 1.0, depths(matrix), np.float32)

    def _bicgstab(
        self, right: Array, shadow: Array, target: float, limit: int
    ) -> tuple[npt.NDArray[Any], int]:
        sweeps = self._sweeps
        r = sweeps.arranged(right.astype(np.float32))
        shadow_residual = sweeps.arranged(shadow.astype(np.float32))
        x, direction, image = np.zeros_like(r), np.zeros_like(r), np.zeros_like(r)
        rho = alpha = omega = 1.0
        largest = float(np.abs(r).max())
        divergent = 1e4 * largest
        passes = 0
        while passes < limit and target < largest < divergent:
            previous, rho = rho, sweeps.dot(shadow_residual, r)
            direction = r + (rho / previous * (alpha / omega)) * (direction - omega * image)
            y = sweeps.solution(direction)
            image = sweeps.image(y)
            slope = sweeps.dot(shadow_residual, image)
            if rho == 0.0 or slope == 0.0:
                break
            alpha = rho / slope
            x += alpha * y
            r -= alpha * image
            passes += 1
            largest = float(np.abs(r).max())
            if not target < largest < divergent:
                break
            y = sweeps.solution(r)
            second = sweeps.image(y)
            norm = sweeps.dot(second, second)
            omega = sweeps.dot(second, r) / norm if norm > 0.0 else 0.0
            x += omega * y
            r -= omega * second
            passes += 1
            largest = float(np.abs(r).max())
            if omega == 0.0:
                break
        return sweeps.restored(x), passes


class GaussSeidelKrylov(_Krylov):
    """Preconditioned by block symmetric Gauss-Seidel.

    For relative values: the full column of their system connects all states at once, so that no
    order of the states is breadth-first.
    """

    def __init__(self, matrix: csr_array):
        super().__init__(matrix)
        n, nonzeros = matrix.shape[0], len(matrix.indices)
        indptr, indices = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices)
        self._blocks = kernels.partition(n)
        self._parts = (
            np.empty((n, 4), dtype=indptr.dtype),
            np.empty(nonzeros, dtype=indices.dtype),
            np.empty(nonzeros, dtype=np.float32),
            np.empty(n, dtype=np.float32),
        )
        kernels.split(self._blocks, indptr, indices, matrix.data, *self._parts)

    def _bicgstab(
        self, right: Array, shadow: Array, target: float, limit: int
    ) -> tuple[npt.NDArray[Any], int]:
        x, most = np.empty_like(right), _PER_PASS * limit
        used = kernels.bicgstab(self._blocks, *self._parts, right, shadow, target, most, x)
        return x, -(-int(used) // _PER_PASS)


System = Banded | _Krylov


def _signs(n: int) -> Array:
    """Fixed random signs: another shadow vector, for when the first broke down."""
    return np.random.default_rng(0).choice([-1.0, 1.0], n)


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
