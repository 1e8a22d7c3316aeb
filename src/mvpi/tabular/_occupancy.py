"""The occupancy of a Markov chain: how often it is in each state.

    d = (1 - g) mu + g P' d             (discount g < 1, start mu)
    d = P' d,  sum d = 1                (g = 1: the stationary distribution of a unichain)

Small chains are solved by elimination, others by fixed-point steps and, where the chain mixes
slowly, by a linear system of `mvpi.tabular._engines` with iterative refinement.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.errors import NoConvergence
from mvpi.tabular._matrices import reached_from, scaled, with_sorted_indices

if TYPE_CHECKING:
    from mvpi.tabular._engines.linear_systems import Evaluation, System

_ACCURACY = 1e-12
_STATIONARY_ACCURACY = 1e-9
"""A distribution that a step changes by more than this is not stationary."""
_REFERENCES = 5
"""Number of reference states that are tried for a stationary distribution."""
_LONG_RUN = 1.0 - 1e-5
"""The discount at which an occupancy is nearly the stationary distribution."""


@dataclass(frozen=True, eq=False)
class Occupancy:
    """The occupancy of one chain."""

    matrix: csr_array
    """`P`, `(S, S)`."""
    discount: float
    start: Array
    reference: int
    """A state with a positive occupancy; at discount 1 a recurrent one."""
    evaluation: Evaluation

    @cached_property
    def support(self) -> npt.NDArray[np.bool_]:
        """The states with a positive occupancy: reachable ones, at discount 1 recurrent ones."""
        starts = np.flatnonzero(self.start) if self.discount < 1.0 else np.array([self.reference])
        mask = np.zeros(len(self.start), dtype=bool)
        mask[reached_from(self.matrix, starts) if len(starts) < len(mask) else slice(None)] = True
        return mask

    @cached_property
    def often_visited(self) -> int:
        """A state that is visited often in the long run."""
        discount = min(self.discount, _LONG_RUN)
        backwards = scaled(self._backwards, discount)
        d, residual = _steps_from(self.start, backwards, (1.0 - discount) * self.start)
        error = float(np.abs(residual).max())
        if error * len(d) > 0.01:
            d = d + self._system(backwards).solve(residual, 1e-3 * error)
        return int(np.argmax(np.where(self.support, d, 0.0)))

    def by_elimination(self) -> Array:
        """By the elimination of Grassmann, Taksar and Heyman (1985), which never subtracts.

        Every entry is accurate to nearly all its digits, however rarely its state is visited or
        left. The occupancy is the stationary distribution of the chain that restarts with
        probability `1 - discount`. The reference state is eliminated last: every state reaches it.
        """
        order = np.roll(np.arange(len(self.start)), -self.reference)
        rates = self.discount * self.matrix.toarray() + (1.0 - self.discount) * self.start
        rates = rates[np.ix_(order, order)]
        for k in range(len(order) - 1, 0, -1):
            rates[:k, k] /= rates[k, :k].sum()
            rates[:k, :k] += np.outer(rates[:k, k], rates[k, :k])
        d = np.zeros(len(order))
        d[order[0]] = 1.0
        for k in range(1, len(order)):
            d[order[k]] = d[order[:k]] @ rates[:k, k]
        return d

    def by_iteration(self) -> Array:
        """By fixed-point steps, followed by a linear system where they do not suffice."""
        backwards = scaled(self._backwards, self.discount)
        restart = (1.0 - self.discount) * self.start
        d, residual = _steps_from(self.start, backwards, restart)
        if float(np.abs(residual).sum()) <= _ACCURACY:
            return d
        if self.discount == 1.0:
            return self._stationary()
        return _refined(self._system(backwards), backwards, restart, d)

    def _stationary(self) -> Array:
        """Expected visits to each state between two visits to a reference state, normalised.

        For a reference that is hardly ever visited these numbers overflow: then the state that was
        visited most is the next reference.
        """
        reference = self.often_visited
        for _ in range(_REFERENCES):
            others = self._backwards.copy()
            others.data[others.indptr[reference] : others.indptr[reference + 1]] = 0.0
            once = np.zeros_like(self.start)
            once[reference] = 1.0
            with np.errstate(over="ignore", invalid="ignore"):
                d = _refined(self._system(others), others, once, np.zeros_like(once))
                d = np.where(np.isfinite(d), np.maximum(d, 0.0), 0.0)
                d /= d.sum()
                change = float(np.abs(self._backwards @ d - d).sum())
            if change <= _STATIONARY_ACCURACY:
                return d
            reference = int(np.argmax(np.where(self.support, d, 0.0)))
        raise NoConvergence(
            "the stationary distribution of a policy could not be computed: its chain hardly "
            "ever goes from some places to others; use a discount below 1"
        )

    def _system(self, matrix: csr_array) -> System:
        from mvpi.tabular._engines.linear_systems import make_system

        return make_system(matrix, evaluation=self.evaluation)

    @cached_property
    def _backwards(self) -> csr_array:
        return with_sorted_indices(self.matrix.T, like=self.matrix)


def _steps_from(start: Array, backwards: csr_array, restart: Array) -> tuple[Array, Array]:
    """`x = restart + backwards x` by fixed-point steps from `start`, and the residual left."""
    from mvpi.tabular._engines.fixed_point import fixed_point_steps

    right = restart - start + backwards @ start
    x, residual = fixed_point_steps(backwards, 1.0, right, target=0.0, relative=False)
    return x + start, residual


def _refined(system: System, backwards: csr_array, restart: Array, x: Array) -> Array:
    """`x = restart + backwards x` by iterative refinement of an approximation."""
    previous = np.inf
    for _ in range(20):
        residual = restart - x + backwards @ x
        error = float(np.abs(residual).sum())
        if error <= _ACCURACY * max(1.0, float(x.sum())):
            break
        if error > 0.5 * previous:
            return x + system.solve_directly(residual)
        previous = error
        x = x + system.solve(residual, 1e-3 * float(np.abs(residual).max()))
    return x
