"""Evaluation of a policy: episodes in an environment, and statistics of their raw rewards.

One loop serves the final evaluation, the evaluations during training and the variance a budget
is held against. Episode `i` is seeded from `(seed, i)` alone, so it does not depend on how many
others are asked for.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi import _bootstrap, stats
from mvpi._checks import check_count, check_function
from mvpi._types import Array
from mvpi.augmenter.columns import NO_COLUMNS
from mvpi.augmenter.occupancy import discounted
from mvpi.errors import InputError
from mvpi.risk import RETURN_SO_FAR, Risk, as_risk
from mvpi.rollout.factory import as_env_factory
from mvpi.rollout.guard import failure

Interval = tuple[float, float]
Act = Callable[[Any], Any]
"""The action for an observation."""
Begin = Callable[[np.random.Generator], Act]
"""How a policy acts in one episode; it may draw from the generator, and remember."""

_RESAMPLES = 1_000
_LONGEST = 1_000_000
"""Steps after which an episode is taken for one without an end."""


class Episode(NamedTuple):
    """The rewards of an episode, and whether it terminated."""

    rewards: Array
    terminated: bool


class Predictor(Protocol):
    """Anything that acts: an agent of this package, a Stable-Baselines3 model."""

    def predict(self, observation: Any) -> Any: ...


@runtime_checkable
class Acting(Protocol):
    """A policy of this package: it may draw its actions."""

    def act(self, observation: Any, rng: np.random.Generator) -> Any: ...


class OfReturns:
    """Statistics of the returns of episodes."""

    returns: Array | tuple[float, ...]

    @cached_property
    def mean(self) -> float:
        """Mean return of an episode."""
        return stats.mean(self.returns)

    @cached_property
    def variance(self) -> float:
        """Variance of the return."""
        return stats.variance(self.returns)

    @property
    def deviation(self) -> float:
        """Standard deviation of the return."""
        return math.sqrt(self.variance)

    @property
    def sharpe(self) -> float:
        """Mean return over its standard deviation."""
        return stats.sharpe(self.returns)

    @property
    def worst(self) -> float:
        """Return of the worst episode."""
        return float(np.min(self.returns))

    def cvar(self, level: float) -> float:
        """Mean return of the worst `level` share of the episodes."""
        return stats.cvar(self.returns, level)

    def value(self, risk: Risk | float) -> float:
        """`risk.value` of the returns: `mean - risk * variance` for a number."""
        return as_risk(risk).value(self.returns)


@dataclass(frozen=True)
class Evaluation(OfReturns):
    """What a policy earned: the `returns` of its episodes and the `rewards` of all their steps.

    `lengths` says how many of the rewards belong to each episode, one after the other, and
    `terminated` which of the episodes ended other than by truncation.
    `mean`, `variance`, `sharpe`, `cvar` and `value` are of the returns, as in the paper's
    tables; those of the per-step rewards begin with `reward_`.
    """

    returns: Array
    """The return of every episode."""
    rewards: Array
    """The rewards of all steps, episode after episode."""
    lengths: npt.NDArray[np.int64]
    """Steps of every episode."""
    terminated: npt.NDArray[np.bool_] | None = None
    """Whether each episode ended other than by truncation; None if it is not known."""

    def __repr__(self) -> str:
        episodes = f"{len(self.returns)} episode{'s' * (len(self.returns) != 1)}"
        return (
            f"Evaluation({episodes}: mean {self.mean:.5g}, std. dev. {self.deviation:.5g}, "
            f"worst {self.worst:.5g}; per step: mean {self.reward_mean:.5g}, "
            f"variance {self.reward_variance:.5g})"
        )

    @cached_property
    def reward_mean(self) -> float:
        """Mean reward of a step."""
        return stats.mean(self.rewards)

    @cached_property
    def reward_variance(self) -> float:
        """Variance of the reward of a step: what mean-variance policy iteration lowers."""
        return stats.variance(self.rewards)

    def reward_value(self, risk: Risk | float) -> float:
        """`risk.value` of the per-step rewards: the objective of the training."""
        return as_risk(risk).value(self.rewards)

    def occupancy(self, gamma: float) -> tuple[Array, Array]:
        """Rewards and their probabilities in the discounted occupancy: the paper's definition.

        The last reward is the 0 of finished episodes. `mvpi.stats.variance(*result.occupancy(g))`
        is the variance of the per-step reward there, `risk.value(*result.occupancy(g))` its value.
        """
        if self.terminated is None:
            raise InputError("the occupancy needs terminated, which episodes ended by themselves")
        times = np.concatenate([np.arange(n) for n in self.lengths])
        ends = np.zeros(self.rewards.size, np.bool_)
        ends[np.cumsum(self.lengths) - 1] = self.terminated
        return discounted(self.rewards, times, ends, gamma)

    def interval(
        self, statistic: Callable[[Array], float], confidence: float = 0.95, seed: int = 0
    ) -> Interval:
        """Bootstrap interval of a statistic of the returns: episodes are drawn again."""
        check_function(statistic, "statistic")
        return self._bootstrap(lambda drawn: statistic(self.returns[drawn]), confidence, seed)

    def reward_interval(
        self, statistic: Callable[..., float], confidence: float = 0.95, seed: int = 0
    ) -> Interval:
        """Bootstrap interval of a statistic of the per-step rewards.

        Whole episodes are drawn again, since the steps of an episode depend on each other.
        `statistic` takes rewards and weights, like those in `mvpi.stats`.
        """
        check_function(statistic, "statistic")
        episode = np.repeat(np.arange(len(self.lengths)), self.lengths)

        def of_drawn(drawn: npt.NDArray[np.int64]) -> float:
            times = np.bincount(drawn, minlength=len(self.lengths))
            return statistic(self.rewards, times[episode])

        return self._bootstrap(of_drawn, confidence, seed)

    def _bootstrap(
        self, statistic: Callable[[npt.NDArray[np.int64]], float], confidence: float, seed: int
    ) -> Interval:
        confidence = stats.check_number(confidence, "confidence", above=0.0, at_most=1.0)
        rng = np.random.default_rng(check_count(seed, "seed", at_least=0))
        count = len(self.returns)
        values = [statistic(rng.integers(count, size=count)) for _ in range(_RESAMPLES)]
        return _bootstrap.interval(values, confidence)


def evaluate(
    agent: Predictor,
    env: str | gym.Env[Any, Any] | Callable[[], gym.Env[Any, Any]] | None = None,
    episodes: int = 100,
    seed: int = 0,
) -> Evaluation:
    """Run `episodes` whole episodes with the agent's policy, as it was trained.

    That of TD3 is deterministic; actions of the others are drawn from their distribution. Models
    of Stable-Baselines3 act deterministically, with their own memory, masks of actions and scaling
    of observations if they have such.

    `env` is an id, an environment or a function that makes one; left out, it is the one the
    agent was made for. The same `seed` gives the same episodes.
    """
    if env is None:
        factory = getattr(agent, "env_factory", None)
        if factory is None:
            raise InputError("env must be given: the agent does not know its environment")
    else:
        factory = as_env_factory(env)
    check_count(episodes, "episodes")
    seed = check_count(seed, "seed", at_least=0)
    env = _seen_by(agent, factory.evaluation())
    try:
        return summarise(run_episodes(_beginning(agent, env), env, seed), episodes=episodes)
    finally:
        env.close()


def _seen_by(agent: Any, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment as the agent sees it: models of `mvpi.sb3` may look at more than it shows."""
    for known in (agent, getattr(agent, "collect_rollouts", None)):
        extended = getattr(known, "env_to_evaluate", None)
        if extended is not None:
            seen: gym.Env[Any, Any] = extended(env)
            return seen
    return env


def drawing_from(policy: Acting) -> Begin:
    """A policy of this package in an episode: it draws its actions from the generator."""
    if RETURN_SO_FAR in getattr(policy, "columns", NO_COLUMNS):
        return lambda rng: _Counting(partial(policy.act, rng=rng))
    return lambda rng: partial(policy.act, rng=rng)


class _Counting:
    """A policy that looks at the return so far, in one episode."""

    def __init__(self, act: Callable[..., Any]) -> None:
        self._act, self._earned = act, 0.0

    def __call__(self, observation: Any) -> Any:
        return self._act(observation, return_so_far=self._earned)

    def earn(self, reward: float) -> None:
        """Count a reward."""
        self._earned += reward


def _beginning(agent: Predictor, env: gym.Env[Any, Any]) -> Begin:
    """How the agent acts in an episode of the environment."""
    policy = getattr(agent, "policy", agent)
    if isinstance(policy, Acting) and "rng" in inspect.signature(policy.act).parameters:
        return drawing_from(policy)
    if not callable(getattr(agent, "predict", None)):
        raise InputError(f"an agent must have a method predict, {type(agent).__name__} has none")
    known = inspect.signature(agent.predict).parameters
    if {"state", "episode_start", "deterministic"} <= set(known):
        return lambda _: _ModelInEpisode(agent, env, masked="action_masks" in known)

    def act(observation: Any) -> Any:
        action = agent.predict(observation)
        return action[0] if isinstance(action, tuple) else action

    return lambda _: act


class _ModelInEpisode:
    """A model of the Stable-Baselines3 family: it is handed its own state again at every step."""

    def __init__(self, model: Any, env: gym.Env[Any, Any], *, masked: bool) -> None:
        self._model = model
        # A policy without its model, which predicts in the same way, has no scaling.
        self._scaled = getattr(model, "get_vec_normalize_env", lambda: None)()
        self._masks = None
        if masked and env.has_wrapper_attr("action_masks"):
            self._masks = env.get_wrapper_attr("action_masks")
        self._state: Any = None
        self._first = True

    def __call__(self, observation: Any) -> Any:
        if self._scaled is not None:
            observation = self._scaled.normalize_obs(observation)
        masks = {} if self._masks is None else {"action_masks": self._masks()}
        action, self._state = self._model.predict(
            observation, self._state, np.array([self._first]), deterministic=True, **masks
        )
        self._first = False
        return action[()]  # a choice as a number: tables cannot be looked up with an array


def run_episodes(begin: Begin, env: gym.Env[Any, Any], *seed: int) -> Iterator[Episode]:
    """The rewards of one episode after the other, without end."""
    episode = 0
    while True:
        sequence = np.random.SeedSequence([*seed, episode])
        act = begin(np.random.default_rng(sequence))
        with _blamed_on(env):
            observation, _ = env.reset(seed=int(sequence.generate_state(1)[0]))
        rewards: list[float] = []
        done = ended = False
        while not done:
            _check_observation(env, observation)
            action = act(observation)
            with _blamed_on(env):
                observation, reward, terminated, truncated, _ = env.step(action)
                rewards.append(float(reward))
                if isinstance(act, _Counting):
                    act.earn(rewards[-1])
                ended = bool(terminated)
                done = ended or bool(truncated)
            if len(rewards) == _LONGEST and not done:
                what = f"did not end an evaluation episode within {_LONGEST:,} steps"
                raise failure(env, f"{what}; give it a time limit")
        if not np.isfinite(rewards).all():
            raise failure(env, "returned a reward that is not finite in an evaluation")
        yield Episode(np.array(rewards), ended)
        episode += 1


def _check_observation(env: gym.Env[Any, Any], observation: Any) -> None:
    space = env.observation_space
    if not isinstance(space, gym.spaces.Box):
        return
    with _blamed_on(env):
        seen = np.asarray(observation)
    if seen.shape != space.shape:
        what = f"returned an observation of shape {seen.shape}, not {space.shape}"
        raise failure(env, f"{what}, in an evaluation")
    if seen.dtype.kind == "f" and not np.isfinite(seen).all():
        raise failure(env, "returned an observation that is not finite in an evaluation")


class _blamed_on:
    """What an environment raises is its failure; cheaper than a generator at every step."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._env = env

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, InputError | MemoryError):
            what = f"raised {type(error).__name__} in an evaluation"
            raise failure(self._env, what, error) from error


def summarise(shown: Iterator[Episode], *, episodes: int = 1, steps: int = 1) -> Evaluation:
    """Take episodes until there are at least `episodes` of them and `steps` steps."""
    taken: list[Episode] = []
    count = 0
    while len(taken) < episodes or count < steps:
        taken.append(next(shown))
        count += taken[-1].rewards.size
    return Evaluation(
        returns=np.array([episode.rewards.sum() for episode in taken]),
        rewards=np.concatenate([episode.rewards for episode in taken]),
        lengths=np.array([episode.rewards.size for episode in taken]),
        terminated=np.array([episode.terminated for episode in taken]),
    )
