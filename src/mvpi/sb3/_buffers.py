"""Buffers that keep raw rewards and hand out augmented ones.

A buffer of a risk-averse model gets a subclass of its own class, made here. Nothing is stored twice
and no class of SB3 is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.her import HerReplayBuffer

from mvpi.augmenter.occupancy import LATE
from mvpi.errors import InputError
from mvpi.risk import MeanVariance
from mvpi.sb3._extension import raw_in

Rewards = npt.NDArray[np.float32]
Observed = dict[str, Any]
"""What `Augmenter.observe` is told of rewards, by the names of its arguments."""
CUT = "TimeLimit.truncated"


class EpisodeClock:
    """How many steps the current episode of each environment has had.

    A list of them: of the few environments that there are, it is cheaper than an array.
    """

    def __init__(self, times: Iterable[int] = ()) -> None:
        self._time = [int(time) for time in times]

    @property
    def times(self) -> list[int]:
        """Of each environment; none before the first step."""
        return list(self._time)

    def reset(self) -> None:
        """All of them begin anew."""
        self._time = []

    def step(self, dones: Any) -> list[int]:
        """The times of a step of all environments, after which those that are done begin anew."""
        now = self._time if len(self._time) == len(dones) else [0] * len(dones)
        self._time = [0 if done else time + 1 for time, done in zip(now, dones, strict=True)]
        return now

    def step_one(self, done: bool) -> int:
        """The same of a single environment, in a third of the time."""
        now = self._time[0] if len(self._time) == 1 else 0
        self._time = [0 if done else now + 1]
        return now

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._time = [int(time) for time in state["_time"]]  # version 0.1 had an array


class Augmenting:
    """Marks the classes of buffers made here. All their own names begin with `_mvpi`."""

    _mvpi_plug: Any
    _mvpi_adopted = True
    """Whether the model that has the buffer is known to be risk-averse."""


@cache
def drawing_augmented(own: Any) -> Any:
    """A class of replay buffers like `own` that stores raw rewards and draws augmented ones."""

    class AugmentedDraws(own, Augmenting):  # type: ignore[misc]
        _mvpi_augmented_at_once = 0

        def add(
            self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any, **k: Any
        ) -> None:
            if not self._mvpi_adopted:
                _refuse_plain_model(self)
            ends = self._mvpi_plug.observe_step(obs, reward, done, infos)
            super().add(obs, next_obs, action, reward, done, ends, **k)

        def sample(self, *args: Any, **kwargs: Any) -> Any:
            if not self._mvpi_adopted and "env" in kwargs:  # called by `train`
                _refuse_plain_model(self)
            self._mvpi_augmented_at_once = 0
            batch = super().sample(*args, **kwargs)
            if self._mvpi_plug.columns.size:
                return self._mvpi_plug.relabelled(_named_tuple(self, batch))
            _refuse_sums_of_raw_rewards(self, batch, self._mvpi_augmented_at_once)
            # A class of the user's own may read `rewards` directly: then the batch is augmented.
            return batch if self._mvpi_augmented_at_once else _augment_batch(self, batch)

        def _normalize_reward(self, reward: Any, env: Any = None) -> Any:
            drawn = super()._normalize_reward(reward, env)
            if self._mvpi_plug.columns.size:
                return drawn
            count = math.prod(drawn.shape)
            self._mvpi_augmented_at_once = max(count, self._mvpi_augmented_at_once)
            return self._mvpi_plug.augment(drawn)

        def __reduce_ex__(self, protocol: Any) -> Any:
            state: Any = self.__getstate__()
            alone = {**state, "_mvpi_adopted": False}
            return _unpickled, (drawing_augmented, own), alone

    return AugmentedDraws


def _refuse_plain_model(buffer: Any) -> None:
    risk = buffer._mvpi_plug.augmenter.risk
    if not risk.is_neutral:
        given = risk.text if type(risk) is MeanVariance else f"mvpi.{risk!r}"
        remedy = f"mvpi.sb3.attach(model, risk={given})"
        if risk.columns:
            remedy = "make the model by mvpi.sb3.risk_averse, with that risk"
        raise InputError(
            f"this replay buffer is that of a risk-averse model ({risk}); the model that uses it "
            f"is plain, or has not learned since it loaded it: {remedy}"
        )


def _refuse_sums_of_raw_rewards(buffer: Any, batch: Any, augmented_at_once: int) -> None:
    sums = getattr(batch, "discounts", None) is not None
    steps = getattr(buffer, "n_steps", 2 if sums else 1)
    if steps > 1 and augmented_at_once < steps * len(batch.rewards):
        raise InputError(
            f"{_own_name(buffer)} sums rewards over several steps: it must first pass all of them "
            "through self._normalize_reward(rewards, env), in one call, as NStepReplayBuffer does"
        )


def _augment_batch(buffer: Any, batch: Any) -> Any:
    rewards = _named_tuple(buffer, batch).rewards
    return batch._replace(rewards=buffer._mvpi_plug.augment(rewards))


def _named_tuple(buffer: Any, batch: Any) -> Any:
    rewards = getattr(batch, "rewards", None)
    if not (hasattr(batch, "_replace") and isinstance(rewards, torch.Tensor | np.ndarray)):
        raise InputError(
            f"{_own_name(buffer)}.sample must return a named tuple with a tensor of rewards, such "
            f"as ReplayBufferSamples, got {type(batch).__name__}"
        )
    return batch


@cache
def learning_augmented(own: Any) -> Any:
    """A class of rollout buffers like `own` whose advantages are those of augmented rewards."""

    class AugmentedRollout(own, Augmenting):  # type: ignore[misc]
        _mvpi_augmented = False
        rewards: Rewards

        def reset(self) -> None:
            super().reset()
            self._mvpi_augmented = False

        def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
            if not self._mvpi_augmented:  # a callback may have advantages computed again
                self.rewards = self._mvpi_plug.observe_and_augment(self.rewards, self.observations)
                self._mvpi_augmented = True
            super().compute_returns_and_advantage(last_values, dones)

        def __reduce_ex__(self, protocol: Any) -> Any:
            return _unpickled, (learning_augmented, own), self.__getstate__()

    return AugmentedRollout


def _unpickled(augmenting: Callable[[Any], Any], own: Any) -> Any:
    return object.__new__(augmenting(own))


def adopt(buffer: Any, augmenting: Callable[[Any], Any], plug: Any) -> None:
    """Give a buffer its augmenting class, unless it was loaded with it, and its plug."""
    if not isinstance(buffer, Augmenting):
        buffer.__class__ = augmenting(type(buffer))
    buffer._mvpi_plug = plug
    buffer._mvpi_adopted = True


def plug_of(buffer: Any) -> Any:
    """The plug of a buffer that has one, of a model or loaded; else None."""
    return buffer._mvpi_plug if isinstance(buffer, Augmenting) else None


def _own_name(buffer: Augmenting) -> str:
    """The name of the class that `buffer` had before it was adopted."""
    return type(buffer).__bases__[0].__name__


def refuse_sums_of_columns(buffer: Any, risk: Any) -> None:
    """What cannot be augmented by the columns of one observation."""
    if getattr(buffer, "n_steps", 1) > 1:
        raise InputError(
            f"{risk} augments every reward by what the policy saw with it, which sums over "
            f"{buffer.n_steps} steps do not keep: leave n_steps at 1"
        )
    if risk.of_return and isinstance(buffer, HerReplayBuffer):
        raise InputError(
            "HerReplayBuffer gives steps the rewards of other goals, whose returns so far were "
            f"never seen: use {risk.risk} without mvpi.OfReturn, or another buffer"
        )


def terminated(dones: Any, infos: Any) -> list[bool]:
    """Which environments are done other than by a time limit.

    Only infos of those that are done are read: some environments have none for the others.
    """
    return [bool(done) and not infos[i].get(CUT, False) for i, done in enumerate(dones)]


def recent(buffer: Any, count: int, columns: Any) -> Observed:
    """The last rewards in a replay buffer, of arrays or tensors, the oldest first.

    Also their times, and whether they ended an episode. The first rows may be from the middle of
    episodes; then how far into them is not known.
    """
    stored = buffer.buffer_size if buffer.full else buffer.pos
    rows = (buffer.pos - stored + np.arange(stored)[-count:]) % buffer.buffer_size
    rewards, done, cut = (
        torch.as_tensor(column)[rows].numpy(force=True)
        for column in (buffer.rewards, buffer.dones, buffer.timeouts)
    )
    clock, done = EpisodeClock(), done.astype(np.bool_)
    times = np.array([clock.step(row) for row in done], np.int64).reshape(done.shape)
    if buffer.full or stored > len(rows):
        before = np.cumsum(done, axis=0) - done
        times = np.where(before == 0, LATE, times)
    ended = done & ~cut.astype(np.bool_)
    found = {"rewards": rewards, "times": times, "terminated": ended, "truncated": done & ~ended}
    told = {name: values.ravel()[-count:] for name, values in found.items()}
    if columns.size:
        kept = buffer.observations
        last = {k: v[rows] for k, v in kept.items()} if isinstance(kept, dict) else kept[rows]
        told["columns"] = raw_in(last, columns).reshape(-1, columns.size)[-count:]
    return told
