"""The method of Prashanth 2013: simultaneous-perturbation gradient of mean and variance.

It maximises `E[G] - lam Var(G)` of the discounted return, with `Var(G) = u - v^2` at the start.

    repeat
        perturb   delta ~ signs (SPSA) or Gaussian (smoothed functional); half of the 16 actors
                  act with theta, the others with theta + beta delta, for `n_steps` steps
        critics   v, u and v+, u+ by TD, each from its actors:
                  v <- r + gamma v',   u <- r^2 + 2 gamma r v' + gamma^2 u'
        theta     <- ascend along ((1 + 2 lam v)(v+ - v) - lam (u+ - u)) delta / beta, the mean over
                  states in which episodes began
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
from mvpi.agents.networks import MLP
from mvpi.agents.parallel_actors import ParallelLearner, TotalRewardAgent
from mvpi.agents.settings import PrashanthSettings
from mvpi.agents.stochastic_policy import Actor, optimizer, policy_optimizer
from mvpi.rollout.guard import GuardedEnv
from mvpi.rollout.spaces import Spaces


class Critics(eqx.Module):
    """Value and square value: of the policy and, second, of the perturbed one."""

    v: MLP
    u: MLP


class Networks(eqx.Module):
    """The state that the update changes."""

    actor: Actor
    critics: tuple[Critics, Critics]
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState


class Steps(NamedTuple):
    """Observations, actions and rewards of every actor, step by step."""

    s: Any
    r: Any
    next_s: Any
    continues: Any


def initial_networks(
    rng: np.random.Generator, spaces: Spaces, settings: PrashanthSettings
) -> Networks:
    """A random policy, and critics that are the same for both policies."""
    actor = Actor.random(rng, spaces, settings.hidden)
    sizes = (spaces.observations.size, *settings.hidden, 1)
    critics = Critics(*(MLP.orthogonal(rng, *sizes, gain=1.0) for _ in range(2)))
    # The update donates its buffers, so no two networks may share theirs.
    both = critics, jax.tree.map(jnp.copy, critics)
    actor_optimizer, critic_optimizer = optimizers(settings)
    return Networks(actor, both, actor_optimizer.init(actor), critic_optimizer.init(both))


def optimizers(
    settings: PrashanthSettings,
) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    """That of the actor and that of the critics."""
    critics = optimizer(settings.optimizer, settings.critic_learning_rate)
    return policy_optimizer(settings), critics


def perturbed(actor: Actor, delta: Actor, settings: PrashanthSettings) -> Actor:
    """The actor a small step away."""
    there: Actor = jax.tree.map(lambda x, d: x + settings.perturbation * d, actor, delta)
    return there


def td_loss(critics: Critics, steps: Steps, gamma: float) -> jax.Array:
    """Squared TD errors of the value and of the square value."""
    v, u = (critic(steps.next_s)[..., 0] * steps.continues for critic in (critics.v, critics.u))
    target_v = steps.r + gamma * v
    target_u = steps.r**2 + 2.0 * gamma * steps.r * v + gamma**2 * u
    loss = jnp.zeros(())
    for critic, target in ((critics.v, target_v), (critics.u, target_u)):
        error = critic(steps.s)[..., 0] - jax.lax.stop_gradient(target)
        loss += jnp.mean(jnp.square(error))
    return loss


def update_critics(
    net: Networks, steps: Steps, settings: PrashanthSettings
) -> tuple[Networks, jax.Array]:
    """One TD step: the first half of the actors is for the policy, the other for the perturbed."""
    half = settings.n_envs // 2
    parts = (jax.tree.map(lambda x: x[:half], steps), jax.tree.map(lambda x: x[half:], steps))

    def loss(both: tuple[Critics, Critics]) -> jax.Array:
        return sum(td_loss(c, part, settings.gamma) for c, part in zip(both, parts, strict=True))  # type: ignore[return-value]

    value, gradient = jax.value_and_grad(loss)(net.critics)
    _, chosen = optimizers(settings)
    moves, state = chosen.update(gradient, net.critic_optimizer)
    critics = optax.apply_updates(net.critics, moves)
    return Networks(net.actor, critics, net.actor_optimizer, state), value


def gain(
    critics: tuple[Critics, Critics], starts: jax.Array, risk_aversion: jax.Array
) -> jax.Array:
    """How much better the perturbed policy is, to first order: the mean over start states."""
    (v, u), (v_plus, u_plus) = (
        tuple(critic(starts)[..., 0] for critic in (pair.v, pair.u)) for pair in critics
    )
    better = (1.0 + 2.0 * risk_aversion * v) * (v_plus - v) - risk_aversion * (u_plus - u)
    return jnp.mean(better)


def update_actor(
    net: Networks,
    delta: Actor,
    s: jax.Array,
    starts: jax.Array,
    risk_aversion: jax.Array,
    settings: PrashanthSettings,
) -> Networks:
    """One ascent step along the estimated gradient and the entropy bonus."""
    derivative = gain(net.critics, starts, risk_aversion) / settings.perturbation
    entropy = jax.grad(lambda actor: jnp.mean(actor.entropy(s)))(net.actor)
    descent = jax.tree.map(lambda d, e: -(derivative * d + settings.ent_coef * e), delta, entropy)
    chosen, _ = optimizers(settings)
    moves, state = chosen.update(descent, net.actor_optimizer)
    return Networks(optax.apply_updates(net.actor, moves), net.critics, state, net.critic_optimizer)


@partial(jax.jit, static_argnames="settings", donate_argnames="net")
def update(
    net: Networks,
    delta: Actor,
    steps: Steps,
    starts: jax.Array,
    risk_aversion: jax.Array,
    settings: PrashanthSettings,
) -> tuple[Networks, jax.Array]:
    """A TD step for every step the actors made, then one of the policy; returns the mean loss."""
    net, losses = jax.lax.scan(lambda n, x: update_critics(n, x, settings), net, steps)
    net = update_actor(net, delta, steps.s, starts, risk_aversion, settings)
    return net, losses.mean()


class PrashanthLearner(ParallelLearner[PrashanthSettings]):
    """The training process: environments, networks, and the perturbation of this round."""

    loss_names = ("critic_loss",)

    def begin(self, opened: ExitStack) -> None:
        del opened
        self.net = initial_networks(self.rng, self.env.spaces, self.settings)
        self._begin_round()

    @property
    def can_checkpoint(self) -> bool:
        return self._filled == 0 and super().can_checkpoint

    def step(self, env: GuardedEnv, a: Any) -> None:
        kept, i, k = self._kept, self._filled, self.envs.index(env)
        next_s, r, terminated, truncated = env.step(a)
        kept.r[i, k], kept.next_s[i, k] = r, next_s
        kept.continues[i, k] = not terminated
        self.steps += 1
        if terminated or truncated:
            self.begin_episode(env)

    def all_stepped(self) -> None:
        self._filled += 1
        if self._filled == self.settings.n_steps:
            self._learn()

    def draw(self, s: Any) -> list[Any]:
        """Actions of all actors: the second half acts with the perturbed policy."""
        if self._filled == 0:
            self._perturb()
        self._kept.s[self._filled] = s
        halves = zip((self._acting, self._perturbed), np.split(s, 2), strict=True)
        return [a for policy, seen in halves for a in policy.drawn(seen, self.rng)]

    def _perturb(self) -> None:
        def draw(x: Any) -> Any:
            if self.settings.scheme == "spsa":
                return (2.0 * self.rng.integers(2, size=x.shape) - 1.0).astype(np.float32)
            return self.rng.standard_normal(x.shape, dtype=np.float32)

        self._delta = jax.tree.map(draw, self.net.actor)
        there = perturbed(self.net.actor, self._delta, self.settings)
        self._perturbed = there.policy(self.env.spaces)

    def _learn(self) -> None:
        starts = np.array([env.first for env in self.envs])
        self.net, loss = update(
            self.net, self._delta, self._kept, starts, self.risk_aversion, self.settings
        )
        self.add_losses(np.asarray(loss)[None])
        self._begin_round()

    def _begin_round(self) -> None:
        settings, seen = self.settings, self.env.spaces.observations.size
        room = (settings.n_steps, settings.n_envs)
        s, r = np.zeros((*room, seen), np.float32), np.zeros(room, np.float32)
        self._kept = Steps(s, r, s.copy(), r.copy())
        self._filled = 0
        self._acting = self.net.actor.policy(self.env.spaces)
        self.set_policy(self._acting)

    def arrays(self) -> tuple[Any, Arrays]:
        return self.net, {}

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        del arrays
        self.net = net
        self._begin_round()


class Prashanth(TotalRewardAgent[PrashanthSettings]):
    """Weighs the mean of the discounted return against its variance, by perturbing the policy.

    `env` is an id, a `gymnasium.Env` or a function that makes one; `risk` a number, the weight of
    the variance of the return; the rest are fields of `PrashanthSettings`.

    >>> import mvpi
    >>> agent = mvpi.Prashanth("mvpi/FourState-v0", risk=1.0, hidden=(), scheme="smoothed")
    >>> int(agent.learn(320).predict(0)) in (0, 1)
    True
    """

    name = "prashanth"
    settings_type = PrashanthSettings
    learner_type = PrashanthLearner
