"""`export(model, path)`: the policy of a model by itself, for `mvpi.load` and `mvpi evaluate`."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnvWrapper

from mvpi._checks import check_kind, check_output
from mvpi._types import Vector
from mvpi.agents.policy import LARGEST, Network, Scaling
from mvpi.augmenter.columns import NO_COLUMNS, Columns
from mvpi.errors import InputError
from mvpi.risk import MeanVariance, Risk, risk_text
from mvpi.rollout.spaces import BoxActions, Choices, FlatObservations, Spaces, States
from mvpi.sb3._extension import ExtendedVecEnv
from mvpi.sb3._hooks import plug_in
from mvpi.sb3._networks import is_of_flax, network_of
from mvpi.sb3._one_policy import PolicyAt

_TRIED = 256
"""Observations that the written policy and the model are compared on."""
_FAULT = 1e-4
_FAR = 1e3


def export(model: BaseAlgorithm | PolicyAt, path: str | os.PathLike[str]) -> None:
    """Write the policy of a model alone to a safetensors file, for `mvpi.load`.

    Its actions are those of `model.predict(observation, deterministic=True)`; observations are
    those of the environment itself, the scaling of a `VecNormalize` around it is part of the file.
    For MLP policies on flat or finite observations. A model trained with a `RiskRange` is written
    for all of its range, `at(model, risk_aversion)` for one risk aversion.
    """
    file = check_output(path)
    chosen = model if isinstance(model, PolicyAt) else None
    whole: Any = model if chosen is None else chosen.model
    check_kind(whole, BaseAlgorithm, "model", "a model of Stable-Baselines3")
    plug = plug_in(whole)
    risk: Risk = MeanVariance(0.0) if plug is None else plug.augmenter.risk
    policy: Any = _policy(whole, NO_COLUMNS if plug is None else plug.columns)
    _compare(policy, whole)
    if chosen is not None:
        policy, risk = policy.at(chosen.acted), chosen.risk
    policy.save(file, _facts(whole, policy, risk, plug))


def _policy(model: Any, columns: Columns) -> Network:
    found = network_of(model)
    weights, biases = found.layers.arrays()
    seen = found.layers.inputs - columns.size
    spaces = Spaces(_observations(model, seen, columns), _actions(model.action_space))
    return Network(
        spaces,
        weights,
        biases,
        scaling=_scaling(model),
        activation=found.layers.activation or "relu",
        output=found.output,
        limit=found.limit,
        columns=columns,
    )


def _observations(model: Any, seen: int, columns: Columns) -> FlatObservations | States:
    space = model.observation_space if not columns.size else _plain_space(model)
    if isinstance(space, gym.spaces.Discrete):
        if not columns.size and is_of_flax(model.policy):
            raise InputError(
                f"SBX sees the number of a state, a policy file its unit vector: wrap {space} in "
                "gymnasium.wrappers.FlattenObservation"
            )
        return States(seen, int(space.start))
    if space is not None and (not isinstance(space, gym.spaces.Box) or space.shape != (seen,)):
        raise InputError(f"a policy file takes flat boxes and finite sets, got {space}")
    return FlatObservations(seen)


def _plain_space(model: Any) -> gym.Space[Any] | None:
    """The space that was extended; None if the model has no environment to ask."""
    env = model.get_env()
    inner = env
    while isinstance(inner, VecEnvWrapper):
        if isinstance(inner, ExtendedVecEnv):
            return inner.venv.observation_space
        inner = inner.venv
    known = None if env is None else env.get_attr("_extender")[0]._inner
    return known if isinstance(known, gym.Space) else None


def _actions(space: gym.Space[Any]) -> BoxActions | Choices:
    if isinstance(space, gym.spaces.Discrete):
        return Choices(int(space.n), int(space.start))
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
        raise InputError(f"a policy file acts in a flat box or by one choice, got {space}")
    kind: Any = space.dtype
    if kind.kind != "f":
        raise InputError(f"a policy file acts in a box of floats, got {space}")
    return BoxActions(space.low, space.high)


def _scaling(model: Any) -> Scaling | None:
    known = model.get_vec_normalize_env()
    if known is None or not known.norm_obs:
        return None
    scale = np.sqrt(known.obs_rms.var + known.epsilon).astype(np.float32)
    return Scaling(known.obs_rms.mean.astype(np.float32), scale, float(known.clip_obs))


def _compare(policy: Network, model: Any) -> None:
    """Refuse a policy that acts otherwise than its layers: one of the user's may do anything."""
    seen = _tried(policy, model)
    given: npt.NDArray[Any] = seen
    if isinstance(model.observation_space, gym.spaces.Discrete):
        given = seen.argmax(axis=-1)
    normalize = model.get_vec_normalize_env()
    if normalize is not None:
        given = normalize.normalize_obs(given)
    theirs = np.asarray(model.predict(given, deterministic=True)[0])
    ours = policy._to_env_action(policy(seen))
    if policy.output == LARGEST:
        outputs = policy.outputs(seen)
        rows = np.arange(len(outputs))
        first = policy.spaces.actions.first if isinstance(policy.spaces.actions, Choices) else 0
        lost = outputs.max(axis=-1) - outputs[rows, theirs.astype(np.intp) - first]
        same = lost <= _FAULT * (1 + np.abs(outputs).max(axis=-1))
    else:
        same = np.abs(ours - theirs) <= _FAULT * (1 + np.abs(theirs))
    if not same.all():
        raise InputError(
            f"{type(model.policy).__name__} does more than its layers say, the exported policy "
            "would act otherwise: keep the model file"
        )


def _tried(policy: Network, model: Any) -> Vector:
    """Observations as the network sees them, before they are scaled."""
    rng = np.random.default_rng(0)
    size = policy.spaces.observations.size + policy.columns.size
    space = model.observation_space
    if isinstance(space, gym.spaces.Discrete):
        return np.eye(size, dtype=np.float32)[rng.integers(size, size=_TRIED)]
    drawn = rng.normal(size=(_TRIED, size))
    if policy.scaling is not None:
        drawn = policy.scaling.mean + drawn * policy.scaling.scale
    bounded = (np.abs(space.low) < _FAR) & (np.abs(space.high) < _FAR)
    with np.errstate(invalid="ignore", over="ignore"):
        inside = space.low + rng.uniform(size=drawn.shape) * (space.high - space.low)
    return np.where(bounded, inside, drawn).astype(np.float32)


def _facts(model: Any, policy: Any, risk: Risk, plug: Any) -> dict[str, Any]:
    """What `mvpi.load` needs to know beside the policy."""
    cls = type(model)
    return {
        "algorithm": "exported",
        "environment": _environment(model),
        "risk": risk_text(risk),
        "seed": model.seed or 0,
        "steps": int(model.num_timesteps),
        "settings": {
            "gamma": float(model.gamma),
            "hidden": [int(bias.size) for bias in policy.biases[:-1]],
            "source": f"{cls.__module__.partition('.')[0]}.{cls.__name__}",
            "occupancy": "undiscounted" if plug is None else plug.augmenter.occupancy,
        },
    }


def _environment(model: Any) -> dict[str, Any]:
    """The id of the environment, if one made by it is what the model was trained in."""
    try:
        spec = model.get_env().get_attr("spec")[0]
        plain = {w.name for w in spec.additional_wrappers} <= {"Monitor", "ExtendedObservation"}
        usual = {"render_mode": None, **gym.spec(spec.id).kwargs}
        same = {**usual, **spec.kwargs, "render_mode": None} == usual
        return {"id": spec.id} if plain and same else {}
    except (AttributeError, NotImplementedError, IndexError, TypeError, gym.error.Error):
        return {}
