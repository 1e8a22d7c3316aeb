"""Learning from batches of whole episodes, whose returns are compared: what two baselines share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvpi._storage.arrays import Arrays
from mvpi._types import Array
from mvpi.agents.parallel_actors import (
    Episode,
    Networks,
    WholeEpisodeLearner,
    as_float32,
    padded,
    power_of_two,
)
from mvpi.agents.settings import EpisodeBatchSettings
from mvpi.agents.stochastic_policy import Actor, policy_optimizer
from mvpi.rollout.guard import GuardedEnv

B = TypeVar("B", bound=EpisodeBatchSettings)


class Ended(NamedTuple):
    """An episode that has ended: its observations, its actions and its return."""

    s: Any
    a: Any
    g: float


@partial(jax.jit, static_argnames="settings", donate_argnames="net")
def update(
    net: Networks,
    batch: Episode,
    weights: jax.Array,
    count: jax.Array,
    settings: EpisodeBatchSettings,
) -> tuple[Networks, jax.Array]:
    """Ascend on the mean of `weight * log pi(episode)` over `count` episodes, and the entropy.

    With several epochs probabilities move away from those the episodes were drawn with: their
    ratios take the place of `log pi`, clipped as in PPO. The first epoch is the plain gradient.
    Also returns the mean loss.
    """
    w = weights[:, None]
    before = net.actor.log_prob(batch.s, batch.a)

    def loss(actor: Actor) -> jax.Array:
        ratio = jnp.exp(jnp.where(batch.steps, actor.log_prob(batch.s, batch.a) - before, 0.0))
        near = jnp.clip(ratio, 1.0 - settings.clip_range, 1.0 + settings.clip_range)
        gain = jnp.sum(jnp.minimum(ratio * w, near * w), where=batch.steps) / count
        entropy = jnp.mean(actor.entropy(batch.s), where=batch.steps)
        return -gain - settings.ent_coef * entropy

    def epoch(net: Networks, _: None) -> tuple[Networks, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(net.actor)
        steps, state = policy_optimizer(settings).update(gradient, net.optimizer)
        return Networks(optax.apply_updates(net.actor, steps), state), value

    net, losses = jax.lax.scan(epoch, net, length=settings.n_epochs)
    return net, losses.mean()


class EpisodeBatchLearner(WholeEpisodeLearner[B]):
    """Learns when `batch_episodes` episodes have ended: the subclass says how much each counts.

    Episodes that end in the same common step of all actors are in the same batch.
    """

    loss_names = ("actor_loss",)

    def begin(self, opened: ExitStack) -> None:
        super().begin(opened)
        self._batch: list[Ended] = []

    @abstractmethod
    def weigh(self, g: Array) -> Array:
        """The weights of episodes with returns `g`; sets `y`, which metrics.csv shows."""

    def end_episode(self, env: GuardedEnv) -> None:
        s, a, r = zip(*env.episode, strict=True)
        self._batch.append(Ended(np.array(s), np.array(a), self.discounted_return(r)))

    def all_stepped(self) -> None:
        if len(self._batch) >= self.settings.batch_episodes:
            self._learn()
        super().all_stepped()

    def _learn(self) -> None:
        weights = self.weigh(np.array([episode.g for episode in self._batch]))
        count = np.float32(len(self._batch))
        self.net, loss = update(self.net, *stacked(self._batch, weights), count, self.settings)
        self.add_losses(np.asarray(loss)[None])
        self._batch = []
        self._learned = True

    def estimates(self) -> Arrays:
        """The batch so far: its episodes one after the other."""
        if not self._batch:
            return {}
        s, a, g = zip(*self._batch, strict=True)
        lengths = np.array([len(seen) for seen in s])
        parts = {"s": np.concatenate(s), "a": np.concatenate(a), "g": np.array(g)}
        return {f"batch.{name}": part for name, part in (parts | {"lengths": lengths}).items()}

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        super().restore_arrays(net, arrays)
        if "batch.g" in arrays:
            ends = np.cumsum(arrays["batch.lengths"])
            s, a = (np.split(arrays[f"batch.{name}"], ends) for name in "sa")
            self._batch = list(map(Ended, s[:-1], a[:-1], arrays["batch.g"].tolist()))


def stacked(episodes: Sequence[Ended], weights: Array) -> tuple[Episode, Any]:
    """Episodes of one length, as many as a power of two; those added have weight 0 and no steps."""
    made = [padded(tuple(episode.s), tuple(episode.a)) for episode in episodes]
    room, length = power_of_two(len(made)), max(len(episode.steps) for episode in made)

    def column(parts: tuple[Any, ...]) -> Any:
        full = np.zeros((room, length, *parts[0].shape[1:]), parts[0].dtype)
        for row, part in zip(full, parts, strict=False):
            row[: len(part)] = part
        return full

    batch = Episode(*map(column, zip(*made, strict=True)))
    return batch, as_float32(np.pad(weights, (0, room - len(made))))
