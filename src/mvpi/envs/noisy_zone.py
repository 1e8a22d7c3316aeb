"""MuJoCo tasks with a noisy zone: a position beyond which the reward is a gamble.

MuJoCo's tasks are nearly deterministic. Here the risk depends on the position, so that avoiding it
can be measured: by the share of steps inside the zone.

    mvpi/NoisyInvertedPendulum-v0   x > 0.01
    mvpi/NoisySwimmer-v0            x > 0.5
    mvpi/NoisyHalfCheetah-v0        x < -3
    mvpi/NoisyAnt-v0                x > 0.5
    mvpi/RiskyPendulum-v0           x > 0.01, milder, with a small bonus inside

In the first four the noise is `N(0, 10^2)` and the mean reward is the same inside and outside: the
tasks of Luo, Liu, Poupart and Pan (2023). Swimmer, cheetah and ant are paid for speed in
either direction, so that the zone costs no speed to avoid, and they observe their position.
Episodes have 500 steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

from mvpi._checks import check_flag, check_kind, check_number
from mvpi._types import Env, Step
from mvpi.errors import InputError

_EPISODE = 500
_NOISE = 10.0


class RiskyZone(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Beyond a threshold of the first position coordinate, rewards gain `bonus + N(0, std^2)`.

    The zone is `x > threshold`, or `x < threshold` with `below=True`; `x` is `data.qpos[0]` of a
    MuJoCo environment. `info["in_zone"]` says whether a step ended inside. The
    bonus attracts a risk-neutral agent, the noise deters a risk-averse one.
    """

    def __init__(
        self,
        env: Env,
        threshold: float,
        std: float,
        bonus: float = 0.0,
        below: bool = False,
    ) -> None:
        check_kind(env, gym.Env, "env", "a gymnasium.Env")
        if not hasattr(env.unwrapped, "data"):
            raise InputError(f"RiskyZone needs a MuJoCo environment, got {env}")
        self.threshold = check_number(threshold, "threshold")
        self.std = check_number(std, "std", at_least=0.0)
        self.bonus = check_number(bonus, "bonus")
        self.below = check_flag(below, "below")
        gym.utils.RecordConstructorArgs.__init__(
            self, threshold=threshold, std=std, bonus=bonus, below=below
        )
        super().__init__(env)
        self._steps = self._inside = 0

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = self.env.step(action)
        x = float(self.unwrapped.data.qpos[0])  # type: ignore[attr-defined]
        inside = x < self.threshold if self.below else x > self.threshold
        self._steps += 1
        self._inside += inside
        if inside:
            reward = float(reward) + self.bonus + self.std * self.np_random.standard_normal()
        return observation, float(reward), terminated, truncated, info | {"in_zone": inside}

    @property
    def share_inside(self) -> float:
        """The share of all steps so far that ended inside the zone."""
        return self._inside / max(self._steps, 1)


class EitherWay(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Pays for speed forwards and backwards alike: `|v|` in place of `v` in the reward.

    For environments that say in `info["reward_forward"]` what they paid for it.
    """

    def __init__(self, env: Env) -> None:
        check_kind(env, gym.Env, "env", "a gymnasium.Env")
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "reward_forward" not in info:
            raise InputError(f"EitherWay needs info['reward_forward'], {self.env} does not say it")
        forward = float(info["reward_forward"])
        return observation, float(reward) + abs(forward) - forward, terminated, truncated, info


def noisy_pendulum(**options: Any) -> Env:
    """InvertedPendulum with noise `N(0, 10^2)` on the reward where `x > 0.01`."""
    return RiskyZone(make_mujoco("InvertedPendulum-v5", **options), threshold=0.01, std=_NOISE)


def noisy_walk(task: str, threshold: float, below: bool = False, **options: Any) -> Env:
    """A MuJoCo task that goes either way, with noise `N(0, 10^2)` beyond a threshold."""
    seeing = {"exclude_current_positions_from_observation": False}
    env = EitherWay(make_mujoco(task, **seeing, **options))
    return RiskyZone(env, threshold, _NOISE, below=below)


def risky_pendulum(**options: Any) -> Env:
    """InvertedPendulum, 500 steps; where `x > 0.01` the reward is 1.3 +- 1 instead of 1."""
    return RiskyZone(
        make_mujoco("InvertedPendulum-v5", **options), threshold=0.01, std=1.0, bonus=0.3
    )


@contextmanager
def quiet_mujoco() -> Iterator[None]:
    """MuJoCo would print, and log to a file, that an attribute in Gymnasium's models is old."""
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def make_mujoco(task: str, **options: Any) -> Env:
    """A task of 500 steps, without the messages of MuJoCo."""
    with quiet_mujoco():
        env: Env = gym.make(task, max_episode_steps=_EPISODE, disable_env_checker=True, **options)
    return env
