"""The part of an MDP that can be reached from its start.

Only that part matters for a discounted problem. Solvers work on it, so that states nobody can
visit cost nothing and their rewards, however large, blur nothing; afterwards a policy is given
action 0 in the states that were left out. At discount 1 the start does not matter and nothing is
left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._checks import check_kind
from mvpi.tabular.chain import reached_from
from mvpi.tabular.mdp import MDP, Policy


@dataclass(frozen=True, eq=False)
class Core:
    """An MDP without the states that cannot be reached."""

    mdp: MDP
    states: npt.NDArray[Any]
    """The numbers these states had in the whole MDP."""
    size: int
    """Number of states of the whole MDP."""

    def restricted(self, policy: Policy) -> Policy:
        """A policy for the whole MDP as one for the core."""
        core: Policy = policy[self.states]
        return core

    def lifted(self, policy: Policy) -> Policy:
        """A policy for the core as one for the whole MDP."""
        whole = np.zeros((self.size, *policy.shape[1:]), dtype=policy.dtype)
        if policy.ndim == 2:
            whole[:, 0] = 1.0
        whole[self.states] = policy
        whole.flags.writeable = False
        return whole


def reachable_core(mdp: MDP) -> Core:
    """The states of `mdp` that some sequence of actions leads to."""
    check_kind(mdp, MDP, "mdp", "an mvpi.MDP, such as MDP(transitions, rewards)")
    n, a = mdp.n_states, mdp.n_actions
    starts = np.flatnonzero(mdp.start)
    if mdp.discount == 1.0 or len(starts) == n:
        return Core(mdp, np.arange(n), n)
    found = reached_from(mdp.any_action, starts)
    if len(found) == n:
        return Core(mdp, found, n)
    pairs = (found[:, None] * a + np.arange(a)).ravel()
    table = mdp.transitions[pairs]
    number = np.full(n, -1)
    number[found] = np.arange(len(found))
    table = csr_array(
        (table.data, number[table.indices], table.indptr), shape=(len(pairs), len(found))
    )
    if mdp.rewards.ndim == 2:
        rewards = mdp.rewards[found]
    else:
        per_row = np.diff(mdp.transitions.indptr)
        rewards = mdp.rewards[np.repeat(np.isin(np.arange(n * a), pairs), per_row)]
    core = MDP.from_rows(table, rewards, mdp.discount, mdp.start[found])
    return Core(core, found, n)
