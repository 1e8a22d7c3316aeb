"""Reading the transition table of a Gymnasium environment.

The toy-text environments hold their dynamics in `env.unwrapped.P`, where `P[s][a]` is a list of
`(probability, next state, reward, terminated)`, and where they start in
`env.unwrapped.initial_state_distrib`. A state may have fewer actions than others: what is missing
in `P[s]`, or has no outcomes, is an action that the state does not have.

A state that is entered by a terminated transition becomes absorbing with reward 0. Should the
same state also be visited while an episode goes on, terminated transitions into it lead to one
added absorbing state, the last, instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from mvpi._checks import shown
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular.masks import Mask


class Table(NamedTuple):
    """What an MDP is made of; the arguments of `MDP.from_rows` but for the discount."""

    transitions: csr_array
    rewards: Array
    start: Array
    allowed: Mask


class _Outcome(NamedTuple):
    probability: float
    state: int
    reward: float
    terminated: bool


Outcomes = list[list[list[_Outcome]]]
"""`outcomes[s][a]`"""


def read_table(env: Any) -> Table:
    """The transitions, rewards and start distribution of an environment, or of its id."""
    name, unwrapped = _opened(env)
    table = getattr(unwrapped, "P", None)
    if not isinstance(table, Mapping) or not table:
        raise InputError(
            f"{name} does not expose a transition table P, so there is no exact MDP of it: build "
            "an mvpi.MDP from arrays"
        )
    outcomes = _outcomes(name, table)
    try:
        start = np.asarray(getattr(unwrapped, "initial_state_distrib", None), dtype=np.float64)
    except (TypeError, ValueError):
        start = np.empty(0)
    if start.shape != (len(outcomes),):
        raise InputError(
            f"{name} does not expose initial_state_distrib, one probability for each of its "
            f"{len(outcomes)} states: build an mvpi.MDP from arrays"
        )
    ended = {o.state for actions in outcomes for row in actions for o in row if o.terminated}
    both = ended & _visited(outcomes, start)
    return _rows(outcomes, start, absorbing=ended - both, redirected=both)


def _opened(env: Any) -> tuple[str, Any]:
    if not isinstance(env, str):
        if not hasattr(env, "unwrapped"):
            raise InputError(
                f"env must be an environment id or a gymnasium.Env, got {type(env).__name__}"
            )
        return type(env.unwrapped).__name__, env.unwrapped
    import gymnasium

    try:
        with warnings.catch_warnings():
            # An outdated version has the same kind of table; whether it exists is what matters.
            warnings.simplefilter("ignore", DeprecationWarning)
            made = gymnasium.make(env)
    except Exception as error:  # noqa: BLE001 - whatever the maker of an environment raises
        from mvpi.envs.task import why_not_made

        raise InputError(f"cannot make {shown(env)}: {why_not_made(env, error)[:300]}") from None
    made.close()
    return env, made.unwrapped


def _outcomes(name: str, table: Mapping[Any, Any]) -> Outcomes:
    """The table as nested lists, every `P[s][a]` checked for its form."""
    states = range(len(table))
    try:
        rows = [table[s] for s in states]
        rows = [row if isinstance(row, Mapping) else dict(enumerate(row)) for row in rows]
        actions = set().union(*rows)
        if actions != set(range(len(actions))):
            raise ValueError(f"actions {shown(sorted(actions))}")
        outcomes = [
            [
                [_Outcome(float(p), int(t), float(r), bool(end)) for p, t, r, end in row.get(a, ())]
                for a in range(len(actions))
            ]
            for row in rows
        ]
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{name} has a table P that is not P[s][a] = [(probability, next state, reward, "
            f"terminated), ...] for all states and actions counted from 0 ({error!r})"
        ) from None
    if not outcomes[0]:
        raise InputError(f"{name} has a table P without actions: build an mvpi.MDP from arrays")
    for s, rows in enumerate(outcomes):
        for a, row in enumerate(rows):
            for outcome in row:
                if not 0 <= outcome.state < len(outcomes):
                    raise InputError(
                        f"{name} has a next state {outcome.state} in P[{s}][{a}], which must be "
                        f"from 0 to {len(outcomes) - 1}"
                    )
    return outcomes


def _visited(outcomes: Outcomes, start: Array) -> set[int]:
    """States that can be visited while an episode goes on."""
    seen = {int(s) for s in np.flatnonzero(start)}
    waiting = list(seen)
    while waiting:
        for row in outcomes[waiting.pop()]:
            for outcome in row:
                if not outcome.terminated and outcome.probability > 0:
                    if outcome.state not in seen:
                        waiting.append(outcome.state)
                    seen.add(outcome.state)
    return seen


def _rows(outcomes: Outcomes, start: Array, absorbing: set[int], redirected: set[int]) -> Table:
    n_actions = len(outcomes[0])
    n_states = len(outcomes) + bool(redirected)
    indptr, columns = [0], list[int]()
    probabilities, rewards = list[float](), list[float]()
    for s in range(n_states):
        final = s in absorbing or s == len(outcomes)
        stay = [[_Outcome(1.0, s, 0.0, False)]] * n_actions
        for row in stay if final else outcomes[s]:
            merged: dict[tuple[int, float], float] = {}
            for outcome in row:
                ends_early = outcome.terminated and outcome.state in redirected
                key = (len(outcomes) if ends_early else outcome.state, outcome.reward)
                merged[key] = merged.get(key, 0.0) + outcome.probability
            for (state, reward), probability in merged.items():
                columns.append(state)
                rewards.append(reward)
                probabilities.append(probability)
            indptr.append(len(columns))
    table = csr_array(
        (np.array(probabilities), np.array(columns), np.array(indptr)),
        shape=(n_states * n_actions, n_states),
    )
    allowed = (np.diff(table.indptr) > 0).reshape(n_states, n_actions)
    start = np.append(start, 0.0) if redirected else start
    return Table(table, np.array(rewards), start, allowed)
