"""Finite problems, and data of them in which every transition is as frequent as it is likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mvpi import MDP
from mvpi.offline import Dataset, DensityRatio

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Problem:
    """`p` has a column more than states: there, episodes are over."""

    p: Array
    start: Array
    policy: Array
    pairs: Array
    """How often each pair is in the data."""

    @property
    def states(self) -> int:
        return len(self.p)

    def data(self, copies: int = 1) -> Dataset:
        """Transitions and starts, counted out; probabilities are multiples of 1/16."""
        found = []
        for s, a, t in np.ndindex(self.p.shape):
            times = self.pairs[s, a] * self.p[s, a, t] * 16
            assert abs(times - round(times)) < 1e-9
            found += [(s, a, t)] * (copies * round(times))
        s, a, t = np.array(found).T
        over = t == self.states
        starts = np.repeat(np.arange(self.states), np.round(16 * self.start).astype(int))
        return Dataset(s, a, rewards(s, a), np.where(over, 0, t), over, starts)

    def mdp(self, discount: float) -> MDP:
        """Episodes that are over start anew."""
        p = self.p[:, :, :-1] + self.p[:, :, -1:] * self.start
        return MDP(p, np.zeros(p.shape[:2]), discount, self.start)

    def occupancy_of_lasting(self, discount: float) -> Array:
        """The discounted occupancy of steps before the end, scaled to sum to one."""
        s, a = self.p.shape[:2]
        onward = np.einsum("sat,tb->satb", self.p[:, :, :-1], self.policy).reshape(s * a, s * a)
        first = (self.start[:, None] * self.policy).ravel()
        d = np.linalg.solve(np.eye(s * a) - discount * onward.T, (1.0 - discount) * first)
        return (d / d.sum()).reshape(s, a)

    def ratio(self, data: Dataset, occupancy: Array) -> Array:
        """What `density_ratio` should be for every row."""
        share = self.pairs / self.pairs.sum()
        return (occupancy / share)[data.observations, data.actions]


def rewards(s: Array, a: Array) -> Array:
    return np.cos(1.0 + s + 2.0 * a)


def sixteenths(rng: np.random.Generator, shape: tuple[int, ...], size: int) -> Array:
    """Random distributions whose probabilities are multiples of 1/16."""
    return rng.multinomial(16, np.full(size, 1 / size), size=shape) / 16


def random_problem(seed: int, states: int = 6, actions: int = 3, ending: bool = False) -> Problem:
    """Every pair is in the data, some up to four times as often as others."""
    rng = np.random.default_rng(seed)
    p = np.zeros((states, actions, states + 1))
    p[:, :, : states + ending] = sixteenths(rng, (states, actions), states + ending)
    return Problem(
        p,
        sixteenths(rng, (), states),
        rng.dirichlet(np.ones(actions), states),
        rng.integers(1, 5, (states, actions)),
    )


def boyan_chain(seed: int = 0, ending: bool = False) -> Problem:
    """13 states in a row; a step goes down by one or two, more likely by two with action 1.

    From state 0 the chain begins again at state 12, or the episode is over.
    """
    rng = np.random.default_rng(seed)
    p = np.zeros((13, 2, 14))
    for s in range(2, 13):
        p[s, :, s - 1], p[s, :, s - 2] = (0.5, 0.25), (0.5, 0.75)
    p[1, :, 0] = 1.0
    p[0, :, 13 if ending else 12] = 1.0
    policy = rng.dirichlet(np.ones(2), 13)
    return Problem(p, np.eye(13)[12], policy, rng.integers(1, 5, (13, 2)))


def error_curve(
    data: Dataset, policy: Any, discount: float, method: Any, updates: list[int], **options: Any
) -> list[float]:
    """The mean absolute error against the exact ratio after so many updates in all."""
    exact = DensityRatio(data, discount, "exact").update(policy, 0).ratio()
    estimator = DensityRatio(data, discount, method, **options)
    errors, done = [], 0
    for total in updates:
        ratio = estimator.update(policy, total - done).ratio()
        errors.append(float(np.abs(ratio - exact).mean()))
        done = total
    return errors
