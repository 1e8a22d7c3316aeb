"""The Markov chain of one policy: its values and its occupancy.

For a policy with transition matrix `P` (S x S), rewards `r`, start `mu` and discount `g`:

    v = r + g P v                     (g < 1)
    v = r - gain + P v                (g = 1, unichain; v up to a constant)

An approximation is corrected until its residual is small: up to `DIRECT_UP_TO` states by dense LU,
above by fixed-point steps and the systems of `mvpi.tabular._engines`. The occupancy is that of
`mvpi.tabular._occupancy`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.tabular._matrices import (
    NotUnichain,
    closed_classes,
    drifts,
    mean_over,
    scaled,
    with_sorted_indices,
)
from mvpi.tabular._occupancy import Occupancy

if TYPE_CHECKING:
    from mvpi.tabular._engines.linear_systems import Evaluation, System


DIRECT_UP_TO = 64
"""Number of states up to which dense linear algebra is used."""

_NEAR_ONE = 1e-6
"""With `1 - discount` below this, single precision can represent relative values only."""
_DOMINATED = 100.0
"""Rounding errors so many times the tolerance may come from states outside the support."""
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


class Values(NamedTuple):
    """State values of a policy, and its gain: the reward per step from the start distribution.

    Relative values have mean 0 over the start distribution. Near discount 1 they are more accurate
    than values, most of whose digits belong to the constant `gain / (1 - discount)`.
    """

    values: Array
    gain: float


class Chain:
    """The Markov chain of a policy in an MDP.

    Raises `NotUnichain` at discount 1 when the chain has more than one closed class.
    """

    def __init__(
        self,
        matrix: csr_array,
        discount: float,
        start: Array,
        evaluation: Evaluation = "auto",
        name: Callable[[int], str] = str,
    ):
        self.matrix, self.discount, self.start = matrix, discount, start
        self._evaluation = evaluation
        self._is_dense = evaluation != "krylov" and len(start) <= DIRECT_UP_TO
        self._value_system: System | None = None
        self._reference = int(np.argmax(start))
        """A state with a positive occupancy; at discount 1 a recurrent one."""
        self.mixes_slowly = False
        """Whether fixed-point steps were not enough for the last value correction."""
        if discount == 1.0:
            classes = closed_classes(matrix)
            if len(classes) > 1:
                raise NotUnichain("the policy's chain", [name(s) for s in classes])
            self._reference = classes[0]

    @property
    def support(self) -> npt.NDArray[np.bool_]:
        """The states with a positive occupancy: reachable ones, at discount 1 recurrent ones."""
        return self._visits.support

    @cached_property
    def _visits(self) -> Occupancy:
        given = self.matrix, self.discount, self.start, self._reference, self._evaluation
        return Occupancy(*given)

    @property
    def _is_relative(self) -> bool:
        """Whether values are solved for relative to that of a state that is visited often."""
        near = 1.0 - self.discount < _NEAR_ONE
        return self.discount == 1.0 or (near and not self.is_narrow)

    @property
    def effort(self) -> int:
        """Preconditioner applications spent on values, after fixed-point steps."""
        return 0 if self._value_system is None else self._value_system.effort

    def evaluate(self, rewards: Array, tolerance: float, guess: Array | None = None) -> Values:
        """Values and gain for per-state `rewards`; the gain is right to `tolerance`."""
        relative, gain = self.evaluate_relative(rewards, tolerance, guess)
        common = gain / (1.0 - self.discount) if self.discount < 1.0 else 0.0
        return Values(relative + common, gain)

    def evaluate_relative(
        self, rewards: Array, tolerance: float, guess: Array | None = None
    ) -> Values:
        """Relative values and gain for per-state `rewards`; the gain is right to `tolerance`."""
        v = np.zeros_like(rewards) if guess is None else guess.copy()
        gain, everywhere, in_support = 0.0, _Progress(tolerance), _Progress(tolerance)
        for _ in range(50):
            common = mean_over(self.start, v)
            v -= common
            gain += (1.0 - self.discount) * common
            image, noise = self._image(v)
            residual = rewards - gain - image
            noise = 8 * _EPS * np.maximum(noise, np.abs(rewards))
            seen = [everywhere]
            middle, floor = everywhere.look(residual, noise)
            if floor > _DOMINATED * tolerance:
                kept = self.support
                middle, _ = in_support.look(residual[kept], noise[kept])
                seen.append(in_support)
            gain += middle
            residual -= middle
            if all(progress.is_over for progress in seen):
                break
            stalled = any(progress.is_stalled and not progress.is_over for progress in seen)
            v += self.value_correction(residual, 0.5 * tolerance, stalled)
        return Values(v, gain)

    def _image(self, x: Array) -> tuple[Array, Array]:
        """`(I - discount P) x`, and the size of the terms in it."""
        if self._is_dense:
            drift, size = drifts(self.matrix, x)
            rest = 1.0 - self.discount
            return rest * x - self.discount * drift, rest * np.abs(x) + self.discount * size
        from mvpi.tabular._engines.linear_systems import image

        return image(self.matrix, self.discount, x), np.abs(x)

    def value_correction(
        self,
        residual: Array,
        target: float,
        direct: bool = False,
        limit: int | None = None,
        beyond: bool = False,
    ) -> Array:
        """`x` that brings the span of `residual + discount P x - x` towards `target`.

        With `direct` a system that fixed-point steps do not solve is solved by LU. `limit` is the
        largest number of preconditioner applications; with 0, only fixed-point steps are made.
        `beyond` the target those go on while they shrink the residual fast.
        """
        if self._is_dense:
            return self._dense_values(residual)
        if self._value_system is not None and self._value_system.is_direct:
            return self._value_system.solve_directly(residual)
        from mvpi.tabular._engines.fixed_point import fixed_point_steps, mid_range

        x, remaining = np.zeros_like(residual), residual
        if self._evaluation != "direct":
            x, remaining = fixed_point_steps(
                self.matrix, self.discount, residual, target, relative=True, beyond=beyond
            )
        self.mixes_slowly = float(np.ptp(remaining)) > target
        shared = mid_range(remaining)
        if self.discount < 1.0:
            x += shared / (1.0 - self.discount)
        if self.mixes_slowly and limit != 0:
            y = self._solve_system(remaining - shared, 0.5 * target, direct, limit)
            if self._is_relative:
                k = self._visits.often_visited
                common, y[k] = float(y[k]), 0.0
                x += common / (1.0 - self.discount) if self.discount < 1.0 else 0.0
            x += y
        return x

    def _solve_system(self, right: Array, target: float, direct: bool, limit: int | None) -> Array:
        from mvpi.tabular._engines.linear_systems import PASSES, make_system

        if self._value_system is None:
            self._value_system = make_system(
                self._value_matrix(), bordered=self._is_relative, evaluation=self._evaluation
            )
        if direct or self._evaluation == "direct":
            return self._value_system.solve_directly(right)
        return self._value_system.solve(right, target, PASSES if limit is None else limit)

    @property
    def is_narrow(self) -> bool:
        """Whether transitions lead to neighbouring states only, so that LU is cheap."""
        from mvpi.tabular._engines.linear_systems import bandwidths, is_narrow

        return self._evaluation != "krylov" and is_narrow(bandwidths(self.matrix))

    def occupancy(self) -> Array:
        """The state distribution that the policy generates, summing to one."""
        visits = self._visits
        d = visits.by_elimination() if self._is_dense else visits.by_iteration()
        d = np.maximum(d, 0.0)
        d /= d.sum()
        return d

    def _value_matrix(self) -> csr_array:
        """`B` of the system `x = b + B x` for the values.

        Relative values are differences to the value of one state; the unknown of that state is
        `1 - discount` times its value, at discount 1 the gain.
        """
        if not self._is_relative:
            return scaled(self.matrix, self.discount)
        n, k = self.matrix.shape[0], self._visits.often_visited
        others = scaled(self.matrix, self.discount)
        others.data[others.indices == k] = 0.0
        rows = np.delete(np.arange(n), k)
        gain_column = csr_array((np.ones(n - 1), (rows, np.full(n - 1, k))), shape=(n, n))
        return with_sorted_indices(others - gain_column, like=self.matrix)

    def _dense_values(self, residual: Array) -> Array:
        # The value of the reference is fixed; its unknown is a constant in all residuals.
        system = np.eye(len(residual)) - self.discount * self.matrix.toarray()
        system[:, self._reference] = 1.0
        # Rows are scaled so that no pivot is that of a state with a far larger residual, whose
        # rounding errors would spread to states that never reach it.
        size = np.abs(residual)
        weights = 1.0 / np.maximum(size, 1e-6 * float(size.mean()) + _TINY)
        x: Array = np.linalg.solve(weights[:, None] * system, weights * residual)
        x[self._reference] = 0.0
        return x


class _Progress:
    """Convergence of the residuals of some states, to the tolerance or to rounding errors."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._span = np.inf
        self.is_stalled = self.is_over = False

    def look(self, residual: Array, noise: Array) -> tuple[float, float]:
        """The mid-range of the residuals, and a bound on their rounding errors."""
        low, high, floor = float(residual.min()), float(residual.max()), float(noise.max())
        previous, self._span = self._span, high - low
        self.is_stalled = self._span > 0.5 * previous
        small = self._span <= max(self._tolerance, floor)
        self.is_over = small or (self.is_stalled and previous <= 1e3 * floor)
        return 0.5 * (low + high), floor
