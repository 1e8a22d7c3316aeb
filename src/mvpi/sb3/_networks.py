"""What the deterministic action of a model is computed by, for every kind of policy that has one.

The policies of Stable-Baselines3 and sb3-contrib are modules of torch, those of SBX trees of arrays
whose order is known by their class.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    DiagGaussianDistribution,
    StateDependentNoiseDistribution,
)
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from mvpi.agents.policy import CLIPPED, LARGEST, TANH
from mvpi.errors import InputError
from mvpi.sb3._layers import Layers, add_modules, double, normalise

_FLAX = {
    "sbx.td3.policies.Actor": TANH,
    "sbx.common.policies.SquashedGaussianActor": TANH,
    "sbx.crossq.policies.Actor": TANH,
    "sbx.ppo.policies.Actor": CLIPPED,
    "sbx.dqn.policies.QNetwork": LARGEST,
}
"""Networks of SBX that are a row of dense layers, and what their outputs are."""
_RENORM_EPSILON = 0.001
_SAME_IN_JAX = ("relu", "relu6", "leaky_relu", "elu", "sigmoid", "tanh")
_KEEP = "keep the model file"


class Found(NamedTuple):
    """Layers, what their outputs are, and the bound that outputs are clipped to before tanh."""

    layers: Layers
    output: str
    limit: float | None = None


def network_of(model: Any) -> Found:
    """The network behind `model.predict(observation, deterministic=True)`."""
    policy = model.policy
    name = type(policy).__name__
    if hasattr(policy, "lstm_actor"):
        raise InputError(f"{name} is recurrent, a policy file has no memory: {_KEEP}")
    if "Maskable" in name:
        raise InputError(f"{name} needs the mask of every step, a policy file has none: {_KEEP}")
    inputs = _inputs(model.observation_space, name)
    if is_of_flax(policy):
        network = "actor" if hasattr(policy, "actor_state") else "qf"
        return _of_flax(getattr(policy, network), getattr(policy, f"{network}_state"), inputs)
    if isinstance(policy, ActorCriticPolicy):
        return _of_actor_critic(policy, inputs)
    for network in ("actor", "q_net", "quantile_net"):
        if hasattr(policy, network):
            return _of_torch(getattr(policy, network), network, inputs)
    raise InputError(f"{name} is no policy whose network is known: {_KEEP}")


def is_of_flax(policy: Any) -> bool:
    """Whether it is a policy of SBX, whose parameters are in states of networks."""
    return hasattr(policy, "actor_state") or hasattr(policy, "qf_state")


def _inputs(space: gym.Space[Any], name: str) -> int:
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
        return int(space.shape[0])
    raise InputError(
        f"{name} sees {type(space).__name__} observations of shape {space.shape}, a policy file "
        f"takes flat boxes and finite sets: {_KEEP}"
    )


def _flattens(extractor: Any) -> None:
    if type(extractor) is not FlattenExtractor:
        raise InputError(
            f"this policy looks through a {type(extractor).__name__}, a policy file holds MLPs "
            f"alone: {_KEEP}"
        )


def _of_torch(network: Any, name: str, inputs: int) -> Found:
    _flattens(network.features_extractor)
    layers, limit = Layers(inputs), None
    if name == "q_net":
        add_modules(layers, [network.q_net])
        return Found(layers, LARGEST)
    if name == "quantile_net":
        add_modules(layers, [network.quantile_net])
        _mean_of_quantiles(layers, network.n_quantiles)
        return Found(layers, LARGEST)
    last: Any = network.mu
    if isinstance(last, nn.Sequential) and isinstance(last[-1], nn.Hardtanh):  # gSDE
        last, limit = last[:-1], float(last[-1].max_val)
    elif isinstance(last, nn.Sequential) and isinstance(last[-1], nn.Tanh):  # TD3
        last = last[:-1]
    add_modules(layers, [*getattr(network, "latent_pi", ()), last])
    return Found(layers, TANH, limit)


def _mean_of_quantiles(layers: Layers, count: int) -> None:
    """The last layer gives the quantiles of all actions: their means are linear, too."""
    weight, bias = layers.weights[-1], layers.biases[-1]
    layers.weights[-1] = weight.reshape(len(weight), count, -1).mean(axis=1)
    layers.biases[-1] = bias.reshape(count, -1).mean(axis=0)


def _of_actor_critic(policy: Any, inputs: int) -> Found:
    _flattens(policy.pi_features_extractor)
    kind = policy.action_dist
    if isinstance(kind, CategoricalDistribution):
        output = LARGEST
    elif isinstance(kind, DiagGaussianDistribution | StateDependentNoiseDistribution):
        output = TANH if policy.squash_output else CLIPPED
    else:
        raise InputError(
            f"{type(policy).__name__} acts by a {type(kind).__name__}, a policy file in a box or "
            f"by one choice: {_KEEP}"
        )
    layers = Layers(inputs)
    add_modules(layers, [policy.mlp_extractor.policy_net, policy.action_net])
    return Found(layers, output)


def _of_flax(network: Any, state: Any, inputs: int) -> Found:
    cls = type(network)
    output = _FLAX.get(f"{cls.__module__}.{cls.__name__}")
    if output is None or getattr(network, "features_extractor", None) is not None:
        raise InputError(f"{cls.__name__} of SBX is no plain MLP: {_KEEP}")
    choices = getattr(network, "num_discrete_choices", None)
    if choices is not None and not isinstance(choices, int):
        raise InputError(f"a policy file has one choice a step, not {len(choices)}: {_KEEP}")
    if choices is not None:
        output = LARGEST
    parameters = state.params.get("params", state.params)
    statistics = getattr(state, "batch_stats", {})
    normalised = getattr(network, "use_batch_norm", False)
    hidden = len(network.net_arch) if hasattr(network, "net_arch") else 2  # DQN of SBX has two
    layers, activation = Layers(inputs), _activation_of_jax(network.activation_fn)
    for i in range(hidden + 1):
        if normalised:
            name = f"BatchRenorm_{i}"
            known, own = statistics[name], parameters[name]
            scale, shift = double(own["scale"]), double(own["bias"])
            normalise(layers, known["mean"], known["var"], _RENORM_EPSILON, scale, shift)
        dense = parameters[f"Dense_{i}"]
        layers.affine(double(dense["kernel"]), double(dense["bias"]))
        if i < hidden:
            layers.activate(activation)
    return Found(layers, output)


def _activation_of_jax(function: Any) -> str:
    import jax.numpy as jnp
    from flax import linen

    same = {getattr(linen, name): name for name in _SAME_IN_JAX}
    names = same | {jnp.tanh: "tanh", linen.silu: "silu", linen.gelu: "gelu_tanh"}
    if function not in names:
        told = getattr(function, "__name__", str(function))
        known = ", ".join(sorted(np.unique(list(names.values()))))
        raise InputError(f"a policy file knows no {told[:40]} units: use one of {known}")
    return names[function]
