"""The return of an episode as a problem: backward induction over time, state and return so far.

    G = sum over t < T of discount^t r_t

The state of the extended problem is `(t, s, G_t)`, with `G_t` the return before step `t`. Layer `t`
holds the pairs `(s, G_t)` that some policy reaches, found forwards from the start. At the end only
the return is left, and for any function `f` of it

    V_T(G) = f(G),      V_t(s, G_t) = max over a of E[V_{t+1}(s', G_t + discount^t r)]

gives the largest `E[f(G)]` over all policies, history-dependent ones included: `(t, s, G_t)` is a
sufficient statistic (Bauerle and Ott 2011). So one pass over the layers is a risk-neutral solve,
and the searches of `mvpi.tabular` work on the return as they do on the reward of a step.

Returns that differ by rounding only are merged. If rewards are multiples of a unit, such as whole
numbers, there are few different returns; otherwise their number may grow with every step. Then
rewards are rounded to multiples of a `step`, and `error` bounds the change of a return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._checks import check_count
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular._engines.backups import Actions
from mvpi.tabular._problem import Distribution, MomentOracle, Problem, known_vertex
from mvpi.tabular._reachable import Core
from mvpi.tabular._vertices import Point, Units, Vertex
from mvpi.tabular.chain import Chain
from mvpi.tabular.masks import entries_of
from mvpi.tabular.return_policy import ReturnPolicy
from mvpi.tabular.solution import Certificate, Solution, describe_moments, with_occupancy
from mvpi.tabular.solve import Best

MOST_TRANSITIONS = 30_000_000
"""Between layers, of all of them; about a gigabyte while they are made."""
_EPS = float(np.finfo(np.float64).eps)
_NO_VALUES = np.empty(0)


@dataclass(frozen=True, eq=False)
class Layer:
    """The pairs of a state and a return before one step, and where the step leads."""

    states: npt.NDArray[np.int64]
    """Increasing; of one state, by increasing return."""
    returns: Array
    transitions: csr_array
    """Probabilities of the pairs of the next layer, row `pair * A + a`."""

    @cached_property
    def rounding(self) -> float:
        """Relative error of an expectation."""
        return (int(np.diff(self.transitions.indptr).max()) + 2) * _EPS


class ReturnProblem(Problem):
    """The return of `len(layers)` steps. Policies are arrays with a row per pair of all layers."""

    quantity = "return of an episode"

    def __init__(
        self, core: Core, layers: Sequence[Layer], rewards: Array, step: float | None, error: float
    ):
        self.core, self.layers, self.rewards = core, layers, rewards
        self.step, self.error = step, error
        self.n_actions = core.mdp.n_actions
        self.start = core.mdp.start[layers[0].states]
        self.sizes = np.array([len(layer.states) for layer in layers])

    def expected(self, function: Callable[[Array], Array]) -> Array:
        """`function` of every return."""
        return np.asarray(function(self.rewards), dtype=np.float64)

    def solve(
        self, rewards: Array, *, policy: Actions | None = None, tolerance: float = 1e-10
    ) -> Best:
        """Backward induction from the value `rewards` of every return; exact but for rounding.

        Values are raised by the rounding error, so that the upper bound holds.
        """
        values, chosen = rewards, []
        for layer in reversed(self.layers):
            terms = layer.transitions @ np.stack([values, np.abs(values)], axis=1)
            by_action = terms[:, 0] + layer.rounding * terms[:, 1]
            by_action = by_action.reshape(-1, self.n_actions)
            chosen.append(by_action.argmax(axis=1))
            values = np.take_along_axis(by_action, chosen[-1][:, None], axis=1)[:, 0]
        rounding = (len(values) + 2) * _EPS * float(self.start @ np.abs(values))
        upper = min(float(self.start @ values) + rounding, float(rewards.max()))
        return Best(policy=np.concatenate(chosen[::-1]), upper=upper)

    def largest_mean(self, tolerance: float) -> Solution:
        found = self.solve(self.rewards)
        mean, variance = self.moments(found.policy)
        unit = Units.of(self.paid_by(found.policy), self.rewards).scale
        certificate = Certificate(found.upper, tolerance * unit, 1, (mean,))
        return describe_moments(found.policy, mean, variance, mean, certificate)

    def distribution(self, policy: npt.NDArray[Any]) -> Distribution:
        """All returns, and the probability of each under a policy."""
        *_, last = self._visits(policy)
        return self.rewards, last

    def paid_by(self, policy: npt.NDArray[Any]) -> Array:
        returns, probabilities = self.distribution(policy)
        return returns[probabilities > 0]

    def mixed(self, policies: Sequence[Actions], shares: Sequence[float]) -> Array:
        """Of a pair `x`, `pi(a | x) = d(x, a) / d(x)` with `d` the mixture of the visits.

        This randomised policy has the same distribution of the return as a policy drawn at the
        start of the episode, without memory of the draw.
        """
        rows = np.arange(self.sizes.sum())
        visits = np.zeros((len(rows), self.n_actions))
        for policy, share in zip(policies, shares, strict=True):
            *before, _ = self._visits(policy)
            visits[rows, policy] += share * np.concatenate(before)
        return with_occupancy(visits, np.eye(self.n_actions)[policies[0]])

    def moment_oracle(self, units: Units, finest: float) -> ReturnMoments:
        return ReturnMoments(self, units)

    def lifted(self, policy: npt.NDArray[Any]) -> ReturnPolicy:
        """A policy in terms of the whole MDP."""
        returns, probabilities = self.distribution(policy)
        met = probabilities > 0
        states = np.concatenate([layer.states for layer in self.layers])
        return ReturnPolicy(
            self.core.whole,
            np.split(self.core.states[states], np.cumsum(self.sizes)[:-1]),
            [layer.returns for layer in self.layers],
            np.split(self.core.whole_actions(states, policy), np.cumsum(self.sizes)[:-1]),
            (returns[met], probabilities[met]),
            self.step,
            self.error,
        )

    def _visits(self, policy: npt.NDArray[Any]) -> Iterator[Array]:
        """Probabilities of the pairs of every layer, and last of every return."""
        probabilities = self.start
        choices = np.split(policy, np.cumsum(self.sizes)[:-1])
        for layer, choice in zip(self.layers, choices, strict=True):
            yield probabilities
            if choice.ndim == 2:
                pairs = (probabilities[:, None] * choice).ravel()
                probabilities = layer.transitions.T @ pairs
            else:
                met = np.flatnonzero(probabilities)
                rows = layer.transitions[met * self.n_actions + choice[met]]
                probabilities = rows.T @ probabilities[met]
        yield probabilities


class ReturnMoments(MomentOracle):
    """Vertices of the polytope of `(E[G], E[G^2])`."""

    def __init__(self, problem: ReturnProblem, units: Units):
        self.problem = problem
        self.first = (problem.rewards - units.centre) / units.scale
        self.second = self.first**2

    def solved(
        self, rewards: Array, a: float, b: float, near: Sequence[Vertex]
    ) -> tuple[Vertex, float]:
        found = self.problem.solve(rewards)
        return known_vertex(found.policy, near) or self.vertex(found.policy), found.upper

    def vertex(self, policy: Actions, chain: Chain | None = None) -> Vertex:
        _, probabilities = self.problem.distribution(policy)
        m, q = float(self.first @ probabilities), float(self.second @ probabilities)
        return Vertex(Point(m, q), policy, (_NO_VALUES, _NO_VALUES))

    def statistics(self, vertex: Vertex) -> tuple[float, float]:
        return self.problem.moments(vertex.policy)


def checked_horizon(horizon: int | None, example: str) -> int:
    """The number of steps that a user gave."""
    if horizon is None:
        raise InputError(
            f"the return of an episode needs its number of steps, such as {example}, got none"
        )
    return check_count(horizon, "horizon")


def explore_returns(core: Core, horizon: int, step: float | None = None) -> ReturnProblem:
    """The problem of the return of `horizon` steps, rewards rounded to multiples of a `step`."""
    mdp = core.mdp
    lengths = np.diff(mdp.transitions.indptr).reshape(mdp.shape)
    rewards = mdp.rewards
    if rewards.ndim == 2:
        rewards = np.repeat(rewards.ravel(), lengths.ravel())
    g = mdp.discount
    size = float(np.abs(rewards).max()) * (horizon if g == 1.0 else (1 - g**horizon) / (1 - g))
    resolution = 4 * (horizon + 2) * _EPS * size
    first = mdp.transitions.indptr[:: mdp.n_actions].astype(np.int64)
    outcomes = np.diff(first)
    states, returns = np.flatnonzero(mdp.start), np.zeros(np.count_nonzero(mdp.start))
    layers, total, error = [], 0, 0.0
    if horizon * int(outcomes.min()) > MOST_TRANSITIONS:
        raise _too_many(core, horizon, 0, size, step)
    for t in range(horizon):
        total += int(outcomes[states].sum())
        if total > MOST_TRANSITIONS:
            raise _too_many(core, horizon, t, size, step)
        entries, ends = entries_of(first, states)
        paid = g**t * rewards
        if step is not None:
            rounded = step * np.rint(paid / step)
            error += float(np.abs(paid - rounded)[entries].max())
            paid = rounded
        after = np.repeat(returns, np.diff(ends)) + paid[entries]
        to = mdp.transitions.indices[entries] if t < horizon - 1 else np.zeros(len(entries), int)
        merged = _merged(to, after, resolution)
        error += merged.moved
        indptr = np.concatenate([[0], np.cumsum(lengths[states])])
        matrix = csr_array(
            (mdp.transitions.data[entries], merged.place, indptr),
            shape=(len(states) * mdp.n_actions, len(merged.returns)),
        )
        layers.append(Layer(states, returns, matrix))
        states, returns = merged.states, merged.returns
    return ReturnProblem(core, layers, returns, step, error if error > resolution else 0.0)


class _Merged(NamedTuple):
    place: npt.NDArray[np.int64]
    """By pair that was given, the number of the one that it became."""
    states: npt.NDArray[np.int64]
    returns: Array
    moved: float
    """The largest change of a return."""


def _merged(states: npt.NDArray[Any], returns: Array, resolution: float) -> _Merged:
    """The different pairs; returns of one state that are nearer than `resolution` are the same."""
    order = np.lexsort((returns, states))
    states, returns = states[order].astype(np.int64), returns[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (np.diff(states) != 0) | (np.diff(returns) > resolution)
    number = np.cumsum(is_new) - 1
    place = np.empty(len(order), np.int64)
    place[order] = number
    kept = returns[is_new]
    return _Merged(place, states[is_new], kept, float((returns - kept[number]).max()))


def _too_many(core: Core, horizon: int, t: int, size: float, step: float | None) -> InputError:
    """With a step at which all layers together would have half as many transitions."""
    enough = 4.0 * horizon * core.mdp.transitions.nnz * size / MOST_TRANSITIONS
    advice = f"return_step={enough:.1g} (or more)" if step is None or step < enough else None
    remedy = " or ".join(filter(None, [advice, "a shorter horizon"]))
    return InputError(
        f"the returns of {horizon} steps are too many for memory, already before step {t + 1} of "
        f"them; take {remedy}"
    )
