"""The interface between the searches for optima and the problems they are applied to.

A policy determines one random number: the reward of a step (`mvpi.tabular._step_problem`), or the
return of an episode (`mvpi.tabular.return_problem`). Expected functions of it are linear in what
policies do, so that the points `(E[R], E[R^2])` form a polytope, and `E[f(R)]` for one `f` is
largest for a deterministic policy, which one risk-neutral solve finds. The searches use nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.risk import Risk
from mvpi.tabular._engines.backups import Actions
from mvpi.tabular._vertices import RAISE, Units, Vertex
from mvpi.tabular.chain import Chain
from mvpi.tabular.solution import Solution, moments
from mvpi.tabular.solve import WORST_UTILITY, Best

Distribution = tuple[Array, Array]
"""Values, which may repeat, and the probability of each."""


class Problem(Protocol):
    """A random number whose distribution depends on the policy; policies are arrays."""

    quantity: str
    """Name of the number: "reward of a step"."""
    rewards: Array
    """All values that the number may have."""

    def expected(self, function: Callable[[Array], Array]) -> Array:
        """The argument of `solve` that maximises `E[function(R)]`."""

    def expected_utility(self, risk: Risk, y: float) -> Array:
        """`E[u(R - y)]` for a solve; utilities below `utility_floor` are raised to it.

        The floor avoids overflow, and raising a reward keeps upper bounds valid. Occupancies sum to
        one, so the best policy is that for `augment`, which differs from this by a constant.
        """
        return self.expected(lambda r: np.maximum(risk.utility(r - y), risk.utility_floor))

    def solve(
        self, rewards: Array, *, policy: Actions | None = None, tolerance: float = 1e-10
    ) -> Best:
        """The best policy for what `expected` returned; the search may start from a policy."""

    def largest_mean(self, tolerance: float) -> Solution:
        """The policy of the largest mean."""

    def distribution(self, policy: npt.NDArray[Any]) -> Distribution:
        """The distribution of the number under a policy."""

    def moments(self, policy: npt.NDArray[Any]) -> tuple[float, float]:
        """Mean and variance under a policy."""
        return moments(self.distribution(policy))

    def paid_by(self, policy: npt.NDArray[Any]) -> Array:
        """All values of positive probability under a policy."""

    def mixed(self, policies: Sequence[Actions], shares: Sequence[float]) -> Array:
        """The randomised policy whose distribution is a mixture of those of some policies."""

    def moment_oracle(self, units: Units, finest: float) -> MomentOracle:
        """Vertices of the moment polytope, in some units and to some accuracy."""


class MomentOracle(Protocol):
    """Vertices of the moment polytope in fixed units; see `mvpi.tabular._vertices`."""

    first: Array
    second: Array
    """What `Problem.expected` says of the scaled reward and of its square."""

    def farthest(self, a: float, b: float, near: Sequence[Vertex]) -> tuple[Vertex, float]:
        """The vertex that maximises `a m - b q`, and an upper bound on that."""
        terms = a * self.first, -b * self.second
        # Raised by the rounding error, so that the bound holds for the exact moments.
        rewards = terms[0] + terms[1] + RAISE * (np.abs(terms[0]) + np.abs(terms[1]))
        return self.solved(np.maximum(rewards, WORST_UTILITY), a, b, near)

    def solved(
        self, rewards: Array, a: float, b: float, near: Sequence[Vertex]
    ) -> tuple[Vertex, float]:
        """The same from `rewards`, which stand for `a r - b r^2`."""

    def vertex(self, policy: Actions, chain: Chain | None = None) -> Vertex:
        """That of a policy; its chain where that is known."""

    def statistics(self, vertex: Vertex) -> tuple[float, float]:
        """Mean and variance of a vertex in the units of the rewards."""


def known_vertex(policy: Actions, near: Sequence[Vertex]) -> Vertex | None:
    """The one of some vertices that has this policy."""
    return next((vertex for vertex in near if np.array_equal(vertex.policy, policy)), None)
