"""`y` of the returns of a policy from data, by the estimators of `mvpi.offline._lstd_dual`.

Observations end with the return so far `G_t`, and an episode is over at its end, also if a time
limit cut it. Then every episode of the policy visits exactly one pair after which it is over, with
the return `G_t + r_t`, so that the density ratio of the undiscounted occupancy,

    A   = E[phi (phi - phi')^T]             phi' = 0 at the end of an episode
    tau = phi^T A^-T E[phi_0]

taken at the last rows of the episodes in the data, weighs their returns as the policy's own
returns are distributed. The dual of the returns weighted by it is `y`, for any measure. Features
contain the constant, which makes the weights of the last rows sum to as many as there are episodes.

The interval holds the error of sampling and what the estimators disagree by, not the error of
their features. That grows with the length of episodes: a ratio of many steps is a product of as
many ratios, and few episodes of the data are like those of the policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.offline._episodes import Episodes
from mvpi.offline._lstd_dual import Anything, PolicyDuals


class ReturnDuals(PolicyDuals):
    """Estimates that are improved by `update`; a policy acts on observations that end with `G_t`.

    The network of fitted-Q evaluation only makes features: it is trained at the given discount, at
    most at one that looks as far ahead as episodes are long.
    """

    def __init__(
        self, episodes: Episodes, discount: float, *, learning_rate: float, seed: int
    ) -> None:
        length = len(episodes.data) / len(episodes.returns)
        furthest = length / (1.0 + length)
        super().__init__(
            episodes.data, min(discount, furthest), learning_rate=learning_rate, seed=seed
        )
        self._outcomes, self._ratio_discount = len(episodes.returns), 1.0
        self._episodes = episodes

    def _returns(self, rows: Anything, over: Anything) -> tuple[Anything, Array]:
        last = np.flatnonzero(over)
        if not last.size:
            raise InputError(
                f"y of the return needs more episodes: of {len(rows)} rows drawn from the data "
                "none ends one; give y"
            )
        number = np.searchsorted(self._episodes.last, rows[last])
        return last, self._episodes.returns[number]

    def _fitted_q(self, sample: Any) -> tuple[float, None]:
        """Not of the return: the network values discounted rewards."""
        del sample
        return float("nan"), None
