"""Risk-averse policies from data: the certified optimum for finite data, TD3+BC for vectors.

Finite data are a finite MDP, in which every outcome is as likely as it is counted in the data
(`mvpi.offline._empirical_mdp`). `learn_finite` hands it to `mvpi.optimize`, which finds the best
of all policies that keep to the actions of the data, and an upper bound that proves it. The same
problem with sampled updates, the paper's Algorithm 2 as it was published, is
`mvpi.offline.published`; Algorithm 2 with networks is `mvpi.offline.td3_bc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mvpi._checks import check_callback, check_count, check_number
from mvpi._types import Array
from mvpi.errors import InputError, NoConvergence
from mvpi.offline.dataset import Dataset, check_data
from mvpi.offline.density_ratio import DensityRatio, effective_size, warn_if_hardly_covered
from mvpi.risk import MeanVariance, Risk, as_risk
from mvpi.risk.extended import simplified

if TYPE_CHECKING:
    from mvpi.tabular.mdp import MDP
    from mvpi.tabular.solution import Solution


@dataclass(frozen=True)
class Iteration:
    """A policy for finite data, and how good it is for the transitions counted there."""

    policy: Array
    """`(S, A)` probabilities."""
    y: float
    """The best `y` of the policy's rewards, their mean for mean-variance."""
    value: float
    """The risk measure of the policy's rewards; for a `VarianceBudget` the mean."""
    effective_size: float
    """As many rewards of the policy itself would be as informative as the data."""
    upper_bound: float = math.inf
    """No policy has a larger `value`; infinite where nothing was proved."""


OnIteration = Callable[[Iteration], Any]


def learn(data: Dataset, risk: Risk | float, discount: float, **options: Any) -> Any:
    """A risk-averse policy from data: for finite data `(S, A)` probabilities, else a `Policy`.

    With `RiskRange` or `OfReturn` it is a `PolicyRange` or a `mvpi.tabular.ReturnPolicy` for finite
    data, else an agent.

    The reward whose risk counts is that of a random step, a finished episode having reward 0 for
    ever: the mean is `(1 - discount)` times the expected return, as in `mvpi.optimize`.
    `options` are those of `learn_finite`, or, for observations and actions that are vectors, of
    `mvpi.offline.td3_bc.learn_continuous`; both have `y`, the number in the augmented reward,
    where it is known.
    """
    if check_data(data).n_states is not None:
        return learn_finite(data, risk, discount, **options)
    from mvpi.offline.td3_bc import learn_continuous

    return learn_continuous(data, risk, discount, **options)


def learn_finite(
    data: Dataset,
    risk: Risk | float,
    discount: float,
    *,
    y: float | None = None,
    horizon: int | None = None,
    iterations: int = 1_000,
    tolerance: float = 1e-9,
    on_iteration: OnIteration | None = None,
) -> Any:
    """The best policy for finite data: `(S, A)` probabilities.

    With a `RiskRange` it is a `PolicyRange`, the whole exact frontier of the data; with `OfReturn`
    a `mvpi.tabular.ReturnPolicy`, which looks at the time and the return so far.

    It is the global optimum of the risk measure for the transitions as they are counted in the
    data, over all policies that take only actions which the data have. Below discount 1 a finished
    episode is reward 0 for ever; at discount 1, which means the average reward, the next step is at
    a start. The same holds where the data lack what comes next. A state of which the data have no
    action keeps the uniform policy, and so does one that no policy reaches, over the actions it
    has.

    Args:
        data: states and actions are whole numbers.
        risk: any risk measure, or a number for `MeanVariance`. For a `VarianceBudget` the answer
            is a mixture of two policies where that uses up the limit.
        discount: in [0, 1].
        y: the number in the augmented reward, where it is known: the answer is then the optimum of
            `E[y + u(R - y)]`, which is risk-neutral in the augmented reward.
        horizon: with `OfReturn`, the number of steps whose return counts; the return is the sum of
            `discount^t r_t`. It is over where an episode ends, or where the data have no action
            for a state.
        iterations: how many risk-neutral problems `mvpi.optimize` may solve.
        tolerance: the gap between the value and its upper bound at which to stop, as in
            `mvpi.optimize`: a share of half the range of the rewards that a risk-neutral policy is
            paid.
        on_iteration: called with an `Iteration` for the uniform policy, and with one for the
            answer, which has the upper bound.

    Raises `NoConvergence` if the gap is not closed to ten times the tolerance, or not within the
    iterations. Warns with `CoverageWarning` when the data hardly cover the policy.

    >>> states, actions, following = [0, 0, 1, 0, 2], [0, 0, 0, 1, 0], [1, 2, 0, 0, 0]
    >>> columns = (np.repeat(x, 20) for x in (states, actions, [0, 0, 6, 1, 0], following))
    >>> data = Dataset(*columns, terminations=np.zeros(100, bool), starts=[0])
    >>> learn_finite(data, risk=0.0, discount=0.9)[0]
    array([1., 0.])
    >>> learn_finite(data, risk=2.0, discount=0.9)[0]
    array([0., 1.])
    """
    if check_data(data).n_states is None:
        raise InputError(
            f"learn_finite needs whole numbers for states and actions, got {data}; for vectors "
            "there is learn_continuous"
        )
    measure, y = as_risk(risk), check_y(risk, y)
    discount = check_number(discount, "discount", at_least=0.0, at_most=1.0)
    iterations = check_count(iterations, "iterations")
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    check_callback(on_iteration, "on_iteration")
    if simplified(measure).columns or horizon is not None:
        for name, value in (("y", y), ("on_iteration", on_iteration)):
            if value is not None:
                raise InputError(
                    f"{name} is for one risk aversion of the per-step reward, got {measure}; leave "
                    "it out"
                )
        from mvpi.offline._finite_columns import learn_with_columns

        options: dict[str, Any] = {"iterations": iterations, "tolerance": tolerance}
        return learn_with_columns(data, measure, discount, horizon=horizon, **options)
    measure = simplified(measure)
    from mvpi.offline._empirical_mdp import EmpiricalMDP

    model = EmpiricalMDP(data, discount)
    mdp = model.mdp
    if y is not None:
        mdp, measure = _at_given_y(mdp, measure, y), MeanVariance(0.0)
    ratio = DensityRatio(data, discount, "exact")

    def tell(policy: Array, dual: float, value: float, upper_bound: float = math.inf) -> None:
        if on_iteration is not None:
            size = effective_size(ratio.update(policy, 0).ratio())
            on_iteration(Iteration(policy, dual if y is None else y, value, size, upper_bound))

    if on_iteration is not None:
        uniform = model.uniform_policy()
        earned = mdp.reward_distribution(mdp.occupancy(model.policy_in_mdp(uniform)))
        tell(uniform, measure.dual(*earned), measure.value(*earned))
    found = _certified(mdp, measure, iterations, tolerance)
    policy = model.policy_in_data(found.policy)
    tell(policy, found.dual, found.value, found.upper_bound)
    warn_if_hardly_covered(ratio.update(policy, 0), policy)
    return policy


def check_y(risk: Risk | float, y: float | None) -> float | None:
    """A given `y` as a plain number, or an `InputError` where none can be given."""
    if y is not None and as_risk(risk).variance_limit is not None:
        raise InputError(
            f"{risk} finds y with its risk aversion on finite data, so y must be left "
            f"out, got {y!r}; or give the risk aversion itself"
        )
    return None if y is None else check_number(y, "y")


def _at_given_y(mdp: MDP, risk: Risk, y: float) -> MDP:
    """The MDP with rewards `y + u(r - y)`: its largest mean is the optimum at that `y`."""
    with np.errstate(over="ignore", invalid="ignore"):
        rewards = y + risk.utility(mdp.rewards - y)
    if not np.isfinite(rewards).all():
        raise InputError(f"y must be such that y + u(r - y) is finite, got {y:g}; give a smaller y")
    return type(mdp).from_rows(mdp.transitions, rewards, mdp.discount, mdp.start)


def _certified(mdp: MDP, risk: Risk, iterations: int, tolerance: float) -> Solution:
    """The optimum, or `NoConvergence` if it is not proved to be one."""
    from mvpi.tabular.optimize import optimize

    def stop(solves: int, best: float, bound: float) -> None:
        if solves > iterations:
            raise NoConvergence(
                f"the optimum needs more than {iterations} risk-neutral solves: the value is from "
                f"{best:.6g} to {bound:.6g}; allow more iterations, or a larger tolerance"
            )

    found = optimize(mdp, risk, tolerance=tolerance, progress=stop)
    stop(found.solves, found.value, found.upper_bound)
    if not found.converged:
        raise NoConvergence(
            f"the optimum is only known to be from {found.value:.10g} to {found.upper_bound:.10g}; "
            "allow a larger tolerance"
        )
    return found
