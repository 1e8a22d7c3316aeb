"""MVPI-TD3, Algorithm 3. Updates run in `_native/kernels.py`; with `engine="jax"`, those below.

    for every step
        act         a = clip(pi(s) + N(0, sigma^2)); observe r, next_s; store them raw
        evaluate    y = dual of the K most recent rewards (mean-variance: their mean),
                    weighed alike or, if `occupancy` is "discounted", by that occupancy
        draw        a batch; r <- augment(r, y)         (mean-variance: r - lam r^2 + 2 lam r y)
        critics     next_a = clip(pi'(next_s) + clip(noise))
                    target = r + gamma min_i Q'_i(next_s, next_a)
                    Q_i <- descend on (Q_i(s, a) - target)^2
        actor       every `policy_delay` updates: pi <- ascend on Q_1(s, pi(s)) - c excess(z);
                    soft updates of Q' and pi' towards Q and pi

At risk 0 it is TD3 (Fujimoto 2018). `z` is the actor's output before tanh, `pi = tanh(z)`, and
`excess(z) = mean max(|z| - 3, 0)^2`. Where tanh is flat the gradient of `Q` vanishes, and an
actor that is saturated in every state would stay so; this term prevents that. `c` is
`saturation_penalty`. It changes nothing while `|pi| <= 0.995`, and `c = 0` is TD3 as published.

The updates due after `train_freq` steps are made in one compiled call: one update per step, as
published, with a policy that acts at most `train_freq` steps old. Both engines compute the same but
for rounding; `_engines.py` chooses between them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvpi._storage.arrays import Arrays
from mvpi._storage.row_layout import RowLayout
from mvpi._types import Vector
from mvpi.agents._engines import make_updates
from mvpi.agents.agent import Agent
from mvpi.agents.learner import CheckpointDue, Learner
from mvpi.agents.networks import MLP
from mvpi.agents.policy import Deterministic
from mvpi.agents.replay import Replay
from mvpi.agents.settings import SATURATED, TD3Settings
from mvpi.agents.td3_networks import Critics, Networks, initial_networks
from mvpi.augmenter import RewardWindow
from mvpi.augmenter.dual_estimates import ExtendedDual, augment_rows, phased_in
from mvpi.augmenter.risk_warnings import Advice


class Batch(eqx.Module):
    """Transitions, with rewards already augmented."""

    s: jax.Array
    a: jax.Array
    r: jax.Array
    continues: jax.Array
    next_s: jax.Array
    noise: jax.Array


def pi(actor: MLP, s: jax.Array) -> jax.Array:
    """Actions in [-1, 1]."""
    return jnp.tanh(actor(s))


def q(critic: MLP, s: jax.Array, a: jax.Array) -> jax.Array:
    """Values of actions."""
    return critic(jnp.concatenate([s, a], axis=-1))[..., 0]


def excess(z: jax.Array) -> jax.Array:
    """The saturation penalty of outputs before tanh: `mean max(|z| - 3, 0)^2`."""
    return jnp.mean(jnp.square(jnp.maximum(jnp.abs(z) - SATURATED, 0.0)))


def update_critics(
    net: Networks, batch: Batch, settings: TD3Settings, rate: jax.Array | None = None
) -> tuple[Networks, jax.Array]:
    """One step on both critics, towards the smaller of the two target values."""
    next_a = jnp.clip(pi(net.target_actor, batch.next_s) + batch.noise, -1.0, 1.0)
    q1, q2 = (q(critic, batch.next_s, next_a) for critic in net.target_critics)
    target = batch.r + settings.gamma * batch.continues * jnp.minimum(q1, q2)

    def loss(critics: Critics) -> jax.Array:
        errors = [q(critic, batch.s, batch.a) - target for critic in critics]
        return jnp.mean(jnp.square(errors[0])) + jnp.mean(jnp.square(errors[1]))

    value, gradient = jax.value_and_grad(loss)(net.critics)
    steps, state = optax.adam(settings.learning_rate).update(gradient, net.critic_optimizer)
    critics = optax.apply_updates(net.critics, _shortened(steps, rate))
    return _replace(net, critics=critics, critic_optimizer=state), value


def update_actor(
    net: Networks,
    batch: Batch,
    settings: TD3Settings,
    actor_noise: jax.Array | None = None,
    rate: jax.Array | None = None,
) -> tuple[Networks, jax.Array]:
    """One step on the actor, then soft updates of all targets.

    `actor_noise` is added to its actions: the critic is piecewise linear in them, and its gradient
    is then that of a neighbourhood and not of a single piece.
    """

    def loss(actor: MLP) -> jax.Array:
        z = actor(batch.s)
        a = jnp.tanh(z)
        values = q(net.critics[0], batch.s, a if actor_noise is None else a + actor_noise)
        return settings.saturation_penalty * excess(z) - jnp.mean(values)

    return descend(net, loss, settings, rate)


def descend(
    net: Networks,
    loss: Callable[[MLP], jax.Array],
    settings: TD3Settings,
    rate: jax.Array | None = None,
) -> tuple[Networks, jax.Array]:
    """A step of the actor down `loss`, then soft updates of all targets."""
    value, gradient = jax.value_and_grad(loss)(net.actor)
    steps, state = optax.adam(settings.learning_rate).update(gradient, net.actor_optimizer)
    actor = optax.apply_updates(net.actor, _shortened(steps, rate))
    soft_update = partial(optax.incremental_update, step_size=settings.tau)
    average = net.average_actor
    if average is not None:
        average = optax.incremental_update(actor, average, 1.0 / settings.averaging)
    return _replace(
        net,
        actor=actor,
        average_actor=average,
        actor_optimizer=state,
        target_actor=soft_update(actor, net.target_actor),
        target_critics=soft_update(net.critics, net.target_critics),
    ), value


# Wide vectors, where the processor has them, make the update a few percent faster.
_COMPILER = {"xla_cpu_prefer_vector_width": 512}


@partial(jax.jit, static_argnames="settings", donate_argnames="net", compiler_options=_COMPILER)
def update(
    net: Networks,
    rows: jax.Array,
    noise: jax.Array,
    settings: TD3Settings,
    actor_noise: jax.Array | None = None,
    rate: jax.Array | None = None,
) -> tuple[Networks, jax.Array]:
    """As many updates as there are batches in `rows`; also returns the mean losses.

    `rows` are `(updates, batch, width)`, laid out by `RowLayout`. `noise` is on the target actions,
    `(updates, batch, actions)`, and `actor_noise` on those of the actor's own loss, with
    `policy_delay` times fewer updates. `rate` is the share of the learning rate that is left.
    """
    layout = RowLayout.of_width(rows.shape[-1], noise.shape[-1])

    def round_of_updates(net: Networks, drawn: Any) -> tuple[Networks, jax.Array]:
        rows, noise, actor_noise = drawn
        for rows_of_batch, noise_of_batch in zip(rows, noise, strict=True):
            batch = Batch(*layout.split(rows_of_batch), noise_of_batch)
            net, critic_loss = update_critics(net, batch, settings, rate)
        net, actor_loss = update_actor(net, batch, settings, actor_noise, rate)
        return net, jnp.stack([critic_loss, actor_loss])

    rounds = (-1, settings.policy_delay)
    drawn = (
        rows.reshape(rounds + rows.shape[1:]),
        noise.reshape(rounds + noise.shape[1:]),
        actor_noise,
    )
    net, losses = jax.lax.scan(round_of_updates, net, drawn)
    return net, losses.mean(axis=0)


class TD3Learner(Learner[TD3Settings]):
    """The training process: environment, replay, networks and random state."""

    loss_names = ("critic_loss", "actor_loss")

    def begin(self, opened: ExitStack) -> None:
        sizes = self.env.observation_size, self.env.spaces.actions.size
        net = initial_networks(self.rng, *sizes, self.settings)
        self.update = make_updates(net, self.settings, update)
        stored, size = self.restored.get("replay"), self.settings.buffer_size
        self.replay = Replay(size, *sizes, self.directory, self.steps, stored)
        opened.callback(self.replay.close)
        self.window = RewardWindow(self.settings.window, self.settings.occupancy_gamma)
        self.advice = Advice(self.settings.occupancy)
        self.dual = ExtendedDual(self.risk, self.settings.window) if self.risk.columns else None
        self._refresh_policy()

    def advance(self, until: int, checkpoint_due: CheckpointDue) -> None:
        settings, env, replay = self.settings, self.env, self.replay
        s = env.observation
        while self.steps < until:
            a, time = self._explore(), env.length
            next_s, r, terminated, truncated = env.step(a)
            replay.add(s, a, r, terminated or (truncated and self.risk.of_return), next_s)
            self.window.add(r, time, terminated)
            if self.dual is not None:
                self.dual.add(r, s, terminated or truncated)
            self.steps += 1
            s = next_s
            if self.steps > settings.learning_starts:
                if self.steps % settings.train_freq == 0:
                    self._learn()
                if self.steps % settings.budget_every == 0:
                    self.hold_to_budget(self._variance, settings.budget_rate)
            if terminated or truncated:
                self.advice.terminates |= terminated
                s = self.begin_episode(env)
                if checkpoint_due():
                    return

    def _explore(self) -> Vector:
        size = self.env.spaces.actions.size
        if self.steps < self.settings.learning_starts:
            return self.rng.uniform(-1.0, 1.0, size).astype(np.float32)
        noise = self.rng.standard_normal(size, dtype=np.float32)
        a = self._actor(self.env.seen) + self.settings.exploration_noise * noise
        return np.clip(a, -1.0, 1.0)

    def _learn(self) -> None:
        """Draw the batches of some updates, augment their rewards, update."""
        settings = self.settings
        if self.dual is not None and not self.dual.ready:
            return  # no episode has ended: there is no return to measure y on
        rows = self.replay.draw(self.rng, settings.updates, settings.batch_size)
        with np.errstate(over="ignore"):  # rewards too large for float32 show in the losses
            self._augment(rows)
        shape = (*rows.shape[:2], self.env.spaces.actions.size)
        noise = settings.target_policy_noise * self.rng.standard_normal(shape, dtype=np.float32)
        np.clip(noise, -settings.target_noise_clip, settings.target_noise_clip, out=noise)
        rate = settings.rate_after(self.steps)
        self.add_losses(self.update(rows, noise, self._actor_noise(shape), rate))
        self._refresh_policy()

    def _augment(self, rows: Vector) -> None:
        """Measure `y` on recent rewards, and augment those that were drawn."""
        reward = self.replay.layout.r
        if self.dual is not None:
            place = self.replay.layout, self.env.columns
            self.y = augment_rows(rows, *place, self.dual, self.rng, self.risk_share)
            return
        seen = self.window.distribution()
        self.y = self.risk.dual(*seen)
        if self.steps >= self.advice.due:
            self.advice.give(self.steps, self.risk, self.y, *seen)
        augmented = self.risk.augment(rows[..., reward], self.y)
        rows[..., reward] = phased_in(rows[..., reward], augmented, self.risk_share)

    def _actor_noise(self, shape: tuple[int, ...]) -> Vector | None:
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
        return Deterministic(self.env.spaces, weights, biases, columns=self.env.columns)

    def flush(self) -> None:
        self.replay.flush()

    def prune(self) -> None:
        self.replay.prune()

    def arrays(self) -> tuple[Any, Arrays]:
        weighed = {} if self.window.gamma is None else {"window_steps": self.window.steps}
        return self.update.networks, {
            "window": self.window.rewards,
            "replay": self.replay.checksum(),
            **weighed,
            **({} if self.dual is None else self.dual.arrays()),
        }

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        self.update = make_updates(net, self.settings, update)
        steps = None if self.window.gamma is None else arrays["window_steps"]
        self.window.restore(arrays["window"], self.steps, steps)
        if self.dual is not None:
            self.dual.restore(arrays)
        self._refresh_policy()


class TD3(Agent[TD3Settings]):
    """MVPI-TD3: a deterministic policy for continuous actions, trained for a risk measure.

    `env` is an id, a `gymnasium.Env` or a function that makes one; `risk` a number (weight of the
    per-step variance, 0 is plain TD3) or any `mvpi.Risk`; the rest are fields of `TD3Settings`.
    `preset="noisy-rewards"` has settings for rewards that are mostly noise; settings that are given
    override it.

    >>> import mvpi
    >>> agent = mvpi.TD3("mvpi/Markowitz-v0", risk=1.0, hidden=(32, 32), learning_starts=100)
    >>> agent.learn(200).predict([1.0]).shape
    (2,)
    """

    name = "td3"
    settings_type = TD3Settings
    learner_type = TD3Learner


def _shortened(steps: optax.Updates, rate: jax.Array | None) -> optax.Updates:
    """Steps of Adam, which are in proportion to the learning rate, at a share of it."""
    return steps if rate is None else jax.tree.map(lambda step: rate * step, steps)


def _replace(net: Networks, **changes: Any) -> Networks:
    """The networks with some of them replaced."""
    fields = net.__dataclass_fields__
    return Networks(**{name: changes.get(name, getattr(net, name)) for name in fields})
