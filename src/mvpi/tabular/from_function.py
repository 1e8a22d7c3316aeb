"""The MDP of a function that lists the outcomes of an action, explored from the start states.

States are found breadth first, and numbered in the order in which they are found.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np

from mvpi._checks import check_count, check_flag, check_function, real_array, shown
from mvpi.errors import InputError
from mvpi.tabular.labels import Labels, listed, plain, unique
from mvpi.tabular.outcomes import Model, Outcomes, assemble, start_by_label

Outcome = tuple[float, float, Any]
"""Probability, reward, next state."""


def explore_outcomes(
    outcomes: Callable[[Any, Any], Iterable[Outcome]],
    actions: Callable[[Any], Iterable[Any]] | Iterable[Any],
    start: Any,
    *,
    absorbing: bool,
    max_states: int,
) -> Model:
    """The model of a function, with the states that can be reached in breadth-first order."""
    check_function(outcomes, "outcomes")
    actions_of = _actions_of(actions)
    absorbing, limit = check_flag(absorbing, "absorbing"), check_count(max_states, "max_states")
    shares = start_by_label(start)
    known = {plain(label): s for s, label in enumerate(shares)}
    names: dict[Hashable, int] = {}
    found: list[tuple[int, int, float, float, int]] = []
    waiting = list(known)

    def number_of(label: Any, name: str) -> int:
        """The number of a next state, a new one if it is new."""
        with suppress(KeyError, TypeError):
            return known[label]
        unique([label], f"the next state of {name}")
        if len(known) >= limit:
            raise InputError(
                f"more than max_states={limit} states can be reached, such as {shown(label)}: "
                "raise max_states, or let fewer states be different"
            )
        waiting.append(plain(label))
        return known.setdefault(waiting[-1], len(known))

    for s, state in enumerate(waiting):
        chosen = unique(listed(actions_of(state), f"actions({shown(state)})"), "actions")
        if not chosen and not absorbing:
            raise InputError(
                f"every state must have an action, actions({shown(state)}) has none: "
                "absorbing=True makes such a state one to stay in for ever, with reward 0"
            )
        for action in chosen:
            a = names.setdefault(plain(action), len(names))
            name = f"outcomes({shown(state)}, {shown(action)})"
            for probability, reward, after in _possible(outcomes(state, action), name):
                found.append((s, a, probability, reward, number_of(after, name)))
    if not found:
        raise InputError("actions must have an action in some state, got none in all of them")
    labels = Labels(tuple(known), tuple(names))
    distribution = np.zeros(len(known))
    distribution[: len(shares)] = list(shares.values())
    state_, action_, probability_, reward_, next_ = zip(*found, strict=True)
    numbered = Outcomes(
        np.array(state_),
        np.array(action_),
        real_array(probability_, "the probabilities of outcomes"),
        real_array(reward_, "the rewards of outcomes"),
        np.array(next_),
    )
    return assemble(numbered, labels, distribution, normalise=None)


def _actions_of(actions: Any) -> Callable[[Any], Any]:
    if callable(actions):
        return check_function(actions, "actions")
    fixed = list(unique(listed(actions, "actions"), "actions"))
    if not fixed:
        raise InputError("actions must be a function of the state, or at least one action, got []")
    return lambda _: fixed


def _possible(result: Any, name: str) -> Iterator[Outcome]:
    """The outcomes that a function returned, without those of probability 0."""
    form = "must be an iterable of (probability, reward, next state)"
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise InputError(f"{name} {form}, got {shown(result)}")
    nothing = True
    for outcome in result:
        if not isinstance(outcome, tuple | list) or len(outcome) != 3:
            raise InputError(f"{name} {form}, got {shown(outcome)}")
        if not (isinstance(outcome[0], Real) and outcome[0] == 0):
            nothing = False
            yield outcome  # type: ignore[misc]
    if nothing:
        raise InputError(
            f"{name} must have an outcome of probability > 0, got none: leave an action that the "
            "state does not have out of actions"
        )
