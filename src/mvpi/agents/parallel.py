"""What the total-reward baselines share: actors side by side, and updates from whole episodes."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mvpi._storage.arrays import Arrays
from mvpi.agents.agent import Agent
from mvpi.agents.learner import Learner, Rest
from mvpi.agents.settings import EpisodicSettings, TotalRewardSettings
from mvpi.agents.stochastic import Actor, policy_optimizer
from mvpi.environment import World
from mvpi.errors import InputError
from mvpi.risk import MeanVariance, Risk

S = TypeVar("S", bound=TotalRewardSettings)
E = TypeVar("E", bound=EpisodicSettings)

Vector = npt.NDArray[np.float32]


class TotalRewardAgent(Agent[S]):
    """An agent whose risk is the variance of an episode's return."""

    @classmethod
    def usable(cls, risk: Risk) -> Risk:
        if not isinstance(risk, MeanVariance):
            raise InputError(
                f"{cls.__name__} weighs the variance of the return: risk must be a number, got "
                f"{risk}; TD3 and PPO take any risk"
            )
        return risk


class ParallelLearner(Learner[S]):
    """Actors that step together: one call of the network for all of them.

    An evaluation may fall between two actors of a common step; the others make it after that.
    """

    discrete = True
    remember = True
    _waiting: tuple[tuple[World, Any], ...] = ()
    """Actors that have not made the common step yet, and their actions."""

    @property
    def actors(self) -> int:
        return self.settings.n_envs

    @property
    def at_rest(self) -> bool:
        return not self._waiting

    def advance(self, until: int, rest: Rest) -> None:
        while self.steps < until:
            if not self._waiting:
                s = np.array([world.observation for world in self.worlds])
                self._waiting = tuple(zip(self.worlds, self.draw(s), strict=True))
            (world, a), *later = self._waiting
            self._waiting = tuple(later)
            self.step(world, a)
            if not self._waiting:
                self.all_stepped()
                if rest():
                    return

    @abstractmethod
    def draw(self, s: Vector) -> Any:
        """Actions of all actors."""

    @abstractmethod
    def step(self, world: World, a: Any) -> None:
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
    """All that an update from an episode changes."""

    actor: Actor
    optimizer: optax.OptState


class Episode(NamedTuple):
    """What was seen and done, padded; `steps` marks what was not padded."""

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


class EpisodicLearner(ParallelLearner[E]):
    """Learns from an episode when it ends: the subclass says how much its return counts."""

    def begin(self, opened: ExitStack) -> None:
        del opened
        actor = Actor.random(self.rng, self.world.spaces, self.settings.hidden)
        self.net = Networks(actor, policy_optimizer(self.settings).init(actor))
        self._refresh_policy()

    @abstractmethod
    def weigh(self, g: float) -> float:
        """The weight of an episode with return `g`; running estimates move on."""

    @property
    def estimate_rate(self) -> float:
        """Step size of running estimates."""
        return self.settings.estimate_rate * self.settings.learning_rate

    def draw(self, s: Vector) -> Any:
        return self._acting.drawn(s, self.rng)

    def step(self, world: World, a: Any) -> None:
        _, _, terminated, truncated = world.step(a)
        self.steps += 1
        if terminated or truncated:
            self._learn(world)
            self.begin_episode(world)
            self._learned = True

    def advance(self, until: int, rest: Rest) -> None:
        super().advance(until, rest)
        self.all_stepped()  # or as many as there was time for

    def all_stepped(self) -> None:
        if self._learned:
            self._refresh_policy()

    def _learn(self, world: World) -> None:
        s, a, r = zip(*world.episode, strict=True)
        g = float(np.polynomial.polynomial.polyval(self.settings.gamma, r))
        weight = self.weigh(g)
        self.net, loss = update(self.net, padded(s, a), _float32(weight), self.settings)
        self.add_losses(np.asarray(loss)[None])

    def _refresh_policy(self) -> None:
        self._acting = self.net.actor.policy(self.world.spaces)
        self._learned = False
        self.set_policy(self._acting)

    def arrays(self) -> tuple[Any, Arrays]:
        return self.net, self.estimates()

    @abstractmethod
    def estimates(self) -> Arrays:
        """Running estimates, to be saved."""

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        self.net = net
        self._refresh_policy()


def _float32(x: float) -> np.float32:
    with np.errstate(over="ignore"):  # an infinite weight is a divergence, told as such
        return np.float32(x)


def padded(s: tuple[Vector, ...], a: tuple[Any, ...]) -> Episode:
    """An episode of a length that is a power of two, so that few functions are compiled."""
    count = len(s)
    room = max(16, 1 << (count - 1).bit_length())
    seen, done = (np.array(x) for x in (s, a))
    more = room - count
    seen, done = (np.concatenate([x, np.repeat(x[-1:], more, axis=0)]) for x in (seen, done))
    return Episode(seen, done, np.arange(room) < count)
