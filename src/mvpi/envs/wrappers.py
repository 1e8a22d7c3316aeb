"""Wrappers: noise on actions, and the augmented reward for training loops of other libraries."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi._checks import check_kind, check_number
from mvpi._types import Env, Step
from mvpi.augmenter import Augmenter
from mvpi.errors import InputError
from mvpi.risk import Risk


class NoisyActions(gym.ActionWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Adds `N(0, std^2)` to every action, then clips it to the action box.

    The noise comes from the environment's own generator, so seeding the environment seeds it.
    """

    def __init__(self, env: Env, std: float = 0.1) -> None:
        check_kind(env, gym.Env, "env", "a gymnasium.Env")
        self.std = check_number(std, "std", at_least=0.0)
        gym.utils.RecordConstructorArgs.__init__(self, std=std)
        super().__init__(env)
        box = env.action_space
        if not isinstance(box, gym.spaces.Box) or box.dtype.kind != "f":
            raise InputError(f"NoisyActions needs a Box of real actions, got {box}")
        self._box = box

    def action(self, action: npt.ArrayLike) -> npt.NDArray[Any]:
        a = np.asarray(action, dtype=self._box.dtype)
        noise = self.std * self.np_random.standard_normal(a.shape)
        return np.clip(a + noise, self._box.low, self._box.high).astype(a.dtype)


class AugmentedReward(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Gives `risk.augment(r, y)` in place of the reward; `y` follows the recent raw rewards.

    The raw reward is in `info["raw_reward"]`, and wrappers further inside, such as
    `RecordEpisodeStatistics`, go on seeing it. `risk` is a number, a `Risk`, or an `Augmenter` that
    several environments share, which may weigh rewards by the discounted occupancy. For methods
    that learn from what they have just seen; a replay buffer should keep raw rewards and have an
    `Augmenter` augment the batch instead.
    """

    def __init__(self, env: Env, risk: Risk | float | Augmenter, window: int = 10_000) -> None:
        check_kind(env, gym.Env, "env", "a gymnasium.Env")
        self.augmenter = risk if isinstance(risk, Augmenter) else Augmenter(risk, window)
        gym.utils.RecordConstructorArgs.__init__(self, risk=risk, window=window)
        super().__init__(env)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._time = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.augmenter.observe(float(reward), self._time, bool(terminated))
        self._time += 1
        augmented = float(self.augmenter.augment(float(reward)))
        return observation, augmented, terminated, truncated, info | {"raw_reward": float(reward)}
