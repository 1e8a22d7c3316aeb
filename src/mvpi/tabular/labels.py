"""Names of the states and actions of an MDP.

A label is anything hashable that equals itself: a text, a number, a tuple of these. States and
actions without labels go by their numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_number, shown
from mvpi.errors import InputError

PolicyByLabel = dict[Hashable, Any]
"""State label to action label; of a randomised policy, to a dict of actions and probabilities."""

_PLAIN = (str, int, float, bool, type(None))
"""Kinds of labels that a file can hold, beside tuples of them."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of all states and actions, in the order of their numbers."""

    states: Sequence[Hashable]
    actions: Sequence[Hashable]

    @classmethod
    def checked(cls, states: Any, actions: Any, shape: tuple[int, int]) -> Labels:
        """The labels that a user gave, None for numbers, of an MDP with `shape` pairs."""
        return cls(
            range(shape[0]) if states is None else _checked(states, "state", shape[0]),
            range(shape[1]) if actions is None else _checked(actions, "action", shape[1]),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and actions, `(S, A)`."""
        return len(self.states), len(self.actions)

    @property
    def given(self) -> bool:
        """Whether states or actions have labels other than their numbers."""
        return not (isinstance(self.states, range) and isinstance(self.actions, range))

    @cached_property
    def state_numbers(self) -> dict[Hashable, int]:
        """The number of each state."""
        return {label: s for s, label in enumerate(self.states)}

    @cached_property
    def action_numbers(self) -> dict[Hashable, int]:
        """The number of each action."""
        return {label: a for a, label in enumerate(self.actions)}

    def state_number(self, label: Any) -> int:
        """The number of a state that a user named."""
        return self._number(label, "state", "state", self.state_numbers)

    def state(self, s: int) -> str:
        """State number `s` as a message shows it."""
        return shown(self.states[s])

    def action(self, a: int) -> str:
        """Action number `a` as a message shows it."""
        return shown(self.actions[a])

    def pair(self, pair: int) -> str:
        """Pair number `s * A + a` as a message shows it."""
        s, a = divmod(int(pair), len(self.actions))
        return f"state {self.state(s)}, action {self.action(a)}"

    def some_actions(self, numbers: Iterable[int]) -> str:
        """A few actions as a message lists them."""
        listed = [self.action(int(a)) for a in numbers]
        return ", ".join(listed[:5]) + (", ..." if len(listed) > 5 else "")

    def by_label(self, policy: npt.NDArray[Any]) -> PolicyByLabel:
        """A policy of `(S,)` actions or `(S, A)` probabilities as a dict."""
        if policy.shape == (len(self.states),):
            return {s: self.actions[a] for s, a in zip(self.states, policy.tolist(), strict=True)}
        if policy.shape == self.shape:
            return {
                s: {self.actions[a]: float(row[a]) for a in np.flatnonzero(row).tolist()}
                for s, row in zip(self.states, policy, strict=True)
            }
        raise InputError(
            f"a policy by label has an action, or probabilities of actions, for each of "
            f"{len(self.states)} states, got an array of shape {policy.shape}"
        )

    def to_numbers(self, policy: Mapping[Any, Any]) -> npt.NDArray[Any]:
        """The array of a policy that `by_label` could have returned."""
        for label in policy:
            self._number(label, "policy", "state", self.state_numbers)
        missing = [s for s, label in enumerate(self.states) if label not in policy]
        if missing:
            raise InputError(
                f"policy must have an action for every state, {self.state(missing[0])} has none"
            )
        chosen = [policy[label] for label in self.states]
        if not any(isinstance(choice, Mapping) for choice in chosen):
            return np.array([self._action_number(s, a) for s, a in enumerate(chosen)], np.int64)
        table = np.zeros(self.shape)
        for s, choice in enumerate(chosen):
            shares = choice.items() if isinstance(choice, Mapping) else [(choice, 1.0)]
            for action, share in shares:
                name = f"policy[{self.state(s)}][{shown(action)}]"
                table[s, self._action_number(s, action)] = check_number(share, name, at_least=0.0)
        return table

    def _action_number(self, s: int, label: Any) -> int:
        return self._number(label, f"policy[{self.state(s)}]", "action", self.action_numbers)

    def _number(self, label: Any, name: str, kind: str, numbers: dict[Hashable, int]) -> int:
        try:
            return numbers[label]
        except (KeyError, TypeError):
            known = ", ".join(shown(one) for one in list(numbers)[:5])
            more = ", ..." if len(numbers) > 5 else ""
            raise InputError(
                f"{name} must use the labels of {kind}s, {known}{more}, got {shown(label)}"
            ) from None


def plain(label: Any) -> Any:
    """A label without numpy's types: equal to it, with a shorter `repr`."""
    if isinstance(label, np.generic):
        return label.item()
    if type(label) is tuple:
        return tuple(plain(part) for part in label)
    return label


def listed(values: Any, name: str) -> list[Any]:
    """A column of labels as a list; the rows of an array of two dimensions become tuples."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list or an array, got {shown(values)}")
    if isinstance(values, np.ndarray):
        if values.ndim == 2:
            return [tuple(row) for row in values.tolist()]
        if values.ndim != 1:
            raise InputError(f"{name} must have one dimension, got shape {values.shape}")
    convert = getattr(values, "tolist", None)
    return list(convert()) if callable(convert) else list(values)


def unique(values: list[Any], name: str) -> dict[Hashable, None]:
    """The different labels of a column, in the order in which they first appear."""
    try:
        found: dict[Hashable, None] = dict.fromkeys(values)
    except TypeError:
        at = next(i for i, value in enumerate(values) if not _is_hashable(value))
        raise InputError(
            f"{name}[{at}] must be a label: a text, a number, a tuple of these or anything else "
            f"that is hashable, got {shown(values[at])}"
        ) from None
    for label in found:
        if label is None or (isinstance(label, float) and math.isnan(label)):
            raise InputError(f"{name} must not have missing entries, got {shown(label)}")
    return found


def _checked(labels: Any, kind: str, count: int) -> tuple[Hashable, ...]:
    name = f"{kind}_labels"
    values = listed(labels, name)
    if len(values) != count:
        raise InputError(f"{name} must be one for each of {count} {kind}s, got {len(values)}")
    if len(unique(values, name)) < count:
        seen: set[Hashable] = set()
        twice = next(v for v in values if v in seen or seen.add(v))  # type: ignore[func-returns-value]
        raise InputError(f"{name} must be different from each other, got {shown(twice)} twice")
    return tuple(plain(value) for value in values)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def to_json(labels: Sequence[Hashable], kind: str) -> npt.NDArray[Any]:
    """Labels as an array of no dimensions that holds a JSON list; tuples become lists."""
    for label in labels:
        if not _is_plain(label):
            raise InputError(
                f"a file holds labels that are texts, numbers or tuples of these, the {kind} "
                f"{shown(label)} is of type {type(label).__name__}: rename it"
            )
    return np.array(json.dumps(list(labels), separators=(",", ":")).encode("ascii"))


def from_array(array: npt.NDArray[Any], name: str) -> Any:
    """What `to_json` wrote, or a plain array of texts or numbers, as a list of labels."""
    if array.ndim == 0 and array.dtype.kind in "SU":
        text = array.item()
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(
                f"{name} must be an array, or a JSON list, got {shown(text)}"
            ) from None
        if not isinstance(values, list):
            raise InputError(f"{name} must be a JSON list, got {shown(values)}")
        return [_as_tuple(value) for value in values]
    if array.dtype.kind not in "iufU":
        raise InputError(f"{name} must be an array of texts or numbers, got {array.dtype}")
    return array


def _is_plain(label: Any) -> bool:
    if isinstance(label, tuple):
        return all(map(_is_plain, label))
    return type(label) in _PLAIN


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
