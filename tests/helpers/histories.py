"""All policies of a short episode by brute force: an action for every history.

Written without the package's own code, and without the idea that the return so far is enough: a
history is everything that has happened.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import product

import numpy as np

Law = dict[float, float]
"""Returns and their probabilities."""


@dataclass(frozen=True)
class Episode:
    """Outcomes `(probability, reward, next state)` by state and action, and a number of steps."""

    outcomes: list[list[list[tuple[float, float, int]]]]
    start: list[float]
    discount: float
    horizon: int

    def rows(self):
        """As `MDP.from_outcomes` takes them."""
        return [
            (s, a, p, r, to)
            for s, actions in enumerate(self.outcomes)
            for a, found in enumerate(actions)
            for p, r, to in found
        ]

    def laws(self) -> list[Law]:
        """The law of the return under every deterministic policy that depends on the history."""
        by_start = [self._after(s, 0) if p > 0 else [{0.0: 1.0}] for s, p in enumerate(self.start)]
        found = []
        for choice in product(*by_start):
            law: Law = defaultdict(float)
            for p, part in zip(self.start, choice, strict=True):
                for g, q in part.items():
                    law[g] += p * q
            found.append(dict(law))
        return _different(found)

    def _after(self, s: int, t: int) -> list[Law]:
        """All laws of what is still to come, discounted to the start of the episode."""
        if t == self.horizon:
            return [{0.0: 1.0}]
        found = []
        for outcomes in self.outcomes[s]:
            later = [self._after(to, t + 1) for _, _, to in outcomes]
            for choice in product(*later):
                law: Law = defaultdict(float)
                for (p, r, _), part in zip(outcomes, choice, strict=True):
                    for g, q in part.items():
                        law[round(self.discount**t * r + g, 12)] += p * q
                found.append(dict(law))
        return _different(found)


def _different(laws: list[Law]) -> list[Law]:
    """Without repetitions."""
    seen = {tuple(sorted((g, round(p, 12)) for g, p in law.items())): law for law in laws}
    return list(seen.values())


def moments(law: Law) -> tuple[float, float]:
    returns, weights = arrays(law)
    mean = float(returns @ weights)
    return mean, float(((returns - mean) ** 2) @ weights)


def arrays(law: Law) -> tuple[np.ndarray, np.ndarray]:
    return np.array(list(law)), np.array(list(law.values()))


def random_episode(seed: int, *, whole: bool, horizon: int | None = None) -> Episode:
    """Two states, two actions, one or two outcomes each; sometimes a state to stay in for ever."""
    rng = np.random.default_rng([21, seed])
    discount = float(rng.choice([1.0, 1.0, 0.9, 0.5]))
    horizon = horizon or int(rng.choice([2, 2, 3]))

    def outcome(p: float) -> tuple[float, float, int]:
        r = float(rng.integers(-3, 4)) if whole else round(float(rng.normal()), 3)
        return p, r, int(rng.integers(2))

    def pair() -> list[tuple[float, float, int]]:
        if rng.random() < (0.3 if horizon == 2 else 0.6):
            return [outcome(1.0)]
        p = float(rng.choice([0.5, 0.25, 0.1]))
        return [outcome(p), outcome(1.0 - p)]

    outcomes = [[pair(), pair()] for _ in range(2)]
    if rng.random() < 0.2:
        outcomes[1] = [[(1.0, 0.0, 1)], [(1.0, 0.0, 1)]]
    p = float(rng.choice([1.0, 0.0, 0.5]))
    return Episode(outcomes, [p, 1.0 - p], discount, horizon)
