"""The state of a solve, `Iterate`, and the interface of the strategies that improve it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mvpi._types import Array
from mvpi.tabular._engines.backups import Actions, backup
from mvpi.tabular._matrices import mean_over
from mvpi.tabular.chain import Chain
from mvpi.tabular.mdp import MDP


@dataclass(eq=False)
class Iterate:
    """The values and the greedy policy of a solve, which strategies improve in place."""

    mdp: MDP
    rewards: Array
    """`(S, A)`, less `offset`."""
    values: Array
    policy: Actions
    offset: float = 0.0
    """A constant reward per step that was subtracted, to keep values small."""
    changed: int = 0
    """Actions that the last backup changed."""
    span: float = np.inf
    """Of the residual."""
    target: float = 0.0
    """The span of the residual to reach before the next improvement."""
    smallest: float = np.inf
    stalled: int = 0
    """Improvements without progress."""
    chain: Chain | None = None
    """That of the policy, if it has been evaluated."""
    residual: Array = field(init=False)
    """`T v - v`."""

    def __post_init__(self) -> None:
        self.residual = np.empty_like(self.values)

    def back_up(self) -> None:
        """Compute the residual and the greedy policy."""
        given = self.mdp, self.rewards, self.values, self.policy, self.residual
        self.changed = backup(*given)
        self.chain = None if self.changed else self.chain

    def measure(self, span: float) -> None:
        """Record the span of the residual, and whether it halved the smallest so far."""
        self.stalled = self.stalled + 1 if span > 0.5 * self.smallest else 0
        self.span = span

    def restart_progress(self) -> None:
        """Called after a step whose residual may increase at first."""
        self.smallest, self.stalled = np.inf, 0

    def centre(self) -> None:
        """Subtract the mean of the values, if it exceeds their span; `offset` keeps account."""
        common = mean_over(self.mdp.start, self.values)
        if abs(common) > float(np.ptp(self.values)):
            rest = 1.0 - self.mdp.discount
            self.values -= common
            self.offset += rest * common
            self.rewards = self.rewards - rest * common


class Strategy(Protocol):
    """A method to improve the values of an iterate."""

    def improve(self, iterate: Iterate) -> bool:
        """Improve the values in place; False if nothing was done and the next strategy is due."""
