"""Random problems, and their answers found the slow and simple way.

Nothing here uses the package's solvers: occupancies come from dense linear algebra for all
deterministic policies at once, risk measures from their definitions, optima from enumeration or
from linear programs. What the package answers is compared with that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.special import logsumexp

from mvpi.tabular.mdp import MDP

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Problem:
    """A small MDP as plain dense arrays."""

    p: Array
    r: Array
    discount: float
    start: Array

    def __repr__(self) -> str:
        arrays = f"p={self.p.tolist()}, r={self.r.tolist()}, start={self.start.tolist()}"
        return f"Problem({arrays}, discount={self.discount})"

    def mdp(self, sparse: bool = False) -> MDP:
        if not sparse:
            return MDP(self.p, self.r, self.discount, self.start)
        actions = range(self.p.shape[1])
        transitions = [csr_array(self.p[:, a]) for a in actions]
        rewards = [csr_array(self.r[:, a]) for a in actions] if self.r.ndim == 3 else self.r
        return MDP(transitions, rewards, self.discount, self.start)

    @property
    def rewards(self) -> Array:
        """`r(s, a, s')`, whatever the rewards depend on."""
        return np.broadcast_to(self.r.reshape(*self.p.shape[:2], -1), self.p.shape)

    @cached_property
    def policies(self) -> Array:
        """All deterministic policies, `(K, S)`."""
        n, a, _ = self.p.shape
        return np.array(list(product(range(a), repeat=n)))

    @cached_property
    def laws(self) -> tuple[Array, Array]:
        """Reward values and probabilities, `(K, S * S)` each, of every deterministic policy."""
        n, k = len(self.p), len(self.policies)
        p = self.p[np.arange(n), self.policies]
        d = state_occupancy(p, self.discount, self.start)
        values = self.rewards[np.arange(n), self.policies]
        return values.reshape(k, -1), (d[:, :, None] * p).reshape(k, -1)

    @property
    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of every deterministic policy."""
        return mean_and_variance(*self.laws)

    @property
    def largest(self) -> float:
        """The size of the rewards, for tolerances."""
        return float(max(1.0, np.abs(self.r).max()))


def state_occupancy(p: Array, discount: float, start: Array) -> Array:
    """`(..., S)` occupancies of the chains `p`, `(..., S, S)`, by one dense solve each.

    `d = (1 - g) mu + g P' d` together with `sum d = 1`, which keeps digits when `g` is nearly 1.
    What rounding leaves in states that are not reached is 0.
    """
    system = np.eye(len(start)) - discount * p.swapaxes(-1, -2) + discount * start[:, None]
    right = np.broadcast_to(start, p.shape[:-1])
    d = np.linalg.solve(system, right[..., None])[..., 0]
    return np.where(d > 1e-14, d, 0.0)


def mean_and_variance(values: Array, weights: Array) -> tuple[Array, Array]:
    mean = (values * weights).sum(-1)
    return mean, ((values - mean[..., None]) ** 2 * weights).sum(-1)


def mean_variance(values: Array, weights: Array, risk_aversion: float) -> Array:
    mean, variance = mean_and_variance(values, weights)
    return mean - risk_aversion * variance


def cvar(values: Array, weights: Array, level: float, weight: float = 1.0) -> Array:
    """`(1 - weight) E[R] + weight` times the mean of the worst `level` share, by sorting."""
    order = np.argsort(values, axis=-1)
    x = np.take_along_axis(values, order, -1)
    w = np.take_along_axis(weights, order, -1)
    used = np.clip(level - (np.cumsum(w, -1) - w), 0.0, w)
    # The offset keeps a share that rounding leaves over from being multiplied by a large reward.
    base = x[..., :1]
    worst = base[..., 0] + ((x - base) * used).sum(-1) / level
    return (1 - weight) * (values * weights).sum(-1) + weight * worst


def entropic(values: Array, weights: Array, risk_aversion: float) -> Array:
    return -logsumexp(-risk_aversion * values, b=weights, axis=-1) / risk_aversion


def random_problem(
    seed: int,
    states: int,
    actions: int,
    discount: float,
    *,
    next_state: bool = False,
    whole: bool = False,
    zeros: float = 0.0,
    offset: float = 0.0,
    scale: float = 1.0,
    one_start: bool = False,
) -> Problem:
    """Random transitions (a share `zeros` of them impossible) and normal or `whole` rewards."""
    rng = np.random.default_rng(seed)
    p = rng.random((states, actions, states)) + 0.05
    p *= rng.random(p.shape) >= zeros
    p[..., 0] += p.sum(axis=-1) == 0
    p /= p.sum(axis=-1, keepdims=True)
    shape = p.shape if next_state else p.shape[:2]
    r = rng.integers(-2, 3, shape).astype(float) if whole else rng.normal(size=shape)
    start = np.eye(states)[0] if one_start else rng.dirichlet(np.ones(states))
    return Problem(p, offset + scale * r, discount, start)


def forbidding(seed: int, cost: float) -> tuple[Problem, Problem]:
    """A problem that forbids two actions by their cost, and the same without these actions."""
    free = random_problem(seed, 4, 3, 0.9)
    free.p[:2, 2], free.r[:2, 2] = free.p[:2, 0], free.r[:2, 0]
    costly = Problem(free.p, free.r.copy(), free.discount, free.start)
    costly.r[:2, 2] = -cost
    return costly, free


@st.composite
def problems(
    draw: st.DrawFn,
    discounts: tuple[float, ...] = (0.3, 0.9, 0.99, 0.999, 1.0),
    max_states: int = 5,
) -> Problem:
    """Small MDPs: few or many states, ties, impossible transitions, shifted and scaled rewards.

    At discount 1 all transitions are possible, so that every policy has one long-run average.
    """
    discount = draw(st.sampled_from(discounts))
    return random_problem(
        seed=draw(st.integers(0, 2**32 - 1)),
        states=draw(st.integers(1, max_states)),
        actions=draw(st.integers(1, 3)),
        discount=discount,
        next_state=draw(st.booleans()),
        whole=draw(st.booleans()),
        zeros=0.0 if discount == 1.0 else draw(st.sampled_from([0.0, 0.5, 0.9])),
        offset=draw(st.sampled_from([0.0, 0.0, 100.0, -1e4])),
        scale=draw(st.sampled_from([1.0, 1.0, 1e-3, 1e3])),
        one_start=draw(st.booleans()),
    )


@st.composite
def places_to_stay(draw: st.DrawFn) -> Problem:
    """Average-reward MDPs whose policies fall apart into closed classes.

    Action 0 leads round a ring, so that every state can be reached; the others stay or jump.
    """
    n, actions = draw(st.integers(2, 4)), draw(st.integers(2, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    goal = rng.integers(n, size=(n, actions))
    stay = rng.random(goal.shape) < 0.4
    goal[stay] = np.nonzero(stay)[0]
    p = np.eye(n)[goal]
    p[:, 0] = np.roll(np.eye(n), 1, axis=1)
    if draw(st.booleans()):
        p = 0.7 * p + 0.3 * np.eye(n)[rng.integers(n, size=goal.shape)]
    shape = p.shape if draw(st.booleans()) else p.shape[:2]
    r = rng.integers(-2, 3, shape).astype(float) if draw(st.booleans()) else rng.normal(size=shape)
    return Problem(p, r, 1.0, np.full(n, 1 / n))


def class_laws(problem: Problem) -> list[tuple[tuple[int, ...], Array, Array]]:
    """Each closed class of each deterministic policy: its states, rewards and probabilities."""
    n = len(problem.p)
    laws = []
    for policy in problem.policies:
        chain = problem.p[np.arange(n), policy]
        rewards = problem.rewards[np.arange(n), policy]
        reach = np.linalg.matrix_power(np.eye(n) + chain, n) > 0
        for s in range(n):
            inside = np.flatnonzero(reach[s])
            if inside[0] != s or not reach[np.ix_(inside, inside)].all():
                continue  # not the first state of its class, or the class is not closed
            inner = chain[np.ix_(inside, inside)]
            d = state_occupancy(inner, 1.0, np.full(len(inside), 1 / len(inside)))
            weights = d[:, None] * inner
            laws.append(
                (tuple(inside.tolist()), rewards[np.ix_(inside, inside)].ravel(), weights.ravel())
            )
    return laws


def flow_constraints(problem: Problem) -> tuple[Array, Array]:
    """`(A, b)` with `A d = b`: what makes `d(s, a)`, flattened and >= 0, an occupancy."""
    n, a, _ = problem.p.shape
    outflow = np.repeat(np.eye(n), a, axis=1)
    inflow = problem.p.reshape(n * a, n).T
    balance = outflow - problem.discount * inflow
    system = np.vstack([balance, np.ones(n * a)])
    return system, np.append((1 - problem.discount) * problem.start, 1.0)


def best_linear(
    problem: Problem, rewards: Array, extra: tuple[Array, Array] | None = None
) -> tuple[float, Array]:
    """The largest `sum d * rewards` over occupancies, and that `d`, by linear programming."""
    system, right = flow_constraints(problem)
    if extra is not None:
        system, right = np.vstack([system, extra[0]]), np.append(right, extra[1])
    found = linprog(-rewards.ravel(), A_eq=system, b_eq=right, method="highs")
    assert found.status == 0, found.message
    return -found.fun, found.x.reshape(problem.p.shape[:2])
