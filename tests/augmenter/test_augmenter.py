"""Rewards as they come in: the window against a plain list, `y` against its definition."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mvpi
from mvpi import stats
from mvpi.augmenter import Augmenter, RewardWindow
from mvpi.augmenter.occupancy import discounted
from mvpi.errors import InputError
from mvpi.risk import CVaR, Entropic, MeanVariance, VarianceBudget

numbers = st.lists(st.integers(-50, 50).map(float), max_size=12)
MEASURES = [MeanVariance(0.0), MeanVariance(1.5), CVaR(0.3, 0.5), Entropic(0.7)]


@given(st.integers(1, 7), st.lists(numbers, max_size=8))
def test_a_window_holds_the_last_rewards(size: int, parts: list[list[float]]) -> None:
    at_once, one_by_one = RewardWindow(size), RewardWindow(size)
    everything: list[float] = []
    for part in parts:
        at_once.extend(part)
        for reward in part:
            one_by_one.add(reward)
        everything += part
        assert sorted(at_once.rewards) == sorted(everything[-size:])
        np.testing.assert_array_equal(at_once.rewards, one_by_one.rewards)


@given(st.integers(1, 7), st.integers(1, 7), numbers, numbers)
def test_a_window_that_changes_its_size_keeps_the_last_rewards(
    before: int, after: int, old: list[float], new: list[float]
) -> None:
    window = RewardWindow(before)
    window.extend(old)
    window.resize(after)
    assert window.size == after
    assert sorted(window.rewards) == sorted(old[-before:][-after:])
    window.extend(new)
    assert sorted(window.rewards) == sorted([*old[-before:], *new][-after:])


@pytest.mark.parametrize("gamma", [None, 0.9])
@given(
    size=st.integers(1, 300),
    rewards=st.lists(st.floats(-1e304, 1e304), min_size=1, max_size=400),
)
def test_the_mean_of_a_window_has_the_bits_of_the_statistic(
    gamma: float | None, size: int, rewards: list[float]
) -> None:
    at_once, one_by_one = RewardWindow(size, gamma), RewardWindow(size, gamma)
    at_once.extend(rewards, np.arange(len(rewards)))
    for time, reward in enumerate(rewards):
        one_by_one.add(reward, time)
    restored = RewardWindow(size, gamma)
    restored.restore(at_once.rewards, at_once.count, at_once.steps)
    for window in (at_once, one_by_one, restored):
        assert window.mean() == stats.mean(*window.distribution())


def test_a_dual_of_ones_own_is_used() -> None:
    class AroundTheMedian(MeanVariance):
        def dual(self, rewards: Any, weights: Any = None) -> float:
            return stats.quantile(rewards, 0.5, weights)

    augmenter = Augmenter(AroundTheMedian(0.5))
    augmenter.observe([1.0, 2.0, 9.0])
    assert augmenter.y == 2.0


@given(st.sampled_from(MEASURES), st.lists(numbers.filter(bool), min_size=1, max_size=6))
def test_y_is_the_dual_of_the_window(risk: Any, parts: list[list[float]]) -> None:
    augmenter = Augmenter(risk, window=9)
    everything: list[float] = []
    for part in parts:
        augmenter.observe(np.reshape(part, (-1, 1)))
        everything += part
        assert augmenter.y == pytest.approx(risk.dual(everything[-9:]), abs=1e-9)
        drawn = np.array([[1.0, -2.0], [0.0, 3.0]])
        np.testing.assert_allclose(augmenter.augment(drawn), risk.augment(drawn, augmenter.y))


def test_a_copy_goes_on_like_the_original() -> None:
    augmenter = Augmenter(VarianceBudget(0.1), window=50, budget_every=30)
    rng = np.random.default_rng(0)
    augmenter.observe(rng.normal(size=40))
    again = pickle.loads(pickle.dumps(augmenter))
    for one in (augmenter, again):
        one.observe(np.linspace(0, 1, 25))
    assert again.y == augmenter.y
    assert again.risk == augmenter.risk
    assert again.metrics() == augmenter.metrics()


def test_metrics() -> None:
    augmenter = Augmenter(2.0)
    augmenter.observe([1.0, 3.0])
    expected = {"y": 2.0, "risk_aversion": 2.0, "reward_mean": 2.0, "reward_variance": 1.0}
    assert augmenter.metrics() == expected
    other = Augmenter(CVaR(0.5))
    other.observe([1.0, 3.0])
    assert "risk_aversion" not in other.metrics()


def test_a_rollout_has_its_own_y() -> None:
    rewards = np.array([[1.0, 2.0], [3.0, 6.0]])
    np.testing.assert_allclose(mvpi.augment(rewards, 0.5), MeanVariance(0.5).augment(rewards, 3.0))
    np.testing.assert_allclose(mvpi.augment([4.0], 0.5, y=1.0), [0.0])
    priced = VarianceBudget(1.0, risk_aversion=0.5)
    np.testing.assert_allclose(mvpi.augment(rewards, priced), mvpi.augment(rewards, 0.5))


def test_y_is_measured_anew_on_a_window_of_another_size() -> None:
    augmenter = Augmenter(1.0, window=4)
    augmenter.observe([1.0, 2.0, 3.0, 6.0])
    assert augmenter.y == 3.0
    augmenter.resize(1)
    assert augmenter.y == 6.0


@pytest.mark.parametrize(
    ("variance", "price"),
    [(4.0, 1.0), (8.0, 1.2), (800.0, 1.2), (2.0, 0.9), (0.0, 0.8)],
    ids=str,
)
def test_a_budget_moves_its_price_by_the_excess(variance: float, price: float) -> None:
    # The natural unit is one over the standard deviation that is allowed, here 1/2.
    budget = VarianceBudget(4.0, risk_aversion=1.0).repriced(variance, rate=0.4)
    assert budget.limit == 4.0
    assert budget.risk_aversion == pytest.approx(price)


def test_a_price_is_never_negative() -> None:
    assert VarianceBudget(1.0, 0.01).repriced(0.0, 0.5).risk_aversion == 0.0


def test_mistakes() -> None:
    with pytest.raises(InputError, match="none was observed yet"):
        Augmenter(1.0).augment([1.0])
    with pytest.raises(InputError, match="window"):
        Augmenter(1.0, window=0)
    with pytest.raises(InputError, match="budget_every"):
        Augmenter(1.0, budget_every=0)
    with pytest.raises(InputError, match="budget_rate"):
        Augmenter(1.0, budget_rate=-1.0)
    with pytest.raises(InputError, match="variance limit > 0"):
        Augmenter(VarianceBudget(0.0))
    with pytest.raises(InputError, match="finite"):
        mvpi.augment([1.0, np.nan], 1.0)
    with pytest.raises(InputError, match=r"VarianceBudget.*mvpi.Augmenter"):
        mvpi.augment([1.0, 3.0], VarianceBudget(0.1))


def test_a_window_holds_finite_rewards() -> None:
    augmenter = Augmenter(1.0)
    augmenter.observe(1.0)
    for odd in (np.nan, [2.0, -np.inf]):
        with pytest.raises(InputError, match=r"finite, the environment gave (nan|-inf)"):
            augmenter.observe(odd)
    assert augmenter.y == 1.0


# The discounted occupancy.


@given(st.integers(1, 7), st.lists(numbers, max_size=6))
def test_a_window_holds_when_the_last_rewards_were_earned(
    size: int, parts: list[list[float]]
) -> None:
    """Added one by one, together, and after a change of size and back."""
    at_once, one_by_one = (RewardWindow(size, gamma=0.9) for _ in range(2))
    everything: list[tuple[float, int, bool]] = []
    for part in parts:
        new = [(r, len(everything) + i, r > 0) for i, r in enumerate(part)]
        everything += new
        for step in new:
            one_by_one.add(*step)
        if new:
            at_once.extend(*zip(*new, strict=True))
        if everything:
            rewards, times, ends = zip(*everything[-size:], strict=True)
            values, weights = at_once.distribution()
            expected = discounted(rewards, times, ends, 0.9)
            assert weights is not None
            assert mvpi.stats.mean(values, weights) == pytest.approx(mvpi.stats.mean(*expected))
            np.testing.assert_array_equal(at_once.steps, one_by_one.steps)
            again = RewardWindow(size, gamma=0.9)
            again.restore(at_once.rewards, len(everything), at_once.steps)
            np.testing.assert_array_equal(again.distribution()[1], weights)
    one_by_one.resize(size + 3)
    assert sorted(one_by_one.steps[0]) == [time for _, time, _ in everything[-size:]]


def test_damaged_steps_of_a_window_are_refused() -> None:
    for steps in (np.zeros((2, 3), np.int64), np.array([[0, -1], [0, 0]])):
        with pytest.raises(ValueError, match="times and ends of 2 rewards"):
            RewardWindow(5, gamma=0.9).restore(np.zeros(2), 2, steps)


def test_y_variance_and_budget_are_those_of_the_discounted_occupancy() -> None:
    augmenter = Augmenter(VarianceBudget(0.01), occupancy="discounted", gamma=0.5, budget_every=4)
    first = augmenter.risk
    assert isinstance(first, VarianceBudget)
    augmenter.observe([[-1.0, -1.0], [-1.0, -1.0]], [[0, 0], [1, 1]], [[False] * 2, [True] * 2])
    assert augmenter.y == pytest.approx(-0.75)
    assert augmenter.metrics()["reward_variance"] == pytest.approx(0.75 * 0.25)
    assert augmenter.risk == first.repriced(0.75 * 0.25, 0.05)


def test_environments_that_share_an_augmenter_have_their_own_time() -> None:
    shared = Augmenter(1.0, occupancy="discounted", gamma=0.9)
    envs = [mvpi.envs.AugmentedReward(mvpi.envs.FourState(horizon=3), shared) for _ in range(2)]
    for env in envs:
        env.reset(seed=0)
    for _ in range(2):
        for env in envs:
            env.step(1)
    envs[0].reset()
    envs[0].step(1)
    assert sorted(shared._window.steps[0]) == [0, 0, 0, 1, 1]


def test_what_the_discounted_occupancy_needs() -> None:
    with pytest.raises(InputError, match="needs gamma"):
        Augmenter(1.0, occupancy="discounted")
    with pytest.raises(InputError, match="occupancy must be one of undiscounted, discounted"):
        Augmenter(1.0, occupancy="recent")  # type: ignore[arg-type]
    augmenter = Augmenter(1.0, occupancy="discounted", gamma=0.9)
    with pytest.raises(InputError, match="needs times of the rewards"):
        augmenter.observe(1.0)
    with pytest.raises(InputError, match="needs terminated of the rewards"):
        augmenter.observe(1.0, 0)
    with pytest.raises(InputError, match=r"shape of rewards, \(2,\), got \(1,\)"):
        augmenter.observe([1.0, 2.0], [0], [False, False])
    with pytest.raises(InputError, match="times must be >= 0, got -1"):
        augmenter.observe(1.0, -1, False)
    for odd in ("no", b"no", 1, 0.0, np.int8(1), object(), Decimal(1), {}):
        with pytest.raises(InputError, match="terminated must be") as caught:
            augmenter.observe(1.0, 0, odd)
        assert "\n" not in str(caught.value)
    for odds in ([True, "no"], [True, None], [[True], [True, False]], [1, 0], ["", ""]):
        with pytest.raises(InputError, match="terminated must be") as caught:
            augmenter.observe([1.0, 2.0], [0, 1], odds)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"times must be of type int64, got 0\.5"):
        augmenter.observe(1.0, 0.5, False)
    assert augmenter.rewards.size == 0
