"""The strategy of windowed Gauss-Seidel sweeps in breadth-first order; see `sweeps`.

Used after modified policy iteration, or at once, where states have few successors and most are many
steps from any reward, as in grids and shortest paths. The first sweep starts from the states of the
largest value, the others from the cycles of the greedy policy. They are repeated while each reduces
the residual to a tenth.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from mvpi._types import Array
from mvpi.tabular._engines.backups import backup
from mvpi.tabular._engines.strategy import Iterate
from mvpi.tabular._engines.sweeps import Sweeps, depths, distances
from mvpi.tabular.mdp import MDP

REDUCTION = 0.1
"""A strategy is repeated while it reduces the residual to this share or less."""


class OrderedSweeps:
    def __init__(self) -> None:
        self._span: float | None = None

    def improve(self, iterate: Iterate) -> bool:
        mdp, v = iterate.mdp, iterate.values
        if self._span is None:
            levels = distances(mdp.transitions, np.flatnonzero(v == v.max()))
            iterate.values = Sweeps(mdp.transitions, mdp.discount, levels).run(iterate.rewards, v)
        elif iterate.span <= REDUCTION * self._span:
            sweep_along_policy(iterate)
        else:
            return False
        self._span = iterate.span
        iterate.restart_progress()
        return True


def sweep_along_policy(iterate: Iterate) -> None:
    """A pass in the order in which the greedy policy leads to its cycles."""
    mdp, levels = iterate.mdp, depths(iterate.mdp.policy_matrix(iterate.policy))
    sweeps = Sweeps(mdp.transitions, mdp.discount, levels)
    iterate.values = sweeps.run(iterate.rewards, iterate.values)


def lower_values(mdp: MDP, rewards: Array) -> tuple[Array, bool]:
    """Values to start from, and whether most states are many steps from any reward.

    They begin as lower bounds, the worst reward for ever. Backups follow until half of the states
    are above that, as long as each at least doubles their number. The first backup, of values which
    are all the same, needs no transitions.
    """
    worst = float(rewards.min()) / (1.0 - mdp.discount)
    v: Array = reduce(np.maximum, rewards.T) + mdp.discount * worst
    policy, residual = np.zeros(mdp.n_states, np.int64), np.empty(mdp.n_states)
    before, above = 0, _count_above(worst, v)
    while 2 * before < above < 0.5 * mdp.n_states:
        backup(mdp, rewards, v, policy, residual)
        v += residual
        before, above = above, _count_above(worst, v)
    return v, 0 < above < 0.5 * mdp.n_states


def _count_above(limit: float, values: Array) -> int:
    return int(np.count_nonzero(values > limit + 1e-9 * abs(limit)))
