"""MVPI-PPO, the paper's Algorithm 4: PPO (Schulman 2017) on augmented rewards. Also called TRVO.

    repeat
        act         a ~ pi(. | s) for `n_steps` steps; keep (s, a, r, s') raw
        evaluate    y = dual of the rollout's rewards    (mean-variance: their mean),
                    weighed alike or, if `occupancy` is "discounted", by that occupancy
        augment     r <- augment(r, y)                   (mean-variance: r - lam r^2 + 2 lam r y)
        advantages  delta = r + gamma V(s') - V(s), 0 in place of V(s') where an episode terminated;
                    A = sum of (gamma lambda)^k delta within the episode
        improve     in minibatches, `n_epochs` times:
                    pi <- ascend on min(ratio A, clip(ratio) A), unless KL > 1.5 target_kl
                    V  <- descend on (V(s) - (A + V_old(s)))^2

Risk 0 is PPO itself. A truncated episode is bootstrapped with V of its last observation: that value
is added after rewards were augmented, and is never in `y`. All minibatches of an iteration are made
in one compiled call.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvpi._storage.arrays import Arrays
from mvpi._types import Array, Vector
from mvpi.agents.agent import Agent
from mvpi.agents.learner import CheckpointDue, Learner
from mvpi.agents.networks import MLP
from mvpi.agents.settings import PPOSettings
from mvpi.agents.stochastic_policy import Actor, Normaliser, clipped
from mvpi.augmenter import weighed
from mvpi.augmenter.dual_estimates import ExtendedDual, phased_in
from mvpi.augmenter.risk_warnings import Advice
from mvpi.rollout.spaces import BoxActions, Spaces
from mvpi.stats import variance


class Networks(eqx.Module):
    """The state that the update changes."""

    actor: Actor
    critic: MLP
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState


class Rollout(NamedTuple):
    """Consecutive steps, with rewards already augmented."""

    s: Any
    a: Any
    r: Any
    next_s: Any
    terminated: Any
    done: Any


class Sample(NamedTuple):
    """Steps of a rollout with their advantages and value targets."""

    s: jax.Array
    a: jax.Array
    advantage: jax.Array
    value: jax.Array
    log_prob: jax.Array


def initial_networks(
    rng: np.random.Generator, spaces: Spaces, seen: int, settings: PPOSettings
) -> Networks:
    """Random networks with `seen` inputs: a policy of deviation 1 around 0, and a critic."""
    actor = Actor.random(rng, spaces, settings.hidden, seen)
    critic = MLP.orthogonal(rng, seen, *settings.hidden, 1, gain=1.0)
    actor_optimizer, critic_optimizer = optimizers(settings)
    return Networks(actor, critic, actor_optimizer.init(actor), critic_optimizer.init(critic))


def optimizers(
    settings: PPOSettings,
) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    """Adam for the actor and for the critic."""
    rates = settings.learning_rate, settings.critic_learning_rate
    actor, critic = (clipped(optax.adam(rate, eps=1e-5), settings.max_grad_norm) for rate in rates)
    return actor, critic


def advantages(critic: MLP, rollout: Rollout, settings: PPOSettings) -> tuple[Any, jax.Array]:
    """Generalised advantage estimates, and the values they are relative to."""
    value = critic(rollout.s)[..., 0]
    next_s = jnp.where(rollout.terminated, 0.0, critic(rollout.next_s)[..., 0])
    delta = rollout.r + settings.gamma * next_s - value
    decay = jnp.where(rollout.done, 0.0, settings.gamma * settings.gae_lambda)

    def backwards(later: jax.Array, step: tuple[jax.Array, jax.Array]) -> Any:
        now = step[0] + step[1] * later
        return now, now

    _, advantage = jax.lax.scan(backwards, jnp.zeros(()), (delta, decay), reverse=True)
    return advantage, value


def update_actor(net: Networks, batch: Sample, settings: PPOSettings) -> tuple[Networks, jax.Array]:
    """One step on the policy, unless the approximate KL divergence exceeds its limit."""
    advantage = batch.advantage
    if settings.normalize_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    def loss(actor: Actor) -> tuple[jax.Array, jax.Array]:
        change = actor.log_prob(batch.s, batch.a) - batch.log_prob
        ratio = jnp.exp(change)
        near = jnp.clip(ratio, 1.0 - settings.clip_range, 1.0 + settings.clip_range)
        gain = jnp.mean(jnp.minimum(ratio * advantage, near * advantage))
        return -gain - settings.ent_coef * jnp.mean(actor.entropy(batch.s)), -jnp.mean(change)

    (value, divergence), gradient = jax.value_and_grad(loss, has_aux=True)(net.actor)
    optimizer, _ = optimizers(settings)
    steps, state = optimizer.update(gradient, net.actor_optimizer)
    moved = optax.apply_updates(net.actor, steps), state
    if settings.target_kl is not None:
        enough = divergence > 1.5 * settings.target_kl
        stayed = net.actor, net.actor_optimizer
        moved = jax.tree.map(lambda old, new: jnp.where(enough, old, new), stayed, moved)
    return Networks(moved[0], net.critic, moved[1], net.critic_optimizer), value


def update_critic(
    net: Networks, batch: Sample, settings: PPOSettings
) -> tuple[Networks, jax.Array]:
    """One step of the critic towards the values that the advantages imply."""

    def loss(critic: MLP) -> jax.Array:
        error = critic(batch.s)[..., 0] - batch.value - batch.advantage
        return jnp.mean(jnp.square(error))

    value, gradient = jax.value_and_grad(loss)(net.critic)
    _, optimizer = optimizers(settings)
    steps, state = optimizer.update(gradient, net.critic_optimizer)
    critic = optax.apply_updates(net.critic, steps)
    return Networks(net.actor, critic, net.actor_optimizer, state), value


@partial(jax.jit, static_argnames="settings", donate_argnames="net")
def update(
    net: Networks, rollout: Rollout, minibatches: jax.Array, settings: PPOSettings
) -> tuple[Networks, jax.Array]:
    """Improve on all `minibatches`, rows of indices; also returns the mean losses."""
    advantage, value = advantages(net.critic, rollout, settings)
    log_prob = net.actor.log_prob(rollout.s, rollout.a)
    everything = Sample(rollout.s, rollout.a, advantage, value, log_prob)

    def one(net: Networks, indices: jax.Array) -> tuple[Networks, jax.Array]:
        batch = jax.tree.map(lambda x: x[indices], everything)
        net, actor_loss = update_actor(net, batch, settings)
        net, critic_loss = update_critic(net, batch, settings)
        return net, jnp.stack([critic_loss, actor_loss])

    net, losses = jax.lax.scan(one, net, minibatches)
    return net, losses.mean(axis=0)


class PPOLearner(Learner[PPOSettings]):
    """The training process: environment, rollout, networks and random state."""

    loss_names = ("critic_loss", "actor_loss")
    discrete = True
    remember = True

    def begin(self, opened: ExitStack) -> None:
        del opened
        spaces, seen = self.env.spaces, self.env.observation_size
        self.net = initial_networks(self.rng, spaces, seen, self.settings)
        self.rollout = empty_rollout(spaces, seen, self.settings.n_steps)
        self._columns = np.zeros((self.settings.n_steps, self.env.columns.size))
        self.dual = ExtendedDual(self.risk, self.settings.n_steps) if self.risk.columns else None
        self._filled = 0
        self._times = np.zeros(self.settings.n_steps, np.int64)
        self.advice = Advice(self.settings.occupancy)
        self.normaliser = Normaliser(spaces, seen, self.settings.normalize_observations)
        self.normaliser.see(self.env.seen)
        self._refresh_policy()

    @property
    def can_checkpoint(self) -> bool:
        return self._filled == 0

    def advance(self, until: int, checkpoint_due: CheckpointDue) -> None:
        s = self.normaliser(self.env.seen)
        while self.steps < until:
            s = self._step(s)
            if self._filled == self.settings.n_steps:
                self._learn()
                if checkpoint_due():
                    break
        self._refresh_policy()  # observations have moved the normaliser

    def _step(self, s: Vector) -> Vector:
        """Act at the normalised observation `s`; returns the next one."""
        kept, i = self.rollout, self._filled
        a = self._acting.drawn(s, self.rng)
        self._times[i] = self.env.length
        self._columns[i] = self.env.columns.of(self.env.observation)
        _, r, terminated, truncated = self.env.step(a)
        self.steps += 1
        self._filled += 1
        kept.s[i], kept.a[i], kept.r[i] = s, a, r
        kept.done[i] = terminated or truncated
        kept.terminated[i] = kept.done[i] if self.risk.of_return else terminated
        if terminated or truncated:
            kept.next_s[i] = self.normaliser(self.env.seen)
            self.begin_episode(self.env)
        self.normaliser.see(self.env.seen)
        s = self.normaliser(self.env.seen)
        if not (terminated or truncated):
            kept.next_s[i] = s
        return s

    def _learn(self) -> None:
        """Measure `y`, augment the rollout's rewards, improve."""
        settings = self.settings
        with np.errstate(over="ignore"):  # infinite rewards are a divergence, reported as such
            augmented = self.rollout._replace(r=self._augmented().astype(np.float32))
        order = [self.rng.permutation(settings.n_steps) for _ in range(settings.n_epochs)]
        minibatches = np.concatenate(order).reshape(-1, settings.batch_size)
        self.net, losses = update(self.net, augmented, minibatches, settings)
        self.add_losses(np.asarray(losses))
        self.hold_to_budget(self._variance, settings.budget_rate)
        self._filled = 0
        self._refresh_policy()

    def _augmented(self) -> Array:
        """Measure `y` on the rollout, and augment its rewards."""
        rewards, ends = self.rollout.r, self.rollout.terminated
        if self.dual is not None:
            self.dual.observe(rewards, self._columns, self.rollout.done)
            y = self.dual.y(self._columns) if self.dual.ready else np.zeros(rewards.shape)
            self.y = float(y.mean())
            columns = self.env.columns
            augmented = self.risk.augment_extended(rewards, y, columns.named(self._columns))
            augmented = phased_in(rewards, augmented, self.risk_share)
            return np.asarray(augmented * columns.balance(self._columns))
        seen = self._weighed_rewards()
        self.y = self.risk.dual(*seen)
        self.advice.terminates |= bool(ends.any())
        if self.steps >= self.advice.due:
            self.advice.give(self.steps, self.risk, self.y, *seen)
        return phased_in(rewards, self.risk.augment(rewards, self.y), self.risk_share)

    def _weighed_rewards(self) -> tuple[Array, Array | None]:
        kept, gamma = self.rollout, self.settings.occupancy_gamma
        return weighed(kept.r, self._times, kept.terminated, gamma)

    def _variance(self) -> float:
        if self.risk.of_return:
            return self.variance_of(self._acting)
        return variance(*self._weighed_rewards())

    def _refresh_policy(self) -> None:
        scaling = self.normaliser.scaling()
        self._acting = self.net.actor.policy(self.env.spaces, scaling, self.env.columns)
        self.set_policy(self._acting)

    def arrays(self) -> tuple[Any, Arrays]:
        dual = {} if self.dual is None else self.dual.arrays()
        return self.net, self.normaliser.arrays() | dual

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        self.net = net
        self.normaliser.restore(arrays)
        if self.dual is not None:
            self.dual.restore(arrays)
        self._refresh_policy()


class PPO(Agent[PPOSettings]):
    """MVPI-PPO, also called TRVO: a stochastic policy trained for a risk measure.

    `env` is an id, a `gymnasium.Env` or a function that makes one; `risk` a number (weight of the
    per-step variance, 0 is plain PPO) or any `mvpi.Risk`; the rest are fields of `PPOSettings`.
    Actions may be a box or a finite choice.

    >>> import mvpi
    >>> agent = mvpi.PPO("mvpi/FourState-v0", risk=1.0, n_steps=128)
    >>> int(agent.learn(256).predict(0)) in (0, 1)
    True
    """

    name = "ppo"
    settings_type = PPOSettings
    learner_type = PPOLearner


def empty_rollout(spaces: Spaces, seen: int, steps: int) -> Rollout:
    """Arrays for a rollout with observations of size `seen`."""
    box = isinstance(spaces.actions, BoxActions)
    a = np.zeros((steps, spaces.actions.size) if box else steps, np.float32 if box else np.int32)
    s = np.zeros((steps, seen), np.float32)
    r, ends = np.zeros(steps), np.zeros(steps, bool)
    return Rollout(s, a, r, s.copy(), ends, ends.copy())
