"""The networks of TD3 and the states of their optimisers: all that an update changes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvpi.agents.networks import MLP
from mvpi.agents.settings import TD3Settings

Critics = tuple[MLP, MLP]


class Networks(eqx.Module):
    """The state that the update changes."""

    actor: MLP
    average_actor: MLP | None
    critics: Critics
    target_actor: MLP
    target_critics: Critics
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState


def initial_networks(
    rng: np.random.Generator, observation_size: int, action_size: int, settings: TD3Settings
) -> Networks:
    """Random networks, and targets equal to them."""
    optimizer = optax.adam(settings.learning_rate)
    actor = MLP.random(rng, observation_size, *settings.hidden, action_size)
    both = observation_size + action_size
    critics = (
        MLP.random(rng, both, *settings.hidden, 1),
        MLP.random(rng, both, *settings.hidden, 1),
    )
    # The update donates its buffers, so no two networks may share theirs.
    average_actor, target_actor, target_critics = jax.tree.map(jnp.copy, (actor, actor, critics))
    return Networks(
        actor,
        average_actor if settings.averaging else None,
        critics,
        target_actor,
        target_critics,
        optimizer.init(actor),
        optimizer.init(critics),
    )
