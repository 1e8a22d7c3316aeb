"""A late gamble on the right, swings that cancel on the left: exact statistics of both."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from mvpi.envs import LateGamble, Task
from mvpi.errors import InputError

PLACES = {"left": -0.5, "middle": 0.0, "right": 0.5}


def held_at(env: gym.Env[Any, Any], x: float, seed: int) -> list[float]:
    """The rewards of an episode in which the cart is put back to `x`, upright, before each step."""
    inner: Any = env.unwrapped
    env.reset(seed=seed)
    rewards, done = [], False
    while not done:
        inner.set_state(np.array([x, 0.0]), np.zeros(2))
        _, reward, terminated, truncated, _ = env.step(np.zeros(1))
        rewards.append(float(reward))
        done = terminated or truncated
    return rewards


@pytest.fixture(scope="module")
def task() -> gym.Env[Any, Any]:
    return Task("mvpi/LateGamble-v0")()


def gamble_of(env: gym.Env[Any, Any]) -> LateGamble:
    while not isinstance(env, LateGamble):
        env = env.env  # type: ignore[attr-defined]
    return env


def test_gymnasium_accepts_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checker comments on unusual but legal spaces
        env = gamble_of(gym.make("mvpi/LateGamble-v0"))
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize("place", PLACES)
def test_statistics_of_staying_in_one_place(task: gym.Env[Any, Any], place: str) -> None:
    """Exactly those of `behaviours`, when both sides of the coin count alike."""
    rewards = [held_at(task, PLACES[place], seed) for seed in range(8)]
    returns = np.array([sum(one) for one in rewards])
    low, high = rewards[int(returns.argmin())], rewards[int(returns.argmax())]
    assert len(low) == len(high) == 100
    both = np.array([low, high])
    exact = gamble_of(task).behaviours()[place]
    found = both.sum(axis=1).mean(), both.sum(axis=1).var(), both.mean(), both.var()
    assert found == pytest.approx(exact, abs=1e-9)
    assert place != "right" or low[:60] == high[:60]


def test_each_risk_has_its_own_best_place(task: gym.Env[Any, Any]) -> None:
    """At the same risk aversion, by the exact statistics."""
    lam, known = 0.05, gamble_of(task).behaviours()
    of_step = {name: b.reward_mean - lam * b.reward_variance for name, b in known.items()}
    of_return = {name: b.return_mean - lam * b.return_variance for name, b in known.items()}
    assert max(of_step, key=lambda name: of_step[name]) == "right"
    assert min(of_step, key=lambda name: of_step[name]) == "left"
    assert max(of_return, key=lambda name: of_return[name]) == "left"


def test_what_is_seen(task: gym.Env[Any, Any]) -> None:
    """The next swing, the time, the share on the right, and the coin."""
    inner: Any = task.unwrapped
    seen, _ = task.reset(seed=3)
    np.testing.assert_array_equal(seen[4:], [0.0, 0.0, 0.0, 0.0])
    for t in range(60):
        assert seen[7] == 0.0
        inner.set_state(np.array([0.5 if t < 30 else -0.5, 0.0]), np.zeros(2))
        seen, reward, _, _, info = task.step(np.zeros(1))
        assert info["place"] == (1 if t < 30 else -1)
        assert reward == pytest.approx(1.6 if t < 30 else 1.3 + (4.0 if t % 2 else -4.0))
    np.testing.assert_allclose(seen[4:7], [0.0, 0.6, 0.5])
    assert abs(seen[7]) == 1.0
    inner.set_state(np.zeros(2), np.zeros(2))
    assert task.step(np.zeros(1))[1] == pytest.approx(1.0 + 0.45 * seen[7])


@pytest.mark.parametrize("steps", [10, 70])
def test_an_episode_that_ends_early_settles_the_gamble(task: gym.Env[Any, Any], steps: int) -> None:
    """In all, 40 steps after the toss at 0.9 times the share of 60 steps that were on the right."""
    inner: Any = task.unwrapped
    _, total = task.reset(seed=5), 0.0
    for t in range(steps):
        fallen = t == steps - 1
        inner.set_state(np.array([0.5, 1.0 if fallen else 0.0]), np.zeros(2))
        _, reward, terminated, _, _ = task.step(np.zeros(1))
        total += float(reward)
        assert terminated == fallen
    gamble = 40 * 0.9 * min(steps, 60) / 60
    own = sum(1.6 for _ in range(steps)) - 1.0  # nothing is paid for a step that falls
    assert abs(total - own) == pytest.approx(gamble)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 1}, "steps must be a whole number >= 2"),
        ({"toss": 100}, "toss must be"),
        ({"toss": 0}, "toss must be"),
        ({"threshold": -0.1}, "threshold must be >= 0"),
        ({"stake": -1.0}, "stake must be >= 0"),
        ({"swing": np.nan}, "swing must be"),
        ({"left": "a"}, "left must be"),
        ({"right": np.inf}, "right must be"),
    ],
)
def test_malformed_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        LateGamble(gym.make("InvertedPendulum-v5"), **options)
    assert "\n" not in str(refused.value)


def test_other_environments_are_refused() -> None:
    with pytest.raises(InputError, match="MuJoCo"):
        LateGamble(gym.make("CartPole-v1"))
    with pytest.raises(InputError, match="env must be"):
        LateGamble("InvertedPendulum-v5")  # type: ignore[arg-type]
