"""A MuJoCo task whose risk is in the episode: a late gamble, and swings that cancel.

    mvpi/LateGamble-v0      InvertedPendulum, 100 steps, with two zones that pay extra

On the right every step pays a bonus and raises the stake of a coin that is tossed late in the
episode; all steps after the toss pay the stake, or cost it. A step tells little of it: its variance
is small. But all these steps go the same way, so the return has a large one.

On the left every step pays a smaller bonus, and every other step costs, every other pays, a large
amount. Steps vary a lot, the return hardly: two in a row cancel.

So a risk of a step avoids the left, and a risk of the return the right. `behaviours` has the exact
statistics of staying in one place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from mvpi._checks import check_count, check_kind, check_number
from mvpi._types import Array, Env, Step
from mvpi.envs.noisy_zone import make_mujoco
from mvpi.errors import InputError


class Behaviour(NamedTuple):
    """Statistics of an episode that is spent in one place."""

    return_mean: float
    return_variance: float
    reward_mean: float
    reward_variance: float


class LateGamble(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Right of `threshold` a late gamble, left of `-threshold` swings that cancel.

    `env` is a MuJoCo environment that pays 1 a step; the place is `data.qpos[0]`. After `toss`
    steps a coin is tossed, and each of the other steps pays `stake` times the share of steps before
    the toss that ended on the right, or costs it; an episode that terminates early settles all of
    it at once. On the left, steps cost and pay `swing` in turn. Every step on the right
    also pays `right`, on the left `left`; an episode has `steps` steps.
    Seen besides the observation: whether the next swing pays, the time, the share, and the coin
    (0 before the toss). `info["place"]` is -1, 0 or 1.
    """

    def __init__(
        self,
        env: Env,
        steps: int = 100,
        toss: int = 60,
        threshold: float = 0.05,
        right: float = 0.6,
        left: float = 0.3,
        stake: float = 0.9,
        swing: float = 4.0,
    ) -> None:
        check_kind(env, gym.Env, "env", "a gymnasium.Env")
        inner = env.observation_space
        if not hasattr(env.unwrapped, "data") or not isinstance(inner, gym.spaces.Box):
            raise InputError(f"LateGamble needs a MuJoCo environment, got {env}")
        self.steps = check_count(steps, "steps", at_least=2)
        self.toss = check_count(toss, "toss", at_most=self.steps - 1)
        self.threshold = check_number(threshold, "threshold", at_least=0.0)
        self.right, self.left = check_number(right, "right"), check_number(left, "left")
        self.stake = check_number(stake, "stake", at_least=0.0)
        self.swing = check_number(swing, "swing", at_least=0.0)
        gym.utils.RecordConstructorArgs.__init__(
            self,
            steps=steps,
            toss=toss,
            threshold=threshold,
            right=right,
            left=left,
            stake=stake,
            swing=swing,
        )
        super().__init__(env)
        low, high = np.array([0.0, 0.0, 0.0, -1.0]), np.ones(4)
        self.observation_space = gym.spaces.Box(
            np.concatenate([inner.low, low]), np.concatenate([inner.high, high]), dtype=np.float64
        )
        self._begin()

    def _begin(self) -> None:
        self._time = self._raised = self._swings = 0
        self._coin = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin()
        return self._extended(observation), info

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = self.env.step(action)
        x = float(self.unwrapped.data.qpos[0])  # type: ignore[attr-defined]
        place = int(x > self.threshold) - int(x < -self.threshold)
        pays = float(reward) + self._coin * self.stake * self._share
        if place == 1:
            pays += self.right
            self._raised += self._time < self.toss
        elif place == -1:
            self._swings += 1
            pays += self.left + (-self.swing if self._swings % 2 else self.swing)
        self._time += 1
        if self._coin == 0.0 and (self._time == self.toss or terminated):
            self._coin = 1.0 if self.np_random.random() < 0.5 else -1.0
        if terminated:
            left = self.steps - max(self._time, self.toss)
            pays += left * self._coin * self.stake * self._share
        truncated = truncated or self._time >= self.steps
        return self._extended(observation), pays, terminated, truncated, info | {"place": place}

    @property
    def _share(self) -> float:
        return self._raised / self.toss

    def _extended(self, observation: Any) -> Array:
        seen = self._swings % 2, self._time / self.steps, self._share, self._coin
        return np.concatenate([np.asarray(observation, np.float64), seen])

    def behaviours(self) -> dict[str, Behaviour]:
        """Exact statistics of episodes that are spent "left", in the "middle", or "right".

        Each has `return_mean`, `return_variance`, `reward_mean` and `reward_variance`, these
        of a random step of a random episode. For an even number of steps.
        """
        after = self.steps - self.toss
        return {
            "left": Behaviour(self.steps * (1.0 + self.left), 0.0, 1.0 + self.left, self.swing**2),
            "middle": Behaviour(float(self.steps), 0.0, 1.0, 0.0),
            "right": Behaviour(
                self.steps * (1.0 + self.right),
                (after * self.stake) ** 2,
                1.0 + self.right,
                after / self.steps * self.stake**2,
            ),
        }


def late_gamble(**options: Any) -> Env:
    """InvertedPendulum, 100 steps, with a late gamble on the right and swings on the left."""
    return LateGamble(make_mujoco("InvertedPendulum-v5", **options))
