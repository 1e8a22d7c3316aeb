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

Single = npt.NDArray[np.float32]

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
        goal = max(target / span, _SINGLE)
        total, last, fast = _sum_of_terms(single, np.float32(factor), right_in_spans, goal, beyond)
        x += span * total.astype(np.float64)
        if fast and goal > _SINGLE:
            return x, span * last.astype(np.float64) + shared
        remaining = right - image(matrix, factor, x)
        previous, span = span, float(np.ptp(remaining))
        fast = fast and span <= _FAST * previous
    return x, remaining


def _sum_of_terms(
    matrix: csr_array, factor: np.float32, right: Single, target: float, beyond: bool
) -> tuple[Single, Single, bool]:
    """The sum of the terms `B^k b`, `B = factor matrix`, up to one that spans at most `target`.

    Returns the sum, that term, which is not in it, and whether it was reached: not if terms shrink
    too slowly. `beyond` it, steps go on while each shrinks the span to `_VERY_FAST` or less. In
    single precision, which needs half the memory traffic.
    """
    table = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices), matrix.data
    blocks = kernels.partition(len(right))
    at_once = has_few_successors(matrix) or matrix.nnz > _LONG * len(right)
    patience = _TRIAL if at_once else _PATIENCE
    total, last, following = np.zeros_like(right), right, np.empty_like(right)
    spans = [float(np.ptp(right))]

    def advance() -> None:
        nonlocal last, following
        low, high = kernels.propagate(blocks, *table, factor, last, following, total)
        last, following = following, last
        spans.append(float(high - low))

    while spans[-1] > target:
        advance()
        if len(spans) > patience and spans[-1] > _FAST**_TRIAL * spans[-1 - _TRIAL]:
            return total, last, False
    while beyond and len(spans) > 1 and _SINGLE < spans[-1] <= _VERY_FAST * spans[-2]:
        advance()
    return total, last, True
