"""Evaluations: statistics are those of the rewards, and episodes do not depend on each other."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import mvpi
from mvpi import stats
from mvpi.envs import FourState, Markowitz
from mvpi.errors import EnvironmentFailure
from mvpi.rollout import evaluation


class Fixed:
    """A policy that always does the same, as Stable-Baselines3 would say it or as we do."""

    def __init__(self, action: Any, as_tuple: bool = False) -> None:
        self.action = action
        self.as_tuple = as_tuple

    def predict(self, observation: Any) -> Any:
        return (self.action, None) if self.as_tuple else self.action


def test_statistics_are_those_of_the_rewards() -> None:
    result = mvpi.evaluate(Fixed(np.array([0.5, 0.2])), Markowitz, episodes=30, seed=3)
    assert result.returns.shape == (30,)
    assert result.rewards.shape == (3_000,)
    np.testing.assert_allclose(result.rewards.reshape(30, 100).sum(axis=1), result.returns)
    assert result.mean == pytest.approx(result.returns.mean())
    assert result.variance == pytest.approx(result.returns.var())
    assert result.deviation == pytest.approx(result.returns.std())
    assert result.sharpe == pytest.approx(result.returns.mean() / result.returns.std())
    assert result.worst == result.returns.min()
    assert result.cvar(0.1) == pytest.approx(np.sort(result.returns)[:3].mean())
    assert result.value(2.0) == pytest.approx(result.mean - 2 * result.variance)
    assert result.reward_value(2.0) == pytest.approx(
        result.rewards.mean() - 2 * result.rewards.var()
    )


def test_an_episode_does_not_depend_on_how_many_there_are() -> None:
    agent = Fixed(np.array([0.5, 0.2]))
    few = mvpi.evaluate(agent, Markowitz, episodes=3, seed=1)
    many = mvpi.evaluate(agent, Markowitz, episodes=7, seed=1)
    np.testing.assert_array_equal(few.returns, many.returns[:3])
    other = mvpi.evaluate(agent, Markowitz, episodes=3, seed=2)
    assert not np.isin(other.returns, many.returns).any()


def test_actions_may_come_with_a_state() -> None:
    plain, tupled = (mvpi.evaluate(Fixed(0, t), FourState, episodes=2) for t in (False, True))
    np.testing.assert_array_equal(plain.returns, tupled.returns)


@pytest.mark.slow
def test_intervals_cover_at_their_rate() -> None:
    """Of 95% intervals for the mean and the per-step variance, about 95% hold the truth."""
    problem = Markowitz()
    action = np.array([0.5, 0.2])
    variance = float(action @ problem.covariance @ action)
    agent, covered = Fixed(action), np.zeros(2)
    for seed in range(60):
        result = mvpi.evaluate(agent, Markowitz, episodes=25, seed=seed)
        low, high = result.interval(stats.mean)
        covered[0] += low <= 100 * action @ problem.mean <= high
        low, high = result.reward_interval(stats.variance)
        covered[1] += low <= variance <= high
    assert (covered >= 50).all()


def test_a_given_environment_is_left_alone() -> None:
    env = Markowitz()
    env.reset(seed=0)
    state = env.np_random.bit_generator.state
    mvpi.evaluate(Fixed(np.zeros(2)), env, episodes=2)
    assert env.np_random.bit_generator.state == state


@pytest.mark.parametrize("episodes", [0, -1, 1.5, "3", True])
def test_episodes_must_be_a_count(episodes: Any) -> None:
    with pytest.raises(mvpi.InputError, match="episodes must be a whole number >= 1"):
        mvpi.evaluate(Fixed(0), FourState, episodes=episodes)


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_the_seed_must_be_a_count(seed: Any) -> None:
    with pytest.raises(mvpi.InputError, match="seed must be a whole number >= 0"):
        mvpi.evaluate(Fixed(0), FourState, seed=seed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o * np.nan, "an observation that is not finite in an evaluation"),
        (lambda o: o[None], r"an observation of shape \(1, 1\), not \(1,\)"),
        (lambda o: {"x": o}, "an observation of shape"),
        (lambda o: [o, [o, o]], "in an evaluation"),
    ],
)
def test_wrong_observations_are_told(change: Any, message: str) -> None:
    """The rewards of this one do not depend on the actions, so nothing else would tell."""

    class Wrong(Markowitz):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(np.zeros(2))
            return change(observation), 1.0, *rest

    with pytest.raises(EnvironmentFailure, match=message):
        mvpi.evaluate(Fixed(np.zeros(2)), Wrong, episodes=2)


def test_an_episode_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_LONGEST", 50)
    assert mvpi.evaluate(Fixed(0), partial(FourState, 50), episodes=1).lengths == [50]
    with pytest.raises(EnvironmentFailure, match="within 50 steps; give it a time limit"):
        mvpi.evaluate(Fixed(0), partial(FourState, 51), episodes=1)


def test_the_environment_must_be_known() -> None:
    with pytest.raises(mvpi.InputError, match="env must be given"):
        mvpi.evaluate(Fixed(0))


def test_the_interval_of_a_sharpe_ratio_that_may_be_infinite() -> None:
    returns = np.array([1.0, 2.0, 3.0])
    seen = mvpi.Evaluation(returns, returns, np.ones(3, np.int64))
    low, high = seen.interval(stats.sharpe)
    assert 0 < low < seen.sharpe < high
    assert high == np.inf


def test_agents_with_an_act_of_their_own_are_asked_to_predict() -> None:
    class Own:
        def predict(self, observation: object) -> np.ndarray:
            return np.full(2, 0.5)

        def act(self, observation: object) -> None:
            raise AssertionError("this is not the one")

    seen = mvpi.evaluate(Own(), "mvpi/Markowitz-v0", episodes=2)
    assert len(seen.returns) == 2


def test_what_cannot_predict_is_refused() -> None:
    with pytest.raises(mvpi.InputError, match="must have a method predict, object has none"):
        mvpi.evaluate(object(), "mvpi/Markowitz-v0", episodes=2)


def test_what_is_printed_of_an_evaluation_and_of_an_agent() -> None:
    seen = mvpi.Evaluation(np.array([3.0, 1.0]), np.array([1.0, 2.0, 1.0]), np.array([2, 1]))
    assert repr(seen) == (
        "Evaluation(2 episodes: mean 2, std. dev. 1, worst 1; per step: mean 1.3333, "
        "variance 0.22222)"
    )
    agent = mvpi.PPO("mvpi/Markowitz-v0", risk=0.5, seed=3)
    assert repr(agent) == "PPO('mvpi/Markowitz-v0', risk=0.5, seed=3, steps=0)"
