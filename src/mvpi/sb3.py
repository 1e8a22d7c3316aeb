"""Risk aversion for every algorithm of Stable-Baselines3, sb3-contrib and SBX, in one line.

    model = risk_averse(SAC, "MlpPolicy", env, risk=1.0)    an ordinary SAC from here on

Off-policy algorithms keep raw rewards in their replay buffer; `y` follows the most recent ones,
and a batch is augmented while it is drawn, before n-step sums. On-policy algorithms measure `y` on
the rollout, which is augmented before advantages; what SB3 adds to a reward at a time limit,
`gamma * value`, is kept out of both. TRPO with this plug is the original TRVO.

How it is plugged in: a `Plug` takes the place of the model's `collect_rollouts`. It is saved and
loaded with the model, and gives the model's buffer a subclass of its own class. Nothing is stored
twice and no class of SB3 is changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import NormalizeReward

from mvpi.errors import InputError
from mvpi.risk import Risk
from mvpi.running import Augmenter

try:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, unwrap_vec_normalize
except ImportError as error:
    raise ImportError("mvpi.sb3 needs stable-baselines3: pip install 'mvpi[sb3]'") from error

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)
Rewards = npt.NDArray[np.float32]

RELIES_ON = {
    "common.off_policy_algorithm:OffPolicyAlgorithm.collect_rollouts": ("env", "callback"),
    "common.on_policy_algorithm:OnPolicyAlgorithm.collect_rollouts": ("env", "callback"),
    "common.callbacks:BaseCallback.init_callback": ("model",),
    "common.buffers:BaseBuffer._normalize_reward": ("reward", "env"),
    "common.buffers:ReplayBuffer.add": ("obs", "next_obs", "action", "reward"),
    "common.buffers:ReplayBuffer.sample": ("batch_size",),
    "common.buffers:RolloutBuffer.reset": (),
    "common.buffers:RolloutBuffer.compute_returns_and_advantage": ("last_values", "dones"),
    "common.vec_env:VecEnvWrapper.step_wait": (),
}
"""What the plug overrides or replaces in `stable_baselines3`, and arguments it knows by name. Also:
buffers keep `rewards`, replay buffers pass drawn rewards through `self._normalize_reward`, replay
buffers have `pos`, `full` and `buffer_size`, and `save` keeps what is in a model's `__dict__`."""


def risk_averse(
    algorithm: type[Algorithm],
    policy: Any,
    env: Any,
    *,
    risk: Risk | float,
    window: int | None = None,
    **arguments: Any,
) -> Algorithm:
    """`algorithm(policy, env, **arguments)` that maximises a risk measure of the per-step reward.

    `risk` is a risk aversion (mean-variance) or any `Risk`. `window` is how many of the most recent
    rewards `y` is measured on: 10,000 if left out, on-policy the rollout. The model is an instance
    of `algorithm`; `learn`, `save`, `load` and callbacks are its own. The logger also gets
    `mvpi/y`, `mvpi/risk_aversion`, `mvpi/reward_mean` and `mvpi/reward_variance`.
    """
    plug = _plug_for(algorithm)(risk, window)
    _refuse_ignored_n_steps(arguments)
    model = algorithm(policy, env, **arguments)
    plug.attach(model)
    model.collect_rollouts = plug  # type: ignore[attr-defined]
    return model


def augmenter_of(model: BaseAlgorithm) -> Augmenter:
    """What a risk-averse model augments rewards with: its `risk`, `y` and recent raw `rewards`."""
    plug = vars(model).get("collect_rollouts")
    if not isinstance(plug, Plug):
        raise InputError(f"this {type(model).__name__} was not made by mvpi.sb3.risk_averse")
    return plug.augmenter


class Plug(ABC):
    """Called in place of a model's `collect_rollouts`; saved and loaded with the model."""

    MEASURE_EVERY = 100
    """Steps between measurements for the log; `y` itself is measured whenever it is used."""

    def __init__(self, risk: Risk | float, window: int) -> None:
        self.augmenter = Augmenter(risk, window)
        self._metrics: dict[str, float] = {}
        self._measured_at: int | None = None
        self._env: VecEnv | None = None

    def __call__(self, env: VecEnv, callback: Any, *args: Any, **kwargs: Any) -> Any:
        model = callback.model
        self.attach(model)
        result = type(model).collect_rollouts(model, env, callback, *args, **kwargs)
        self._log(model)
        return result

    def attach(self, model: Any) -> None:
        """Have the model's buffer augment with this plug: a new one, or one that was loaded."""
        self._env = _checked(model.get_env(), self._env)
        self._adopt_buffer(model)

    @abstractmethod
    def _adopt_buffer(self, model: Any) -> None: ...

    @abstractmethod
    def augment(self, rewards: Rewards) -> Rewards:
        """What the buffer calls before rewards are learned from."""

    def _log(self, model: Any) -> None:
        """Record for the next row: SB3 forgets what was recorded when it writes one."""
        since = model.num_timesteps - (self._measured_at or 0)
        due = self._measured_at is None or since >= self.MEASURE_EVERY
        if due and self.augmenter.rewards.size > 0:
            self._measured_at = model.num_timesteps
            self._metrics = self.augmenter.metrics()
        for name, value in self._metrics.items():
            model.logger.record(f"mvpi/{name}", value)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_measured_at": None, "_env": None}


class OffPolicyPlug(Plug):
    """`y` from a window of recent rewards; batches are augmented while they are drawn."""

    def __init__(self, risk: Risk | float, window: int | None) -> None:
        super().__init__(risk, 10_000 if window is None else window)

    def _adopt_buffer(self, model: Any) -> None:
        buffer = model.replay_buffer
        if getattr(buffer, "plug", None) is not self:
            if self.augmenter.rewards.size == 0:
                self.augmenter.observe(_recent(buffer, self.augmenter.window))
            _adopt(buffer, drawing_augmented, self)

    def augment(self, rewards: Rewards) -> Rewards:
        return self.augmenter.augment(rewards).astype(rewards.dtype)


class OnPolicyPlug(Plug):
    """`y` from the rollout, or a window if one is given; advantages see augmented rewards."""

    def __init__(self, risk: Risk | float, window: int | None) -> None:
        super().__init__(risk, 1 if window is None else window)
        self._whole_rollout = window is None
        self._recorder: RewardRecorder | None = None

    def __call__(self, env: VecEnv, callback: Any, *args: Any, **kwargs: Any) -> Any:
        if self._recorder is None or self._recorder.venv is not env:
            self._recorder = RewardRecorder(env)
        self._recorder.rewards = []
        try:
            return super().__call__(self._recorder, callback, *args, **kwargs)
        finally:
            self._recorder.rewards = None

    def _adopt_buffer(self, model: Any) -> None:
        _adopt(model.rollout_buffer, learning_augmented, self)

    def augment(self, rewards: Rewards) -> Rewards:
        """`rewards` hold `gamma * value` at time limits; what the environment gave does not."""
        recorded = None if self._recorder is None else self._recorder.rewards
        raw = np.asarray(rewards if recorded is None else recorded, np.float64)
        if raw.shape != rewards.shape:
            raise InputError(
                f"the rollout has rewards of shape {rewards.shape}, the environment gave "
                f"{raw.shape}: collect_rollouts must step the environment that is passed to it"
            )
        if self._whole_rollout and self.augmenter.window != raw.size:
            self.augmenter = Augmenter(self.augmenter.risk, raw.size)
        self.augmenter.observe(raw)
        return (self.augmenter.augment(raw) + (rewards - raw)).astype(rewards.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_recorder": None}


class RewardRecorder(VecEnvWrapper):
    """Keeps what the environments gave, which SB3 changes in place at a time limit."""

    rewards: list[Rewards] | None = None

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        step = self.venv.step_wait()
        if self.rewards is not None:
            self.rewards.append(step[1].copy())
        return step


@cache
def drawing_augmented(own: Any) -> Any:
    """A class of replay buffers like `own` that stores raw rewards and draws augmented ones."""

    class AugmentedDraws(own):  # type: ignore[misc]
        def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, *a: Any, **k: Any) -> None:
            self.plug.augmenter.observe(reward)
            super().add(obs, next_obs, action, reward, *a, **k)

        def sample(self, *args: Any, **kwargs: Any) -> Any:
            self.augmented = False
            batch = super().sample(*args, **kwargs)
            # A class of the user's own may read `rewards` directly: then the batch is augmented.
            return batch if self.augmented else self._augment_batch(batch)

        def _normalize_reward(self, reward: Any, env: Any = None) -> Any:
            self.augmented = True
            return self.plug.augment(super()._normalize_reward(reward, env))

        def _augment_batch(self, batch: Any) -> Any:
            if getattr(batch, "discounts", None) is not None or getattr(self, "n_steps", 1) > 1:
                raise InputError(
                    f"{own.__name__} sums rewards over several steps without calling "
                    "self._normalize_reward(rewards, env) on each of them first: call it there"
                )
            augmented = self.plug.augment(batch.rewards.cpu().numpy())
            return batch._replace(rewards=batch.rewards.new_tensor(augmented))

        def __reduce_ex__(self, protocol: Any) -> Any:
            return _unpickled, (drawing_augmented, own), self.__getstate__()

    return AugmentedDraws


@cache
def learning_augmented(own: Any) -> Any:
    """A class of rollout buffers like `own` whose advantages are those of augmented rewards."""

    class AugmentedRollout(own):  # type: ignore[misc]
        augmented = False
        rewards: Rewards

        def reset(self) -> None:
            super().reset()
            self.augmented = False

        def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
            if not self.augmented:  # a callback may have advantages computed again
                self.rewards = self.plug.augment(self.rewards)
                self.augmented = True
            super().compute_returns_and_advantage(last_values, dones)

        def __reduce_ex__(self, protocol: Any) -> Any:
            return _unpickled, (learning_augmented, own), self.__getstate__()

    return AugmentedRollout


def _unpickled(augmented: Callable[[Any], Any], own: Any) -> Any:
    return object.__new__(augmented(own))


def _adopt(buffer: Any, augmented: Callable[[Any], Any], plug: Plug) -> None:
    """Give a buffer its augmenting class, unless it was loaded with it, and its plug."""
    if not hasattr(buffer, "plug"):
        buffer.__class__ = augmented(type(buffer))
    buffer.plug = plug


def _recent(buffer: Any, count: int) -> Rewards:
    """The last rewards in a replay buffer, the oldest first."""
    stored = buffer.buffer_size if buffer.full else buffer.pos
    rows = (buffer.pos - stored + np.arange(stored)[-count:]) % buffer.buffer_size
    return np.ravel(buffer.rewards[rows])[-count:]


def _plug_for(algorithm: Any) -> type[OffPolicyPlug] | type[OnPolicyPlug]:
    if not (isinstance(algorithm, type) and issubclass(algorithm, BaseAlgorithm)):
        raise InputError(f"algorithm must be a class of Stable-Baselines3, got {algorithm!r}")
    if issubclass(algorithm, OffPolicyAlgorithm):
        return OffPolicyPlug
    if issubclass(algorithm, OnPolicyAlgorithm):
        return OnPolicyPlug
    raise InputError(
        f"{algorithm.__name__} has no rewards per step to augment: it compares whole episodes. "
        "Give it mvpi.envs.AugmentedReward(env, risk) as its environment instead"
    )


def _refuse_ignored_n_steps(arguments: dict[str, Any]) -> None:
    own, n_steps = arguments.get("replay_buffer_class"), arguments.get("n_steps", 1)
    told = (arguments.get("replay_buffer_kwargs") or {}).get("n_steps") == n_steps
    if own is not None and n_steps > 1 and not told:
        raise InputError(
            f"SB3 ignores n_steps={n_steps} beside a replay_buffer_class ({own.__name__}): leave "
            "the class out, or have it take n_steps and gamma from replay_buffer_kwargs"
        )


def _checked(env: VecEnv | None, known: VecEnv | None) -> VecEnv | None:
    """`env`, if its rewards keep their scale; environments inside are asked when it is new."""
    if env is None:
        return None
    normalize = unwrap_vec_normalize(env)
    changing = None
    if normalize is not None and normalize.norm_reward:
        changing = "VecNormalize(norm_reward=True)"
    elif env is not known and any(env.env_is_wrapped(NormalizeReward)):
        changing = "the wrapper NormalizeReward"
    if changing is not None:
        raise InputError(
            f"{changing} divides rewards by a scale that changes while the agent learns, so a risk "
            "aversion has no fixed meaning: leave rewards as they are (norm_reward=False)"
        )
    return env
