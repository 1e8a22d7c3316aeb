"""Small configs of all algorithms, and what their learners saw."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import tree
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2

import mvpi
from mvpi.envs import Markowitz

NET = {"fcnet_hiddens": [8]}


class Gamble(gym.Env[Any, Any]):
    """Action 1 pays 1 or 3, action 0 pays 1; terminates after 7 steps, or is cut after 5."""

    def __init__(self, config: Any = None) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._time = self._last = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._time, self._last = 0, 5 + 2 * int(self.np_random.integers(2))
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        self._time += 1
        reward = 1.0 + 2.0 * action * int(self.np_random.integers(2))
        observation = np.array([self._time / 10, action], np.float32)
        ended = self._time == self._last
        return observation, reward, ended and self._last == 7, ended and self._last == 5, {}


class Portfolio(gym.wrappers.TransformObservation[Any, Any, Any]):
    """Markowitz with observations in single precision.

    A class, not a registered name: Ray forgets names when its session ends.
    """

    def __init__(self, config: Any) -> None:
        box = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        super().__init__(Markowitz(**config), np.float32, box)


class Bets(gym.Env[Any, Any]):
    """Three steps: action 1 wins 3 or loses 1, action 0 pays nothing. Cut after the third.

    At risk aversion 0.25 of the return it is best to bet until the first win, which depends on the
    return so far; of the policies that do not look at it, never to bet is the best.
    """

    STEPS, WIN, LOSS = 3, 3.0, -1.0

    def __init__(self, config: Any = None) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._time = 0
        return self._observed(), {}

    def step(self, action: int) -> Any:
        self._time += 1
        won = int(self.np_random.integers(2))
        reward = float(action) * (self.WIN if won else self.LOSS)
        return self._observed(), reward, False, self._time == self.STEPS, {}

    def _observed(self) -> Any:
        return np.array([self._time / self.STEPS], np.float32)

    @classmethod
    def mdp(cls) -> mvpi.MDP:
        """The same, for exact answers; states say what the last bet did."""
        transitions, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
        transitions[:, 0, 0] = 1.0
        transitions[:, 1, 1:] = 0.5
        rewards[:, 1, 1:] = cls.WIN, cls.LOSS
        return mvpi.MDP(transitions, rewards, discount=1.0, start=[1.0, 0.0, 0.0])

    @classmethod
    def returns(cls, policy: Any, time: int = 0, earned: float = 0.0) -> dict[float, float]:
        """The distribution of the return of a deterministic policy, by the tree of outcomes."""
        if time == cls.STEPS:
            return {earned: 1.0}
        action = policy.predict(np.array([time / cls.STEPS], np.float32), return_so_far=earned)
        found: dict[float, float] = {}
        for outcome in (cls.WIN, cls.LOSS):
            later = cls.returns(policy, time + 1, earned + int(action) * outcome)
            for value, probability in later.items():
                found[value] = found.get(value, 0.0) + 0.5 * probability
        return found


def ppo(env: Any = Gamble, **training: Any) -> Any:
    settings = {"train_batch_size": 200, "minibatch_size": 50, "num_epochs": 2, **training}
    return _small(PPOConfig(), env, settings)


def dqn(env: Any = Gamble, **training: Any) -> Any:
    settings = {
        "train_batch_size": 16,
        "num_steps_sampled_before_learning_starts": 40,
        "target_network_update_freq": 20,
        **training,
    }
    return _small(DQNConfig(), env, settings).env_runners(rollout_fragment_length=4)


def brief(config: Any) -> Any:
    """With iterations of a few updates: what is drawn from a replay buffer takes RLlib long."""
    return config.reporting(min_sample_timesteps_per_iteration=60)


def sac(env: Any = Gamble, **training: Any) -> Any:
    settings = {
        "train_batch_size": 16,
        "num_steps_sampled_before_learning_starts": 40,
        **training,
    }
    config = _small(SACConfig(), env, settings).env_runners(rollout_fragment_length=4)
    return config.reporting(min_sample_timesteps_per_iteration=30)


def impala(env: Any = Gamble, **training: Any) -> Any:
    config = _small(IMPALAConfig(), env, {"train_batch_size_per_learner": 100, **training})
    return config.env_runners(rollout_fragment_length=10)


def appo(env: Any = Gamble, **training: Any) -> Any:
    config = _small(APPOConfig(), env, {"train_batch_size_per_learner": 100, **training})
    return config.env_runners(rollout_fragment_length=10)


def _small(config: Any, env: Any, training: dict[str, Any]) -> Any:
    config.environment(env).env_runners(num_env_runners=0).training(**training)
    config.rl_module(model_config=NET).debugging(seed=0)
    config.reporting(min_sample_timesteps_per_iteration=200, min_time_s_per_iteration=0)
    return config


def weights(algorithm: Any) -> dict[str, Any]:
    """All parameters of the first learner, optimisers included."""
    state = algorithm.learner_group.get_state()["learner"]
    return {"module": state["rl_module"], "optimizer": state["optimizer"]}


class Seen(ConnectorV2):
    """A user's own connector: keeps the rewards it was given, and those in the episodes."""

    kept: list[list[float]] = []
    episodes: list[list[Any]] = []

    def __call__(self, *, batch: Any, episodes: Any, **_: Any) -> Any:
        self.kept.append([float(r) for e in episodes for r in e.get_rewards()])
        self.episodes.append(list(episodes))
        return batch

    @classmethod
    def forget(cls) -> None:
        """Begin anew."""
        cls.kept.clear()
        cls.episodes.clear()


def watching(config: Any) -> Any:
    """The config with a connector that keeps what it sees in `Seen.kept`, of this process."""
    return config.learners(learner_connector=lambda *_: Seen())


def trained(config: Any, iterations: int = 3) -> tuple[Any, list[Any]]:
    """The weights and the results of a few iterations."""
    algorithm = config.build_algo()
    if algorithm.local_replay_buffer is not None:  # RLlib leaves its generator without a seed
        algorithm.local_replay_buffer.rng = np.random.default_rng(0)
    results = [algorithm.train() for _ in range(iterations)]
    state = weights(algorithm)
    algorithm.stop()
    return state, results


def assert_same_bits(one: Any, other: Any) -> None:
    """Two trees of arrays are the same."""
    tree.assert_same_structure(one, other)
    for path, value in tree.flatten_with_path(one):
        there: Any = other
        for key in path:
            there = there[key]
        assert np.asarray(value).tobytes() == np.asarray(there).tobytes(), path
