"""The update of TD3+BC: that of TD3, with behaviour cloning in the actor's loss."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from mvpi.agents.networks import MLP
from mvpi.agents.settings import TD3Settings
from mvpi.agents.td3 import Batch, descend, excess, q, update_critics
from mvpi.agents.td3_networks import Networks

_SMALLEST_VALUE = 1e-6
"""Smallest mean |Q| that is divided by: smaller ones are noise."""


def update_actor(
    net: Networks, batch: Batch, alpha: float, settings: TD3Settings
) -> tuple[Networks, jax.Array]:
    """One step on the actor, then soft updates of all targets."""

    def loss(actor: MLP) -> jax.Array:
        z = actor(batch.s)
        a = jnp.tanh(z)
        values = q(net.critics[0], batch.s, a)
        size = jax.lax.stop_gradient(jnp.mean(jnp.abs(values)))
        cloning = jnp.mean(jnp.square(a - batch.a))
        loss = cloning - alpha * jnp.mean(values) / jnp.maximum(size, _SMALLEST_VALUE)
        return loss + settings.saturation_penalty * excess(z)

    return descend(net, loss, settings)


@partial(jax.jit, static_argnames="settings", donate_argnames="net")
def update(
    net: Networks, batches: Batch, alpha: float, settings: TD3Settings
) -> tuple[Networks, jax.Array]:
    """An update per batch; also returns the mean losses of critics and actor."""

    def round_of_updates(net: Networks, batches: Batch) -> tuple[Networks, jax.Array]:
        for i in range(settings.policy_delay):
            batch = jax.tree.map(lambda x, i=i: x[i], batches)
            net, critic_loss = update_critics(net, batch, settings)
        net, actor_loss = update_actor(net, batch, alpha, settings)
        return net, jnp.stack([critic_loss, actor_loss])

    delay = settings.policy_delay
    rounds = jax.tree.map(lambda x: x.reshape(-1, delay, *x.shape[1:]), batches)
    net, losses = jax.lax.scan(round_of_updates, net, rounds)
    return net, losses.mean(axis=0)
