"""Environments for attacks on agents: made to be awkward, hostile or broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

Reply = tuple[Any, Any, Any, Any, dict[str, Any]]


class Walk(gym.Env[Any, Any]):
    """A walk on a line whose episodes end by chance: every number comes from `np_random`."""

    def __init__(self, length: int = 60, end: float = 0.03) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 2.0, (1,), np.float32)
        self.length, self.end = length, end
        self.time = 0
        self.x = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.x = self.np_random.standard_normal(2)
        return self.x.copy(), {}

    def step(self, action: Any) -> Reply:
        self.time += 1
        self.x = 0.9 * self.x + 0.1 * float(action[0]) + 0.1 * self.np_random.standard_normal(2)
        reward = float(self.x[0] + 0.3 * self.np_random.standard_normal())
        ended = bool(self.np_random.random() < self.end)
        return self.x.copy(), reward, ended, self.time >= self.length, {}


class Broken(Walk):
    """Behaves until the steps of this instance reach `at`, then does `what`, once or for ever."""

    def __init__(self, what: str, at: int, length: int = 60, end: float = 0.03) -> None:
        super().__init__(length, end)
        self.what, self.at = what, at
        self.taken = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        if self.taken >= self.at:
            match self.what:
                case "raise in reset":
                    raise RuntimeError("the reset\nlost its way")
                case "none from reset":
                    return None  # type: ignore[return-value]
                case "nan in reset":
                    return observation * np.nan, info
                case "shape in reset":
                    return np.zeros(3), info
                case "dict in reset":
                    return {"x": observation}, info
        return observation, info

    def step(self, action: Any) -> Reply:
        reply = super().step(action)
        self.taken += 1
        if self.taken < self.at or self.what not in DEFECTS_OF_STEP:
            return reply
        return DEFECTS_OF_STEP[self.what](*reply)


def _raise(*_: Any) -> Reply:
    raise ZeroDivisionError("a wheel\ncame off")


def _reward(reward: Any) -> Callable[..., Any]:
    return lambda observation, _, *rest: (observation, reward, *rest)


def _observation(seen: Any) -> Callable[..., Any]:
    return lambda _, *rest: (seen, *rest)


DEFECTS_OF_STEP: dict[str, Callable[..., Any]] = {
    "raise in step": _raise,
    "nan reward": _reward(np.nan),
    "inf reward": _reward(-np.inf),
    "none reward": _reward(None),
    "text reward": _reward("plenty"),
    "list reward": _reward([1.0, 2.0]),
    "complex reward": _reward(1 + 2j),
    "reward beyond float32": _reward(1e300),
    "nan observation": _observation(np.full(2, np.nan)),
    "inf observation": _observation(np.full(2, np.inf)),
    "inf and -inf observation": _observation(np.array([np.inf, -np.inf])),
    "observation beyond float32": _observation(np.full(2, 1e300)),
    "longer observation": _observation(np.zeros(3)),
    "scalar observation": _observation(0.0),
    "none observation": _observation(None),
    "dict observation": _observation({"x": np.zeros(2)}),
    "text observation": _observation("ab"),
    "ragged observation": _observation([[1.0], [1.0, 2.0]]),
    "none from step": lambda *_: None,
    "four values": lambda o, r, t, *_: (o, r, t, {}),
    "array of ends": lambda o, r, *_: (o, r, np.array([True, False]), False, {}),
}

DEFECTS_OF_RESET = (
    "raise in reset",
    "none from reset",
    "nan in reset",
    "shape in reset",
    "dict in reset",
)


class Forgetful(Walk):
    """Counts its episodes where no generator shows it: resuming cannot bring that back."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        self.begun += 1
        self.x = observation + self.begun
        return self.x.copy(), info


class Unsteady(Walk):
    """Its later episodes are short, and it cannot be stepped beyond their end: no generator knows.

    Repeating the actions of a later episode right after the start comes to another moment.
    """

    def __init__(self) -> None:
        super().__init__(end=0.0)
        self.begun = 0
        self.over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.begun += 1
        self.length = 3 if self.begun in (2, 3) else 9
        self.over = False
        return super().reset(seed=seed)

    def step(self, action: Any) -> Reply:
        assert not self.over, "the episode is over"
        *reply, truncated, info = super().step(action)
        self.over = truncated
        return *reply, truncated, info  # type: ignore[return-value]


class Lottery(Walk):
    """Its rewards, and only they, come from a generator in a drawer: resuming cannot know it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawer = [np.random.default_rng(0)]

    def step(self, action: Any) -> Reply:
        observation, _, *rest = super().step(action)
        return observation, float(self.drawer[0].random()), *rest  # type: ignore[return-value]


class Hall(gym.Env[Any, Any]):
    """Doors 5, 6, 7 in a row; -1 and 0 are left and right. Episodes end by chance."""

    def __init__(self, end: float = 0.05) -> None:
        self.observation_space = gym.spaces.Discrete(3, start=5)
        self.action_space = gym.spaces.Discrete(2, start=-1)
        self.end = end
        self.door = 5

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.door = 5 + int(self.np_random.integers(3))
        return self.door, {}

    def step(self, action: Any) -> Reply:
        assert self.action_space.contains(action), f"{action!r} is no choice"
        wanted = self.door + (1 if action == 0 else -1)
        if self.np_random.random() < 0.8:
            self.door = min(7, max(5, wanted))
        reward = float(self.door - 6 + self.np_random.standard_normal())
        return self.door, reward, bool(self.np_random.random() < self.end), False, {}


class Ghost(Hall):
    """Says that it is at the door `seen` from its step `at` on."""

    def __init__(self, seen: Any, at: int) -> None:
        super().__init__()
        self.seen, self.at = seen, at
        self.taken = 0

    def step(self, action: Any) -> Reply:
        observation, *rest = super().step(action)
        self.taken += 1
        return (self.seen if self.taken >= self.at else observation), *rest  # type: ignore[return-value]


class Strict(gym.Env[Any, Any]):
    """Refuses actions outside its box, or of a type that does not fit into it."""

    def __init__(self, low: list[float], high: list[float], dtype: Any, seen: Any) -> None:
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (3,), seen)
        self.action_space = gym.spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)
        self.seen = seen
        self.time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.standard_normal(3).astype(self.seen), {}

    def step(self, action: Any) -> Reply:
        box = self.action_space
        assert self.action_space.contains(action), f"{action!r} of {action.dtype} is not in {box}"
        self.time += 1
        reward = float(np.sum(action))
        observation = self.np_random.standard_normal(3).astype(self.seen)
        return observation, reward, False, self.time >= 20, {}


class Buffered(Walk):
    """Hands out its own float32 buffer, which the next step overwrites."""

    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.buffer = np.zeros(2, np.float32)
        self.copies = copies

    def _out(self, observation: Any) -> Any:
        self.buffer[:] = observation
        return self.buffer.copy() if self.copies else self.buffer

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        return self._out(observation), info

    def step(self, action: Any) -> Reply:
        observation, *rest = super().step(action)
        return self._out(observation), *rest  # type: ignore[return-value]


class Deaf(Walk):
    """Does not listen to actions: not even to those that are no numbers."""

    def step(self, action: Any) -> Reply:
        return super().step(np.zeros(1))


class Spaced(gym.Env[Any, Any]):
    """Only spaces: what an agent looks at when it is made."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def make(name: str, *arguments: Any) -> Callable[[], gym.Env[Any, Any]]:
    """A function that makes the environment of that name."""
    kind: Any = globals()[name]

    def environment() -> gym.Env[Any, Any]:
        made: gym.Env[Any, Any] = kind(*arguments)
        return made

    return environment
