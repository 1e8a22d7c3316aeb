"""What the total-reward baselines share: parallel actors, and updates from whole episodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvpi._storage.arrays import Arrays
from mvpi._types import Vector
from mvpi.agents.agent import Agent
from mvpi.agents.learner import CheckpointDue, Learner
from mvpi.agents.settings import EpisodicSettings, TotalRewardSettings
from mvpi.agents.stochastic_policy import Actor, policy_optimizer
from mvpi.errors import InputError
from mvpi.risk import MeanVariance, Risk
from mvpi.rollout.guard import GuardedEnv

S = TypeVar("S", bound=TotalRewardSettings)
E = TypeVar("E", bound=EpisodicSettings)


class TotalRewardAgent(Agent[S]):
    """An agent with an objective of its own for the return of an episode: one kind of risk."""

    risk_type: ClassVar[type[Risk]] = MeanVariance
    objective: ClassVar[str] = "weighs the variance of the return: risk must be a number"
    """What it does with the risk, and which one it takes, for a message."""

    @classmethod
    def usable(cls, risk: Risk) -> Risk:
        if not isinstance(risk, cls.risk_type):
            raise InputError(
                f"{cls.__name__} {cls.objective}, got {risk}; TD3 and PPO take any risk"
            )
        return risk


class ParallelLearner(Learner[S]):
    """Actors that step together: one call of the network for all of them.

    An evaluation may fall between two actors of a common step; the others make it after that.
    """

    discrete = True
    remember = True
    _waiting: tuple[tuple[GuardedEnv, Any], ...] = ()
    """Actors that have not made the common step yet, and their actions."""

    @property
    def actors(self) -> int:
        return self.settings.n_envs

    @property
    def can_checkpoint(self) -> bool:
        return not self._waiting

    def advance(self, until: int, checkpoint_due: CheckpointDue) -> None:
        while self.steps < until:
            if not self._waiting:
                s = np.array([env.observation for env in self.envs])
                self._waiting = tuple(zip(self.envs, self.draw(s), strict=True))
            (env, a), *later = self._waiting
            self._waiting = tuple(later)
            self.step(env, a)
            if not self._waiting:
                self.all_stepped()
                if self.can_checkpoint and checkpoint_due():
                    return

    @abstractmethod
    def draw(self, s: Vector) -> Any:
        """Actions of all actors."""

    @abstractmethod
    def step(self, env: GuardedEnv, a: Any) -> None:
        """One step of one of the actors, and what is learned from it."""

    @abstractmethod
    def all_stepped(self) -> None:
        """Called when all actors have made a step."""

    @property
    def risk_aversion(self) -> float:
        """The weight of the variance."""
        assert isinstance(self.risk, MeanVariance)
        return self.risk.risk_aversion


class Networks(eqx.Module):
    """The state that an update from an episode changes."""

    actor: Actor
    optimizer: optax.OptState


class Episode(NamedTuple):
    """Observations and actions, padded; `steps` marks the real ones."""

    s: Any
    a: Any
    steps: Any


@partial(jax.jit, static_argnames="settings", donate_argnames="net")
def update(
    net: Networks, episode: Episode, weight: jax.Array, settings: EpisodicSettings
) -> tuple[Networks, jax.Array]:
    """Ascend on `weight * log pi(episode)` and the entropy; also returns the loss."""

    def loss(actor: Actor) -> jax.Array:
        log_prob = jnp.sum(jnp.where(episode.steps, actor.log_prob(episode.s, episode.a), 0.0))
        entropy = jnp.mean(actor.entropy(episode.s), where=episode.steps)
        return -weight * log_prob - settings.ent_coef * entropy

    value, gradient = jax.value_and_grad(loss)(net.actor)
    steps, state = policy_optimizer(settings).update(gradient, net.optimizer)
    return Networks(optax.apply_updates(net.actor, steps), state), value


class WholeEpisodeLearner(ParallelLearner[S]):
    """Learns from whole episodes: a policy, its optimiser, and what happens when one ends."""

    net: Networks
    _learned = False
    """Whether the network has moved since the policy was taken from it."""

    def begin(self, opened: ExitStack) -> None:
        del opened
        actor = Actor.random(self.rng, self.env.spaces, self.settings.hidden)
        self.net = Networks(actor, policy_optimizer(self.settings).init(actor))
        self._refresh_policy()

    @abstractmethod
    def end_episode(self, env: GuardedEnv) -> None:
        """Take an episode that has ended into account."""

    def draw(self, s: Vector) -> Any:
        return self._acting.drawn(s, self.rng)

    def step(self, env: GuardedEnv, a: Any) -> None:
        _, _, terminated, truncated = env.step(a)
        self.steps += 1
        if terminated or truncated:
            self.end_episode(env)
            self.begin_episode(env)

    def all_stepped(self) -> None:
        if self._learned:
            self._refresh_policy()

    def discounted_return(self, rewards: Sequence[float]) -> float:
        """The return of an episode."""
        return float(np.polynomial.polynomial.polyval(self.settings.gamma, rewards))

    def _refresh_policy(self) -> None:
        self._acting = self.net.actor.policy(self.env.spaces)
        self._learned = False
        self.set_policy(self._acting)

    def arrays(self) -> tuple[Any, Arrays]:
        return self.net, self.estimates()

    def estimates(self) -> Arrays:
        """Running estimates, to be saved."""
        return {}

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        del arrays
        self.net = net
        self._refresh_policy()


class EpisodicLearner(WholeEpisodeLearner[E]):
    """Learns from an episode when it ends: the subclass says how much its return counts."""

    @abstractmethod
    def weigh(self, g: float) -> float:
        """The weight of an episode with return `g`; updates the running estimates."""

    @property
    def estimate_rate(self) -> float:
        """Step size of running estimates."""
        return self.settings.estimate_rate * self.settings.learning_rate

    def advance(self, until: int, checkpoint_due: CheckpointDue) -> None:
        super().advance(until, checkpoint_due)
        self.all_stepped()  # an evaluation may fall between two actors

    def end_episode(self, env: GuardedEnv) -> None:
        s, a, r = zip(*env.episode, strict=True)
        weight = self.weigh(self.discounted_return(r))
        self.net, loss = update(self.net, padded(s, a), as_float32(weight), self.settings)
        self.add_losses(np.asarray(loss)[None])
        self._learned = True


def as_float32(x: Any) -> Any:
    """Weights in single precision; an infinite one is later reported as a divergence."""
    with np.errstate(over="ignore"):
        return np.float32(x)


def padded(s: tuple[Vector, ...], a: tuple[Any, ...]) -> Episode:
    """An episode of a length that is a power of two, so that few functions are compiled."""
    count = len(s)
    room = power_of_two(count)
    seen, done = (np.array(x) for x in (s, a))
    more = room - count
    seen, done = (np.concatenate([x, np.repeat(x[-1:], more, axis=0)]) for x in (seen, done))
    return Episode(seen, done, np.arange(room) < count)


def power_of_two(count: int) -> int:
    """Room for `count` rows: 16, 32, 64, ..."""
    return max(16, 1 << (count - 1).bit_length())
