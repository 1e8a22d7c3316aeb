"""Policy iteration restricted to a window of neighbouring states: block policy iteration.

    v(W)  <-  v(W) + (I - g P_pi(W, W))^-1 (T v - v)(W),      all other values fixed

Used before each evaluation where transitions are banded (queues, inventories), the system of a
window is a cheap LU, and only a few neighbouring states have a residual, as after a small change of
the rewards. Asynchronous policy iteration converges in any order of the states (Bertsekas, Dynamic
Programming and Optimal Control II, section 2.6). Evaluations of all states are those of policy
iteration.
"""

from __future__ import annotations

import numpy as np

from mvpi.tabular._engines import kernels
from mvpi.tabular._engines.backups import compiled_table
from mvpi.tabular._engines.linear_systems import Banded, is_narrow
from mvpi.tabular._engines.policy_iteration import PATIENCE, PolicyIteration
from mvpi.tabular._engines.strategy import Iterate
from mvpi.tabular.mdp import MDP

_ACTIVE = 1e-3
"""A state is in the window if its residual is more than this share of the span."""
_MARGIN = 200
"""States on both sides of those that are in the window as well."""
_SHARE = 0.2
"""Largest share of all states in a window."""
_IMPROVEMENTS = 50


def is_banded(mdp: MDP) -> bool:
    """Whether all transitions lead to neighbouring states, so that LU is cheap."""
    return is_narrow(mdp.bandwidths)


class LocalPolicyIteration(PolicyIteration):
    def __init__(self, *, evaluated: bool) -> None:
        super().__init__("direct")
        self._evaluated = evaluated
        """Whether values are those of a policy: before that, residuals are large everywhere."""

    def improve(self, iterate: Iterate) -> bool:
        if self._evaluated and iterate.stalled <= PATIENCE:
            improve_locally(iterate)
        self._evaluated = True
        return super().improve(iterate)


def improve_locally(iterate: Iterate) -> None:
    """Policy iteration in a window, if one holds all large residuals; residuals are kept right."""
    mdp, values, policy, residual = (
        iterate.mdp,
        iterate.values,
        iterate.policy,
        iterate.residual,
    )
    active = np.flatnonzero(residual > residual.min() + _ACTIVE * np.ptp(residual))
    first, last = max(int(active[0]) - _MARGIN, 0), min(int(active[-1]) + _MARGIN, mdp.n_states)
    if last - first > max(_SHARE * mdp.n_states, 2 * _MARGIN):
        return
    _, *table = compiled_table(mdp)

    def back_up(start: int, end: int) -> int:
        block = np.array([max(start, 0), min(end, mdp.n_states)])
        given = iterate.rewards, values, mdp.discount, policy, residual
        return int(kernels.backup(block, *table, *given))

    window = slice(first, last)
    pairs = np.arange(first, last) * mdp.n_actions
    for _ in range(_IMPROVEMENTS):
        rows = pairs + policy[window]
        system = Banded(mdp.transitions, rows, mdp.bandwidths, first, mdp.discount)
        values[window] += system.solve_directly(residual[window])
        if back_up(first, last) == 0:
            break
    below, above = mdp.bandwidths
    back_up(first - above, last + below)
    iterate.chain = None
