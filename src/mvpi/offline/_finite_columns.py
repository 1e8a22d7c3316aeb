"""Finite data and measures that see columns: a whole frontier, and the risk of the return.

    RiskRange(low, high)       the exact frontier of the empirical MDP; a policy for every lam of it
    OfReturn(risk)             `mvpi.optimize` of the return of `horizon` steps: a `ReturnPolicy`
    OfReturn(RiskRange(...))   the exact frontier of the return

The empirical MDP of returns (`returns_mdp`) has the states and actions of the data under their own
numbers, and one more state, `"end"`, with reward 0 for ever: an episode is there when it is over,
and when it comes to a state without data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mvpi._checks import check_number
from mvpi.errors import InputError, NoConvergence
from mvpi.offline._empirical_mdp import EmpiricalMDP
from mvpi.offline._state_action_pairs import distinct
from mvpi.offline.dataset import Dataset
from mvpi.risk import OfReturn, Risk, range_of
from mvpi.tabular.frontier import Frontier, frontier
from mvpi.tabular.mdp import MDP
from mvpi.tabular.optimize import optimize
from mvpi.tabular.return_policy import ReturnPolicy
from mvpi.tabular.solution import Progress

END = "end"
"""The state of an episode that is over."""


@dataclass(frozen=True, eq=False)
class PolicyRange:
    """The best policies for finite data at every risk aversion of a range.

    Policies are `(S, A)` probabilities, or, for the return of an episode, a `ReturnPolicy`. All of
    it is exact for the transitions as they are counted in the data.
    """

    risk: Risk
    """A `RiskRange`, or one of the return."""
    _frontier: Frontier

    def at(self, risk_aversion: float) -> Any:
        """The best policy at one risk aversion of the range."""
        known = range_of(self.risk)
        assert known is not None
        return self._frontier.best(known.at(risk_aversion).risk_aversion).policy

    def frontier(self) -> Frontier:
        """All efficient policies, with their means and variances, and those for any limit."""
        return self._frontier

    def with_variance_at_most(self, limit: float) -> Any:
        """The policy with the largest mean among those whose variance is at most `limit`."""
        return self._frontier.with_variance_at_most(limit).policy

    def with_mean_at_least(self, target: float) -> Any:
        """The policy with the smallest variance among those whose mean is at least `target`."""
        return self._frontier.with_mean_at_least(target).policy


def learn_with_columns(
    data: Dataset,
    risk: Risk,
    discount: float,
    *,
    horizon: int | None,
    iterations: int,
    tolerance: float,
) -> PolicyRange | ReturnPolicy:
    """The answer for a measure that sees columns; `horizon` is for the return."""
    if not risk.of_return and horizon is not None:
        raise InputError(f"horizon is for the return: use mvpi.OfReturn({risk}), or leave it out")
    if risk.of_return and horizon is None:
        raise InputError(
            "the risk of the return needs the number of steps of an episode on finite data: "
            "offline.learn(data, mvpi.OfReturn(risk), discount, horizon=20)"
        )

    def stop(solves: int, best: float, bound: float) -> None:
        del best, bound
        if solves > iterations:
            raise NoConvergence(
                f"more than {iterations} risk-neutral solves are needed; allow more iterations, or "
                "a larger tolerance"
            )

    if range_of(risk) is not None:
        found = _frontier(data, discount, horizon, tolerance, stop)
        if not found.converged:
            raise NoConvergence("the frontier is not known well enough; allow a larger tolerance")
        return PolicyRange(risk, found)
    assert isinstance(risk, OfReturn)
    mdp = returns_mdp(data, discount)
    best = optimize(mdp, risk, horizon=horizon, tolerance=tolerance, progress=stop)
    if not best.converged:
        raise NoConvergence(
            f"the optimum is only known to be from {best.value:.10g} to {best.upper_bound:.10g}; "
            "allow a larger tolerance"
        )
    policy: ReturnPolicy = best.policy
    return policy


def _frontier(
    data: Dataset, discount: float, horizon: int | None, tolerance: float, stop: Progress
) -> Frontier:
    if horizon is not None:
        mdp = returns_mdp(data, discount)
        return frontier(mdp, horizon=horizon, tolerance=tolerance, progress=stop)
    model = EmpiricalMDP(data, discount)
    found = frontier(model.mdp, tolerance=tolerance, progress=stop)
    return found.mapped(model.policy_in_data)


def returns_mdp(data: Dataset, discount: float) -> MDP:
    """Every outcome as likely as it is counted; at discount 1 rewards are not discounted."""
    check_number(discount, "discount", above=0.0, at_most=1.0)
    s, a = data.observations.astype(np.int64), data.actions.astype(np.int64)
    has_data = np.zeros(data.n_states or 1, np.bool_)
    has_data[s] = True
    if not has_data[data.starts].all():
        missing = data.starts[~has_data[data.starts]][0]
        raise InputError(
            f"the data have no transitions from the start {missing}; give starts that the data have"
        )
    next_s = np.where(data.terminations, 0, data.next_observations).astype(np.int64)
    over = data.terminations | ~has_data[next_s]
    next_s = np.where(over, -1, next_s)
    one, counts = distinct(s, a, next_s, data.rewards)
    starts, times = np.unique(data.starts.astype(np.int64), return_counts=True)
    return MDP.from_outcomes(
        s[one].tolist(),
        a[one].tolist(),
        counts.astype(np.float64),
        np.asarray(data.rewards[one], np.float64),
        [END if n < 0 else n for n in next_s[one].tolist()],
        discount=discount,
        start=dict(zip(starts.tolist(), (times / times.sum()).tolist(), strict=True)),
        normalise=True,
        absorbing=True,
    )
