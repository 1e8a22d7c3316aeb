"""The plug of a risk-averse model: `y` of its rewards, and its buffer's rewards augmented with it.

Off-policy algorithms keep raw rewards in their replay buffer; `y` follows the most recent ones, and
a batch is augmented while it is drawn, before n-step sums. On-policy algorithms measure `y` on the
rollout, or on the last 1,000 rewards if it is shorter, and augment the rollout before advantages;
what SB3 adds to a reward at a time limit, `gamma * value`, is kept out of both.

With `RiskRange` and `OfReturn` the columns are read from observations (`mvpi.sb3._extension`). A
batch gets fresh risk aversions. A return ends where an episode is cut, so no value is added there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import (
    VecEnv,
    VecNormalize,
    unwrap_vec_normalize,
)

from mvpi._checks import all_finite
from mvpi._types import Array
from mvpi.augmenter import Augmenter
from mvpi.augmenter.columns import NO_COLUMNS, Columns
from mvpi.augmenter.occupancy import Occupancy
from mvpi.errors import InputError
from mvpi.risk import RISK_AVERSION, Risk
from mvpi.sb3._buffers import (
    CUT,
    EpisodeClock,
    Observed,
    Rewards,
    adopt,
    drawing_augmented,
    learning_augmented,
    plug_of,
    recent,
    refuse_sums_of_columns,
    terminated,
)
from mvpi.sb3._extension import raw_in, with_column
from mvpi.sb3._hooks import install
from mvpi.sb3._record import FORMAT, augmenter_from, augmenter_record
from mvpi.sb3._refusals import refuse_changing_rewards, refuse_other_observations
from mvpi.sb3._reward_recorder import RewardRecorder

_FLOAT32 = np.dtype(np.float32)
_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_SQUARES = _LARGEST**2
"""Numbers whose squares sum to less than this fit into 32 bits."""
_LOGGED = "mvpi/reward_mean"
"""Among all that is logged of a plug."""


class Plug(ABC):
    """Called in place of a model's `collect_rollouts` and `train`."""

    MEASURE_EVERY = 0.1
    """Share of the window between measurements for the log. `y` is measured at every use."""
    FEWEST = 100
    """Rewards between them at the least, fewer at first."""
    WINDOW: int
    """Rewards that `y` is measured on if nothing else is said."""
    BUFFER: str
    """Where a model keeps its buffer."""
    columns = NO_COLUMNS
    """What observations are extended by."""
    _measured_at = 0
    """Rewards that had been observed at the last measurement for the log."""
    _due: float = 0
    """Rewards to have been observed before the next one, at the least."""
    chosen: float | None = None
    """The risk aversion of a range that the model was saved for."""
    _normalize: VecNormalize | None = None
    """That of the environment, if it has one."""
    _buffer: Any = None
    """That of the model, which has been adopted."""

    def __init__(
        self,
        risk: Risk,
        window: int,
        gamma: float | None,
        return_scale: float = 1.0,
        seed: int | None = None,
    ) -> None:
        weighing: Occupancy = "undiscounted" if gamma is None else "discounted"
        self.augmenter = Augmenter(risk, window, occupancy=weighing, gamma=gamma)
        self.columns = Columns(self.augmenter.risk, return_scale)
        self.rng = np.random.default_rng(seed)
        self._clock = EpisodeClock()
        self._metrics: dict[str, float] = {}
        self._env: VecEnv | None = None
        self._logger: Logger | None = None

    @property
    def _discounted(self) -> bool:
        """Whether `y` is of the discounted occupancy, for which the times of rewards count."""
        return self.augmenter._window.gamma is not None

    def __call__(self, env: VecEnv, callback: Any, *args: Any, **kwargs: Any) -> Any:
        """The model's own `collect_rollouts`, watched."""
        model = callback.model
        self._follow(model)
        self._logger = model.logger
        if model.num_timesteps == 0:  # `learn` has reset the environments
            self._clock.reset()
        return type(model).collect_rollouts(model, env, callback, *args, **kwargs)

    def train(self, model: Any, *args: Any, **kwargs: Any) -> None:
        """The model's own `train`, unless there is no `y` yet: no episode has ended."""
        self._follow(model)
        if not self.columns.size or self.augmenter.ready:
            type(model).train(model, *args, **kwargs)

    def _follow(self, model: Any) -> None:
        """`attach`, if the model has another environment or buffer, or shares it with another."""
        buffer = getattr(model, self.BUFFER)
        same = model.env is self._env and buffer is self._buffer and plug_of(buffer) is self
        # Only a VecNormalize can begin to change rewards later.
        if not same or self._normalize is not None:
            self.attach(model)

    def attach(self, model: Any) -> None:
        """Have the model learn by this plug: from its environment, with its buffer."""
        env, buffer = model.env, getattr(model, self.BUFFER)
        new, normalize = env is not self._env, self._normalize
        if new:
            normalize = None if env is None else unwrap_vec_normalize(env)
        if not self.augmenter.risk.is_neutral:
            refuse_changing_rewards(env if new else None, normalize)
        refuse_other_observations(buffer, model)
        if new:
            self._env, self._normalize = env, normalize
            self._clock.reset()
            self.augmenter._advice.huber_loss = has_huber_loss(model)
        self._adopt(buffer)
        self._buffer = buffer
        install(model, self)

    @abstractmethod
    def _adopt(self, buffer: Any) -> None: ...

    def record(self) -> dict[str, Any]:
        """All of it as plain JSON, for a model file."""
        return {
            "format": FORMAT,
            "return_scale": self.columns.return_scale,
            "chosen": self.chosen,
            "clock": self._clock.times,
            "generator": self.rng.bit_generator.state,
            "unmeasured": self.augmenter._observed - self._measured_at,
            **augmenter_record(self.augmenter),
        }

    @classmethod
    def from_record(cls, record: Any, risk: Risk | float | None = None) -> Self:
        """The plug that a model file describes, or one with another risk on its recent rewards."""
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise InputError(
                f"the model file has a risk of another format than {FORMAT}: update mvpi"
            )
        plug = cls.__new__(cls)
        plug.augmenter = augmenter_from(record, risk)
        try:
            plug._restore(record)
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"the risk in the model file is damaged: {error!r}") from error
        return plug

    def change_risk(self, model: Any, risk: Risk | float) -> None:
        """Have the model go on with another risk, on the same recent rewards, or as it was."""
        before, columns = self.augmenter, self.columns
        self.augmenter = augmenter_from(augmenter_record(before), risk)
        self.augmenter._advice.huber_loss = before._advice.huber_loss
        self.columns = Columns(self.augmenter.risk, columns.return_scale)
        try:
            self.attach(model)
        except InputError:
            self.augmenter, self.columns = before, columns
            raise

    def _restore(self, record: dict[str, Any]) -> None:
        self.columns = Columns(self.augmenter.risk, record["return_scale"])
        self.chosen = record["chosen"]
        self.rng = np.random.default_rng()
        self.rng.bit_generator.state = record["generator"]
        self._clock = EpisodeClock(record["clock"])
        self._metrics = {}
        self._measured_at = self.augmenter._observed - int(record["unmeasured"])
        self._env = self._buffer = self._logger = None

    def observe(self, rewards: Any, times: Any = None, terminated: Any = None, **told: Any) -> None:
        """Take note of new rewards, also in the next row of the log."""
        self.augmenter.observe(rewards, times, terminated, **told)
        self._log()

    def _log(self) -> None:
        """Have the next row of the log show how rewards are."""
        measured = self.augmenter._observed >= self._due and self._measure()
        # SB3 forgets what was recorded when it writes a row.
        if self._logger is not None and (measured or _LOGGED not in self._logger.name_to_value):
            for name, value in self._metrics.items():
                self._logger.record(f"mvpi/{name}", value)

    def _measure(self) -> bool:
        """Measure for the log if that is due by now; `_due` may lag behind, as windows fill."""
        seen, observed = self.augmenter.rewards.size, self.augmenter._observed
        every = min(seen / 2, max(self.FEWEST, self.MEASURE_EVERY * seen))
        self._due = self._measured_at + every
        if not (every > 0 and self._due <= observed and self.augmenter.ready):
            return False
        self._metrics, self._measured_at = self.augmenter.metrics(), observed
        return True

    def _augmented(
        self, rewards: npt.NDArray[Any], dtype: np.dtype[Any], columns: Array | None = None
    ) -> tuple[Array, npt.NDArray[Any]]:
        """Augmented rewards, and the same as numbers of `dtype`, if it can hold them."""
        r = rewards.astype(np.float64, copy=False)
        if columns is None and dtype == _FLOAT32 and not self._may_overflow(rewards.dtype):
            # As in most trainings: numpy need not be silenced, which takes as long as to augment.
            augmented = self.augmenter._augment_unchecked(r)
            if np.vdot(augmented, augmented) < _LARGEST_SQUARES:
                return augmented, augmented.astype(dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            augmented = self.augmenter._augment_unchecked(r, columns)
            if columns is not None:
                augmented = augmented * self.columns.balance(columns)
            held = augmented.astype(dtype, copy=False)
        if not all_finite(held):
            self.augmenter.augment(rewards, columns)  # refuses what is not finite at all
            largest = rewards.flat[np.argmax(np.abs(rewards))]
            y = "" if self.columns.size else f" with y = {self.augmenter.y:g}"
            raise InputError(
                f"{self.augmenter.risk}{y} and rewards up to {largest:g} goes beyond what {dtype} "
                "can hold: lower the risk aversion or scale rewards down"
            )
        return augmented, held

    def _may_overflow(self, dtype: np.dtype[Any]) -> bool:
        """Whether a reward of this type, or one that was observed, could overflow."""
        augmenter, risk = self.augmenter, self.augmenter.risk
        if type(risk).augment is not Risk.augment:  # a measure of the user's own may do anything
            return True
        largest = _LARGEST if dtype == _FLOAT32 else augmenter._window.largest
        return risk._may_overflow(largest, augmenter.y)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_env": None, "_buffer": None, "_normalize": None, "_logger": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({"rng": np.random.default_rng(), **state})


class OffPolicyPlug(Plug):
    """`y` from a window of recent rewards; batches are augmented while they are drawn."""

    WINDOW = 10_000
    BUFFER = "replay_buffer"

    def _adopt(self, buffer: Any) -> None:
        if self.columns.size:
            refuse_sums_of_columns(buffer, self.augmenter.risk)
        new = plug_of(buffer) is not self and buffer.size() > 0
        if new and self.augmenter.rewards.size == 0:
            told = recent(buffer, self.augmenter.window, self.columns)
            self.observe(self._as_drawn(told.pop("rewards")), **told)
        adopt(buffer, drawing_augmented, self)

    def _as_drawn(self, rewards: Any) -> Any:
        """A `VecNormalize` of fixed scale divides what was stored raw."""
        if self._normalize is None:
            return rewards
        return BaseBuffer._normalize_reward(rewards, self._normalize)

    def observe_step(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Any:
        """A step of all environments; the infos from which the buffer learns of their ends."""
        drawn = rewards if self._normalize is None else self._as_drawn(rewards)
        if len(dones) == 1 and type(drawn) is np.ndarray and not self.columns.size:
            # As in most trainings: plain numbers cost a fraction of what arrays of one do.
            reward, done, augmenter = drawn.item(), bool(dones[0]), self.augmenter
            if type(reward) is float and math.isfinite(reward):
                time = self._clock.step_one(done) if self._discounted else 0
                augmenter._observe_one(reward, time, done and not infos[0].get(CUT, False))
                if done or augmenter._observed >= self._due:  # SB3 writes rows where episodes end
                    self._log()
                return infos
        self._observe_arrays(observations, drawn, dones, infos)
        return self._infos_to_store(infos)

    def _observe_arrays(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> None:
        told: Observed = {"terminated": np.array(terminated(dones, infos))}
        if self._discounted:
            told["times"] = np.array(self._clock.step(dones))
        if self.columns.size:
            told["truncated"] = np.asarray(dones, np.bool_) & ~told["terminated"]
            told["columns"] = raw_in(observations, self.columns)
        shape = np.shape(rewards)
        told = {name: values.reshape(*shape, *values.shape[1:]) for name, values in told.items()}
        self.observe(rewards, **told)

    def _infos_to_store(self, infos: Any) -> Any:
        """A return ends where an episode is cut, too."""
        if not self.augmenter.risk.of_return:
            return infos
        return [{**info, CUT: False} if info.get(CUT) else info for info in infos]

    def augment(self, rewards: Any) -> Any:
        """An array or a tensor of rewards that were drawn."""
        if isinstance(rewards, torch.Tensor):
            return rewards.new_tensor(self.augment(rewards.numpy(force=True)))
        return self._augmented(rewards, rewards.dtype)[1]

    def relabelled(self, batch: Any) -> Any:
        """A batch with some fresh risk aversions, and with rewards augmented by its columns."""
        raw = raw_in(batch.observations, self.columns)
        self.columns.redraw(self.rng, raw)
        drawn = batch.rewards
        rewards = drawn.numpy(force=True) if isinstance(drawn, torch.Tensor) else drawn
        columns = raw.reshape(*rewards.shape, self.columns.size)
        _, augmented = self._augmented(rewards, rewards.dtype, columns)
        new: dict[str, Any] = {
            "rewards": drawn.new_tensor(augmented) if drawn is not rewards else augmented
        }
        if RISK_AVERSION in self.columns:
            place = self.columns.names.index(RISK_AVERSION)
            seen = self.columns.encode(raw)[..., place]
            for name in ("observations", "next_observations"):
                new[name] = with_column(getattr(batch, name), self.columns, place, seen)
        return batch._replace(**new)


class OnPolicyPlug(Plug):
    """`y` from the rollout and what came before; advantages see augmented rewards."""

    WINDOW = 1_000
    """At the least: measured on a few steps, `y` would fit the very rewards that it is compared
    with."""
    BUFFER = "rollout_buffer"
    grows_with_rollout = False
    """Whether `y` is measured on the whole rollout where that is longer."""

    _recorder: RewardRecorder | None = None

    def __call__(self, env: VecEnv, callback: Any, *args: Any, **kwargs: Any) -> Any:
        if self._recorder is None or self._recorder.venv is not env:
            self._recorder = RewardRecorder(env)
        self._recorder.begin(self._clock if self._discounted else None)
        try:
            return super().__call__(self._recorder, callback, *args, **kwargs)
        finally:
            self._recorder.end()

    def _adopt(self, buffer: Any) -> None:
        adopt(buffer, learning_augmented, self)

    def observe_and_augment(self, rewards: Rewards, observations: Any) -> Rewards:
        """`rewards` hold `gamma * value` at time limits; what the environment gave does not."""
        raw, told = self._given(rewards)
        wanted = max(raw.size, self.WINDOW)
        if self.grows_with_rollout and wanted != self.augmenter.window:
            self.augmenter.resize(wanted)
        columns = raw_in(observations, self.columns) if self.columns.size else None
        if told and columns is None:  # as in most trainings: all of a rollout is known and checked
            self.augmenter._observe_arrays(raw, told.get("times", 0), told["terminated"])
            self._log()
        else:
            self.observe(raw, **told, columns=columns)
        if columns is not None and not self.augmenter.ready:
            return rewards  # no episode has ended: `train` is skipped
        augmented, _ = self._augmented(raw, rewards.dtype, columns)
        at_limits = 0.0 if self.augmenter.risk.of_return else rewards - raw
        return np.asarray(augmented + at_limits, rewards.dtype)

    def _given(self, rewards: Rewards) -> tuple[Array, Observed]:
        """Rewards as they were, their times and whether they ended episodes, if that is known."""
        recorder = self._recorder
        if recorder is None or not recorder.recording:
            return np.asarray(rewards, np.float64), {}
        raw = np.asarray(recorder.rewards, np.float64)
        if raw.shape != rewards.shape:
            raise InputError(
                f"the rollout has rewards of shape {rewards.shape}, the environment gave "
                f"{raw.shape}: collect_rollouts must step the environment that is passed to it"
            )
        ended = np.array(recorder.terminated)
        told: Observed = {"terminated": ended}
        if self._discounted:
            told["times"] = np.array(recorder.times())
        if self.columns.size:
            told["truncated"] = np.array(recorder.dones) & ~ended
        return raw, told

    def record(self) -> dict[str, Any]:
        return {**super().record(), "grows_with_rollout": self.grows_with_rollout}

    def _restore(self, record: dict[str, Any]) -> None:
        super()._restore(record)
        self.grows_with_rollout = bool(record["grows_with_rollout"])

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_recorder": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # What version 0.1 called it.
        self.grows_with_rollout = state.get("_grows_with_rollout", self.grows_with_rollout)


def has_huber_loss(model: Any) -> bool:
    """Whether it learns by the `train` of DQN, in Stable-Baselines3 or SBX.

    The quantiles of QR-DQN and TQC have such a loss, too, but their mean is nearly that of rewards.
    """
    learns: str = type(model).train.__qualname__
    return learns == "DQN.train"
