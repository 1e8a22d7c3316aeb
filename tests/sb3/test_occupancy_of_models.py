"""The discounted occupancy in the plug, against a log that the environments keep themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN, PPO, HerReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv

import mvpi
from mvpi.augmenter.occupancy import discounted
from mvpi.errors import InputError, RiskWarning
from mvpi.sb3 import augmenter_of, risk_averse

LIMIT = 20
REPLAY: dict[str, Any] = {
    "learning_starts": 100,
    "buffer_size": 5_000,
    "batch_size": 32,
    "learning_rate": 1e-3,
    "target_update_interval": 100,
    "policy_kwargs": {"net_arch": [16]},
}
ROLLOUT: dict[str, Any] = {"n_steps": 256, "policy_kwargs": {"net_arch": [16]}}
MODELS = [(DQN, REPLAY), (PPO, ROLLOUT)]
models = pytest.mark.parametrize(("algorithm", "settings"), MODELS, ids=["DQN", "PPO"])


class Door(gym.Env[Any, Any]):
    """Steps cost about 1; action 1 ends it. Every step is in `log`: reward, time, terminated."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.log: list[tuple[float, int, bool]] = []

    def reset(self, **seed: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**seed)
        self._time = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        through = bool(action == 1) and self.np_random.random() < 0.5
        reward = float(np.float32(-1.0 - 0.1 * self.np_random.random()))
        self.log.append((reward, self._time, through))
        self._time += 1
        return np.ones(1, np.float32), reward, through, self._time >= LIMIT, {}


def doors(number: int) -> tuple[list[Door], DummyVecEnv]:
    envs = [Door() for _ in range(number)]
    return envs, DummyVecEnv([lambda env=env: env for env in envs])  # type: ignore[misc]


def expected(envs: list[Door], risk: float, gamma: float) -> float:
    columns = zip(*(step for env in envs for step in env.log), strict=True)
    return mvpi.MeanVariance(risk).dual(*discounted(*map(np.array, columns), gamma))


@models
@pytest.mark.parametrize("number", [1, 3])
def test_y_is_that_of_the_steps_the_environments_made(
    algorithm: Any, settings: dict[str, Any], number: int
) -> None:
    envs, env = doors(number)
    given = {**settings, "gamma": 0.8}
    model = risk_averse(
        algorithm, "MlpPolicy", env, risk=0.5, window=10_000, occupancy="discounted", **given
    )
    model.learn(700)
    assert augmenter_of(model).y == pytest.approx(expected(envs, 0.5, 0.8), rel=1e-6)
    model.learn(300)  # which resets the environments in the middle of episodes
    assert augmenter_of(model).y == pytest.approx(expected(envs, 0.5, 0.8), rel=1e-6)
    model.learn(300, reset_num_timesteps=False)  # which does not
    assert augmenter_of(model).y == pytest.approx(expected(envs, 0.5, 0.8), rel=1e-6)
    metrics = augmenter_of(model).metrics()
    assert metrics["reward_mean"] == pytest.approx(metrics["y"])


@models
def test_a_saved_model_goes_on(tmp_path: Path, algorithm: Any, settings: dict[str, Any]) -> None:
    envs, env = doors(2)
    model = risk_averse(
        algorithm, "MlpPolicy", env, risk=0.5, window=9_000, occupancy="discounted", **settings
    )
    model.learn(500)
    model.save(tmp_path / "model")
    again = algorithm.load(tmp_path / "model", env=env)
    assert augmenter_of(again).y == augmenter_of(model).y
    again.learn(500, reset_num_timesteps=False)
    assert augmenter_of(again).y == pytest.approx(expected(envs, 0.5, 0.99), rel=1e-6)


@pytest.mark.parametrize("size", [5_000, 300])
def test_a_buffer_of_a_plain_model_tells_when_its_rewards_were_earned(
    tmp_path: Path, size: int
) -> None:
    """All of them, or, of a ring that was full, those of episodes whose beginning is there."""
    envs, env = doors(2)
    settings = {**REPLAY, "buffer_size": size, "gamma": 0.8, "seed": 0}
    plain = DQN("MlpPolicy", env, **settings)
    plain.learn(1_000)
    plain.save_replay_buffer(tmp_path / "replay")
    model = risk_averse(DQN, "MlpPolicy", env, risk=0.5, occupancy="discounted", **settings)
    model.load_replay_buffer(tmp_path / "replay")
    model.collect_rollouts.plug.attach(model)  # as `learn` does
    for made in envs:
        made.log = made.log[-size // 2 :]  # what the ring still holds
    assert augmenter_of(model).y == pytest.approx(expected(envs, 0.5, 0.8), rel=0.02)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [pytest.param(*MODELS[0], marks=pytest.mark.slow), MODELS[1]],
    ids=["DQN", "PPO"],
)
def test_the_shortcut_walks_on_and_is_warned_of_the_definition_leaves(
    algorithm: Any, settings: dict[str, Any]
) -> None:
    def steps(**chosen: Any) -> float:
        _, env = doors(1)
        model = risk_averse(algorithm, "MlpPolicy", env, risk=2.0, seed=1, **settings, **chosen)
        model.learn(4_000)
        return float(mvpi.evaluate(model, Door, episodes=10).lengths.mean())

    with pytest.warns(RiskWarning, match="so the agent may avoid finishing"):
        assert steps() == LIMIT
    assert steps(occupancy="discounted") < 4


@pytest.mark.slow
def test_hindsight_flips_the_bits_at_risk_2() -> None:
    """Without the definition 0 of 100 episodes succeed."""
    env = BitFlippingEnv(n_bits=5, continuous=False, max_steps=5)
    model = risk_averse(
        DQN,
        "MultiInputPolicy",
        env,
        risk=2.0,
        occupancy="discounted",
        seed=0,
        replay_buffer_class=HerReplayBuffer,
        learning_starts=300,
        learning_rate=1e-3,
        target_update_interval=250,
        train_freq=2,
        exploration_fraction=0.3,
    )
    model.learn(5_000)
    successes = 0
    for seed in range(50):
        observation, _ = env.reset(seed=seed)
        over = success = False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, success, truncated, _ = env.step(int(action))
            over = success or truncated
        successes += success
    assert successes >= 45


def test_mistakes() -> None:
    with pytest.raises(InputError, match=r"occupancy must be one of .*got 'recent'"):
        risk_averse(PPO, "MlpPolicy", Door(), risk=1.0, occupancy="recent")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="gamma < 1, got 1"):
        risk_averse(PPO, "MlpPolicy", Door(), risk=1.0, occupancy="discounted", gamma=1.0)
