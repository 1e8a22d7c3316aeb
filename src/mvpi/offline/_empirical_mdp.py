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

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.offline._state_action_chain import several_closed_classes
from mvpi.offline.dataset import Dataset
from mvpi.tabular._matrices import reached_from
from mvpi.tabular._stored_mdp import Policy
from mvpi.tabular.mdp import MDP

Indices = npt.NDArray[np.int64]

_SMALLEST_DISCOUNT = float(np.finfo(np.float64).tiny)
"""In place of 0, which `MDP` does not take: all steps but the first weigh nothing."""


class _Outcomes(NamedTuple):
    """Distinct outcomes of states and actions, in the order of these."""

    state: Indices
    action: Indices
    probability: Array
    reward: Array
    next_state: Indices


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
        outcomes = _counted(data, has_data, start, discount)
        steps = (outcomes.state, outcomes.next_state)
        graph = csr_array((outcomes.probability, steps), (len(start), len(start)))
        self._states = reached_from(graph, np.flatnonzero(start))
        self._actions = _actions(self._known, self._states)
        self.mdp = _mdp(outcomes, self._states, self._actions, discount, start)
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


def _start(data: Dataset, has_data: npt.NDArray[np.bool_]) -> Array:
    """The distribution of the first state; the last entry is for the end of episodes."""
    counts = np.bincount(data.starts.astype(np.int64), minlength=len(has_data)) * has_data
    if not counts.any():
        raise InputError(
            f"the data have no transitions from any of the starts, such as state "
            f"{data.starts[0]}: nothing can be learned; give starts that the data have"
        )
    return np.append(counts / counts.sum(), 0.0)


def _counted(
    data: Dataset, has_data: npt.NDArray[np.bool_], start: Array, discount: float
) -> _Outcomes:
    """What followed every state and action; the end of episodes is one more state."""
    end = len(has_data)
    s, a = data.observations.astype(np.int64), data.actions.astype(np.int64)
    over = data.terminations
    next_s = np.where(over, 0, data.next_observations).astype(np.int64)
    restarts = np.where(over, discount == 1.0, ~has_data[next_s])
    next_s = np.where(over, end, next_s)
    next_s[restarts] = -1
    order = np.lexsort((data.rewards, next_s, a, s))
    columns = [np.asarray(x)[order] for x in (s, a, data.rewards, next_s)]
    new = _changes(*columns)
    s, a, r, next_s = (x[new] for x in columns)
    count = np.diff(np.append(np.flatnonzero(new), len(order)))
    pair = np.cumsum(_changes(s, a)) - 1
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
    s, a, p, r, next_s = (np.concatenate([x[~anew], y, [last]]) for x, y, last in entries)
    order = np.lexsort((next_s, a, s))
    return _Outcomes(s[order], a[order], p[order], r[order], next_s[order])


def _changes(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which rows differ from the one before; the first one does."""
    changes = np.ones(len(columns[0]), np.bool_)
    changes[1:] = np.any([x[1:] != x[:-1] for x in columns], axis=0)
    return changes


def _actions(known: npt.NDArray[np.bool_], states: Indices) -> Indices:
    """The actions that the data have in some states, in order; filled up with the first one."""
    at_the_end = np.eye(1, known.shape[1], dtype=np.bool_)
    there = np.concatenate([known, at_the_end])[states]
    width = int(there.sum(axis=1).max())
    order = np.argsort(~there, axis=1, kind="stable")[:, :width]
    return np.where(np.take_along_axis(there, order, 1), order, order[:, :1])


def _mdp(
    outcomes: _Outcomes, states: Indices, actions: Indices, discount: float, start: Array
) -> MDP:
    """The MDP of these states and actions, with the outcomes of every pair as a row."""
    per_state = 1 + int(outcomes.action.max())
    pair = outcomes.state * per_state + outcomes.action
    wanted = (states[:, None] * per_state + actions).ravel()
    begin, stop = (np.searchsorted(pair, wanted, side) for side in ("left", "right"))
    indptr = np.append(0, np.cumsum(stop - begin))
    entry = np.repeat(begin - indptr[:-1], stop - begin) + np.arange(indptr[-1])
    number = np.zeros(len(start), np.int64)
    number[states] = np.arange(len(states))
    matrix = csr_array(
        (outcomes.probability[entry], number[outcomes.next_state[entry]], indptr),
        (len(wanted), len(states)),
    )
    gamma = max(discount, _SMALLEST_DISCOUNT)
    return MDP.from_rows(matrix, outcomes.reward[entry], gamma, start[states])
