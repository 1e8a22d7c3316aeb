"""Windowed Gauss-Seidel sweeps in breadth-first order.

    v(s)  <-  max over a of  r(s, a) + g sum_j p(j | s, a) v(j)        in place, level by level

A level holds the states at one distance from where rewards are best, or from the cycles of a
policy. Values depend on successors, so levels are updated from the nearest to the farthest: one
sweep is exact if no transition leads to a later level, as in a topological order. Transitions that
do are corrected by a window: each level is updated again together with the next twenty. The work
per state does not grow with the distances, while value iteration needs a step for each.

Gauss-Seidel value iteration is in Puterman, section 6.3.3; prioritised sweeping (Moore and Atkeson,
1993) chooses its order by residuals instead. Used where states have few successors and most are
many steps from any reward: grids, shortest paths. The same sweeps precondition BiCGSTAB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi.tabular._engines import kernels, sweep_kernels

Array = npt.NDArray[Any]
Levels = npt.NDArray[np.int64]

_WINDOW = 20
"""Levels that are updated again with each new one: so often is every state updated in a pass."""


class Sweeps:
    """Passes of `v(s) = max over actions of r(s, a) + g P v` in the order of `levels`.

    `table` holds the successors of pair `(s, a)` in row `s * A + a`; a single action makes it the
    evaluation of a policy. The table is copied in the order in which it is read.
    """

    def __init__(
        self,
        table: csr_array,
        discount: float,
        levels: Levels,
        precision: type[np.floating[Any]] = np.float64,
    ):
        states = table.shape[1]
        actions = table.shape[0] // states
        self._order, self._position, self._bounds = sweep_kernels.by_level(levels)
        lengths = np.diff(table.indptr).reshape(states, actions)[self._order]
        indptr = np.zeros(states * actions + 1, table.indptr.dtype)
        np.cumsum(lengths, out=indptr[1:])
        columns = np.empty(indptr[-1], table.indices.dtype)
        self._table = (
            kernels.unsigned(indptr),
            kernels.unsigned(columns),
            np.empty(indptr[-1], precision),
        )
        self._scale = np.empty((states, actions), precision)
        self._blocks = kernels.partition(states)
        source = kernels.unsigned(table.indptr), kernels.unsigned(table.indices), table.data
        order = self._order, self._position
        sweep_kernels.arrange(self._blocks, *source, discount, *order, *self._table, self._scale)

    def run(self, rewards: Array, values: Array) -> Array:
        """The values after a pass that starts from `values`, for `(S, A)` rewards."""
        v = values[self._order]
        sweep_kernels.sweep(
            self._bounds, _WINDOW, *self._table, rewards[self._order] * self._scale, v
        )
        return self.restored(v)

    # The evaluation of a policy as linear algebra: `(I - g P) x = b`, rows divided by what stands
    # on the diagonal, unknowns in the order of the sweeps.

    def arranged(self, right: Array) -> Array:
        """`b` divided by the diagonal, in the order of the sweeps."""
        b: Array = right[self._order] * self._scale[:, 0]
        return b

    def restored(self, x: Array) -> Array:
        """`x` in the order of the states."""
        found: Array = x[self._position]
        return found

    def solution(self, right: Array) -> Array:
        """Nearly the solution for an arranged right-hand side: a pass from zero on."""
        x = np.zeros_like(right)
        sweep_kernels.sweep(self._bounds, _WINDOW, *self._table, right[:, None], x)
        return x

    def image(self, x: Array) -> Array:
        """The arranged right-hand side to which an `x` belongs."""
        image = np.empty_like(x)
        kernels.image(self._blocks, *self._table, x.dtype.type(1.0), x, image)
        return image

    def dot(self, x: Array, y: Array) -> float:
        """`x y`, in double precision and the same on any number of threads."""
        return float(kernels.dot(self._blocks, x, y))


def distances(table: csr_array, ends: npt.NDArray[np.int64]) -> Levels:
    """The distance from each state to one of `ends`, by any actions; unreachable ones come last."""
    indptr, indices = kernels.unsigned(table.indptr), kernels.unsigned(table.indices)
    found: Levels = sweep_kernels.distances(indptr, indices, table.shape[0] // table.shape[1], ends)
    return found


def depths(matrix: csr_array) -> Levels:
    """The number of likeliest transitions from each state of a chain until they repeat."""
    indptr, indices = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices)
    found: Levels = sweep_kernels.depths(indptr, indices, matrix.data)
    return found
