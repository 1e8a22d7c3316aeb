"""The part of an MDP that can be reached from its start.

Only that part matters for a discounted problem. Solvers work on it, so that unreachable states
cost no time and their rewards, however large, cause no rounding errors; afterwards a policy takes
the first allowed action in the states that were left out. At discount 1 the start does not matter
and no state is left out.

The core has no mask. Its action `k` is the `k`-th one that a state has; states with fewer actions
than others repeat one of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._checks import check_kind
from mvpi.tabular._matrices import reached_from
from mvpi.tabular._stored_mdp import Policy
from mvpi.tabular.masks import some_rows, stand_ins
from mvpi.tabular.mdp import MDP

if TYPE_CHECKING:
    from mvpi.tabular.solution import Solution


@dataclass(frozen=True, eq=False)
class Core:
    """An MDP without the states that cannot be reached and the actions that are not allowed."""

    mdp: MDP
    whole: MDP
    states: npt.NDArray[Any]
    """The numbers that the states of the core have in the whole MDP."""
    actions: npt.NDArray[Any] | None = None
    """By state and action of the core, the number of the action in the whole MDP; None when all
    states have all actions."""

    def restricted(self, policy: Policy) -> Policy:
        """A policy for the whole MDP as one for the core."""
        core: Policy = policy[self.states]
        if self.actions is None:
            return core
        allowed = self.whole.allowed[self.states]
        if core.ndim == 1:
            place = np.cumsum(allowed, axis=1) - 1
            return np.take_along_axis(place, core[:, None], axis=1)[:, 0]
        own = np.arange(self.mdp.n_actions) < allowed.sum(axis=1, keepdims=True)
        return np.where(own, np.take_along_axis(core, self.actions, axis=1), 0.0)

    def lifted(self, policy: Policy) -> Policy:
        """A policy for the core as one for the whole MDP, with allowed actions only."""
        whole: Policy = np.argmax(self.whole.allowed, axis=1).astype(np.int64)
        if policy.ndim == 2:
            whole = self.whole.pairs_of(whole)
        whole[self.states] = self.whole_actions(np.arange(len(policy)), policy)
        whole.flags.writeable = False
        return whole

    def whole_actions(self, states: npt.NDArray[Any], policy: Policy) -> Policy:
        """What a policy does in states of the core, a row each, in the actions of the whole MDP."""
        if self.actions is None:
            return policy.copy()
        if policy.ndim == 1:
            chosen: Policy = self.actions[states, policy]
            return chosen
        whole = np.zeros((len(states), self.whole.n_actions))
        np.add.at(whole, (np.arange(len(states))[:, None], self.actions[states]), policy)
        return whole

    def answer(self, solution: Solution) -> Solution:
        """A solution for the core as one for the whole MDP, with its labels."""
        return solution.having(policy=self.lifted(solution.policy), labels=self.whole.labels)


def reachable_core(mdp: MDP) -> Core:
    """The states of `mdp` that some sequence of actions leads to."""
    check_kind(mdp, MDP, "mdp", "an mvpi.MDP, such as MDP(transitions, rewards)")
    n, a = mdp.shape
    starts = np.flatnonzero(mdp.start)
    found = np.arange(n)
    if mdp.discount < 1.0 and len(starts) < n:
        found = reached_from(mdp.any_action, starts)
    if len(found) == n and not mdp.masked:
        return Core(mdp, mdp, found)
    actions = np.broadcast_to(np.arange(a), (len(found), a))
    own = None
    if mdp.masked:
        allowed = mdp.allowed[found]
        most = int(allowed.sum(axis=1).max())
        actions = np.argsort(~allowed, axis=1, kind="stable")[:, :most]
        lengths = np.diff(mdp.transitions.indptr).reshape(n, a)[found]
        own = np.take_along_axis(stand_ins(allowed, lengths), actions, axis=1)
    rewards = mdp.rewards
    if rewards.ndim == 2:
        rewards = np.take_along_axis(rewards[found], actions, axis=1)
    table, rewards = some_rows(mdp.transitions, rewards, (found[:, None] * a + actions).ravel())
    number = np.full(n, -1)
    number[found] = np.arange(len(found))
    table = csr_array(
        (table.data, number[table.indices], table.indptr), shape=(table.shape[0], len(found))
    )
    names = [mdp.state_labels[s] for s in found.tolist()] if mdp.labels.given else None
    core = MDP.from_rows(table, rewards, mdp.discount, mdp.start[found], state_labels=names)
    return Core(core, mdp, found, own)
