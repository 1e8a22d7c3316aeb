"""Which risk aversion: known knees, intervals against a second route, words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mvpi import stats
from mvpi.cli.learned_frontier import of_returns, of_steps
from mvpi.report.agent_statistics import Estimate
from mvpi.report.risk_choice import Candidates, Moments, knee, of_outcomes
from mvpi.rollout.evaluation import Episode, Evaluation, summarise


def candidates(points: list[tuple[float, float]], **more: float) -> Candidates:
    """Points (deviation, mean), without intervals."""
    names = tuple(f"risk aversion {i}" for i in range(len(points)))
    moments = tuple(Moments(Estimate(m), Estimate(d, **more)) for d, m in points)
    return Candidates(names, moments, "return")


def seen(seed: int = 0, episodes: int = 30) -> Evaluation:
    rng = np.random.default_rng(seed)
    shown = (Episode(rng.normal(1.0, 2.0, rng.integers(3, 9)), bool(rng.random() < 0.5))
             for _ in range(episodes))  # fmt: skip
    return summarise(shown, episodes=episodes)


@pytest.mark.parametrize("power", [0.2, 0.5, 0.8])
def test_the_knee_of_a_power_is_where_its_slope_is_one(power: float) -> None:
    # x^p - x is largest where p x^(p - 1) = 1; scales and shifts of both axes do not matter.
    x = np.linspace(0.0, 1.0, 2_001)
    found = knee([(3.0 + 70.0 * a, -5.0 + 0.01 * a**power) for a in x])
    assert found is not None
    assert x[found] == pytest.approx(power ** (1.0 / (1.0 - power)), abs=1e-3)


def test_dominated_points_are_no_knee() -> None:
    points = [(10.0, 5.0), (4.0, 4.5), (4.5, 4.4), (2.0, 1.0), (5.0, 0.0)]
    chosen = candidates(points)
    assert chosen.efficient == [3, 1, 0]
    assert chosen.knee == 1


@pytest.mark.parametrize(
    "points",
    [
        [(1.0, 1.0)],
        [(1.0, 1.0), (2.0, 2.0)],
        [(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)],
        [(1.0, 1.0), (2.0, 1.1), (3.0, 3.0)],  # below the chord
        [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)],  # one dominates all
    ],
)
def test_frontiers_without_a_knee(points: list[tuple[float, float]]) -> None:
    assert knee(points) is None


def test_rounding_errors_dominate_nothing() -> None:
    same = candidates([(0.1 + 0.2, 1.0), (0.3, 1.0)])
    assert same.efficient == [0, 1]


def test_the_recommendation_compares_with_the_first() -> None:
    told = candidates([(10.0, 100.0), (4.2, 93.3), (3.0, 50.0)]).recommendation()
    assert told.startswith(
        "Risk aversion 1: standard deviation -58%, mean -6.7% against risk aversion 0"
    )
    assert "knee" in told
    assert "chance" not in told


def test_a_recommendation_that_may_be_chance_says_so() -> None:
    chosen = candidates([(10.0, 100.0), (4.2, 93.3), (3.0, 50.0)], low=1.0, high=20.0)
    assert "overlap, so it may be chance" in chosen.recommendation()


def test_one_that_dominates_all_and_none_at_all() -> None:
    told = candidates([(3.0, 1.0), (1.0, 2.0), (2.0, 1.0)]).recommendation()
    assert told.startswith("Risk aversion 1: standard deviation -67%, mean +100%")
    assert candidates([(1.0, 1.0), (2.0, 0.5)]).recommendation().startswith("Risk aversion 0: ")
    assert candidates([(2.0, 2.0), (1.0, 1.0)]).recommendation().startswith("No knee")


def test_moments_of_steps_are_those_of_an_evaluation_and_so_are_their_intervals() -> None:
    one = seen()
    found = of_steps(one)
    assert found.mean.value == pytest.approx(one.reward_mean, abs=1e-14)
    assert found.deviation.value == pytest.approx(math.sqrt(one.reward_variance), abs=1e-14)
    low, high = one.reward_interval(stats.mean)
    assert (found.mean.low, found.mean.high) == pytest.approx((low, high), abs=0.1)
    low, high = one.reward_interval(lambda r, w: math.sqrt(stats.variance(r, w)))
    assert (found.deviation.low, found.deviation.high) == pytest.approx((low, high), abs=0.1)


def test_moments_in_the_discounted_occupancy() -> None:
    one = seen()
    found = of_steps(one, gamma=0.9)
    assert found.mean.value == pytest.approx(stats.mean(*one.occupancy(0.9)), abs=1e-14)
    assert found.mean.low < found.mean.value < found.mean.high
    assert found.deviation.low < found.deviation.value < found.deviation.high


def test_moments_of_returns() -> None:
    one = seen()
    found = of_returns(one)
    assert found.point == pytest.approx((one.returns.std(), one.returns.mean()), rel=1e-9)
    assert found.mean.low < found.mean.value < found.mean.high


def test_moments_of_outcomes_are_means_over_seeds() -> None:
    from mvpi.experiments.outcome import Outcome

    each = [seen(seed) for seed in (1, 2)]
    of_return, of_step = of_outcomes([Outcome.of(10, one) for one in each])
    assert of_return.mean.value == pytest.approx(np.mean([one.mean for one in each]))
    variance = np.mean([one.reward_variance for one in each])
    assert of_step.deviation.value == pytest.approx(math.sqrt(variance))
