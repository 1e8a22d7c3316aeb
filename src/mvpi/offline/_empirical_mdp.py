"""Finite data as a finite MDP: every outcome is as likely as it is counted in the data.

    p(s', r | s, a) = count(s, a, r, s') / count(s, a)

Rewards stay outcomes of their own, because `E[augment(r, y) | s, a]` needs their distribution, not
their mean. What the data leave open is settled as follows.

    an episode that is over          reward 0 for ever; at discount 1 the next step is at a start
    a state without data             takes no time: the next step is at a start
    starts without data              are left out
    states that no action reaches    are left out: at discount 1 they would count
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.offline._state_action_chain import several_closed_classes
from mvpi.offline._state_action_pairs import distinct
from mvpi.offline.dataset import Dataset
from mvpi.tabular._matrices import reached_from
from mvpi.tabular._stored_mdp import Policy
from mvpi.tabular.masks import some_rows
from mvpi.tabular.mdp import MDP

_SMALLEST_DISCOUNT = float(np.finfo(np.float64).tiny)
"""In place of 0, which `MDP` does not take: all steps but the first weigh nothing."""


class EmpiricalMDP:
    """The MDP of finite data.

    Its states and actions have numbers of their own, because states may be out of reach and have
    different numbers of actions: `policy_in_data` and `policy_in_mdp` translate.
    """

    mdp: MDP

    def __init__(self, data: Dataset, discount: float) -> None:
        assert data.n_states is not None
        assert data.n_actions is not None
        self._known = np.zeros((data.n_states, data.n_actions), np.bool_)
        self._known[data.observations, data.actions] = True
        has_data = np.asarray(self._known.any(axis=1))
        start = _start(data, has_data)
        s, a, p, r, next_s = _outcomes(data, has_data, start, discount)
        graph = csr_array((p, (s, next_s)), (len(start), len(start)))
        self._states = reached_from(graph, np.flatnonzero(start))
        self._actions = _actions(self._known, self._states)
        number = np.zeros(len(start), np.int64)
        number[self._states] = np.arange(len(self._states))
        pairs = len(start) * data.n_actions
        count = np.bincount(s * data.n_actions + a, minlength=pairs)
        entries = (p, number[next_s], np.append(0, np.cumsum(count)))
        every = csr_array(entries, (pairs, len(self._states)))
        wanted = (self._states[:, None] * data.n_actions + self._actions).ravel()
        rows, rewards = some_rows(every, r, wanted)
        gamma = max(discount, _SMALLEST_DISCOUNT)
        self.mdp = MDP.from_rows(rows, rewards, gamma, start[self._states])
        if discount == 1.0 and len(self.mdp.closed_classes) > 1:
            raise several_closed_classes()

    def uniform_policy(self) -> Array:
        """All actions that the data have in a state alike; all actions if they have none."""
        choices = self._known | ~self._known.any(axis=1, keepdims=True)
        return np.asarray(choices / choices.sum(axis=1, keepdims=True))

    def policy_in_data(self, policy: Policy) -> Array:
        """`(S, A)` probabilities for the states of the data; uniform in those out of reach."""
        inside = self._states < len(self._known)
        states, actions = self._states[inside, None], self._actions[inside]
        table = self.uniform_policy()
        table[states] = 0.0
        np.add.at(table, (states, actions), self.mdp.pairs_of(policy)[inside])
        return table

    def policy_in_mdp(self, policy: Array) -> Array:
        """The same policy for the states of `mdp`."""
        after_the_end = np.eye(1, policy.shape[1])
        table = np.concatenate([policy, after_the_end])[self._states[:, None], self._actions]
        table[:, 1:] *= self._actions[:, 1:] != self._actions[:, :1]  # no action counts twice
        return np.asarray(table)


def _actions(known: npt.NDArray[np.bool_], states: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The actions that the data have in some states, in order; filled up with the first one."""
    at_the_end = np.eye(1, known.shape[1], dtype=np.bool_)
    there = np.concatenate([known, at_the_end])[states]
    width = int(there.sum(axis=1).max())
    order = np.argsort(~there, axis=1, kind="stable")[:, :width]
    return np.where(np.take_along_axis(there, order, 1), order, order[:, :1])


def _start(data: Dataset, has_data: npt.NDArray[np.bool_]) -> Array:
    """The distribution of the first state; the last entry is for the end of episodes."""
    counts = np.bincount(data.starts.astype(np.int64), minlength=len(has_data)) * has_data
    if not counts.any():
        raise InputError(
            f"the data have no transitions from any of the starts, such as state "
            f"{data.starts[0]}: nothing can be learned; give starts that the data have"
        )
    return np.append(counts / counts.sum(), 0.0)


def _outcomes(
    data: Dataset, has_data: npt.NDArray[np.bool_], start: Array, discount: float
) -> Iterator[npt.NDArray[Any]]:
    """State, action, probability, reward and next state of every outcome, in the order of pairs.

    The end of episodes is one more state.
    """
    end = len(has_data)
    s, a = data.observations.astype(np.int64), data.actions.astype(np.int64)
    over = data.terminations
    next_s = np.where(over, 0, data.next_observations).astype(np.int64)
    restarts = np.where(over, discount == 1.0, ~has_data[next_s])
    next_s = np.where(over, end, next_s)
    next_s[restarts] = -1
    one, count = distinct(s, a, next_s, data.rewards)
    s, a, r, next_s = (np.asarray(x)[one] for x in (s, a, data.rewards, next_s))
    pair = np.unique(s * (1 + int(a.max())) + a, return_inverse=True)[1]
    p = count / np.bincount(pair, count)[pair]

    anew, first = next_s < 0, np.flatnonzero(start)
    starts = np.tile(first, np.count_nonzero(anew))
    # With the next state of the data; with a start; and once more after the end of an episode.
    entries: tuple[tuple[Any, Any, Any], ...] = (
        (s, np.repeat(s[anew], len(first)), end),
        (a, np.repeat(a[anew], len(first)), 0),
        (p, np.repeat(p[anew], len(first)) * start[starts], 1.0),
        (r, np.repeat(r[anew], len(first)), 0.0),
        (next_s, starts, end),
    )
    columns = [np.concatenate([x[~anew], y, [last]]) for x, y, last in entries]
    order = np.lexsort((columns[4], columns[1], columns[0]))
    return (column[order] for column in columns)
