"""`y` of a measure that sees columns, from data: of returns, or along a range of risk aversions.

RiskRange(low, high)       `y` of the policy at each of a few risk aversions, by the estimators
                           of `mvpi.offline._lstd_dual`, made non-increasing and interpolated:
                           the mean of the best policy falls as the risk aversion rises
OfReturn(risk)             `y` of the policy's returns, by the same estimators at last rows
OfReturn(RiskRange(...))   both
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.agents.learned_frontier import LearnedFrontier
from mvpi.agents.policy import Policy
from mvpi.augmenter.columns import Columns
from mvpi.augmenter.monotone_regression import MonotoneFit, non_increasing
from mvpi.errors import InputError, warn
from mvpi.offline._episodes import Episodes
from mvpi.offline._lstd_dual import PolicyDuals
from mvpi.offline._residual_error import PolicyDual
from mvpi.offline.dataset import Dataset
from mvpi.offline.density_ratio import CoverageWarning
from mvpi.risk import RISK_AVERSION, Risk
from mvpi.risk.extended import RiskRange, at, range_of

POINTS = 7
"""Risk aversions at which `y` is estimated, at equal distances along the range; an odd number, so
that the middle is one of them."""


class ReturnDuals(PolicyDuals):
    """`y` of the returns of a policy, which acts on observations that end with `G_t`.

    An episode is over at its end, also if a time limit cut it. Then every episode of the policy
    visits exactly one pair after which it is over, with the return `G_t + r_t`, so that the density
    ratio of the undiscounted occupancy,

        A   = E[phi (phi - phi')^T]             phi' = 0 at the end of an episode
        tau = phi^T A^-T E[phi_0]

    taken at the last rows of the episodes in the data, weighs their returns as the policy's own
    returns are distributed. The dual of the returns weighted by it is `y`, for any measure.
    Features contain the constant, which makes the weights of the last rows sum to as many as there
    are episodes.

    The interval holds the error of sampling and what the estimators disagree by, not the error of
    their features. That grows with the length of episodes: a ratio of many steps is a product of as
    many ratios, and few episodes of the data are like those of the policy.

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

    def _returns(
        self, rows: npt.NDArray[Any], over: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], Array]:
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


class ExtendedDuals:
    """Estimators that are improved by `update`, and `y` for any values of the columns.

    All have the same random features and draw the same batches, so that `y` at neighbouring risk
    aversions differs because the policies do.
    """

    def __init__(
        self,
        data: Dataset | Episodes,
        risk: Risk,
        discount: float,
        given_y: float | None,
        *,
        learning_rate: float,
        seed: int,
    ) -> None:
        if given_y is not None and range_of(risk) is not None:
            raise InputError(
                f"y differs along {risk}, so it must be left out, got {given_y:g}; or learn at one "
                "risk aversion"
            )
        self.risk, self.range = risk, range_of(risk)
        self.risk_aversions = np.zeros(1) if self.range is None else self.range.grid(POINTS)
        self.discount = discount
        self._columns = Columns(risk)
        options: dict[str, Any] = {"learning_rate": learning_rate, "seed": seed}
        self._estimators: list[PolicyDuals]
        if isinstance(data, Episodes):
            outcomes: npt.ArrayLike = data.returns
            self._estimators = [ReturnDuals(data, discount, **options) for _ in self.risk_aversions]
        else:
            outcomes = data.rewards
            self._estimators = [PolicyDuals(data, discount, **options) for _ in self.risk_aversions]
        first = at(risk, self.range.low) if self.range is not None else risk
        self._given = given_y
        y = first.dual(outcomes) if given_y is None else given_y
        self.values: Array = np.full(len(self.risk_aversions), y)
        """`y` at the risk aversions: first that of the data."""
        self.frontier: LearnedFrontier | None = None
        """Of a range: mean and variance by the last estimates; None before the first."""

    @property
    def middle(self) -> int:
        """Which of the risk aversions is in the middle of the range."""
        return len(self.values) // 2

    def update(self, policy: Policy, steps: int) -> Self:
        """`steps` more updates of every estimator, towards the policy at its risk aversion."""
        for lam, estimator in zip(self.risk_aversions.tolist(), self._estimators, strict=True):
            one = policy if self.range is None else policy.at(lam)
            estimator.update(one.predict if not self.risk.of_return else _by_return(one), steps)
        return self

    def estimate(self, risk: Risk) -> tuple[PolicyDual, ...]:
        """`y` of the policy of the last update, at every one of the risk aversions."""
        found = tuple(
            estimator.estimate(
                risk if self.range is None else at(risk, lam), variance_too=self.range is not None
            )
            for lam, estimator in zip(self.risk_aversions.tolist(), self._estimators, strict=True)
        )
        if self._given is None:
            self.values = _ys(found)
        if self.range is not None:
            self.frontier = estimated_frontier(self.range, self.risk_aversions, found)
        return found

    def facts(self, risk: Risk) -> tuple[float, dict[str, float]]:
        """`y` in the middle of the range, and what a row of the metrics says of the policy."""
        found = self.estimate(risk)
        if self._given is None:
            self._warn(found)
        one, k = found[self.middle], self.middle
        low, high = one.interval
        of = "return" if risk.of_return else "reward"
        facts = {"y_low": low, "y_high": high}
        facts |= {} if risk.of_return else {"fitted_q_mean": one.fitted_q_mean}
        facts["effective_size"] = min(each.effective_size for each in found)
        facts |= {f"{of}_mean": one.reward_mean, f"{of}_variance": one.reward_variance}
        frontier = self.frontier
        if frontier is not None:
            (facts["y_low"], facts["y_high"]) = frontier.mean_intervals[k].tolist()
            values = frontier.means - frontier.risk_aversions * frontier.variances
            names = {"value_low": 0, "value_middle": k, "value_high": -1}
            facts |= {name: float(values[place]) for name, place in names.items()}
        return float(self.values[k]), facts

    def _warn(self, found: tuple[PolicyDual, ...]) -> None:
        """One `CoverageWarning` for all risk aversions."""
        if self.range is None:
            found[0].warn()
            return
        told: list[tuple[float, str]] = []
        for lam, one in zip(self.risk_aversions.tolist(), found, strict=True):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                one.warn()
            told += [(lam, str(w.message)) for w in caught[:1]]
        if told:
            (lam, text), count = told[0], len(told)
            warn(f"at risk aversion {lam:.3g} ({count} of {len(found)}): {text}", CoverageWarning)

    def y(self, columns: Array) -> Array:
        """`y` for raw values of the columns, (..., columns)."""
        if self.range is None:
            return np.full(columns.shape[:-1], self.values[0])
        lam = self._columns.named(columns)[RISK_AVERSION]
        return MonotoneFit(self.range.coordinate(self.risk_aversions), self.values)(
            self.range.coordinate(lam)
        )

    @property
    def state(self) -> Any:
        """What the updates change."""
        return tuple(estimator.state for estimator in self._estimators)

    @state.setter
    def state(self, state: Any) -> None:
        for estimator, one in zip(self._estimators, state, strict=True):
            estimator.state = one

    @property
    def random(self) -> list[Any]:
        """The states of the random generators."""
        return [estimator.rng.bit_generator.state for estimator in self._estimators]

    def restore(self, values: Any, frontier: Any, random: list[Any]) -> None:
        """`y`, frontier and random generators of before; `ValueError` if they cannot be."""
        known = np.array(values, np.float64)
        if known.shape != self.values.shape or not np.isfinite(known).all():
            raise ValueError(f"{known.shape} numbers for y at {self.values.shape} risk aversions")
        self.values = known
        if self.range is not None and frontier is not None:
            self.frontier = LearnedFrontier.of_record(self.range, frontier)
        for estimator, one in zip(self._estimators, random, strict=True):
            estimator.rng.bit_generator.state = one


def estimated_frontier(
    known: RiskRange, risk_aversions: Array, found: tuple[PolicyDual, ...]
) -> LearnedFrontier:
    """Means and variances made non-increasing, with intervals that hold them."""
    means, variances = _ys(found), np.array([one.reward_variance for one in found])
    variances = non_increasing(variances, _weights(found))
    return LearnedFrontier(
        risk_aversions=risk_aversions,
        means=means,
        variances=variances,
        mean_intervals=_around(means, [one.interval for one in found]),
        variance_intervals=_around(variances, [one.variance_interval for one in found]),
        _range=known,
    )


def _ys(found: tuple[PolicyDual, ...]) -> Array:
    return non_increasing(np.array([one.y for one in found]), _weights(found))


def _weights(found: tuple[PolicyDual, ...]) -> Array:
    """Estimates count by their effective size; those without any next to nothing."""
    return np.maximum([one.effective_size for one in found], 1e-6)


def _around(values: Array, intervals: list[tuple[float, float]]) -> Array:
    """The intervals, widened to hold the values where these were pooled."""
    ends = np.array(intervals)
    return np.stack([np.minimum(ends[:, 0], values), np.maximum(ends[:, 1], values)], axis=1)


def _by_return(policy: Policy) -> Any:
    """The policy on observations that end with the return so far."""

    def act(observations: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return policy.predict(observations[:, :-1], observations[:, -1])

    return act
