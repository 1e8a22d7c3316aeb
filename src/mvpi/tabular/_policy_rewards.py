"""The rewards of one policy, read without those of all other actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.tabular.mdp import MDP


class PolicyRewards:
    """What an MDP pays for the actions of a deterministic policy, `(S,)`."""

    def __init__(self, mdp: MDP, policy: npt.NDArray[np.int64]):
        self._lengths: npt.NDArray[np.int64] | None = None
        rows = np.arange(mdp.n_states) * mdp.n_actions + policy
        if mdp.rewards.ndim == 2:
            self._paid = mdp.rewards.ravel()[rows]
            return
        first = mdp.transitions.indptr[rows].astype(np.int64)
        self._lengths = mdp.transitions.indptr[rows + 1] - first
        self._starts = np.cumsum(self._lengths) - self._lengths
        entries = np.arange(self._lengths.sum()) + np.repeat(first - self._starts, self._lengths)
        self._paid, self._chances = mdp.rewards[entries], mdp.transitions.data[entries]

    def expected(self, function: Callable[[Array], Array]) -> Array:
        """`E[function(r) | s]`, `(S,)`."""
        values = function(self._paid)
        if self._lengths is None:
            return values
        return cast(Array, np.add.reduceat(self._chances * values, self._starts))

    def paid_in(self, states: npt.NDArray[np.bool_]) -> Array:
        """All rewards that can be paid in some states, given as a mask."""
        mask = states if self._lengths is None else np.repeat(states, self._lengths)
        return cast(Array, self._paid[mask])
