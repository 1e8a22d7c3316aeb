"""The error of an estimate by its Bellman residuals: the identity, known answers, coverage."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mvpi.offline import CoverageWarning, Dataset, density_ratio, policy_dual
from mvpi.offline._lstd_dual import PolicyDuals, _Sample, _System
from mvpi.offline._residual_error import Estimate, closest_rows, mixture

Array = npt.NDArray[np.float64]
GAMMA, NOISE = 0.9, 0.3


class Twins:
    """Random finite transitions, and the same as vectors; the exact ratio of a policy."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.s, self.a, self.following = (rng.integers(n, size=400) for n in (5, 2, 5))
        self.over, self.starts = rng.random(400) < 0.2, rng.integers(5, size=30)
        self.rewards, self.policy = rng.normal(size=400), rng.integers(2, size=5)
        finite = Dataset(self.s, self.a, self.rewards, self.following, self.over, self.starts)
        self.exact = density_ratio(finite, self.policy, GAMMA, method="exact")
        self.truth = float(np.mean(self.exact * self.rewards))

    def vectors(self) -> Dataset:
        states, actions = np.eye(5), np.eye(2)
        columns = (states[self.s], actions[self.a], self.rewards, states[self.following])
        return Dataset(*columns, self.over, states[self.starts])

    def acting(self, observations: Array) -> Array:
        return np.eye(2)[self.policy[np.argmax(observations, axis=1)]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("features", [1, 3, 6])
def test_the_mean_residual_at_the_policys_steps_is_the_error_of_the_closed_form(
    monkeypatch: pytest.MonkeyPatch, seed: int, features: int
) -> None:
    monkeypatch.setattr("mvpi.offline._lstd_dual._RIDGE", 1e-9)
    twins, rows = Twins(seed), tuple(np.arange(400)[:, None])
    table = np.random.default_rng(seed).normal(size=(10, features))
    following = 2 * twins.following + twins.policy[twins.following]
    pairs = (2 * twins.s + twins.a, following, 2 * twins.starts + twins.policy[twins.starts])
    inputs = [table[x] for x in pairs]
    sample = _Sample(*inputs, ~twins.over, twins.rewards, np.arange(400) // 10, rows)
    system = _System(lambda x: x, sample, GAMMA)
    ratio = system.ratio()
    assert ratio is not None
    estimate = float(np.mean(ratio * twins.rewards))
    assert abs(estimate - twins.truth) > 1e-4  # too few features for the action values
    residuals = system.residuals(sample, estimate)
    assert np.mean(twins.exact * residuals) == pytest.approx(twins.truth - estimate, abs=1e-6)


def test_the_mean_residual_at_the_policys_steps_is_the_error_of_the_network() -> None:
    twins = Twins(0)
    estimators = PolicyDuals(twins.vectors(), GAMMA).update(twins.acting, 20)
    assert estimators._sample is not None
    sample = estimators._sample._replace(closest=tuple(np.arange(400)[:, None]))
    estimate, residuals = estimators._fitted_q(sample)
    assert abs(estimate - twins.truth) > 1e-3
    assert residuals is not None
    expected = pytest.approx(twins.truth - estimate, abs=1e-5)
    assert np.mean(twins.exact * residuals) == expected


def test_rows_are_compared_where_actions_are_closest() -> None:
    distance = np.tile([3.0, 0.0, 2.0, 1.0, 4.0, 5.0, 0.5, 6.0], 16)
    rows = closest_rows(distance)
    assert [some.tolist() for some in rows] == [[8 * i + 1, 8 * i + 6] for i in range(16)]
    assert len(closest_rows(np.zeros(5))) == 5


def test_a_mixture_has_the_moments_of_what_is_drawn_from_it() -> None:
    estimates, errors = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 1.5])
    rng = np.random.default_rng(0)
    which = rng.choice(3, p=errors**-2 / (errors**-2).sum(), size=400_000)
    drawn = rng.normal(estimates[which], errors[which])
    assert mixture(estimates, errors) == pytest.approx((drawn.mean(), drawn.std()), rel=0.01)


def test_estimates_without_an_error_stay_finite() -> None:
    assert mixture([1.0, 1.0], [0.0, 0.0]) == pytest.approx((1.0, 0.0))
    assert mixture([1.0, 50.0], [0.0, 1.0]) == pytest.approx((1.0, 0.0))


def test_a_bias_of_the_mean_counts_as_much_as_y_follows_the_mean() -> None:
    twice = Estimate(0.0, np.ones(1), (-3.92, 3.92), (-1.96, 1.96), 1.5)
    assert (twice.sampling, twice.sensitivity) == pytest.approx((2.0, 2.0))
    assert twice.error == pytest.approx(math.hypot(2.0, 3.0))
    constant = Estimate(1.0, np.ones(1), (1.0, 1.0), (1.0, 1.0), 0.0)
    assert (constant.sensitivity, constant.error) == (1.0, 0.0)


# Coverage.


def narrow(seed: int) -> Dataset:
    """`s' = 0.8 s + a + noise`, random actions, reward 1 where `|s| < 0.1`: no feature shows it."""
    rng = np.random.default_rng(seed)
    s, a = np.empty((21, 200)), rng.uniform(-1.0, 1.0, (20, 200))
    s[0] = rng.normal(size=200)
    for t in range(20):
        s[t + 1] = 0.8 * s[t] + a[t] + NOISE * rng.normal(size=200)
    seen, action, following = (x.T.reshape(-1, 1) for x in (s[:-1], a, s[1:]))
    rewards = (np.abs(seen[:, 0]) < 0.1).astype(float)
    return Dataset(seen, action, rewards, following, np.zeros(4_000, bool), s[0][:, None])


def narrow_mean() -> float:
    """Of `a = -0.5 s`: `s_t` is Gaussian, with a variance that goes from 1 to its limit."""
    limit = NOISE**2 / (1.0 - 0.09)
    deviations = [math.sqrt(limit + (1.0 - limit) * 0.09**t) for t in range(300)]
    shares = [math.erf(0.1 / (d * math.sqrt(2.0))) for d in deviations]
    return (1.0 - GAMMA) * sum(GAMMA**t * share for t, share in enumerate(shares))


@pytest.mark.parametrize("seed", range(4))
def test_an_error_that_all_estimates_share_is_covered(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        found = policy_dual(narrow(seed), lambda s: -0.5 * s, GAMMA, 1.0, steps=300, seed=seed)
    assert found.interval[0] <= narrow_mean() <= found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.3  # of rewards from 0 to 1


def test_constant_rewards_leave_nothing_open() -> None:
    data = narrow(0)
    names = ("observations", "actions", "rewards", "next_observations", "terminations", "starts")
    columns: dict[str, Any] = {name: getattr(data, name) for name in names}
    columns["rewards"] = np.full(len(data), 0.7)
    found = policy_dual(Dataset(**columns), lambda s: -0.5 * s, GAMMA, 1.0, steps=50)
    assert (found.y, *found.interval) == pytest.approx((0.7, 0.7, 0.7))
