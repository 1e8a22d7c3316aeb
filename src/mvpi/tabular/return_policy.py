"""A policy that depends on the time and the return so far."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_kind, check_number, shown
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular.mdp import MDP

_SAME = 1e-6
"""Tolerance of a lookup, as a share of the largest return."""


class ReturnTable(NamedTuple):
    """The decisions at one time, a row for every pair of a state and a return so far."""

    states: npt.NDArray[np.int64]
    """Numbers of the states, increasing."""
    returns: Array
    """Returns so far; of one state, increasing."""
    actions: npt.NDArray[Any]
    """Numbers of the actions; of a randomised policy, their probabilities, a column each."""


class ReturnPolicy:
    """An action for every reachable time, state and return so far.

    Called with these it returns the action, by its label:

        policy(state, time, return_so_far)

    The return so far at time `t` is `sum over k < t of discount^k r_k`; `add` keeps count of it.
    """

    horizon: int
    """The number of steps."""
    is_randomised: bool
    """Whether actions are drawn."""
    return_step: float | None
    """Rewards were rounded to multiples of this; None if they were not."""
    error: float
    """Largest difference between a return and the rounded one."""
    returns: Array
    """All returns that the policy can end with, increasing."""
    probabilities: Array
    """The probability of each."""

    def __init__(
        self,
        mdp: MDP,
        states: Sequence[npt.NDArray[np.int64]],
        returns: Sequence[Array],
        actions: Sequence[npt.NDArray[Any]],
        distribution: tuple[Array, Array],
        return_step: float | None,
        error: float,
    ):
        self.horizon, self.labels, self.discount = len(states), mdp.labels, mdp.discount
        self.is_randomised = actions[0].ndim == 2
        self.return_step, self.error = return_step, error
        self.returns, self.probabilities = distribution
        self._tables = tuple(map(ReturnTable, states, returns, actions))
        self._size = max(float(np.abs(table.returns).max()) for table in self._tables)
        for array in (*distribution, *(column for table in self._tables for column in table)):
            array.flags.writeable = False

    def __call__(
        self,
        state: Hashable,
        time: int,
        return_so_far: float,
        rng: np.random.Generator | None = None,
    ) -> Hashable:
        """The action; a randomised policy draws it with `rng`."""
        actions = self.labels.actions
        if not self.is_randomised:
            return actions[int(self._row(state, time, return_so_far))]
        if rng is None:
            raise InputError(
                "the policy draws its actions: pass rng=numpy.random.default_rng(seed), or ask for "
                "its action_probabilities(state, time, return_so_far)"
            )
        check_kind(rng, np.random.Generator, "rng", "a numpy.random.Generator")
        chances = self._row(state, time, return_so_far)
        return actions[int(rng.choice(len(actions), p=chances))]

    def action_probabilities(self, state: Hashable, time: int, return_so_far: float) -> Array:
        """The probability of every action, `(A,)`."""
        row: Array = self._row(state, time, return_so_far)
        return row if self.is_randomised else np.eye(len(self.labels.actions))[int(row)]

    def add(self, return_so_far: float, time: int, reward: float) -> float:
        """The (rounded) return so far after the reward of the step at `time`."""
        so_far = check_number(return_so_far, "return_so_far")
        paid = self.discount ** self._checked_time(time) * check_number(reward, "reward")
        if self.return_step is not None:
            paid = self.return_step * round(paid / self.return_step)
        return so_far + paid

    def at(self, time: int) -> ReturnTable:
        """The decisions at one time."""
        return self._tables[self._checked_time(time)]

    def rows(self) -> list[dict[str, Any]]:
        """Time, state, return so far and action of every entry, by label, as in a table."""
        states, actions = self.labels.states, self.labels.actions
        found = []
        for time, table in enumerate(self._tables):
            for s, g, chosen in zip(*(column.tolist() for column in table), strict=True):
                action: Any = (
                    {actions[a]: p for a, p in enumerate(chosen) if p > 0}
                    if self.is_randomised
                    else actions[chosen]
                )
                row = {"time": time, "state": states[s], "return_so_far": g, "action": action}
                found.append(row)
        return found

    def __len__(self) -> int:
        return sum(len(table.states) for table in self._tables)

    def __repr__(self) -> str:
        kind = "randomised" if self.is_randomised else "deterministic"
        return f"ReturnPolicy({kind}, {self.horizon} steps, {len(self)} pairs of state and return)"

    def _checked_time(self, time: int) -> int:
        return check_count(time, "time", at_least=0, at_most=self.horizon - 1)

    def _row(self, state: Hashable, time: int, return_so_far: float) -> Any:
        """The entry whose return is nearest."""
        s = self.labels.state_number(state)
        table = self.at(time)
        so_far = check_number(return_so_far, "return_so_far")
        low, high = np.searchsorted(table.states, [s, s + 1]).tolist()
        if low == high:
            raise InputError(f"state {shown(state)} cannot be reached at time {time}")
        known = table.returns[low:high]
        nearest = int(np.argmin(np.abs(known - so_far)))
        if abs(known[nearest] - so_far) > self.error + _SAME * self._size:
            raise InputError(
                f"return_so_far must be one that can be reached in state {shown(state)} at time "
                f"{time}, the nearest is {known[nearest]:.8g}, got {so_far:.8g}"
            )
        return table.actions[low + nearest]
