"""Compiled LU of narrow bands."""

from __future__ import annotations

import numpy as np
from numba import njit

from mvpi.tabular._engines.kernels import OPTIONS


@njit(cache=True, **OPTIONS)
def bandwidths(indptr, indices, rows_per_state):
    """How far entries lie below and above the diagonal, the rows of a state counted as one."""
    below, above = 0, 0
    for row in range(len(indptr) - 1):
        s = row // rows_per_state
        for k in range(indptr[row], indptr[row + 1]):
            offset = np.int64(indices[k]) - s
            below = max(below, -offset)
            above = max(above, offset)
    return below, above


@njit(cache=True, **OPTIONS)
def band_factors(indptr, indices, weights, rows, first, discount, below, above):
    """`L + U - I` for `L U = I - discount B`, `B` made of `rows` of a table, columns from `first`.

    Row `s` of the answer holds columns `s - below` to `s + above`. No pivoting: `B` is a
    part of a Markov chain, forwards or backwards, so the matrix is diagonally dominant.
    """
    n = len(rows)
    factors = np.zeros((n, below + 1 + above))
    for s in range(n):
        factors[s, below] = 1.0
        for k in range(indptr[rows[s]], indptr[rows[s] + 1]):
            column = np.int64(indices[k]) - first
            if 0 <= column < n:
                factors[s, column - s + below] -= discount * weights[k]
        for at in range(max(below - s, 0), below):
            pivot = s - below + at
            factor = factors[s, at] / factors[pivot, below]
            factors[s, at] = factor
            if factor != 0.0:
                for shift in range(1, above + 1):
                    factors[s, at + shift] -= factor * factors[pivot, below + shift]
    return factors


@njit(cache=True, **OPTIONS)
def band_solve(factors, below, right):
    """`x` with `L U x = right`, from the answer of `band_factors`."""
    n, width = factors.shape
    x = right.copy()
    for s in range(n):
        total = x[s]
        for at in range(max(below - s, 0), below):
            total -= factors[s, at] * x[s - below + at]
        x[s] = total
    for s in range(n - 1, -1, -1):
        total = x[s]
        for at in range(below + 1, min(width, below + n - s)):
            total -= factors[s, at] * x[s - below + at]
        x[s] = total / factors[s, below]
    return x
