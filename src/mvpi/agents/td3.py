"""MVPI-TD3, the paper's Algorithm 3: TD3 (Fujimoto 2018) on augmented rewards.

    for every step
        act         a = clip(pi(s) + N(0, sigma^2)); observe r, s'; store (s, a, r, s') raw
        evaluate    y = dual of the K most recent rewards (mean-variance: their mean)
        draw        a batch; r <- augment(r, y)         (mean-variance: r - lam r^2 + 2 lam r y)
        critics     a' = clip(pi'(s') + clip(noise));  t = r + gamma min_i Q'_i(s', a')
                    Q_i <- descend on (Q_i(s, a) - t)^2
        actor       every `policy_delay` updates: pi <- ascend on Q_1(s, pi(s)) - c excess(z);
                    Q', pi' follow

`z` is the actor's output before tanh, `pi = tanh(z)`, and `excess(z) = mean max(|z| - 3, 0)^2`.
Where tanh is flat no gradient of `Q` passes, and an actor that has got there in every state would
stay for ever; this term brings it back. `c = saturation_penalty`; it changes nothing while
`|pi| <= 0.995`, and `c = 0` is TD3 as published.

At risk 0 the algorithm is TD3. The updates due after `train_freq` steps are made together, in one
compiled call: one update per step, as published, with a policy that acts at most `train_freq` steps
old.

The update is written here in JAX. By default it is made by `mvpi.agents.td3_native`, the same but
faster on a processor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mvpi._storage.arrays import Arrays
from mvpi.agents.agent import Agent
from mvpi.agents.learner import Learner, Rest
from mvpi.agents.networks import MLP
from mvpi.agents.policy import Deterministic
from mvpi.agents.replay import Replay
from mvpi.agents.settings import SATURATED, TD3Settings
from mvpi.running import RewardWindow

Vector = npt.NDArray[np.float32]
Critics = tuple[MLP, MLP]


class Networks(eqx.Module):
    """All that the update changes."""

    actor: MLP
    average_actor: MLP | None
    critics: Critics
    target_actor: MLP
    target_critics: Critics
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState


class Batch(eqx.Module):
    """Transitions, with rewards already augmented."""

    s: jax.Array
    a: jax.Array
    r: jax.Array
    continues: jax.Array
    following: jax.Array
    noise: jax.Array


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


def pi(actor: MLP, s: jax.Array) -> jax.Array:
    """Actions in [-1, 1]."""
    return jnp.tanh(actor(s))


def q(critic: MLP, s: jax.Array, a: jax.Array) -> jax.Array:
    """Values of actions."""
    return critic(jnp.concatenate([s, a], axis=-1))[..., 0]


def excess(z: jax.Array) -> jax.Array:
    """How far outputs before tanh are beyond where it is flat: `mean max(|z| - 3, 0)^2`."""
    return jnp.mean(jnp.square(jnp.maximum(jnp.abs(z) - SATURATED, 0.0)))


def update_critics(
    net: Networks, batch: Batch, settings: TD3Settings
) -> tuple[Networks, jax.Array]:
    """One step on both critics, towards the smaller of the two target values."""
    a = jnp.clip(pi(net.target_actor, batch.following) + batch.noise, -1.0, 1.0)
    q1, q2 = (q(critic, batch.following, a) for critic in net.target_critics)
    target = batch.r + settings.gamma * batch.continues * jnp.minimum(q1, q2)

    def loss(critics: Critics) -> jax.Array:
        errors = [q(critic, batch.s, batch.a) - target for critic in critics]
        return jnp.mean(jnp.square(errors[0])) + jnp.mean(jnp.square(errors[1]))

    value, gradient = jax.value_and_grad(loss)(net.critics)
    steps, state = optax.adam(settings.learning_rate).update(gradient, net.critic_optimizer)
    critics = optax.apply_updates(net.critics, steps)
    return _replace(net, critics=critics, critic_optimizer=state), value


def update_actor(
    net: Networks, batch: Batch, settings: TD3Settings, nearby: jax.Array | None = None
) -> tuple[Networks, jax.Array]:
    """One step on the actor, then all targets follow.

    `nearby` is added to its actions: the slope of the critic, a network of flat pieces, is then
    that of a neighbourhood and not of a single piece.
    """

    def loss(actor: MLP) -> jax.Array:
        z = actor(batch.s)
        a = jnp.tanh(z)
        values = q(net.critics[0], batch.s, a if nearby is None else a + nearby)
        return settings.saturation_penalty * excess(z) - jnp.mean(values)

    return descend(net, loss, settings)


def descend(
    net: Networks, loss: Callable[[MLP], jax.Array], settings: TD3Settings
) -> tuple[Networks, jax.Array]:
    """A step of the actor down `loss`, after which all targets follow."""
    value, gradient = jax.value_and_grad(loss)(net.actor)
    steps, state = optax.adam(settings.learning_rate).update(gradient, net.actor_optimizer)
    actor = optax.apply_updates(net.actor, steps)
    follow = partial(optax.incremental_update, step_size=settings.tau)
    average = net.average_actor
    if average is not None:
        average = optax.incremental_update(actor, average, 1.0 / settings.averaging)
    return _replace(
        net,
        actor=actor,
        average_actor=average,
        actor_optimizer=state,
        target_actor=follow(actor, net.target_actor),
        target_critics=follow(net.critics, net.target_critics),
    ), value


# Wide vectors, where the processor has them, make the update a few percent faster.
_COMPILER = {"xla_cpu_prefer_vector_width": 512}


@partial(jax.jit, static_argnames="settings", donate_argnames="net", compiler_options=_COMPILER)
def update(
    net: Networks,
    rows: jax.Array,
    noise: jax.Array,
    settings: TD3Settings,
    nearby: jax.Array | None = None,
) -> tuple[Networks, jax.Array]:
    """As many updates as there are batches in `rows`; also returns the mean losses.

    `noise` is on the target actions, one a batch, and `nearby` on those of the actor's own loss,
    one for each of its updates.
    """

    def round_of_updates(net: Networks, drawn: Any) -> tuple[Networks, jax.Array]:
        rows, noise, nearby = drawn
        for rows_of_batch, noise_of_batch in zip(rows, noise, strict=True):
            batch = _split(rows_of_batch, noise_of_batch)
            net, critic_loss = update_critics(net, batch, settings)
        net, actor_loss = update_actor(net, batch, settings, nearby)
        return net, jnp.stack([critic_loss, actor_loss])

    rounds = (-1, settings.policy_delay)
    drawn = (rows.reshape(rounds + rows.shape[1:]), noise.reshape(rounds + noise.shape[1:]), nearby)
    net, losses = jax.lax.scan(round_of_updates, net, drawn)
    return net, losses.mean(axis=0)


class Updates(Protocol):
    """Networks, and what makes their updates."""

    @property
    def networks(self) -> Networks:
        """All of them, as they are now."""

    @property
    def actor(self) -> MLP: ...

    @property
    def average_actor(self) -> MLP | None: ...

    def __call__(self, rows: Vector, noise: Vector, nearby: Vector | None) -> Vector:
        """As many updates as there are batches; returns the mean losses."""


class JaxUpdates:
    """Updates by the functions above."""

    def __init__(self, net: Networks, settings: TD3Settings) -> None:
        self.networks, self._settings = net, settings

    @property
    def actor(self) -> MLP:
        return self.networks.actor

    @property
    def average_actor(self) -> MLP | None:
        return self.networks.average_actor

    def __call__(self, rows: Vector, noise: Vector, nearby: Vector | None) -> Vector:
        self.networks, losses = update(self.networks, rows, noise, self._settings, nearby)
        return np.asarray(losses)


def updates_of(net: Networks, settings: TD3Settings) -> Updates:
    """What makes the updates of these networks, as `settings.engine` says."""
    if settings.engine == "jax":
        return JaxUpdates(net, settings)
    from mvpi.agents.td3_native import NativeUpdates

    return NativeUpdates(net, settings)


class TD3Learner(Learner[TD3Settings]):
    """The training process: environment, replay, networks and random state."""

    loss_names = ("critic_loss", "actor_loss")

    def begin(self, opened: ExitStack) -> None:
        sizes = self.world.spaces.observations.size, self.world.spaces.actions.size
        net = initial_networks(self.rng, *sizes, self.settings)
        self.update = updates_of(net, self.settings)
        stored, size = self.restored.get("replay"), self.settings.buffer_size
        self.replay = Replay(size, *sizes, self.directory, self.steps, stored)
        opened.callback(self.replay.close)
        self.window = RewardWindow(self.settings.window)
        self._refresh_policy()

    def advance(self, until: int, rest: Rest) -> None:
        settings, world, replay = self.settings, self.world, self.replay
        s = world.observation
        while self.steps < until:
            a = self._explore(s)
            following, r, terminated, truncated = world.step(a)
            replay.add(s, a, r, terminated, following)
            self.window.add(r)
            self.steps += 1
            s = following
            if self.steps > settings.learning_starts:
                if self.steps % settings.train_freq == 0:
                    self._learn()
                if self.steps % settings.budget_every == 0:
                    self.hold_to_budget(self._variance, settings.budget_rate)
            if terminated or truncated:
                s = self.begin_episode(world)
                if rest():
                    return

    def _explore(self, s: Vector) -> Vector:
        size = self.world.spaces.actions.size
        if self.steps < self.settings.learning_starts:
            return self.rng.uniform(-1.0, 1.0, size).astype(np.float32)
        noise = self.rng.standard_normal(size, dtype=np.float32)
        return np.clip(self._actor(s) + self.settings.exploration_noise * noise, -1.0, 1.0)

    def _learn(self) -> None:
        """Draw the batches of some updates, augment their rewards, update."""
        settings, reward = self.settings, self.replay.reward
        self.y = self.risk.dual(self.window.rewards)
        rows = self.replay.draw(self.rng, settings.updates, settings.batch_size)
        with np.errstate(over="ignore"):  # the losses will tell
            rows[..., reward] = self.risk.augment(rows[..., reward], self.y)
        shape = (*rows.shape[:2], self.world.spaces.actions.size)
        noise = settings.target_policy_noise * self.rng.standard_normal(shape, dtype=np.float32)
        np.clip(noise, -settings.target_noise_clip, settings.target_noise_clip, out=noise)
        self.add_losses(self.update(rows, noise, self._nearby(shape)))
        self._refresh_policy()

    def _nearby(self, shape: tuple[int, ...]) -> Vector | None:
        """Noise on the actions of the actor's loss, if there is to be any."""
        updates, spread = shape[0] // self.settings.policy_delay, self.settings.actor_smoothing
        if not spread:
            return None
        return spread * self.rng.standard_normal((updates, *shape[1:]), dtype=np.float32)

    def _variance(self) -> float:
        return self.variance_of(self._actor)

    def _refresh_policy(self) -> None:
        self._actor = self._policy_of(self.update.actor)
        average = self.update.average_actor
        self.set_policy(self._actor if average is None else self._policy_of(average))

    def _policy_of(self, actor: MLP) -> Deterministic:
        weights, biases = (tuple(map(np.array, group)) for group in (actor.weights, actor.biases))
        return Deterministic(self.world.spaces, weights, biases)

    def keep(self) -> None:
        self.replay.keep()

    def forget(self) -> None:
        self.replay.forget()

    def arrays(self) -> tuple[Any, Arrays]:
        return self.update.networks, {
            "window": self.window.rewards,
            "replay": self.replay.checksum(),
        }

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        self.update = updates_of(net, self.settings)
        self.window.restore(arrays["window"], self.steps)
        self._refresh_policy()


class TD3(Agent[TD3Settings]):
    """MVPI-TD3: a deterministic policy for continuous actions, steady at the price you name.

    `env` is an id, a `gymnasium.Env` or a function that makes one; `risk` a number (weight of the
    per-step variance, 0 is plain TD3) or any `mvpi.Risk`; the rest are fields of `TD3Settings`.

    >>> import mvpi
    >>> agent = mvpi.TD3("mvpi/Markowitz-v0", risk=1.0, hidden=(32, 32), learning_starts=100)
    >>> agent.learn(200).predict([1.0]).shape
    (2,)
    """

    name = "td3"
    settings_type = TD3Settings
    learner_type = TD3Learner


def _split(rows: jax.Array, noise: jax.Array) -> Batch:
    actions = noise.shape[-1]
    seen = (rows.shape[-1] - actions - 2) // 2
    s, a, r, continues, following = jnp.split(
        rows, [seen, seen + actions, seen + actions + 1, seen + actions + 2], axis=-1
    )
    return Batch(s, a, r[..., 0], continues[..., 0], following, noise)


def _replace(net: Networks, **changes: Any) -> Networks:
    """The networks with some of them replaced."""
    fields = net.__dataclass_fields__
    return Networks(**{name: changes.get(name, getattr(net, name)) for name in fields})
