"""The algorithms that are plugged, each with settings small enough for a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

SMALL = {"net_arch": [16, 16]}
REPLAY = {"buffer_size": 400, "learning_starts": 20, "batch_size": 16, "train_freq": 5}
ROLLOUT = {"n_steps": 64}

LIMIT = 7
"""Steps until `Echo` is cut: many time limits in every rollout."""


class Echo(gym.Env[Any, Any]):
    """The first observation entry is the last reward, so that a drawn batch tells the raw one.

    The second entry is the time in the episode. Rewards are random and depend on the action; one
    episode in four terminates, the others are cut. All rewards are kept in `given`.
    """

    def __init__(self, discrete: bool = False, scale: float = 1.0) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space: gym.Space[Any] = (
            gym.spaces.Discrete(3) if discrete else gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        )
        self.scale = scale
        self.given: list[float] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        self._terminates = self.np_random.random() < 0.25
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        push = float(np.sum(action))
        # As float32, which is what SB3 keeps of it.
        reward = float(np.float32(self.scale * (push + self.np_random.normal())))
        self.given.append(reward)
        over = self._time >= LIMIT
        seen = np.array([reward, self._time], np.float32)
        return seen, reward, over and self._terminates, over and not self._terminates, {}

    def action_masks(self) -> Any:
        """For MaskablePPO: everything is allowed but the last action at odd times."""
        return np.array([True, True, self._time % 2 == 0])


@dataclass(frozen=True)
class Algorithm:
    """A class of one of the three libraries, and how to make a small one."""

    library: str
    name: str
    kind: str
    discrete: bool = False
    policy: str = "MlpPolicy"
    arguments: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.library}.{self.name}"

    @property
    def cls(self) -> Any:
        return getattr(import_module(self.library), self.name)

    @property
    def settings(self) -> dict[str, Any]:
        shared = REPLAY if self.kind == "off-policy" else ROLLOUT
        own = dict(SMALL)  # a model adds entries to it
        return {"seed": 3, "device": "cpu", "policy_kwargs": own, **shared, **self.arguments}

    def env(self) -> Echo:
        return Echo(self.discrete)

    def plain(self, env: Any = None, **more: Any) -> Any:
        return self.make(self.cls, env, **more)

    def plugged(self, risk: Any, env: Any = None, **more: Any) -> Any:
        from mvpi.sb3 import risk_averse

        return self.make(risk_averse, env, algorithm=self.cls, risk=risk, **more)

    def make(self, maker: Callable[..., Any], env: Any, **more: Any) -> Any:
        env = self.env() if env is None else env
        return maker(policy=self.policy, env=env, **{**self.settings, **more})


OFF, ON = "off-policy", "on-policy"
EPOCHS = {"batch_size": 32, "n_epochs": 2}
SB3, CONTRIB, SBX = "stable_baselines3", "sb3_contrib", "sbx"

ALGORITHMS = [
    Algorithm(SB3, "DDPG", OFF),
    Algorithm(SB3, "TD3", OFF),
    Algorithm(SB3, "SAC", OFF),
    Algorithm(SB3, "DQN", OFF, discrete=True, arguments={"target_update_interval": 50}),
    Algorithm(CONTRIB, "TQC", OFF),
    Algorithm(CONTRIB, "QRDQN", OFF, discrete=True, arguments={"target_update_interval": 50}),
    Algorithm(CONTRIB, "CrossQ", OFF),
    Algorithm(SBX, "DDPG", OFF),
    Algorithm(SBX, "TD3", OFF),
    Algorithm(SBX, "SAC", OFF),
    Algorithm(SBX, "DQN", OFF, discrete=True, arguments={"target_update_interval": 50}),
    Algorithm(SBX, "TQC", OFF),
    Algorithm(SBX, "CrossQ", OFF),
    Algorithm(SB3, "PPO", ON, arguments=EPOCHS),
    Algorithm(SB3, "A2C", ON, arguments={"n_steps": 16}),
    Algorithm(CONTRIB, "TRPO", ON, arguments={"batch_size": 32}),
    Algorithm(CONTRIB, "RecurrentPPO", ON, policy="MlpLstmPolicy", arguments=EPOCHS),
    Algorithm(CONTRIB, "MaskablePPO", ON, discrete=True, arguments=EPOCHS),
    Algorithm(SBX, "PPO", ON, arguments=EPOCHS),
]
QUICK = ("SAC", "PPO")
"""Of the algorithms of SBX, those that every run of the tests takes: they compile for seconds."""


KINDS = (
    "stable_baselines3.SAC",
    "stable_baselines3.DQN",
    "stable_baselines3.PPO",
    "sb3_contrib.CrossQ",
    "sb3_contrib.RecurrentPPO",
    "sbx.SAC",
)
"""With and without a replay buffer, choices, statistics of batches, a memory, and JAX."""


def each(algorithms: Iterable[Algorithm]) -> pytest.MarkDecorator:
    """A test for each of them, slow for most of SBX."""
    return _each(algorithms, lambda a: a.library != SBX or a.name in QUICK)


def each_kind(algorithms: Iterable[Algorithm]) -> pytest.MarkDecorator:
    """A test for each of them, slow for all but one of a kind."""
    return _each(algorithms, lambda a: str(a) in KINDS)


def _each(
    algorithms: Iterable[Algorithm], quick: Callable[[Algorithm], bool]
) -> pytest.MarkDecorator:
    marked = [pytest.param(a, marks=[] if quick(a) else [pytest.mark.slow]) for a in algorithms]
    return pytest.mark.parametrize("algorithm", marked, ids=str)


OFF_POLICY = [a for a in ALGORITHMS if a.kind == OFF]
ON_POLICY = [a for a in ALGORITHMS if a.kind == ON]


BY_NAME = {str(algorithm): algorithm for algorithm in ALGORITHMS}
OURS_AND_SBX = [BY_NAME["stable_baselines3.SAC"], BY_NAME["sbx.SAC"]]


class Pair(gym.ObservationWrapper[Any, Any, Any]):
    """The echo as a dictionary of observations."""

    def __init__(self, env: Echo) -> None:
        super().__init__(env)
        one = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = gym.spaces.Dict({"reward": one, "time": one})

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"reward": observation[:1], "time": observation[1:]}


class Reach(gym.Env[Any, Any]):
    """A goal to be reached on a line; the reward is minus the distance."""

    def __init__(self) -> None:
        point = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, point))
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._time, self._x = 0, np.zeros(1, np.float32)
        self._goal = self.np_random.normal(size=1).astype(np.float32)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._x, self._time = (self._x + action).astype(np.float32), self._time + 1
        reward = float(self.compute_reward(self._x, self._goal, {}))
        return self._seen(), reward, False, self._time >= 8, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.abs(achieved - desired)[..., 0]

    def _seen(self) -> dict[str, Any]:
        return {"observation": self._x, "achieved_goal": self._x, "desired_goal": self._goal}
