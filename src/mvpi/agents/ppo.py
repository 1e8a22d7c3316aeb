"""MVPI-PPO, the paper's Algorithm 4: PPO (Schulman 2017) on augmented rewards. Also called TRVO.

    repeat
        act         a ~ pi(. | s) for `n_steps` steps; keep (s, a, r, s') raw
        evaluate    y = dual of the rollout's rewards    (mean-variance: their mean),
                    counted alike or, if `occupancy` is "discounted", by their weight there
        augment     r <- augment(r, y)                   (mean-variance: r - lam r^2 + 2 lam r y)
        advantages  delta = r + gamma V(s') - V(s), 0 in place of V(s') where an episode terminated;
                    A = sum of (gamma lambda)^k delta within the episode
        improve     in minibatches, `n_epochs` times:
                    pi <- ascend on min(ratio A, clip(ratio) A), unless KL > 1.5 target_kl
                    V  <- descend on (V(s) - (A + V_old(s)))^2

Risk 0 is PPO itself. A truncated episode counts on with V of its last observation: that value is
added after rewards were augmented, and is never in `y`. All minibatches of an iteration are made
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
import numpy.typing as npt
import optax

from mvpi._storage.arrays import Arrays
from mvpi.advice import Advice
from mvpi.agents.agent import Agent
from mvpi.agents.learner import Learner, Rest
from mvpi.agents.networks import MLP
from mvpi.agents.settings import PPOSettings
from mvpi.agents.stochastic import Actor, Normaliser, clipped
from mvpi.running import weighed
from mvpi.spaces import BoxActions, Spaces
from mvpi.stats import variance

Vector = npt.NDArray[np.float32]


class Networks(eqx.Module):
    """All that the update changes."""

    actor: Actor
    critic: MLP
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState


class Rollout(NamedTuple):
    """Consecutive steps, with rewards already augmented."""

    s: Any
    a: Any
    r: Any
    following: Any
    terminated: Any
    done: Any


class Sample(NamedTuple):
    """Steps of a rollout and what was found out about them."""

    s: jax.Array
    a: jax.Array
    advantage: jax.Array
    value: jax.Array
    log_prob: jax.Array


def initial_networks(rng: np.random.Generator, spaces: Spaces, settings: PPOSettings) -> Networks:
    """Random networks: a policy of deviation 1 around 0, and a critic."""
    actor = Actor.random(rng, spaces, settings.hidden)
    critic = MLP.orthogonal(rng, spaces.observations.size, *settings.hidden, 1, gain=1.0)
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
    following = jnp.where(rollout.terminated, 0.0, critic(rollout.following)[..., 0])
    delta = rollout.r + settings.gamma * following - value
    decay = jnp.where(rollout.done, 0.0, settings.gamma * settings.gae_lambda)

    def backwards(later: jax.Array, step: tuple[jax.Array, jax.Array]) -> Any:
        now = step[0] + step[1] * later
        return now, now

    _, advantage = jax.lax.scan(backwards, jnp.zeros(()), (delta, decay), reverse=True)
    return advantage, value


def update_actor(net: Networks, batch: Sample, settings: PPOSettings) -> tuple[Networks, jax.Array]:
    """One step on the policy, unless it has gone far enough already."""
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
        spaces = self.world.spaces
        self.net = initial_networks(self.rng, spaces, self.settings)
        self.rollout = empty_rollout(spaces, self.settings.n_steps)
        self._filled = 0
        self._times = np.zeros(self.settings.n_steps, np.int64)
        self.advice = Advice(self.settings.occupancy)
        self.normaliser = Normaliser(spaces, self.settings.normalize_observations)
        self.normaliser.see(self.world.observation)
        self._refresh_policy()

    @property
    def at_rest(self) -> bool:
        return self._filled == 0

    def advance(self, until: int, rest: Rest) -> None:
        s = self.normaliser(self.world.observation)
        while self.steps < until:
            s = self._step(s)
            if self._filled == self.settings.n_steps:
                self._learn()
                if rest():
                    break
        self._refresh_policy()  # observations have moved the normaliser

    def _step(self, s: Vector) -> Vector:
        """Act at the normalised observation `s`; returns the next one."""
        kept, i = self.rollout, self._filled
        a = self._acting.drawn(s, self.rng)
        self._times[i] = self.world.length
        observation, r, terminated, truncated = self.world.step(a)
        self.steps += 1
        self._filled += 1
        kept.s[i], kept.a[i], kept.r[i] = s, a, r
        kept.terminated[i], kept.done[i] = terminated, terminated or truncated
        if terminated or truncated:
            kept.following[i] = self.normaliser(observation)
            observation = self.begin_episode(self.world)
        self.normaliser.see(observation)
        s = self.normaliser(observation)
        if not (terminated or truncated):
            kept.following[i] = s
        return s

    def _learn(self) -> None:
        """Measure `y`, augment the rollout's rewards, improve."""
        settings, rewards, ends = self.settings, self.rollout.r, self.rollout.terminated
        seen = weighed(rewards, self._times, ends, settings.occupancy_gamma)
        self.y = self.risk.dual(*seen)
        self.advice.terminates |= bool(ends.any())
        if self.advice.due(self.steps):
            self.advice.give(self.risk, self.y, *seen)
        with np.errstate(over="ignore"):  # infinite rewards are a divergence, told as such
            r = self.risk.augment(rewards, self.y).astype(np.float32)
        augmented = self.rollout._replace(r=r)
        order = [self.rng.permutation(settings.n_steps) for _ in range(settings.n_epochs)]
        minibatches = np.concatenate(order).reshape(-1, settings.batch_size)
        self.net, losses = update(self.net, augmented, minibatches, settings)
        self.add_losses(np.asarray(losses))
        self.hold_to_budget(lambda: variance(*seen), settings.budget_rate)
        self._filled = 0
        self._refresh_policy()

    def _refresh_policy(self) -> None:
        self._acting = self.net.actor.policy(self.world.spaces, self.normaliser.scaling())
        self.set_policy(self._acting)

    def arrays(self) -> tuple[Any, Arrays]:
        return self.net, self.normaliser.arrays()

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        self.net = net
        self.normaliser.restore(arrays)
        self._refresh_policy()


class PPO(Agent[PPOSettings]):
    """MVPI-PPO, also called TRVO: a policy that draws its actions, steady at the price you name.

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


def empty_rollout(spaces: Spaces, steps: int) -> Rollout:
    """Room for a rollout."""
    box = isinstance(spaces.actions, BoxActions)
    a = np.zeros((steps, spaces.actions.size) if box else steps, np.float32 if box else np.int32)
    s = np.zeros((steps, spaces.observations.size), np.float32)
    r, ends = np.zeros(steps), np.zeros(steps, bool)
    return Rollout(s, a, r, s.copy(), ends, ends.copy())
