"""Tasks with a noisy zone: where it is, what it pays, and how often it was entered."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from mvpi import stats
from mvpi.envs import EitherWay, RiskyZone, Task
from mvpi.errors import InputError
from mvpi.paper.noisy_zone import draw, zone_rows
from mvpi.paper.rows import RunRow

TASKS = {
    "NoisyInvertedPendulum": (0.01, False),
    "NoisySwimmer": (0.5, False),
    "NoisyHalfCheetah": (-3.0, True),
    "NoisyAnt": (0.5, False),
    "RiskyPendulum": (0.01, False),
}
WALKS = ("NoisySwimmer", "NoisyHalfCheetah", "NoisyAnt")


def put(env: gym.Env[Any, Any], x: float) -> None:
    """Move the robot, as it is, to the position `x`."""
    inner: Any = env.unwrapped
    qpos = inner.data.qpos.copy()
    qpos[0] = x
    inner.set_state(qpos, inner.data.qvel.copy())


@pytest.mark.parametrize("name", TASKS)
def test_gymnasium_accepts_it(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checker comments on unusual but legal spaces
        check_env(gym.make(f"mvpi/{name}-v0").unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", TASKS)
def test_the_zone_begins_at_its_threshold(name: str) -> None:
    threshold, below = TASKS[name]
    env = Task(f"mvpi/{name}-v0")()
    for side in (-1, 1):
        env.reset(seed=0)
        put(env, threshold + 0.5 * side)
        _, _, _, _, info = env.step(np.zeros(env.action_space.shape))
        assert info["in_zone"] == ((side < 0) == below)
    assert env.get_wrapper_attr("share_inside") == 0.5


@pytest.mark.parametrize("name", [name for name in TASKS if name.startswith("Noisy")])
def test_noise_has_deviation_10_and_no_mean(name: str) -> None:
    threshold, below = TASKS[name]
    env = Task(f"mvpi/{name}-v0")()
    plain = env
    while not isinstance(plain, RiskyZone):
        plain = plain.env  # type: ignore[attr-defined]
    still = np.zeros(env.action_space.shape)
    env.reset(seed=1)
    surplus = []
    for _ in range(400):
        put(env, threshold + (-1.0 if below else 1.0))
        inner: Any = env.unwrapped
        state = inner.data.qpos.copy(), inner.data.qvel.copy()
        _, expected, _, _, _ = plain.env.step(still)
        inner.set_state(*state)
        _, reward, _, _, info = env.step(still)
        assert info["in_zone"]
        surplus.append(reward - expected)
        env.reset()
    assert stats.mean(surplus) == pytest.approx(0.0, abs=1.5)
    assert stats.variance(surplus) == pytest.approx(100.0, rel=0.25)


@pytest.mark.parametrize("name", WALKS)
def test_walkers_are_paid_for_speed_in_either_direction_and_see_where_they_are(name: str) -> None:
    env = Task(f"mvpi/{name}-v0")()
    observation, _ = env.reset(seed=2)
    assert observation[0] == env.unwrapped.data.qpos[0]  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    backwards = 0
    for _ in range(50):
        a = rng.uniform(env.action_space.low, env.action_space.high)  # type: ignore[attr-defined]
        _, reward, terminated, _, info = env.step(a)
        if not info["in_zone"]:
            rest = info["reward_ctrl"] + info.get("reward_survive", 0.0)
            assert reward == pytest.approx(abs(info["x_velocity"]) + rest, abs=1e-5)
            backwards += info["x_velocity"] < 0
        if terminated:
            env.reset()
    assert backwards > 5


@pytest.mark.parametrize("name", TASKS)
def test_an_episode_has_500_steps_and_the_seed_determines_it(name: str) -> None:
    def episode() -> list[float]:
        env = Task(f"mvpi/{name}-v0", action_noise=0.1)()
        env.reset(seed=3)
        rewards: list[float] = []
        for _ in range(500):
            _, reward, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape))
            rewards.append(float(reward))
            assert truncated == (len(rewards) == 500)
            if terminated or truncated:
                break
        return rewards

    assert episode() == episode()


@pytest.mark.parametrize("below", [False, True])
def test_the_zone_pays_more_and_noisily(below: bool) -> None:
    env = RiskyZone(gym.make("InvertedPendulum-v5"), threshold=0.0, std=0.5, bonus=0.2, below=below)
    inside, outside = [], []
    for seed in range(60):
        env.reset(seed=seed)
        done = False
        while not done:
            _, reward, terminated, truncated, info = env.step(np.array([0.3 if seed % 2 else -0.3]))
            done = terminated or truncated
            if not terminated:
                x = float(env.unwrapped.data.qpos[0])
                assert info["in_zone"] == (x < 0 if below else x > 0)
                (inside if info["in_zone"] else outside).append(reward)
    assert set(outside) == {1.0}
    assert stats.mean(inside) == pytest.approx(1.2, abs=0.1)
    assert stats.variance(inside) == pytest.approx(0.25, rel=0.3)


def test_only_what_says_its_forward_reward_goes_either_way() -> None:
    env = EitherWay(gym.make("InvertedPendulum-v5"))
    env.reset(seed=0)
    with pytest.raises(InputError, match="reward_forward"):
        env.step(np.zeros(1))


def test_the_share_of_one_seed_has_no_interval(tmp_path: Path) -> None:
    def run(method: str, seed: int, share: float) -> RunRow:
        numbers = 20, 2.0, 1.0, 2.0, 0.5, 0.25, share
        return RunRow("mvpi/NoisyAnt-v0", method, 0.0, seed, *numbers, "")

    alone, both = zone_rows([run("TD3", 0, 0.4), run("TRVO", 0, 0.2), run("TRVO", 1, 0.6)])
    assert alone.in_zone == 0.4
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)
    assert (both.low, both.in_zone, both.high) == (0.2, pytest.approx(0.4), 0.6)
    draw([alone, both], tmp_path / "zone.png")
    assert (tmp_path / "zone.png").stat().st_size > 10_000
