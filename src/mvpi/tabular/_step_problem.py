"""The reward of a random step of an MDP, as a problem for the searches for optima.

Expected functions of the reward are those of the occupancy. Vertices of the moment polytope come
from risk-neutral solves (`mvpi.tabular.solve`), warm-started from vertices already known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.tabular._engines.backups import Actions
from mvpi.tabular._problem import Distribution, MomentOracle, Problem, known_vertex
from mvpi.tabular._stored_mdp import PolicyRewards
from mvpi.tabular._vertices import Point, Units, Vertex
from mvpi.tabular.chain import DIRECT_UP_TO, Chain, Values
from mvpi.tabular.mdp import MDP
from mvpi.tabular.solution import Solution, distribution_of, mixture, moments
from mvpi.tabular.solve import Optimum, largest_mean, solve_rewards, variance_around


class StepProblem(Problem):
    """The reward of a random step of an MDP whose states can all be reached."""

    quantity = "reward of a step"

    def __init__(self, mdp: MDP):
        self.mdp, self.rewards = mdp, mdp.rewards

    def expected(self, function: Callable[[Array], Array]) -> Array:
        """`E[function(r) | s, a]`, `(S, A)`."""
        return self.mdp.expected(function)

    def solve(
        self, rewards: Array, *, policy: Actions | None = None, tolerance: float = 1e-10
    ) -> Optimum:
        return solve_rewards(self.mdp, rewards, policy=policy, tolerance=tolerance)

    def largest_mean(self, tolerance: float) -> Solution:
        return largest_mean(self.mdp, tolerance)

    def distribution(self, policy: npt.NDArray[Any]) -> Distribution:
        return distribution_of(self.mdp, policy)

    def paid_by(self, policy: npt.NDArray[Any]) -> Array:
        return self.mdp.rewards_paid_by(policy)

    def mixed(self, policies: Sequence[Actions], shares: Sequence[float]) -> Array:
        return mixture(self.mdp, policies, shares)

    def moment_oracle(self, units: Units, finest: float) -> StepMoments:
        return StepMoments(self.mdp, units, finest)


class StepMoments(MomentOracle):
    """Vertices of the moment polytope of an MDP; moments are accurate to a tenth of `finest`."""

    def __init__(self, mdp: MDP, units: Units, finest: float):
        self.mdp, self.units, self.finest = mdp, units, finest
        self.centre, self.scale = units
        self._states = np.arange(mdp.n_states)
        self.first = mdp.expected(lambda r: (r - self.centre) / self.scale)
        self.second = mdp.expected(lambda r: ((r - self.centre) / self.scale) ** 2)

    def solved(
        self, rewards: Array, a: float, b: float, near: Sequence[Vertex]
    ) -> tuple[Vertex, float]:
        """The values of a known policy are known for any `a` and `b`, so the solve starts from the
        best of the vertices `near`, state by state.
        """
        policy, values = self._best_known(a, b, near)
        optimum = solve_rewards(
            self.mdp, rewards, policy=policy, values=values, tolerance=self.finest
        )
        if (known := known_vertex(optimum.policy, near)) is not None:
            return known, optimum.upper
        nearest = min(near, key=lambda c: np.count_nonzero(c.policy != optimum.policy))
        found = self.vertex(optimum.policy, optimum.chain, nearest, (a, b, optimum.values))
        return found, optimum.upper

    def statistics(self, vertex: Vertex) -> tuple[float, float]:
        """Mean and variance of a vertex in the units of the rewards.

        Small MDPs, and policies that the units do not suit: from the occupancy. Others: by policy
        evaluation.
        """
        m, policy = vertex.point.m, vertex.policy
        mean = self.centre + self.scale * m
        if self.mdp.n_states <= DIRECT_UP_TO or not self.units.suit(mean, self._paid(policy)):
            return moments(distribution_of(self.mdp, policy))
        chain, guess = self.mdp.chain(policy), vertex.values[1] - 2.0 * m * vertex.values[0]
        rewards = PolicyRewards(self.mdp, policy, chain.matrix)
        return mean, variance_around(chain, rewards, self.units, m, 0.1 * self.finest, guess)

    def _paid(self, policy: Actions) -> Units:
        return Units.of(self.mdp.rewards_paid_by(policy), self.mdp.rewards)

    def _best_known(self, a: float, b: float, near: Sequence[Vertex]) -> tuple[Actions, Values]:
        """State by state the best of some policies for `a r - b r^2`, and its values."""
        gains = [a * vertex.point.m - b * vertex.point.q for vertex in near]
        highest = max(gains)
        policy, values = near[0].policy, np.full(self.mdp.n_states, -np.inf)
        for vertex, gain in zip(near, gains, strict=True):
            candidate = a * vertex.values[0] - b * vertex.values[1]
            if self.mdp.discount < 1.0:
                candidate += (gain - highest) / (1.0 - self.mdp.discount)
            policy = np.where(candidate > values, vertex.policy, policy)
            values = np.maximum(values, candidate)
        return policy, Values(values, highest)

    def vertex(
        self,
        policy: Actions,
        chain: Chain | None = None,
        near: Vertex | None = None,
        solved: tuple[float, float, Array] | None = None,
    ) -> Vertex:
        """Moments and values, from those of a vertex that is `near`.

        If values for `a r - b r^2` are known (`solved`), one correction makes them exact, and with
        those for `r` they give those for `r^2`.
        """
        chain = chain or self.mdp.chain(policy)
        first_paid = self.first[self._states, policy]
        second_paid = self.second[self._states, policy]
        guess, guess2 = (None, None) if near is None else near.values
        first = chain.evaluate_relative(first_paid, 0.1 * self.finest, guess)
        a, b, values = solved or (1.0, 0.0, None)
        if b > 0.3:
            paid = a * first_paid - b * second_paid
            both = chain.evaluate_relative(paid, 0.1 * self.finest, values)
            second = Values((a * first.values - both.values) / b, (a * first.gain - both.gain) / b)
        else:
            second = chain.evaluate_relative(second_paid, 0.1 * self.finest, guess2)
        return Vertex(Point(first.gain, second.gain), policy, (first.values, second.values))
