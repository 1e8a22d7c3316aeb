"""Off-line mean-variance policy iteration (the paper's Algorithm 2); here for finite problems.

    repeat:
        evaluate    the occupancy of the policy; y = dual of the rewards weighted by it
        augment     r <- augment(r, y)                  (mean-variance: r - lam r^2 + 2 lam r y)
        value       q of the policy, for these rewards
        improve     theta along the advantages  q(s, a) - v(s)

The policy is a softmax over the actions that the data have in a state; what they lack is not taken.
The gradient, `E_policy[grad log pi(a | s) q(s, a)]`, is the advantage times how often the policy
does it. `learn_finite` leaves that factor out, or else what is hardly done would hardly be learned
(the natural gradient; Kakade 2001). It computes occupancy and q exactly for the transitions as they
are counted in the data, and takes steps that make the objective better, until none does. A finished
episode is reward 0 for ever, as in `mvpi.MDP`; at discount 1 it starts anew. The same loop with
sampled updates, as it was published, is `mvpi.offline.published`; with networks, `td3_bc`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_callback, check_count, check_number
from mvpi.errors import InputError, NoConvergence
from mvpi.offline.budget import within_budget
from mvpi.offline.dataset import Dataset, check_data
from mvpi.offline.density_ratio import DensityRatio, effective_size, warn_if_hardly_covered
from mvpi.offline.pairs import FinitePairs
from mvpi.risk import Risk, VarianceBudget, as_risk

if TYPE_CHECKING:
    from mvpi.offline.pair_chain import PairChain

Array = npt.NDArray[np.float64]

_LARGEST_STEP, _SMALLEST_STEP = 4.0, 1e-3
"""How far one improvement moves the logit that moves most."""
_NOISE = 1e-10
"""Advantages below this share of the values are rounding errors."""


@dataclass(frozen=True)
class Iteration:
    """What one round of the loop saw, before it improved the policy."""

    policy: Array
    y: float
    value: float
    """The risk measure of the policy's rewards: it never decreases."""
    effective_size: float


OnIteration = Callable[[Iteration], Any]


def learn(data: Dataset, risk: Risk | float, discount: float, **options: Any) -> Any:
    """A risk-averse policy from data: for finite data `(S, A)` probabilities, else a `Policy`.

    The reward whose risk counts is that of a random step, a finished episode having reward 0 for
    ever: the mean is `(1 - discount)` times the expected return, as in `mvpi.optimize`.
    `options` are those of `learn_finite`, or, for observations and actions that are vectors, of
    `mvpi.offline.td3_bc.learn_continuous`; both have `y`, the number in the augmented reward, for
    those who know it better than the data do.
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
    iterations: int = 1_000,
    tolerance: float = 1e-9,
    on_iteration: OnIteration | None = None,
) -> Array:
    """A risk-averse policy from finite data: `(S, A)` probabilities.

    It starts from the uniform policy and climbs to a local optimum of the risk measure, for the
    transitions as they are counted in the data, until no action is better by `tolerance` of the
    value. Below discount 1 a finished episode is reward 0 for ever; at discount 1, which means the
    average reward, it starts anew. So it does where the data lack what comes next. A state of which
    the data have no action keeps the uniform policy. For a `VarianceBudget` the answer is a mixture
    of two policies where that uses up the limit. With a given `y` it climbs to the optimum of
    `E[y + u(R - y)]`, which is risk-neutral in the augmented reward. `on_iteration` is called with
    every `Iteration`; of a budget, with those of the risk-neutral problems that it takes. Warns
    with `CoverageWarning` when the data hardly cover the policy.

    >>> states, actions, following = [0, 0, 1, 0, 2], [0, 0, 0, 1, 0], [1, 2, 0, 0, 0]
    >>> columns = (np.repeat(x, 20) for x in (states, actions, [0, 0, 6, 1, 0], following))
    >>> data = Dataset(*columns, terminations=np.zeros(100, bool), starts=[0])
    >>> learn_finite(data, risk=0.0, discount=0.9)[0].round(3)
    array([1., 0.])
    >>> learn_finite(data, risk=2.0, discount=0.9)[0].round(3)
    array([0., 1.])
    """
    check_data(data)
    measure = at_given_y(as_risk(risk), y)
    discount = check_number(discount, "discount", at_least=0.0, at_most=1.0)
    iterations = check_count(iterations, "iterations")
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    check_callback(on_iteration, "on_iteration")
    model = Model(data, discount)
    climb = partial(
        _climbed, model, iterations=iterations, tolerance=tolerance, on_iteration=on_iteration
    )
    if isinstance(measure, VarianceBudget):
        policy = within_budget(model, measure.limit, climb)
    else:
        policy = climb(measure).policy
    warn_if_hardly_covered(DensityRatio(data, discount, "exact").update(policy, 0), policy)
    return policy


def at_given_y(risk: Risk, y: float | None) -> Risk:
    """The risk measure with that `y` in place of the best one; as it is if there is none."""
    if y is None:
        return risk
    if isinstance(risk, VarianceBudget):
        raise InputError(
            f"a VarianceBudget finds y with its risk aversion on finite data, so y must be left "
            f"out, got {y!r}; or give the risk aversion itself"
        )
    return _AtGivenY(risk, check_number(y, "y"))


@dataclass(frozen=True)
class _AtGivenY(Risk):
    """`E[y + u(R - y)]`."""

    risk: Risk
    y: float

    def utility(self, t: npt.ArrayLike) -> Array:
        return self.risk.utility(t)

    def augment(self, rewards: npt.ArrayLike, y: float) -> Array:
        return self.risk.augment(rewards, y)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return self.y


class Visits(NamedTuple):
    """What a policy does in a model."""

    chain: PairChain
    shares: Array
    """Of its steps, in every pair of a state and an action, `(S, A)`."""
    weights: Array
    """Of the rewards in the data, and of the 0 after the end of episodes."""


class Model:
    """Finite data taken for the truth: every transition is as likely as it is counted."""

    def __init__(self, data: Dataset, discount: float) -> None:
        if data.n_states is None or data.n_actions is None:
            raise InputError(
                f"learn_finite needs whole numbers for states and actions, got {data}; for vectors "
                "there is learn_continuous"
            )
        self._pairs, self._discount = FinitePairs(data), discount
        self._over = self._pairs.ended if discount < 1.0 else None
        self._place = np.concatenate(list(self._pairs.rows()))
        self._count = np.bincount(self._place)
        self.rewards: Array = np.append(data.rewards, 0.0).astype(np.float64)
        self.choices = self._pairs.known | ~self._pairs.known.any(axis=1, keepdims=True)

    def visits(self, policy: Array) -> Visits:
        """Where the policy comes to, and what it receives."""
        from mvpi.offline.pair_chain import PairChain

        chain = PairChain(self._pairs.whole(policy), self._discount, self._over)
        occupancy = chain.occupancy()
        per_row = (occupancy[:-1] / self._count)[self._place]
        return Visits(chain, self._table(occupancy[:-1], 0.0), np.append(per_row, occupancy[-1]))

    def judged(self, policy: Array, visits: Visits, risk: Risk) -> Iteration:
        """How good a policy is that makes these visits."""
        y, value = (f(self.rewards, visits.weights) for f in (risk.dual, risk.value))
        return Iteration(policy, y, value, effective_size(visits.weights[:-1]))

    def action_values(self, chain: PairChain, rewards: Array) -> Array:
        """`q` for other rewards than those of the data, `(S, A)`; at discount 1 but for a constant.

        It is NaN where the policy of the chain never comes to.
        """
        means = np.bincount(self._place, rewards[:-1]) / self._count
        return self._table(chain.values(means), np.nan)

    def _table(self, values: Array, absent: float) -> Array:
        table = np.full(self._pairs.known.shape, absent)
        table[self._pairs.known] = values
        return table


class Climber:
    """A softmax policy in a model, which climbs towards an optimum of a risk measure."""

    def __init__(self, model: Model, risk: Risk) -> None:
        self.model, self.risk = model, risk
        self._logits = np.where(model.choices, 0.0, -np.inf)
        self._step = 1.0
        self.here, self._visits = self._seen(self._logits)

    def improve(self, tolerance: float) -> bool:
        """Climb along the natural gradient, by at most twice the last step; False at the top.

        That is where no action, for the `y` of the policy, is better by `tolerance` of the value.
        """
        advantages = self._advantages()
        if advantages.max() <= tolerance * abs(self.here.value):
            return False
        direction = _direction(advantages, self.here.policy)
        step = min(2.0 * self._step, _LARGEST_STEP)
        while step >= _SMALLEST_STEP:
            logits = self._logits + step * direction
            ahead, visits = self._seen(logits)
            if ahead.value >= self.here.value:  # what is hardly ever reached may not show yet
                self._logits, self._step = logits, step
                self.here, self._visits = ahead, visits
                return True
            step *= 0.5
        return False

    def _seen(self, logits: Array) -> tuple[Iteration, Visits]:
        """A policy evaluated in the model."""
        policy = softmax(logits)
        visits = self.model.visits(policy)
        return self.model.judged(policy, visits, self.risk), visits

    def _advantages(self) -> Array:
        """`q - v` for augmented rewards; 0 for what is never done."""
        augmented = self.risk.augment(self.model.rewards, self.here.y)
        q = self.model.action_values(self._visits.chain, augmented)
        v = np.nansum(self.here.policy * q, axis=1, keepdims=True)
        large = np.abs(q - v) > _NOISE * np.nanmax(np.abs(q))
        return np.where(large, q - v, 0.0)


def _direction(advantages: Array, policy: Array) -> Array:
    """The advantages in units of their spread in each state, and from -1 to 1.

    Whatever grows with the advantage makes the policy better, be the step small or large.
    """
    spread = np.sqrt((policy * advantages**2).sum(axis=1, keepdims=True))
    direction = np.zeros_like(advantages)
    np.divide(advantages, spread, out=direction, where=spread > 0.0)
    return np.clip(direction, -1.0, 1.0)


def _climbed(
    model: Model, risk: Risk, *, iterations: int, tolerance: float, on_iteration: OnIteration | None
) -> Iteration:
    """The local optimum above the uniform policy."""
    climber = Climber(model, risk)
    for _ in range(iterations):
        if on_iteration is not None:
            on_iteration(climber.here)
        if not climber.improve(tolerance):
            return climber.here
    raise NoConvergence(f"off-line MVPI still improves after {iterations} iterations; allow more")


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis; `-inf` is never chosen."""
    likely = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Array = likely / likely.sum(axis=-1, keepdims=True)
    return shares
