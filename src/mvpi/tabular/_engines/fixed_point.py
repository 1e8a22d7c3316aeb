"""Policy evaluation by fixed-point steps: the partial sums of the Neumann series.

    (I - B)^-1 b = b + B b + B^2 b + ...

A chain that mixes fast makes the terms constant after a few steps, whatever the discount: their
span, not their size, decides when to stop (Puterman, section 6.6). With few steps for each
improvement this is modified policy iteration.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.tabular._engines import kernels
from mvpi.tabular._engines.linear_systems import has_few_successors, image

_FAST, _TRIAL = 0.87, 4
"""Steps go on while the last four shrank the span by this factor each, on average."""
_PATIENCE = 80
"""Steps before that is required of a chain with a dozen successors or so: they are cheaper than the
setup of a linear system."""
_LONG = 64
"""Successors from which a step costs as much as an iteration of a Krylov method."""
_VERY_FAST = 0.65
"""Steps that shrink the span by this factor are worth more than a backup of all actions."""
_SINGLE = 1e-4
"""Relative accuracy that is asked of single precision."""


def mid_range(values: Array) -> float:
    """Half-way between the smallest and the largest."""
    return 0.5 * float(values.max() + values.min())


def fixed_point_steps(
    matrix: csr_array,
    factor: float,
    right: Array,
    target: float,
    *,
    relative: bool,
    beyond: bool = False,
) -> tuple[Array, Array]:
    """`x = sum_k B^k b`, `B = factor matrix`, and the residual `b - (I - B) x`.

    Stops when the span of the residual is at most `target`, or when terms shrink slowly. Terms are
    in single precision; the series is started again from the residual in double precision. If
    `relative`, the mid-range of the residual is left in it. `beyond` the target steps go on while
    terms shrink very fast.
    """
    weights = matrix.data.astype(np.float32)
    single = csr_array((weights, matrix.indices, matrix.indptr), matrix.shape)
    x, remaining, span = np.zeros_like(right), right, float(np.ptp(right))
    fast = True
    while fast and span > target:
        shared = mid_range(remaining) if relative else 0.0
        right_in_spans = ((remaining - shared) / span).astype(np.float32)
        terms = _Terms(single, np.float32(factor), right_in_spans)
        goal = max(target / span, _SINGLE)
        fast = terms.advance_to(goal, beyond)
        x += span * terms.total.astype(np.float64)
        if fast and goal > _SINGLE:
            return x, span * terms.last.astype(np.float64) + shared
        remaining = right - image(matrix, factor, x)
        previous, span = span, float(np.ptp(remaining))
        fast = fast and span <= _FAST * previous
    return x, remaining


class _Terms:
    """The terms `B^k b`, `B = factor matrix`: the `last` one, and the `total` of all before it.

    In single precision, which needs half the memory traffic.
    """

    def __init__(self, matrix: csr_array, factor: np.float32, right: npt.NDArray[np.float32]):
        indptr, indices = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices)
        self._matrix = kernels.partition(len(right)), indptr, indices, matrix.data, factor
        self.total, self.last = np.zeros_like(right), right
        at_once = has_few_successors(matrix) or matrix.nnz > _LONG * len(right)
        self._patience = _TRIAL if at_once else _PATIENCE
        self._next = np.empty_like(right)

    def advance(self) -> float:
        """Go to the next term; returns its span."""
        low, high = kernels.propagate(*self._matrix, self.last, self._next, self.total)
        self.last, self._next = self._next, self.last
        return float(high - low)

    def advance_to(self, target: float, beyond: bool) -> bool:
        """Go to a term that spans at most `target`; returns False if terms shrink too slowly.

        `beyond` that, go on while each step shrinks the span to `_VERY_FAST` or less.
        """
        spans = [float(np.ptp(self.last))]
        while spans[-1] > target:
            spans.append(self.advance())
            if len(spans) > self._patience and spans[-1] > _FAST**_TRIAL * spans[-1 - _TRIAL]:
                return False
        while beyond and len(spans) > 1 and _SINGLE < spans[-1] <= _VERY_FAST * spans[-2]:
            spans.append(self.advance())
        return True
