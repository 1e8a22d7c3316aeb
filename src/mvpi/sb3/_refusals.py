"""Environments and buffers that a risk-averse model cannot learn from."""

from __future__ import annotations

from typing import Any

from gymnasium.wrappers import NormalizeReward
from stable_baselines3.common.preprocessing import get_obs_shape
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from mvpi.errors import InputError


def refuse_changing_rewards(new: VecEnv | None, normalize: VecNormalize | None) -> None:
    """Environments inside, which may be in other processes, are asked only when they are new."""
    if normalize is not None and normalize.norm_reward and normalize.training:
        changing = "VecNormalize(norm_reward=True)"
    elif new is not None and _is_wrapped(new, NormalizeReward):
        changing = "the wrapper NormalizeReward"
    else:
        return
    raise InputError(
        f"{changing} divides rewards by a scale that changes while the agent learns, so a risk "
        "aversion has no fixed meaning: leave rewards as they are (norm_reward=False)"
    )


def refuse_other_observations(buffer: Any, model: Any) -> None:
    """One of a plain model does not keep what a policy sees beside the observation."""
    kept = getattr(buffer, "obs_shape", None)
    if kept is not None and kept != get_obs_shape(model.observation_space):
        seen = get_obs_shape(model.observation_space)
        raise InputError(
            f"the buffer keeps observations of shape {kept}, this {type(model).__name__} sees "
            f"{seen}: load a buffer that was filled with the same kind of risk"
        )


def _is_wrapped(env: VecEnv, wrapper: type[Any]) -> bool:
    """Whether an environment inside is; adapters of simulators may not know, having none inside."""
    try:
        return any(env.env_is_wrapped(wrapper))
    except (AttributeError, NotImplementedError):
        return False
