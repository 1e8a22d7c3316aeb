"""Backups: the optimality operator `T v = max over actions of r + g P v`, and its rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.tabular._matrices import drifts
from mvpi.tabular.chain import DIRECT_UP_TO
from mvpi.tabular.mdp import MDP

Actions = npt.NDArray[np.int64]

_EPS = float(np.finfo(np.float64).eps)
_ROUNDINGS = 8
"""Rounding error of a residual of a small MDP, in machine epsilons."""


def backup(mdp: MDP, rewards: Array, values: Array, policy: Actions, residual: Array) -> int:
    """`residual = T v - v`, greedy actions into `policy`; how many actions changed."""
    if mdp.n_states > DIRECT_UP_TO:
        from mvpi.tabular._engines import kernels

        table_arrays = compiled_table(mdp)
        return int(kernels.backup(*table_arrays, rewards, values, mdp.discount, policy, residual))
    gains, _ = _gains(mdp, rewards, values)
    states = np.arange(mdp.n_states)
    best = gains.max(axis=1)
    better = best > gains[states, policy]
    policy[better] = gains[better].argmax(axis=1)
    residual[:] = best
    return int(np.count_nonzero(better))


def _gains(mdp: MDP, rewards: Array, values: Array) -> tuple[Array, Array]:
    """`r + g P v - v` of each pair, and its rounding error."""
    drift, size = (part.reshape(rewards.shape) for part in drifts(mdp.transitions, values))
    rest = (1.0 - mdp.discount) * values[:, None]
    terms = np.abs(rewards) + np.abs(rest) + mdp.discount * size
    return rewards + (mdp.discount * drift - rest), _ROUNDINGS * _EPS * terms


def rounding(mdp: MDP, rewards: Array, values: Array, policy: Actions) -> Array:
    """The rounding error of the residual of each state."""
    states = np.arange(mdp.n_states)
    if mdp.n_states > DIRECT_UP_TO:
        return 8 * _EPS * np.maximum(np.abs(rewards[states, policy]), np.abs(values))
    _, noise = _gains(mdp, rewards, values)
    found: Array = noise[states, policy]
    return found


def upper_residual(mdp: MDP, rewards: Array, values: Array, policy: Actions) -> Array:
    """An upper bound on `T v - v`, rounding included."""
    if mdp.n_states <= DIRECT_UP_TO:
        gains, noise = _gains(mdp, rewards, values)
        highest: Array = (gains + noise).max(axis=1)
        return highest
    residual = np.empty_like(values)
    backup(mdp, rewards, values, policy.copy(), residual)
    return residual + rounding(mdp, rewards, values, policy)


def compiled_table(mdp: MDP) -> tuple[npt.NDArray[Any], ...]:
    """The blocks and the transition table as the kernels take them."""
    from mvpi.tabular._engines import kernels

    table = mdp.transitions
    indptr, indices = kernels.unsigned(table.indptr), kernels.unsigned(table.indices)
    return kernels.partition(mdp.n_states), indptr, indices, table.data
