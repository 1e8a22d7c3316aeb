"""Risk aversion for algorithms of Stable-Baselines3, sb3-contrib and SBX, in one line.

    model = risk_averse(SAC, "MlpPolicy", env, risk=1.0)    an ordinary SAC from here on

For all of them but ARS, which compares whole episodes. Off-policy algorithms keep raw rewards in
their replay buffer; `y` follows the most recent ones, and a batch is augmented while it is drawn,
before n-step sums. On-policy algorithms measure `y` on the rollout, or on the last 1,000 rewards if
it is shorter, and augment the rollout before advantages; what SB3 adds to a reward at a time limit,
`gamma * value`, is kept out of both. TRPO with this plug is the original TRVO.

How it is plugged in: a `Plug` takes the place of the model's `collect_rollouts`. It is saved and
loaded with the model, and gives the model's buffer a subclass of its own class. Nothing is stored
twice and no class of SB3 is changed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import NormalizeReward

from mvpi._checks import check_count, check_kind, shown
from mvpi.errors import InputError, missing
from mvpi.occupancy import LATE, Occupancy, check_occupancy
from mvpi.risk import Risk, learnable
from mvpi.running import Augmenter

try:
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.buffers import BaseBuffer
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, unwrap_vec_normalize
except ImportError as error:
    raise ImportError(missing("mvpi.sb3", "stable-baselines3", "sb3")) from error

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)
Array = npt.NDArray[np.float64]
Rewards = npt.NDArray[np.float32]

RELIES_ON = {
    "common.base_class:BaseAlgorithm.get_env": (),
    "common.off_policy_algorithm:OffPolicyAlgorithm.collect_rollouts": ("env", "callback"),
    "common.on_policy_algorithm:OnPolicyAlgorithm.collect_rollouts": ("env", "callback"),
    "common.callbacks:BaseCallback.init_callback": ("model",),
    "common.logger:Logger.record": ("key", "value"),
    "common.buffers:BaseBuffer._normalize_reward": ("reward", "env"),
    "common.buffers:ReplayBuffer.add": ("obs", "next_obs", "action", "reward", "done", "infos"),
    "common.buffers:ReplayBuffer.sample": ("batch_size",),
    "common.buffers:RolloutBuffer.reset": (),
    "common.buffers:RolloutBuffer.compute_returns_and_advantage": ("last_values", "dones"),
    "common.vec_env:VecEnv.env_is_wrapped": ("wrapper_class",),
    "common.vec_env:VecEnvWrapper.step_wait": (),
    "common.vec_env:VecNormalize.normalize_reward": ("reward",),
    "common.vec_env:unwrap_vec_normalize": ("env",),
}
"""What the plug overrides, replaces or calls in `stable_baselines3`, and arguments it names. Also:
replay buffers pass drawn rewards through `self._normalize_reward`, and `save` keeps what is in a
model's `__dict__`."""

RELIES_ON_ATTRIBUTES = {
    "common.base_class:BaseAlgorithm": ("logger", "num_timesteps"),
    "common.off_policy_algorithm:OffPolicyAlgorithm": ("replay_buffer", "gamma"),
    "common.on_policy_algorithm:OnPolicyAlgorithm": ("rollout_buffer", "gamma"),
    "common.callbacks:BaseCallback": ("model",),
    "common.buffers:ReplayBuffer": ("rewards", "dones", "timeouts", "pos", "full", "buffer_size"),
    "common.buffers:RolloutBuffer": ("rewards",),
    "common.vec_env:VecEnvWrapper": ("venv",),
    "common.vec_env:VecNormalize": ("training", "norm_reward"),
}
"""What it reads from instances."""


def risk_averse(
    algorithm: type[Algorithm],
    policy: Any,
    env: Any,
    *,
    risk: Risk | float,
    window: int | None = None,
    occupancy: Occupancy = "undiscounted",
    **arguments: Any,
) -> Algorithm:
    """`algorithm(policy, env, **arguments)` that maximises a risk measure of the per-step reward.

    `risk` is a risk aversion (mean-variance) or any `Risk`. `window` is how many of the most recent
    rewards `y` is measured on: 10,000 if left out, on-policy the rollout but at least 1,000.
    `occupancy="discounted"` weighs them by the discounted occupancy, with 0 after the end: for
    tasks that terminate and cost something per step. The model is an instance of `algorithm`;
    `learn`, `save`, `load` and callbacks are its own. The logger also gets `mvpi/y`,
    `mvpi/risk_aversion` (if the measure has one), `mvpi/reward_mean` and `mvpi/reward_variance`.
    """
    kind, measure = _plug_for(algorithm), learnable(risk)
    if window is not None:
        check_count(window, "window")
    discounted = check_occupancy(occupancy) == "discounted"
    _refuse_no_buffer(arguments)
    _refuse_ignored_n_steps(arguments)
    model: Any = algorithm(policy, env, **arguments)
    plug = kind(measure, window, model.gamma if discounted else None)
    plug.attach(model)
    model.collect_rollouts = plug
    made: Algorithm = model
    return made


def augmenter_of(model: BaseAlgorithm) -> Augmenter:
    """What a risk-averse model augments rewards with: its `risk`, `y` and recent raw `rewards`."""
    check_kind(model, BaseAlgorithm, "model", "a model of mvpi.sb3.risk_averse")
    plug = vars(model).get("collect_rollouts")
    if not isinstance(plug, Plug):
        raise InputError(f"this {type(model).__name__} was not made by mvpi.sb3.risk_averse")
    return plug.augmenter


class Plug(ABC):
    """Called in place of a model's `collect_rollouts`; saved and loaded with the model."""

    MEASURE_EVERY = 100
    """Rewards between measurements for the log, fewer at first. `y` is measured at every use."""

    def __init__(self, risk: Risk, window: int, gamma: float | None) -> None:
        weighing: Occupancy = "undiscounted" if gamma is None else "discounted"
        self.augmenter = Augmenter(risk, window, occupancy=weighing, gamma=gamma)
        self._clock = EpisodeClock()
        self._metrics: dict[str, float] = {}
        self._unmeasured = 0
        self._env: VecEnv | None = None
        self._logger: Logger | None = None

    def __call__(self, env: VecEnv, callback: Any, *args: Any, **kwargs: Any) -> Any:
        model = callback.model
        self.attach(model)
        self._logger = model.logger
        if model.num_timesteps == 0:  # `learn` has reset the environments
            self._clock.reset()
        return type(model).collect_rollouts(model, env, callback, *args, **kwargs)

    def attach(self, model: Any) -> None:
        """Have the model's buffer augment with this plug: a new one, or one that was loaded."""
        env = model.get_env()
        _refuse_changing_rewards(env, already_asked=env is self._env)
        if env is not self._env:
            self._env = env
            self._clock.reset()
        self._adopt_buffer(model)

    @abstractmethod
    def _adopt_buffer(self, model: Any) -> None: ...

    def observe(self, rewards: Any, times: Any, terminated: Any) -> None:
        """Take note of new rewards, also in the next row of the log."""
        self.augmenter.observe(rewards, times, terminated)
        self._unmeasured += np.size(rewards)
        if 0 < min(self.MEASURE_EVERY, self.augmenter.rewards.size / 2) <= self._unmeasured:
            self._metrics, self._unmeasured = self.augmenter.metrics(), 0
        self._log()

    def _log(self) -> None:
        """Every time, because SB3 forgets what was recorded when it writes a row."""
        if self._logger is not None:
            for name, value in self._metrics.items():
                self._logger.record(f"mvpi/{name}", value)

    def _augmented(self, rewards: npt.NDArray[Any], dtype: np.dtype[Any]) -> Array:
        """`risk.augment(rewards, y)`, if numbers of `dtype` can hold it."""
        augmented = self.augmenter.augment(rewards)
        if not (np.abs(augmented) <= np.finfo(dtype).max).all():
            largest = rewards.flat[np.argmax(np.abs(rewards))]
            raise InputError(
                f"{self.augmenter.risk} with y = {self.augmenter.y:g} and rewards up to "
                f"{largest:g} goes beyond what {dtype} can hold: lower the risk aversion or scale "
                "rewards down"
            )
        return augmented

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_env": None, "_logger": None}


class OffPolicyPlug(Plug):
    """`y` from a window of recent rewards; batches are augmented while they are drawn."""

    def __init__(self, risk: Risk, window: int | None, gamma: float | None) -> None:
        super().__init__(risk, 10_000 if window is None else window, gamma)

    def _adopt_buffer(self, model: Any) -> None:
        buffer = model.replay_buffer
        if _plug_of(buffer) is not self:
            if self.augmenter.rewards.size == 0:
                self.observe(*_recent(buffer, self.augmenter.window))
            _adopt(buffer, drawing_augmented, self)

    def observe(self, rewards: Any, times: Any, terminated: Any) -> None:
        """As they will be drawn: a `VecNormalize` of fixed scale divides what was stored raw."""
        normalize = None if self._env is None else unwrap_vec_normalize(self._env)
        super().observe(BaseBuffer._normalize_reward(rewards, normalize), times, terminated)

    def observe_step(self, rewards: Any, dones: Any, infos: Any) -> None:
        """A step of all environments."""
        terminated = _terminated(dones, infos)
        shape = np.shape(rewards)
        self.observe(rewards, self._clock.step(dones).reshape(shape), terminated.reshape(shape))

    def augment(self, rewards: Any) -> Any:
        """An array or a tensor of rewards that were drawn."""
        if isinstance(rewards, torch.Tensor):
            return rewards.new_tensor(self.augment(rewards.numpy(force=True)))
        return self._augmented(rewards, rewards.dtype).astype(rewards.dtype)


class OnPolicyPlug(Plug):
    """`y` from the rollout and what came before; advantages see augmented rewards."""

    SHORTEST_WINDOW = 1_000
    """Measured on a few steps, `y` would follow the very rewards whose risk it is to tell."""

    def __init__(self, risk: Risk, window: int | None, gamma: float | None) -> None:
        super().__init__(risk, self.SHORTEST_WINDOW if window is None else window, gamma)
        self._grows_with_rollout = window is None
        self._recorder: RewardRecorder | None = None

    def __call__(self, env: VecEnv, callback: Any, *args: Any, **kwargs: Any) -> Any:
        if self._recorder is None or self._recorder.venv is not env:
            self._recorder = RewardRecorder(env)
        self._recorder.begin(self._clock)
        try:
            return super().__call__(self._recorder, callback, *args, **kwargs)
        finally:
            self._recorder.end()

    def _adopt_buffer(self, model: Any) -> None:
        _adopt(model.rollout_buffer, learning_augmented, self)

    def observe_and_augment(self, rewards: Rewards) -> Rewards:
        """`rewards` hold `gamma * value` at time limits; what the environment gave does not."""
        raw, times, terminated = self._given(rewards)
        if self._grows_with_rollout:
            self.augmenter.resize(max(raw.size, self.SHORTEST_WINDOW))
        self.observe(raw, times, terminated)
        return (self._augmented(raw, rewards.dtype) + (rewards - raw)).astype(rewards.dtype)

    def _given(self, rewards: Rewards) -> tuple[Array, Any, Any]:
        """Rewards as they were, their times and whether episodes terminated."""
        recorder = self._recorder
        if recorder is None or not recorder.recording:
            return np.asarray(rewards, np.float64), None, None
        raw = np.asarray(recorder.rewards, np.float64)
        if raw.shape != rewards.shape:
            raise InputError(
                f"the rollout has rewards of shape {rewards.shape}, the environment gave "
                f"{raw.shape}: collect_rollouts must step the environment that is passed to it"
            )
        return raw, np.array(recorder.times), np.array(recorder.terminated)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_recorder": None}


class EpisodeClock:
    """How many steps the current episode of each environment has had."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """All of them begin anew."""
        self._time = np.zeros(0, np.int64)

    def step(self, dones: Any) -> npt.NDArray[np.int64]:
        """The times of a step of all environments, after which those that are done begin anew."""
        done = np.asarray(dones, np.bool_)
        if self._time.shape != done.shape:
            self._time = np.zeros(done.shape, np.int64)
        now = self._time
        self._time = np.where(done, 0, now + 1)
        return now


class RewardRecorder(VecEnvWrapper):
    """Keeps what the environments gave, which SB3 changes in place at a time limit."""

    recording = False

    def begin(self, clock: EpisodeClock) -> None:
        """Record steps from now on, their times by this clock."""
        self.recording = True
        self._clock = clock
        self.rewards: list[Rewards] = []
        self.times: list[npt.NDArray[np.int64]] = []
        self.terminated: list[npt.NDArray[np.bool_]] = []

    def end(self) -> None:
        """Record no more."""
        self.recording = False

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        step = self.venv.step_wait()
        if self.recording:
            _, rewards, dones, infos = step
            self.rewards.append(rewards.copy())
            self.times.append(self._clock.step(dones))
            self.terminated.append(_terminated(dones, infos))
        return step


def _terminated(dones: Any, infos: Any) -> npt.NDArray[np.bool_]:
    """Which environments are done other than by a time limit."""
    cut = [bool(info.get("TimeLimit.truncated", False)) for info in infos]
    return np.asarray(dones, np.bool_) & ~np.array(cut, np.bool_)


class Augmenting:
    """Marks the classes of buffers made here. All their own names begin with `_mvpi`."""

    _mvpi_plug: Any


@cache
def drawing_augmented(own: Any) -> Any:
    """A class of replay buffers like `own` that stores raw rewards and draws augmented ones."""

    class AugmentedDraws(own, Augmenting):  # type: ignore[misc]
        _mvpi_augmented_at_once = 0

        def add(
            self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any, **k: Any
        ) -> None:
            self._mvpi_plug.observe_step(reward, done, infos)
            super().add(obs, next_obs, action, reward, done, infos, **k)

        def sample(self, *args: Any, **kwargs: Any) -> Any:
            self._mvpi_augmented_at_once = 0
            batch = super().sample(*args, **kwargs)
            _refuse_sums_of_raw_rewards(self, batch, self._mvpi_augmented_at_once)
            # A class of the user's own may read `rewards` directly: then the batch is augmented.
            return batch if self._mvpi_augmented_at_once else _augment_batch(self, batch)

        def _normalize_reward(self, reward: Any, env: Any = None) -> Any:
            drawn = super()._normalize_reward(reward, env)
            count = math.prod(drawn.shape)
            self._mvpi_augmented_at_once = max(count, self._mvpi_augmented_at_once)
            return self._mvpi_plug.augment(drawn)

        def __reduce_ex__(self, protocol: Any) -> Any:
            return _unpickled, (drawing_augmented, own), self.__getstate__()

    return AugmentedDraws


def _refuse_sums_of_raw_rewards(buffer: Any, batch: Any, augmented_at_once: int) -> None:
    sums = getattr(batch, "discounts", None) is not None
    steps = getattr(buffer, "n_steps", 2 if sums else 1)
    if steps > 1 and augmented_at_once < steps * len(batch.rewards):
        raise InputError(
            f"{_own_name(buffer)} sums rewards over several steps: it must first pass all of them "
            "through self._normalize_reward(rewards, env), in one call, as NStepReplayBuffer does"
        )


def _augment_batch(buffer: Any, batch: Any) -> Any:
    rewards = getattr(batch, "rewards", None)
    if not (hasattr(batch, "_replace") and isinstance(rewards, torch.Tensor | np.ndarray)):
        raise InputError(
            f"{_own_name(buffer)}.sample must return a named tuple with a tensor of rewards, such "
            f"as ReplayBufferSamples, got {type(batch).__name__}"
        )
    return batch._replace(rewards=buffer._mvpi_plug.augment(rewards))


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
                self.rewards = self._mvpi_plug.observe_and_augment(self.rewards)
                self._mvpi_augmented = True
            super().compute_returns_and_advantage(last_values, dones)

        def __reduce_ex__(self, protocol: Any) -> Any:
            return _unpickled, (learning_augmented, own), self.__getstate__()

    return AugmentedRollout


def _unpickled(augmenting: Callable[[Any], Any], own: Any) -> Any:
    return object.__new__(augmenting(own))


def _adopt(buffer: Any, augmenting: Callable[[Any], Any], plug: Plug) -> None:
    """Give a buffer its augmenting class, unless it was loaded with it, and its plug."""
    if not isinstance(buffer, Augmenting):
        buffer.__class__ = augmenting(type(buffer))
    buffer._mvpi_plug = plug


def _plug_of(buffer: Any) -> Plug | None:
    return buffer._mvpi_plug if isinstance(buffer, Augmenting) else None


def _own_name(buffer: Augmenting) -> str:
    """The name of the class that `buffer` had before it was adopted."""
    return type(buffer).__bases__[0].__name__


def _recent(buffer: Any, count: int) -> tuple[Rewards, Any, Any]:
    """The last rewards in a replay buffer, of arrays or tensors, the oldest first.

    Also their times, and whether they terminated an episode. The first rows may be from the middle
    of episodes; then how far into them is not known.
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
    terminated = done & ~cut.astype(np.bool_)
    return rewards.ravel()[-count:], times.ravel()[-count:], terminated.ravel()[-count:]


def _plug_for(algorithm: Any) -> type[OffPolicyPlug] | type[OnPolicyPlug]:
    if not (isinstance(algorithm, type) and issubclass(algorithm, BaseAlgorithm)):
        raise InputError(f"algorithm must be a class of Stable-Baselines3, got {shown(algorithm)}")
    if issubclass(algorithm, OffPolicyAlgorithm):
        return OffPolicyPlug
    if issubclass(algorithm, OnPolicyAlgorithm):
        return OnPolicyPlug
    raise InputError(
        f"{algorithm.__name__} has no rewards per step to augment: it compares whole episodes. "
        "Give it Monitor(mvpi.envs.AugmentedReward(env, risk)) as its environment instead, with no "
        "Monitor inside"
    )


def _refuse_no_buffer(arguments: dict[str, Any]) -> None:
    if not arguments.get("_init_setup_model", True):
        raise InputError("_init_setup_model must be True: the plug needs the buffer of the model")


def _refuse_ignored_n_steps(arguments: dict[str, Any]) -> None:
    own = arguments.get("replay_buffer_class")
    if own is None:
        return
    n_steps = check_count(arguments.get("n_steps", 1), "n_steps")
    told = (arguments.get("replay_buffer_kwargs") or {}).get("n_steps") == n_steps
    if n_steps > 1 and not told:
        raise InputError(
            f"SB3 ignores n_steps={n_steps} beside a replay_buffer_class ({own.__name__}): leave "
            "the class out, or have it take n_steps and gamma from replay_buffer_kwargs"
        )


def _refuse_changing_rewards(env: VecEnv | None, already_asked: bool) -> None:
    """Environments inside, which may be in other processes, are asked only once."""
    if env is None:
        return
    normalize = unwrap_vec_normalize(env)
    if normalize is not None and normalize.norm_reward and normalize.training:
        changing = "VecNormalize(norm_reward=True)"
    elif not already_asked and _is_wrapped(env, NormalizeReward):
        changing = "the wrapper NormalizeReward"
    else:
        return
    raise InputError(
        f"{changing} divides rewards by a scale that changes while the agent learns, so a risk "
        "aversion has no fixed meaning: leave rewards as they are (norm_reward=False)"
    )


def _is_wrapped(env: VecEnv, wrapper: type[Any]) -> bool:
    """Whether an environment inside is; adapters of simulators may not know, having none inside."""
    try:
        return any(env.env_is_wrapped(wrapper))
    except (AttributeError, NotImplementedError):
        return False
