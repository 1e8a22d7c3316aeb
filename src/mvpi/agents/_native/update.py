"""TD3's updates by the kernels of `mvpi.agents._native.kernels`, in place of JAX.

The same numbers but for rounding, on the processor only, and faster there. Networks come as the
trees of `mvpi.agents.td3_networks` and leave as such: what is saved does not depend on the engine.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import optax

from mvpi._compiled import start_threads
from mvpi._storage.row_layout import RowLayout
from mvpi._types import Vector
from mvpi.agents._native import kernels
from mvpi.agents._native.kernels import (
    Layout,
    TD3Numbers,
    TD3Scratch,
    TD3State,
    aligned_zeros,
    layout,
)
from mvpi.agents._native.matrix_products import PANEL
from mvpi.agents.networks import MLP
from mvpi.agents.settings import TD3Settings
from mvpi.agents.td3_networks import Critics, Networks

_WORTH_THREADS = 2_000_000
"""Multiplications in a layer for which threads save more than they cost."""
_MOST_THREADS = 4


class NativeUpdates:
    """The networks of TD3 as vectors at fixed addresses, and their updates.

    `threads` is how many threads share an update: as many as numba may use, where it pays.
    """

    def __init__(self, net: Networks, settings: TD3Settings, threads: int | None = None) -> None:
        batch = settings.batch_size
        actor, actor_size, actor_units = layout(*_sizes(net.actor))
        critic, critic_size, critic_units = layout(*_sizes(net.critics[0]))
        of_actor, of_critics = net.actor_optimizer[0], net.critic_optimizer[0]
        average = net.average_actor
        self._actor, self._critic = actor, critic
        self._columns = RowLayout(int(actor.inputs[0]), int(actor.outputs[-1])).columns
        self._state = TD3State(
            actor=_packed(actor, net.actor)[0],
            average_actor=_packed(actor, *([] if average is None else [average])).reshape(-1),
            critics=_packed(critic, *net.critics),
            target_actor=_packed(actor, net.target_actor)[0],
            target_critics=_packed(critic, *net.target_critics),
            actor_mean=_packed(actor, of_actor.mu)[0],
            actor_square=_packed(actor, of_actor.nu)[0],
            critics_mean=_packed(critic, *of_critics.mu),
            critics_square=_packed(critic, *of_critics.nu),
        )
        self._count = int(of_critics.count)
        self._numbers = TD3Numbers(
            settings.gamma,
            settings.learning_rate,
            settings.tau,
            settings.policy_delay,
            settings.averaging,
            settings.saturation_penalty,
        )
        large = batch * int((critic.inputs * critic.row).max()) >= _WORTH_THREADS
        if large or threads is not None:
            start_threads()
        self.threads = threads or (min(numba.get_num_threads(), _MOST_THREADS) if large else 1)
        widest = int(max(actor.row.max(), critic.row.max()))
        self._scratch = TD3Scratch(
            pairs=aligned_zeros(batch, int(critic.inputs[0])),
            values=aligned_zeros(batch),
            actor_units=aligned_zeros(batch * actor_units),
            actor_gradients=aligned_zeros(batch * actor_units),
            critic_units=aligned_zeros(2, batch * critic_units),
            critic_gradients=aligned_zeros(2, batch * critic_units),
            theta_gradients=aligned_zeros(2, max(actor_size, critic_size)),
            panels=aligned_zeros(max(self.threads, 2), widest * PANEL),
            zeros=aligned_zeros(widest + PANEL),
            losses=np.zeros(2),
        )

    def __call__(
        self, rows: Vector, noise: Vector, actor_noise: Vector | None, rate: float | None = None
    ) -> Vector:
        """As `mvpi.agents.td3.update`: an update for each batch in `rows`; the mean losses."""
        numbers = self._numbers
        if rate is not None:
            numbers = numbers._replace(learning_rate=rate * numbers.learning_rate)
        if actor_noise is None:
            turns = len(rows) // self._numbers.policy_delay
            actor_noise = np.zeros((turns, 0, noise.shape[-1]), np.float32)
        update = kernels.update if self.threads == 1 else kernels.update_with_threads
        losses = update(
            self.threads,
            self._columns,
            self._actor,
            self._critic,
            self._state,
            rows,
            noise,
            actor_noise,
            numbers,
            self._count,
            self._scratch,
        )
        self._count += len(rows)
        return np.array(losses, np.float32)

    @property
    def actor(self) -> MLP:
        return _unpacked(self._actor, self._state.actor)

    @property
    def average_actor(self) -> MLP | None:
        vector = self._state.average_actor
        return _unpacked(self._actor, vector) if len(vector) else None

    @property
    def networks(self) -> Networks:
        """All networks, as a tree of arrays of their own."""
        state, actor, critic = self._state, self._actor, self._critic
        return Networks(
            self.actor,
            self.average_actor,
            _pair(critic, state.critics),
            _unpacked(actor, state.target_actor),
            _pair(critic, state.target_critics),
            _moments(
                self._count // self._numbers.policy_delay,
                _unpacked(actor, state.actor_mean),
                _unpacked(actor, state.actor_square),
            ),
            _moments(
                self._count,
                _pair(critic, state.critics_mean),
                _pair(critic, state.critics_square),
            ),
        )


def _sizes(net: MLP) -> list[int]:
    return [len(net.weights[0]), *(len(bias) for bias in net.biases)]


def _packed(places: Layout, *nets: MLP) -> Vector:
    """Networks as vectors, the rows of a matrix."""
    size = int(places.biases[-1] + places.row[-1])
    vectors = aligned_zeros(len(nets), size)
    for net, vector in zip(nets, vectors, strict=True):
        for target, source in zip(_views(places, vector), (*net.weights, *net.biases), strict=True):
            target[...] = source
    return vectors


def _unpacked(places: Layout, vector: Vector) -> MLP:
    arrays: list[Any] = [view.copy() for view in _views(places, vector)]
    layers = len(arrays) // 2
    return MLP(tuple(arrays[:layers]), tuple(arrays[layers:]))


def _views(places: Layout, vector: Vector) -> list[Vector]:
    """The weights, then the biases of all layers, where they are in the vector."""
    weights, biases = [], []
    for inputs, outputs, _, row, first, bias, _ in zip(*places, strict=True):
        weights.append(vector[first:bias].reshape(inputs, row)[:, :outputs])
        biases.append(vector[bias : bias + outputs])
    return weights + biases


def _pair(places: Layout, vectors: Vector) -> Critics:
    first, second = (_unpacked(places, vector) for vector in vectors)
    return first, second


def _moments(count: int, mean: object, square: object) -> optax.OptState:
    """The state of `optax.adam` after so many steps."""
    return optax.ScaleByAdamState(np.int32(count), mean, square), optax.EmptyState()
