"""The rewards of one policy, read without those of all other actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.tabular.mdp import MDP


class PolicyRewards:
    """What an MDP pays for the actions of a deterministic policy, `(S,)`."""

    def __init__(self, mdp: MDP, policy: npt.NDArray[np.int64], matrix: csr_array):
        """`matrix` is `mdp.policy_matrix(policy)`."""
        self._lengths: npt.NDArray[np.int64] | None = None
        rows = np.arange(mdp.n_states) * mdp.n_actions + policy
        if mdp.rewards.ndim == 2:
            self._paid: Array = mdp.rewards.ravel()[rows]
            return
        self._lengths, self._starts = np.diff(matrix.indptr), matrix.indptr[:-1]
        table = mdp.transitions
        rewards = csr_array((mdp.rewards, table.indices, table.indptr), table.shape)
        self._paid, self._chances = rewards[rows].data, matrix.data

    def expected(self, function: Callable[[Array], Array]) -> Array:
        """`E[function(r) | s]`, `(S,)`."""
        values = function(self._paid)
        if self._lengths is None:
            return values
        return cast(Array, np.add.reduceat(self._chances * values, self._starts))

    def paid_in(self, states: npt.NDArray[np.bool_]) -> Array:
        """All rewards that can be paid in some states, given as a mask."""
        if states.all():
            return self._paid
        mask = states if self._lengths is None else np.repeat(states, self._lengths)
        return self._paid[mask]
