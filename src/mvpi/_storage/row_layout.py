"""How a transition lies in a row of numbers: in the replay, its file, and batches drawn from it.

    row = s | a | r | continues | next_s

`s` and `next_s` are observations as networks take them, `a` is an action in [-1, 1], `r` the raw
reward. `continues` is 0 after a terminal step and 1 otherwise, also at a time limit. A row is
contiguous, so that a batch is one gather; `s` and `a` are neighbours, so that the beginning of a
row is the input of a critic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Transitions(NamedTuple):
    """The parts of rows, by name; `r` and `continues` have one axis less than the others."""

    s: Any
    a: Any
    r: Any
    continues: Any
    next_s: Any


class RowColumns(NamedTuple):
    """The columns where the parts after `s` begin: all that compiled loops need of a layout."""

    a: int
    r: int
    continues: int
    next_s: int


@dataclass(frozen=True)
class RowLayout:
    """Rows of transitions with observations and actions of these sizes.

    Columns that extend an observation count as part of it, in `s` and in `next_s`.

    >>> layout = RowLayout(observation_size=3, action_size=2)
    >>> layout.a, layout.r, layout.next_s, layout.width
    (slice(3, 5, None), 5, slice(7, 10, None), 10)
    """

    observation_size: int
    action_size: int

    @property
    def s(self) -> slice:
        return slice(0, self.observation_size)

    @property
    def a(self) -> slice:
        return slice(self.observation_size, self.r)

    @property
    def r(self) -> int:
        return self.observation_size + self.action_size

    @property
    def continues(self) -> int:
        return self.r + 1

    @property
    def next_s(self) -> slice:
        return slice(self.r + 2, self.width)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return 2 * self.observation_size + self.action_size + 2

    @property
    def columns(self) -> RowColumns:
        """The same for compiled loops."""
        return RowColumns(self.a.start, self.r, self.continues, self.next_s.start)

    @classmethod
    def of_width(cls, width: int, action_size: int) -> RowLayout:
        """The layout of rows of that width.

        >>> RowLayout.of_width(10, 2)
        RowLayout(observation_size=3, action_size=2)
        """
        return cls((width - action_size - 2) // 2, action_size)

    def split(self, rows: Any) -> Transitions:
        """Rows along the last axis of an array, of numpy (as views) or JAX, by their parts."""
        parts = (self.s, self.a, self.r, self.continues, self.next_s)
        return Transitions(*(rows[..., part] for part in parts))
