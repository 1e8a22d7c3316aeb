"""Iterative solution of `(I - B) x = b` for the large sparse `B` of a Markov chain.

Two tools. Fixed-point steps sum `b + B b + B^2 b + ...`: unbeatable when the chain mixes fast,
because the terms then become constant (or, for a transposed matrix, vanish) after a few steps,
whatever the discount. `System` is a preconditioned Krylov method for the others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from mvpi.tabular import kernels

Array = npt.NDArray[np.float64]

_FAST = 0.8
"""A fixed-point step that shrinks the span by at least this factor is worth its cost."""


def fixed_point_steps(matrix: csr_array, right: Array, target: float) -> tuple[Array, Array]:
    """`x = sum_k B^k b` over as many terms as pay, and the residual `b - (I - B) x` it leaves.

    Stops when the span of a term is at most `target`, or when terms shrink slowly.
    """
    blocks = kernels.partition(len(right))
    indptr, indices = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices)
    x, term, following = right.copy(), right.copy(), np.empty_like(right)
    span = float(np.ptp(right))
    for step in range(200):
        low, high = kernels.propagate(blocks, indptr, indices, matrix.data, term, following, x)
        term, following = following, term
        previous, span = span, high - low
        if span <= target or (step >= 2 and span > _FAST * previous):
            break
    return x, matrix @ term


class System:
    """`(I - B) x = b` for a sparse `B`, solved for one right-hand side after another."""

    def __init__(self, matrix: csr_array):
        self.iterations = 0
        """Krylov iterations done so far, each about the cost of three products with `B`."""
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

    def solve(self, right: Array, target: float) -> Array:
        """`x` with `max |b - (I - B) x| <= target`, or less near when that is hard to reach."""
        x = np.zeros_like(right)
        step = np.empty_like(right)
        residual, error = right, float(np.abs(right).max())
        for _ in range(12):
            if error <= target:
                break
            goal = max(0.7 * target, 1e-4 * error)
            self.iterations += int(
                kernels.bicgstab(self._blocks, *self._parts, residual, goal, 200, step)
            )
            candidate = x + step
            remaining = right - candidate + self._matrix @ candidate
            new_error = float(np.abs(remaining).max())
            if not new_error < 0.7 * error:
                break
            x, residual, error = candidate, remaining, new_error
        return x

    def solve_directly(self, right: Array) -> Array:
        """`x` by sparse LU: slow and large, but it does not stall."""
        identity = eye_array(self._matrix.shape[0], format="csc")
        x: Array = splu(identity - self._matrix.tocsc()).solve(right)
        return x
