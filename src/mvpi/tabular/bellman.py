"""The optimality operator `T v = max over actions of r + g P v`, and what improves values by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi.tabular.chain import DIRECT_UP_TO, middle, moves
from mvpi.tabular.mdp import MDP

Array = npt.NDArray[np.float64]
Actions = npt.NDArray[np.int64]

_BUSY = 1e-3
"""A state is improved locally if its residual is more than this share of the span."""
_MARGIN = 200
"""States on both sides of the busy ones that take part."""
_SHARE = 0.2
"""Largest share of all states that is still local."""
_IMPROVEMENTS = 50
_EPS = float(np.finfo(np.float64).eps)
_ROUNDINGS = 8
"""Units of rounding in the residual of a state of a small MDP."""


def backup(mdp: MDP, rewards: Array, values: Array, policy: Actions, residual: Array) -> int:
    """`residual = T v - v`, greedy actions into `policy`; how many actions changed."""
    if mdp.n_states > DIRECT_UP_TO:
        from mvpi.tabular import kernels

        table_arrays = _compiled_table(mdp)
        return int(kernels.backup(*table_arrays, rewards, values, mdp.discount, policy, residual))
    gains, _ = _gains(mdp, rewards, values)
    states = np.arange(mdp.n_states)
    best = gains.max(axis=1)
    better = best > gains[states, policy]
    policy[better] = gains[better].argmax(axis=1)
    residual[:] = best
    return int(np.count_nonzero(better))


def _gains(mdp: MDP, rewards: Array, values: Array) -> tuple[Array, Array]:
    """`r + g P v - v` of each pair, and how far rounding can put that off."""
    drift, size = (part.reshape(rewards.shape) for part in moves(mdp.transitions, values))
    rest = (1.0 - mdp.discount) * values[:, None]
    terms = np.abs(rewards) + np.abs(rest) + mdp.discount * size
    return rewards + (mdp.discount * drift - rest), _ROUNDINGS * _EPS * terms


def rounding(mdp: MDP, rewards: Array, values: Array, policy: Actions) -> Array:
    """How far rounding can put off the residual of each state."""
    states = np.arange(mdp.n_states)
    if mdp.n_states > DIRECT_UP_TO:
        return 8 * _EPS * np.maximum(np.abs(rewards[states, policy]), np.abs(values))
    _, noise = _gains(mdp, rewards, values)
    found: Array = noise[states, policy]
    return found


def upper_residual(mdp: MDP, rewards: Array, values: Array, policy: Actions) -> Array:
    """What `T v - v` is at most, rounding included."""
    if mdp.n_states <= DIRECT_UP_TO:
        gains, noise = _gains(mdp, rewards, values)
        highest: Array = (gains + noise).max(axis=1)
        return highest
    residual = np.empty_like(values)
    backup(mdp, rewards, values, policy.copy(), residual)
    return residual + rounding(mdp, rewards, values, policy)


def evaluation_steps(mdp: MDP, policy: Actions, residual: Array, steps: int) -> Array:
    """What so many steps of evaluating a policy add to values that have this residual.

    What all residuals have in common is the same in all states after any step, so it is added up
    apart: steps in single precision need their digits for the differences.
    """
    from mvpi.tabular.linear import some_steps

    rows = np.arange(mdp.n_states) * mdp.n_actions + policy
    shared = middle(residual)
    steps_sum = some_steps(mdp.transitions, rows, mdp.discount, residual - shared, steps)
    total: Array = steps_sum.astype(np.float64)
    total += shared * float((mdp.discount ** np.arange(steps + 1)).sum())
    return total


def pessimistic_values(mdp: MDP, rewards: Array) -> tuple[Array, bool]:
    """Values to start from, and whether news of something good is a long way from most states.

    They are the worst possible, improved until most states know of something better, as long as
    those that do at least double. The first improvement, of values which are all the same, needs
    no transitions.
    """
    worst = float(rewards.min()) / (1.0 - mdp.discount)
    v: Array = rewards.max(axis=1) + mdp.discount * worst
    actions, residual = np.zeros(mdp.n_states, np.int64), np.empty(mdp.n_states)
    before, aware = 0, _count_above(worst, v)
    while 2 * before < aware < 0.5 * mdp.n_states:
        backup(mdp, rewards, v, actions, residual)
        v += residual
        before, aware = aware, _count_above(worst, v)
    return v, 0 < aware < 0.5 * mdp.n_states


def _count_above(limit: float, values: Array) -> int:
    return int(np.count_nonzero(values > limit + 1e-9 * abs(limit)))


def spread_from_best(mdp: MDP, rewards: Array, values: Array) -> Array:
    """`values`, improved in a wave from the best states to those that are a long way off."""
    from mvpi.tabular.waves import distances

    best = np.flatnonzero(values == values.max())
    return _spread(mdp, rewards, values, distances(mdp.transitions, best))


def spread_along(mdp: MDP, rewards: Array, values: Array, policy: Actions) -> Array:
    """`values`, improved in a wave from where a policy leads to where that is a long way off."""
    from mvpi.tabular.waves import depths

    return _spread(mdp, rewards, values, depths(mdp.policy_matrix(policy)))


def _spread(mdp: MDP, rewards: Array, values: Array, levels: npt.NDArray[np.int64]) -> Array:
    from mvpi.tabular.waves import Wave

    return Wave(mdp.transitions, mdp.discount, levels).run(rewards, values)


def _compiled_table(mdp: MDP) -> tuple[npt.NDArray[Any], ...]:
    """The blocks and the transition table as the kernels take them."""
    from mvpi.tabular import kernels

    table = mdp.transitions
    indptr, indices = kernels.unsigned(table.indptr), kernels.unsigned(table.indices)
    return kernels.partition(mdp.n_states), indptr, indices, table.data


def is_local(mdp: MDP) -> bool:
    """Whether all transitions lead to neighbouring states, so that policies can improve locally."""
    from mvpi.tabular.linear import is_narrow

    return mdp.n_states > DIRECT_UP_TO and mdp.discount < 1.0 and is_narrow(mdp.bandwidths)


def improve_locally(
    mdp: MDP, rewards: Array, values: Array, policy: Actions, residual: Array
) -> None:
    """Policy iteration where improvements are possible, if that is in a few neighbouring states.

    The values of all other states are left as they are, their residuals are kept up to date.
    """
    from mvpi.tabular import kernels
    from mvpi.tabular.linear import Banded

    busy = np.flatnonzero(residual > residual.min() + _BUSY * np.ptp(residual))
    first, last = max(int(busy[0]) - _MARGIN, 0), min(int(busy[-1]) + _MARGIN, mdp.n_states)
    if last - first > _SHARE * mdp.n_states:
        return
    _, *table = _compiled_table(mdp)

    def improve(start: int, end: int) -> int:
        block = np.array([max(start, 0), min(end, mdp.n_states)])
        changed = kernels.backup(block, *table, rewards, values, mdp.discount, policy, residual)
        return int(changed)

    inside = slice(first, last)
    pairs = np.arange(first, last) * mdp.n_actions
    for _ in range(_IMPROVEMENTS):
        rows = pairs + policy[inside]
        system = Banded(mdp.transitions, rows, mdp.bandwidths, first, mdp.discount)
        values[inside] += system.solve_directly(residual[inside])
        if improve(first, last) == 0:
            break
    below, above = mdp.bandwidths
    improve(first - above, last + below)
