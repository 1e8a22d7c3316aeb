"""BiCGSTAB (van der Vorst, 1992) for `(I - B) x = b`, with iterative refinement.

Policy evaluation by a Krylov method makes policy iteration inexact: each evaluation is only as
exact as the improvement needs. Used where chains mix slowly and transitions are not banded.
Iterations are in single precision, which halves the memory traffic; residuals are in double
precision, and the solve is repeated on them until they are small (Saad, Iterative Methods for
Sparse Linear Systems, sections 7.4, 10.2 and 13.2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from mvpi._types import Array
from mvpi.tabular._engines import kernels
from mvpi.tabular._engines.linear_systems import PASSES, image
from mvpi.tabular._engines.sweeps import Sweeps, depths

_EPS = float(np.finfo(np.float64).eps)
_PER_PASS = 8
"""Iterations with Gauss-Seidel that cost as much as a pass of windowed sweeps."""


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

        Stops after `limit` of them, or when residuals diverge. Single precision needs a `right`
        with entries around 1; the `shadow` is any vector not orthogonal to it.
        """
        raise NotImplementedError

    def solve_directly(self, right: Array) -> Array:
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


def _signs(n: int) -> Array:
    """Fixed random signs: another shadow vector, for when the first broke down."""
    return np.random.default_rng(0).choice([-1.0, 1.0], n)
