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
from mvpi.tabular.outcomes import table_of

Table = tuple[csr_array, Array, Array, Mask]
"""Transitions, rewards, start and mask: the arguments of `MDP.from_rows` but for the discount."""


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
    """The table, with one more state at its end if some transitions are redirected to it."""
    last, n_actions = len(outcomes), len(outcomes[0])
    if redirected:
        outcomes, start = [*outcomes, [[]] * n_actions], np.append(start, 0.0)
    found: list[tuple[int, int, float, float]] = []
    for s, rows in enumerate(outcomes):
        stay = [_Outcome(1.0, s, 0.0, False)] if s in absorbing or s == last else None
        for a, row in enumerate(rows):
            for outcome in stay or row:
                ends_early = outcome.terminated and outcome.state in redirected
                after = last if ends_early else outcome.state
                found.append((s * n_actions + a, after, outcome.reward, outcome.probability))
    shape = len(outcomes), n_actions
    pairs, after_, rewards, chances = map(np.array, zip(*found, strict=True))
    table, rewards = table_of(pairs, after_, rewards, chances, shape)
    return table, rewards, start, (np.diff(table.indptr) > 0).reshape(shape)
