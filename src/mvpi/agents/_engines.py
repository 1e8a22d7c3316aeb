"""The two engines of TD3's updates: the compiled loops of `mvpi.agents._native`, and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np

from mvpi._types import Vector
from mvpi.agents.networks import MLP
from mvpi.agents.settings import TD3Settings
from mvpi.agents.td3_networks import Networks


class Updates(Protocol):
    """Networks and the engine that updates them."""

    @property
    def networks(self) -> Networks:
        """All of them, as they are now."""

    @property
    def actor(self) -> MLP: ...

    @property
    def average_actor(self) -> MLP | None: ...

    def __call__(
        self, rows: Vector, noise: Vector, actor_noise: Vector | None, rate: float | None = None
    ) -> Vector:
        """As many updates as there are batches in `rows`; returns the mean losses.

        `rate` is the share of the learning rate that they are made with.
        """


class JaxUpdates:
    """Updates by a function in JAX, `mvpi.agents.td3.update`."""

    def __init__(
        self,
        net: Networks,
        settings: TD3Settings,
        update: Callable[..., tuple[Networks, jax.Array]],
    ) -> None:
        self.networks, self._settings, self._update = net, settings, update

    @property
    def actor(self) -> MLP:
        return self.networks.actor

    @property
    def average_actor(self) -> MLP | None:
        return self.networks.average_actor

    def __call__(
        self, rows: Vector, noise: Vector, actor_noise: Vector | None, rate: float | None = None
    ) -> Vector:
        given: Any = (rows, noise, self._settings, actor_noise, rate)
        self.networks, losses = self._update(self.networks, *given)
        return np.asarray(losses)


def make_updates(
    net: Networks, settings: TD3Settings, jax_update: Callable[..., tuple[Networks, jax.Array]]
) -> Updates:
    """The engine `settings.engine` for these networks."""
    if settings.engine == "jax":
        return JaxUpdates(net, settings, jax_update)
    from mvpi.agents._native.update import NativeUpdates  # numba takes a moment to import

    return NativeUpdates(net, settings)
