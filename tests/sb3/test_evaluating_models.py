"""`mvpi.evaluate` of Stable-Baselines3 models: as their own library would run them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import mvpi


def test_tables_are_looked_up_with_choices() -> None:
    model = DQN("MlpPolicy", "FrozenLake-v1", seed=0, learning_starts=0, policy_kwargs=SMALL)
    assert mvpi.evaluate(model, "FrozenLake-v1", episodes=2).lengths.min() >= 1


def test_the_same_seed_gives_the_same_episodes() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, policy_kwargs=SMALL)
    first, again, other = (
        mvpi.evaluate(model, "CartPole-v1", episodes=3, seed=s).returns for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    alone = mvpi.evaluate(model.policy, "CartPole-v1", episodes=3, seed=3).returns
    np.testing.assert_array_equal(first, alone)


def test_a_recurrent_policy_remembers_within_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=64, seed=0)
    predict, states = RecurrentPPO.predict, []

    def seen(
        self: Any, observation: Any, state: Any, episode_start: Any, deterministic: bool
    ) -> Any:
        states.append((state is None, bool(episode_start[0])))
        return predict(self, observation, state, episode_start, deterministic)

    monkeypatch.setattr(RecurrentPPO, "predict", seen)
    lengths = mvpi.evaluate(model, "CartPole-v1", episodes=2).lengths
    first = np.concatenate([[True] + [False] * (n - 1) for n in lengths])
    assert states == [(begins, begins) for begins in first]


class Forbidding(gym.Env[Any, Any]):
    """Allows one of five actions in each step, and says which."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_masks()[action]
        self.time += 1
        return np.zeros(1, np.float32), 1.0, False, self.time == 20, {}

    def action_masks(self) -> Any:
        return np.arange(5) == self.time % 5


def test_forbidden_actions_are_not_taken() -> None:
    model = MaskablePPO("MlpPolicy", Forbidding(), n_steps=64, seed=0, policy_kwargs=SMALL)
    assert mvpi.evaluate(model, Forbidding, episodes=2).returns.tolist() == [20.0, 20.0]


def test_observations_are_scaled_as_in_training() -> None:
    """Every action is the model's for the observation before it, scaled by hand."""
    scaled = VecNormalize(make_vec_env("Pendulum-v1", seed=0), norm_reward=False)
    model = PPO("MlpPolicy", scaled, n_steps=64, batch_size=32, seed=0, policy_kwargs=SMALL)
    model.learn(64)
    env, acted = gym.make("Pendulum-v1"), []
    mean, deviation = scaled.obs_rms.mean, np.sqrt(scaled.obs_rms.var + scaled.epsilon)

    class Noting(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            reply = self.env.step(action)
            acted.append((self.seen, action))
            self.seen = reply[0]
            return reply

        def reset(self, **options: Any) -> Any:
            self.seen, info = self.env.reset(**options)
            return self.seen, info

    mvpi.evaluate(model, lambda: Noting(env), episodes=1)
    observations, actions = map(np.array, zip(*acted, strict=True))
    shown = np.clip((observations - mean) / deviation, -10, 10).astype(np.float32)
    np.testing.assert_allclose(actions, model.predict(shown, deterministic=True)[0], atol=1e-5)


SMALL = {"net_arch": [8]}
