"""Values spread in waves: where every way leads somewhere, in the order in which news travels.

A state learns what it is worth from the states it leads to. Put in order of their distance to
where all ways end, the states can be updated one after another, and a single pass would do if no
step ever led the wrong way. Those that do are few: a pass keeps a window of neighbouring distances
under repair while it moves on, so every state is updated some twenty times, while its successors
settle, and then left behind for good. That takes the same work per state however far the news has
to travel; plain iterations need one for every step of the way.

A pass is exact where ways that lead back against the current for a whole window are rare. How good
it was is seen, and certified, afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi.tabular import kernels, wave_kernels

Array = npt.NDArray[Any]
Levels = npt.NDArray[np.int64]

_WINDOW = 20
"""Levels under repair at the same time: so often is every state updated in a pass."""


class Wave:
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
        self._order, self._position, self._bounds = wave_kernels.by_level(levels)
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
        wave_kernels.arrange(self._blocks, *source, discount, *order, *self._table, self._scale)

    def run(self, rewards: Array, values: Array) -> Array:
        """The values after a pass that starts from `values`, for `(S, A)` rewards."""
        v = values[self._order]
        wave_kernels.wave(
            self._bounds, _WINDOW, *self._table, rewards[self._order] * self._scale, v
        )
        return self.restored(v)

    # The evaluation of a policy as linear algebra: `(I - g P) x = b`, rows divided by what stands
    # on the diagonal, unknowns in the order of the wave.

    def arranged(self, right: Array) -> Array:
        """`b` divided by the diagonal, in the order of the wave."""
        b: Array = right[self._order] * self._scale[:, 0]
        return b

    def restored(self, x: Array) -> Array:
        """`x` in the order of the states."""
        found: Array = x[self._position]
        return found

    def solution(self, right: Array) -> Array:
        """Nearly the solution for an arranged right-hand side: a pass from zero on."""
        x = np.zeros_like(right)
        wave_kernels.wave(self._bounds, _WINDOW, *self._table, right[:, None], x)
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
    """How few moves, by any actions, lead from a state to one of `ends`; all others come last."""
    indptr, indices = kernels.unsigned(table.indptr), kernels.unsigned(table.indices)
    found: Levels = wave_kernels.distances(indptr, indices, table.shape[0] // table.shape[1], ends)
    return found


def depths(matrix: csr_array) -> Levels:
    """How many moves, always the likeliest, lead from a state of a chain to where they go round."""
    indptr, indices = kernels.unsigned(matrix.indptr), kernels.unsigned(matrix.indices)
    found: Levels = wave_kernels.depths(indptr, indices, matrix.data)
    return found
