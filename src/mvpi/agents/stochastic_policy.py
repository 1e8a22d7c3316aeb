"""Stochastic policies: their densities, and normalised observations."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvpi._storage.arrays import Arrays
from mvpi._types import Vector
from mvpi.agents.networks import MLP
from mvpi.agents.policy import Categorical, Gaussian, Scaling, Stochastic
from mvpi.agents.settings import TotalRewardSettings
from mvpi.augmenter.columns import NO_COLUMNS, Columns
from mvpi.rollout.spaces import BoxActions, FlatObservations, Spaces


class Actor(eqx.Module):
    """A network whose outputs are the means of Gaussians, or the logits of choices."""

    net: MLP
    log_std: jax.Array | None

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        spaces: Spaces,
        hidden: tuple[int, ...],
        seen: int | None = None,
    ) -> Actor:
        """An actor whose outputs hardly depend on its observations; the standard deviation is 1.

        `seen` is the size of extended observations.
        """
        size = spaces.actions.size
        inputs = spaces.observations.size if seen is None else seen
        net = MLP.orthogonal(rng, inputs, *hidden, size, gain=0.01)
        return cls(net, jnp.zeros(size) if isinstance(spaces.actions, BoxActions) else None)

    def log_prob(self, s: jax.Array, a: jax.Array) -> jax.Array:
        """Logarithms of the densities, or probabilities, of actions `a` at observations `s`."""
        outputs = self.net(s)
        if self.log_std is None:
            chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs), a[..., None], axis=-1)
            return chosen[..., 0]
        z = (a - outputs) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)

    def entropy(self, s: jax.Array) -> jax.Array:
        """Entropy of the actions at every observation."""
        if self.log_std is None:
            logs = jax.nn.log_softmax(self.net(s))
            return -jnp.sum(jnp.exp(logs) * logs, axis=-1)
        one = jnp.sum(self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e))
        return jnp.full(s.shape[:-1], one)

    def policy(
        self, spaces: Spaces, scaling: Scaling | None = None, columns: Columns = NO_COLUMNS
    ) -> Stochastic:
        """The same in numpy, to act with."""
        weights = tuple(map(np.array, self.net.weights))
        biases = tuple(map(np.array, self.net.biases))
        if self.log_std is None:
            return Categorical(spaces, weights, biases, scaling, columns=columns)
        return Gaussian(spaces, weights, biases, scaling, np.array(self.log_std), columns=columns)


class Normaliser:
    """Observations on a common scale, by their running mean and variance (Welford).

    Switched off, and for states of a finite set, it changes nothing.
    """

    def __init__(self, spaces: Spaces, size: int, on: bool) -> None:
        """`size` is that of observations, extended ones if they are."""
        self._on = on and isinstance(spaces.observations, FlatObservations)
        self._count = 0
        self._mean = np.zeros(size)
        self._squares = np.zeros(size)

    def see(self, observation: Vector) -> None:
        """Update mean and variance with one observation."""
        if self._on:
            self._count += 1
            distance = observation - self._mean
            self._mean += distance / self._count
            self._squares += distance * (observation - self._mean)

    def __call__(self, observation: Vector) -> Vector:
        """The normalised observation."""
        return observation if (scaling := self.scaling()) is None else scaling(observation)

    def scaling(self) -> Scaling | None:
        """What it does to an observation now."""
        if not self._on:
            return None
        spread = self._squares / self._count if self._count > 1 else np.ones_like(self._squares)
        scale = np.sqrt(spread + 1e-8)
        return Scaling(self._mean.astype(np.float32), scale.astype(np.float32))

    def arrays(self) -> Arrays:
        """The state, as arrays."""
        return {"seen": np.array([self._mean, self._squares]), "count": np.array([self._count])}

    def restore(self, arrays: Arrays) -> None:
        """Restore the state that `arrays` returned."""
        self._mean, self._squares = arrays["seen"] + np.zeros((2, self._mean.size))
        (self._count,) = arrays["count"].tolist()


def optimizer(name: str, learning_rate: float) -> optax.GradientTransformation:
    """RMSprop as A2C uses it, or Adam."""
    if name == "adam":
        return optax.adam(learning_rate)
    return optax.rmsprop(learning_rate, decay=0.99, eps=1e-5, eps_in_sqrt=False)


def policy_optimizer(settings: TotalRewardSettings) -> optax.GradientTransformation:
    """The optimiser of the policy, with gradient clipping."""
    chosen = optimizer(settings.optimizer, settings.learning_rate)
    return clipped(chosen, settings.max_grad_norm)


def clipped(
    chosen: optax.GradientTransformation, max_grad_norm: float | None
) -> optax.GradientTransformation:
    """The optimiser on gradients clipped to the norm `max_grad_norm`."""
    if max_grad_norm is None:
        return chosen
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), chosen)
