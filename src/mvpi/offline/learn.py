"""Off-line mean-variance policy iteration (the paper's Algorithm 2); here for finite problems.

    repeat:
        evaluate    the density ratio of the policy; y = dual of the rewards weighted by it
        augment     r <- augment(r, y)                  (mean-variance: r - lam r^2 + 2 lam r y)
        value       q of the policy, for these rewards
        improve     theta along  E_data[ratio(s, a) grad log pi(a | s) q(s, a)]

The policy is a softmax over the actions that the data have in a state; what they lack is not taken.
`learn_finite` computes ratio and q exactly for the transitions as they are counted in the data, and
takes steps along the gradient that make the objective better, until none does. The same loop with
sampled updates, as it was published, is `mvpi.offline.published`; with networks, `td3_bc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi.errors import InputError, NoConvergence
from mvpi.offline.dataset import Dataset
from mvpi.offline.density_ratio import DensityRatio, weighted_dual
from mvpi.risk import MeanVariance, Risk, VarianceBudget, as_risk
from mvpi.stats import check_count, check_number, variance

Array = npt.NDArray[np.float64]

_LARGEST_STEP, _SMALLEST_STEP = 4.0, 1e-3
"""How far one improvement moves the logit that moves most."""
_DOUBLINGS, _HALVINGS = 20, 20


@dataclass(frozen=True)
class Iteration:
    """What one round of the loop saw, before it improved the policy."""

    policy: Array
    y: float
    value: float
    """The risk measure of the rewards weighted by the ratio: it never decreases."""
    effective_size: float


OnIteration = Callable[[Iteration], Any]


def learn(data: Dataset, risk: Risk | float, discount: float, **options: Any) -> Any:
    """A risk-averse policy from data: for finite data `(S, A)` probabilities, else a `Policy`.

    `options` are those of `learn_finite`, or, for observations and actions that are vectors, of
    `mvpi.offline.td3_bc.learn_continuous`.
    """
    if data.n_states is not None:
        return learn_finite(data, risk, discount, **options)
    from mvpi.offline.td3_bc import learn_continuous

    return learn_continuous(data, risk, discount, **options)


def learn_finite(
    data: Dataset,
    risk: Risk | float,
    discount: float,
    *,
    iterations: int = 1_000,
    tolerance: float = 1e-9,
    on_iteration: OnIteration | None = None,
) -> Array:
    """A risk-averse policy from finite data: `(S, A)` probabilities.

    It starts from the uniform policy and climbs to a local optimum of the risk measure, for the
    transitions as they are counted in the data, until an iteration gains less than `tolerance` of
    the value. A state of which the data have no action keeps the uniform policy. `on_iteration` is
    called with every `Iteration`.

    >>> states, actions, following = [0, 0, 1, 0, 2], [0, 0, 0, 1, 0], [1, 2, 0, 0, 0]
    >>> columns = (np.repeat(x, 20) for x in (states, actions, [0, 0, 6, 1, 0], following))
    >>> data = Dataset(*columns, terminations=np.zeros(100, bool), starts=[0])
    >>> learn_finite(data, risk=0.0, discount=0.9)[0].round(3)
    array([1., 0.])
    >>> learn_finite(data, risk=2.0, discount=0.9)[0].round(3)
    array([0., 1.])
    """
    measure = as_risk(risk)
    discount = check_number(discount, "discount", at_least=0.0, at_most=1.0)
    check_count(iterations, "iterations")
    check_number(tolerance, "tolerance", at_least=0.0)
    options = {"iterations": iterations, "tolerance": tolerance, "on_iteration": on_iteration}
    if isinstance(measure, VarianceBudget):
        return _within_budget(data, measure, discount=discount, **options)
    climber = Climber(data, measure, discount)
    for _ in range(iterations):
        before = climber.here
        if on_iteration is not None:
            on_iteration(before)
        improved = climber.improve()
        if not improved or climber.here.value - before.value <= tolerance * abs(before.value):
            return climber.here.policy
    raise NoConvergence(f"off-line MVPI still improves after {iterations} iterations; allow more")


class Climber:
    """A softmax policy on finite data, and its exact gradient for the counted transitions."""

    def __init__(self, data: Dataset, risk: Risk, discount: float) -> None:
        if data.n_states is None or data.n_actions is None:
            raise InputError(
                f"learn_finite needs whole numbers for states and actions, got {data}; for vectors "
                "there is learn_continuous"
            )
        self.data, self.risk, self.discount = data, risk, discount
        self._ratio = DensityRatio(data, discount, "exact")
        shape = (data.n_states, data.n_actions)
        states, actions = (x.astype(np.int64) for x in (data.observations, data.actions))
        self._pair = states * data.n_actions + actions
        self._count = np.bincount(self._pair, minlength=math.prod(shape))
        self._next = self._counted_transitions()
        there = (self._count > 0).reshape(shape)
        there[~there.any(axis=1)] = True
        self._logits = np.where(there, 0.0, -np.inf)
        self._step = 1.0
        self.here, self._visits = self._seen(self._logits)

    def improve(self) -> bool:
        """Climb along the gradient, by at most twice the last step; False at the top."""
        slope = self._slope()
        steepest = float(np.abs(slope).max())
        if steepest == 0.0:
            return False
        direction = slope / steepest
        step = min(2.0 * self._step, _LARGEST_STEP)
        while step >= _SMALLEST_STEP:
            logits = self._logits + step * direction
            ahead, visits = self._seen(logits)
            if ahead.value > self.here.value:
                self._logits, self._step = logits, step
                self.here, self._visits = ahead, visits
                return True
            step *= 0.5
        return False

    def _seen(self, logits: Array) -> tuple[Iteration, Array]:
        """A policy evaluated on the data, and how often it visits every pair."""
        policy = softmax(logits)
        ratio = self._ratio.update(policy, 0).ratio()
        found = weighted_dual(self.data, ratio, self.risk)
        value = self.risk.value(self.data.rewards, ratio)
        visits = self._totals(ratio) / len(self.data)
        return Iteration(policy, found.y, value, found.effective_size), visits

    def _slope(self) -> Array:
        """The gradient of the value in the logits, but for a factor."""
        policy = self.here.policy
        gain = (self._visits * self._action_values()).reshape(policy.shape)
        slope: Array = gain - policy * gain.sum(axis=1, keepdims=True)
        return slope

    def _action_values(self) -> Array:
        """`q` of the policy for augmented rewards; at discount 1 but for a constant."""
        from scipy.sparse import block_array, csr_array, eye_array
        from scipy.sparse.linalg import spsolve

        policy, n = self.here.policy, len(self.here.policy)
        rewards = self._means(self.risk.augment(self.data.rewards, self.here.y))
        choose = csr_array(
            (policy.ravel(), (np.repeat(np.arange(n), policy.shape[1]), np.arange(policy.size))),
            (n, policy.size),
        )
        chain = eye_array(n) - self.discount * (choose @ self._next)
        gains = choose @ rewards
        if self.discount < 1.0:
            values = spsolve(chain.tocsc(), gains)
        else:  # one more unknown, the mean reward; one more condition, a value that is 0
            origin = csr_array(([1.0], ([0], [int(self.data.starts[0])])), (1, n))
            whole = block_array([[chain, csr_array(np.ones((n, 1)))], [origin, None]])
            values = spsolve(whole.tocsc(), np.append(gains, 0.0))[:-1]
        q: Array = rewards + self.discount * (self._next @ values)
        return q

    def _counted_transitions(self) -> Any:
        """Of every pair, how often each state follows; an episode that is over starts anew."""
        from scipy.sparse import csr_array

        data, (pairs, states) = self.data, (self._count.size, self.data.n_states or 0)
        live = ~data.terminations
        following = data.next_observations[live].astype(np.int64)
        entries = (np.ones(live.sum()), (self._pair[live], following))
        counts = csr_array(entries, (pairs, states))
        over = csr_array(np.bincount(self._pair[~live], minlength=pairs)[:, None].astype(float))
        starts = np.bincount(data.starts.astype(np.int64), minlength=states) / len(data.starts)
        counts = counts + over @ csr_array(starts[None, :])
        return csr_array((1.0 / np.maximum(self._count, 1))[:, None] * counts)

    def _totals(self, values: npt.ArrayLike) -> Array:
        """Sums of a number per row over the rows of every pair."""
        totals: Array = np.bincount(self._pair, values, self._count.size).astype(np.float64)
        return totals

    def _means(self, values: npt.ArrayLike) -> Array:
        means: Array = self._totals(values) / np.maximum(self._count, 1)
        return means


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis; `-inf` is never chosen."""
    likely = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Array = likely / likely.sum(axis=-1, keepdims=True)
    return shares


def _within_budget(data: Dataset, budget: VarianceBudget, **options: Any) -> Array:
    """The policy of the lowest price of variance that keeps to the limit, by bisection."""

    def policy_at(price: float) -> tuple[Array, bool]:
        policy = learn_finite(data, MeanVariance(price), **options)
        ratio = DensityRatio(data, options["discount"], "exact").update(policy, 0).ratio()
        return policy, variance(data.rewards, ratio) <= budget.limit

    policy, kept = policy_at(budget.risk_aversion)
    low, high = budget.risk_aversion, max(1.0, budget.risk_aversion)
    for _ in range(_DOUBLINGS):
        if kept:
            break
        low, high = high, 2.0 * high
        policy, kept = policy_at(high)
    if not kept:
        raise InputError(
            f"no policy was found whose variance is at most {budget.limit:g}; raise the limit"
        )
    for _ in range(_HALVINGS if high > budget.risk_aversion else 0):
        middle = 0.5 * (low + high)
        other, kept = policy_at(middle)
        low, high = (low, middle) if kept else (middle, high)
        policy = other if kept else policy
    return policy
