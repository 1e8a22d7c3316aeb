"""Solution of `(I - B) x = b` for the large sparse `B` of a Markov chain.

Three tools. Fixed-point steps sum `b + B b + B^2 b + ...`: unbeatable when the chain mixes fast,
because the terms then become constant (or, for a transposed matrix, vanish) after a few steps,
whatever the discount. For the others `make_system` chooses: a banded LU where transitions lead to
neighbouring states only (queues, inventories), a preconditioned Krylov method elsewhere.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from mvpi.tabular import kernels

Array = npt.NDArray[np.float64]

_FAST = 0.8
"""A fixed-point step that shrinks the span by at least this factor is worth its cost."""
_NARROW = 63
"""Widest band, below and above the diagonal together, that is factorised directly. With less than
`DIRECT_UP_TO`, the values at discount 1 never are: their full column would need pivots."""


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


def fixed_point_steps(
    matrix: csr_array, factor: float, right: Array, target: float
) -> tuple[Array, Array]:
    """`x = sum_k B^k b`, `B = factor matrix`, over as many terms as pay, and what it leaves.

    That is the residual `b - (I - B) x`, the first term left out. Stops when its span is at most
    `target`, or when terms shrink slowly.
    """
    terms = _Terms(matrix, factor, right)
    span = float(np.ptp(right))
    for step in range(200):
        previous, span = span, terms.advance()
        if span <= target or (step >= 2 and span > _FAST * previous):
            break
    return terms.total, terms.last


def some_steps(
    table: csr_array, rows: npt.NDArray[np.int64], factor: float, right: Array, steps: int
) -> npt.NDArray[np.float32]:
    """`sum_k B^k b` for `k` up to `steps`, `B` being `factor` times some rows of a table.

    In single precision, which needs half the memory traffic: for corrections whose errors are
    seen, and corrected, afterwards.
    """
    matrix = rows_of(table, rows, np.float32)
    terms = _Terms(matrix, np.float32(factor), right.astype(np.float32))
    for _ in range(steps):
        terms.advance()
    total: npt.NDArray[np.float32] = terms.total + terms.last
    return total


class _Terms:
    """The terms `B^k b`, `B = factor matrix`: the `last` one, and the `total` of all before it."""

    def __init__(
        self, matrix: csr_array, factor: float | np.float32, right: npt.NDArray[Any]
    ) -> None:
        indptr, indices = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices)
        self._matrix = kernels.partition(len(right)), indptr, indices, matrix.data, factor
        self.total, self.last = np.zeros_like(right), right.copy()
        self._next = np.empty_like(right)

    def advance(self) -> float:
        """Go to the next term; returns its span."""
        low, high = kernels.propagate(*self._matrix, self.last, self._next, self.total)
        self.last, self._next = self._next, self.last
        return float(high - low)


class System(Protocol):
    """`(I - B) x = b` for one `B`, solved for one right-hand side after another."""

    effort: int
    """What it has cost so far, in Krylov iterations or as much work."""
    is_direct: bool
    """Whether a matrix is factorised once, so that every solution is exact and cheap."""

    def solve(self, right: Array, target: float, limit: int = 1000) -> Array:
        """`x` with `max |b - (I - B) x| <= target`, or less near when that is hard to reach.

        An attempt that needs more than `limit` iterations is given up.
        """

    def solve_directly(self, right: Array) -> Array:
        """`x` by LU, however long it takes."""


def make_system(matrix: csr_array) -> System:
    """The kind of system that suits the pattern of `matrix`."""
    widths = bandwidths(matrix)
    if is_narrow(widths):
        return Banded(matrix, np.arange(matrix.shape[0]), widths)
    return _Krylov(matrix)


def bandwidths(table: csr_array) -> tuple[int, int]:
    """How far transitions lead down and up from a state, for a table of all its actions or one."""
    indptr, indices = kernels.unsigned(table.indptr), kernels.unsigned(table.indices)
    below, above = kernels.bandwidths(indptr, indices, table.shape[0] // table.shape[1])
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
        self._factors = kernels.band_factors(
            indptr, indices, table.data, rows, first, discount, *widths
        )

    def solve(self, right: Array, target: float, limit: int = 1000) -> Array:
        return self.solve_directly(right)

    def solve_directly(self, right: Array) -> Array:
        self.effort += sum(self._widths)
        x: Array = kernels.band_solve(self._factors, self._widths[0], right)
        return x


class _Krylov:
    """Preconditioned BiCGSTAB in single precision, refined with residuals in double precision."""

    is_direct = False

    def __init__(self, matrix: csr_array):
        self.effort = 0
        self._matrix = matrix
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

    def solve(self, right: Array, target: float, limit: int = 1000) -> Array:
        x = np.zeros_like(right)
        step = np.empty_like(right)
        residual, error = right, float(np.abs(right).max())
        failures = 0
        for _ in range(12):
            if error <= target or failures > 1:
                break
            goal = max(0.7 * target, 1e-4 * error)
            shadow = residual if failures == 0 else residual * self._signs(len(right))
            used = int(
                kernels.bicgstab(self._blocks, *self._parts, residual, shadow, goal, limit, step)
            )
            self.effort += used
            candidate = x + step
            remaining = right - candidate + self._matrix @ candidate
            new_error = float(np.abs(remaining).max())
            slow = used >= limit or not new_error < 0.7 * error
            if new_error < error:
                x, residual, error = candidate, remaining, new_error
            if used >= limit:
                break
            failures += slow
        return x

    def solve_directly(self, right: Array) -> Array:
        identity = eye_array(self._matrix.shape[0], format="csc")
        x: Array = splu(identity - self._matrix.tocsc()).solve(right)
        return x

    @staticmethod
    def _signs(n: int) -> Array:
        """Fixed random signs: another shadow vector, for when the first broke down."""
        return np.random.default_rng(0).choice([-1.0, 1.0], n)
