"""Solution of `(I - B) x = b` for the large sparse `B` of a Markov chain.

Three tools. Fixed-point steps sum `b + B b + B^2 b + ...`: unbeatable when the chain mixes fast,
because the terms then become constant (or, for a transposed matrix, vanish) after a few steps,
whatever the discount. For the others `make_system` chooses: a banded LU where transitions lead to
neighbouring states only (queues, inventories), a Krylov method with waves (`mvpi.tabular.waves`)
elsewhere.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from mvpi.tabular import band_kernels, kernels
from mvpi.tabular.chain import PASSES, middle
from mvpi.tabular.waves import Wave, depths

Array = npt.NDArray[np.float64]

_FAST, _AT_ONCE = 0.87, 4
"""Fixed-point steps that shrink the span by this factor, on average of so many, pay."""
_EPS = float(np.finfo(np.float64).eps)
_SINGLE = 1e-4
"""What single precision makes of a residual is not looked for beyond this share of it."""
_PER_PASS = 8
"""Iterations with Gauss-Seidel that cost as much as a pass in waves."""
_NARROW = 63
"""Widest band, below and above the diagonal together, that is factorised directly."""


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


def image(matrix: csr_array, factor: float, x: Array) -> Array:
    """`(I - B) x`, `B = factor matrix`, on all cores."""
    table = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices), matrix.data
    found = np.empty_like(x)
    kernels.image(kernels.partition(len(x)), *table, factor, x, found)
    return found


def fixed_point_steps(
    matrix: csr_array, factor: float, right: Array, target: float, *, relative: bool
) -> tuple[Array, Array]:
    """`x = sum_k B^k b`, `B = factor matrix`, over as many terms as pay, and what it leaves.

    That is the residual `b - (I - B) x`. Stops when its span is at most `target`, or when terms
    shrink slowly. Terms are in single precision, as long as that is precise enough; then it goes
    on with the residual. If `relative`, what all its entries share is left in it.
    """
    weights = matrix.data.astype(np.float32)
    single = csr_array((weights, matrix.indices, matrix.indptr), matrix.shape)
    x, remaining, span = np.zeros_like(right), right, float(np.ptp(right))
    fast = True
    while fast and span > target:
        shared = middle(remaining) if relative else 0.0
        right_in_spans = ((remaining - shared) / span).astype(np.float32)
        terms = _Terms(single, np.float32(factor), right_in_spans)
        goal = max(target / span, _SINGLE)
        fast = terms.advance_to(goal)
        x += span * terms.total.astype(np.float64)
        if fast and goal > _SINGLE:
            return x, span * terms.last.astype(np.float64) + shared
        remaining = right - image(matrix, factor, x)
        previous, span = span, float(np.ptp(remaining))
        fast = fast and span <= _FAST * previous
    return x, remaining


def some_steps(
    table: csr_array, rows: npt.NDArray[np.int64], factor: float, right: Array, steps: int
) -> npt.NDArray[np.float32]:
    """`sum_k B^k b` for `k` up to `steps`, `B` being `factor` times some rows of a table.

    In single precision, for corrections whose errors are seen, and corrected, afterwards.
    """
    matrix = rows_of(table, rows, np.float32)
    terms = _Terms(matrix, np.float32(factor), right.astype(np.float32))
    for _ in range(steps):
        terms.advance()
    total: npt.NDArray[np.float32] = terms.total + terms.last
    return total


class _Terms:
    """The terms `B^k b`, `B = factor matrix`: the `last` one, and the `total` of all before it.

    In single precision, which needs half the memory traffic.
    """

    def __init__(self, matrix: csr_array, factor: np.float32, right: npt.NDArray[np.float32]):
        indptr, indices = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices)
        self._matrix = kernels.partition(len(right)), indptr, indices, matrix.data, factor
        self.total, self.last = np.zeros_like(right), right
        self._next = np.empty_like(right)

    def advance(self) -> float:
        """Go to the next term; returns its span."""
        low, high = kernels.propagate(*self._matrix, self.last, self._next, self.total)
        self.last, self._next = self._next, self.last
        return float(high - low)

    def advance_to(self, target: float) -> bool:
        """Go to a term that spans at most `target`; returns False when that takes too long."""
        spans = [float(np.ptp(self.last))]
        while spans[-1] > target:
            spans.append(self.advance())
            if len(spans) > _AT_ONCE and spans[-1] > _FAST**_AT_ONCE * spans[-1 - _AT_ONCE]:
                return False
        return True


class System(Protocol):
    """`(I - B) x = b` for one `B`, solved for one right-hand side after another."""

    effort: int
    """What it has cost so far, in passes over all states or as much work."""
    is_direct: bool
    """Whether a matrix is factorised once, so that every solution is exact and cheap."""

    def solve(self, right: Array, target: float, limit: int = PASSES) -> Array:
        """`x` with `max |b - (I - B) x| <= target`, or less near when that is hard to reach.

        An attempt that needs more than `limit` passes is given up.
        """

    def solve_directly(self, right: Array) -> Array:
        """`x` by LU, however long it takes."""


def make_system(matrix: csr_array, *, bordered: bool = False) -> System:
    """The kind of system that suits the pattern of `matrix`.

    A `bordered` one has a full column: the unknown there is subtracted from all others.
    """
    if bordered:
        return _BorderedKrylov(matrix)
    widths = bandwidths(matrix)
    if is_narrow(widths):
        return Banded(matrix, np.arange(matrix.shape[0]), widths)
    return _WaveKrylov(matrix)


def bandwidths(table: csr_array) -> tuple[int, int]:
    """How far transitions lead down and up from a state, for a table of all its actions or one."""
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
        self._matrix = matrix

    def solve(self, right: Array, target: float, limit: int = PASSES) -> Array:
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

        Given up after `limit` of them, or when residuals grow out of hand. Single precision needs
        a `right` with entries around 1; the `shadow` is any vector not orthogonal to it.
        """
        raise NotImplementedError

    def solve_directly(self, right: Array) -> Array:
        identity = eye_array(self._matrix.shape[0], format="csc")
        x: Array = splu(identity - self._matrix.tocsc()).solve(right)
        return x


class _WaveKrylov(_Krylov):
    """With passes in waves as the preconditioner."""

    def __init__(self, matrix: csr_array):
        super().__init__(matrix)
        self._wave = Wave(matrix, 1.0, depths(matrix), np.float32)

    def _bicgstab(
        self, right: Array, shadow: Array, target: float, limit: int
    ) -> tuple[npt.NDArray[Any], int]:
        wave = self._wave
        r = wave.arranged(right.astype(np.float32))
        shade = wave.arranged(shadow.astype(np.float32))
        x, direction, image = np.zeros_like(r), np.zeros_like(r), np.zeros_like(r)
        rho = alpha = omega = 1.0
        largest = float(np.abs(r).max())
        hopeless = 1e4 * largest
        passes = 0
        while passes < limit and target < largest < hopeless:
            previous, rho = rho, wave.dot(shade, r)
            direction = r + (rho / previous * (alpha / omega)) * (direction - omega * image)
            y = wave.solution(direction)
            image = wave.image(y)
            slope = wave.dot(shade, image)
            if rho == 0.0 or slope == 0.0:
                break
            alpha = rho / slope
            x += alpha * y
            r -= alpha * image
            passes += 1
            largest = float(np.abs(r).max())
            if not target < largest < hopeless:
                break
            y = wave.solution(r)
            second = wave.image(y)
            norm = wave.dot(second, second)
            omega = wave.dot(second, r) / norm if norm > 0.0 else 0.0
            x += omega * y
            r -= omega * second
            passes += 1
            largest = float(np.abs(r).max())
            if omega == 0.0:
                break
        return wave.restored(x), passes


class _BorderedKrylov(_Krylov):
    """For relative values: preconditioned by block symmetric Gauss-Seidel.

    Waves could not carry what all states have in common.
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


def _signs(n: int) -> Array:
    """Fixed random signs: another shadow vector, for when the first broke down."""
    return np.random.default_rng(0).choice([-1.0, 1.0], n)
