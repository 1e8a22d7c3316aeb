"""Agents climb the objectives they name: sampled gradients against exact ones.

On small finite problems every trajectory can be listed, so the objective is a finite sum and its
gradient exact. The other route is the agent's: episodes its learner samples, weighed and
differentiated by its own update, with plain gradient ascent in place of its optimiser.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
import pytest

import mvpi
from mvpi.agents import mvp, parallel_actors, ppo, prashanth, tamar
from mvpi.agents.networks import MLP
from mvpi.agents.parallel_actors import Episode
from mvpi.agents.settings import MVPSettings, PPOSettings, PrashanthSettings
from mvpi.agents.stochastic_policy import Actor
from mvpi.risk import MeanVariance

Array = npt.NDArray[np.float64]
Reply = tuple[int, float, bool, bool, dict[str, Any]]

STEPS, ACTIONS = 3, 2
EPISODES = 6_000


@dataclass(frozen=True)
class Problem:
    """A finite MDP: from `s`, action `a` leads to `t` with `chances[s, a, t]`."""

    chances: Array
    rewards: Array
    start: Array
    ends: tuple[int, ...]

    @property
    def states(self) -> int:
        return len(self.start)


class Finite(gym.Env[int, int]):
    """Episodes of a problem: over in its last states, cut after `STEPS` steps."""

    def __init__(self, problem: Problem) -> None:
        self.observation_space = gym.spaces.Discrete(problem.states)
        self.action_space = gym.spaces.Discrete(ACTIONS)
        self.problem = problem
        self._up_to = problem.chances.cumsum(axis=-1)
        self._start = problem.start.cumsum()
        self._state = self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        self._state = self._draw(self._start)
        return self._state, {}

    def step(self, action: int) -> Reply:
        before, self._state = self._state, self._draw(self._up_to[self._state, action])
        self._time += 1
        reward = float(self.problem.rewards[before, action, self._state])
        return self._state, reward, self._state in self.problem.ends, self._time >= STEPS, {}

    def _draw(self, up_to: Array) -> int:
        return min(int(np.searchsorted(up_to, self.np_random.random(), "right")), len(up_to) - 1)


def looping(seed: int) -> Problem:
    """Two states that lead to each other, and a last one: some episodes end early, others are
    cut."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet([2.0, 2.0, 1.0], (3, ACTIONS))
    rewards = rng.normal(0.7, 0.5, (3, ACTIONS, 3))
    return Problem(chances, rewards, np.array([0.6, 0.4, 0.0]), (2,))


def layered(seed: int, start: tuple[float, float] = (0.6, 0.4), early: bool = False) -> Problem:
    """Every step leads to the two states of the next layer, the last one to the end.

    A state knows its time, so that values of states are exact; `early` lets episodes end before.
    """
    rng = np.random.default_rng(seed)
    last = 2 * STEPS
    chances = np.zeros((last + 1, ACTIONS, last + 1))
    for s, a in itertools.product(range(last), range(ACTIONS)):
        onwards = [t for t in (s // 2 * 2 + 2, s // 2 * 2 + 3) if t < last]
        following = onwards + [last] * (early or not onwards)
        chances[s, a, following] = rng.dirichlet(np.full(len(following), 2.0))
    chances[last, :, last] = 1.0
    rewards = rng.standard_normal(chances.shape)
    return Problem(chances, rewards, np.array([*start, *[0.0] * (last - 1)]), (last,))


class Paths:
    """All trajectories from given states, and their probabilities under a tabular policy."""

    def __init__(self, problem: Problem, start: Array) -> None:
        found = [
            path
            for s in np.flatnonzero(start)
            for path in _paths(problem, int(s), float(start[s]), ())
        ]
        self.chance = jnp.array([chance for chance, _ in found])
        steps = np.zeros((len(found), STEPS, 3))
        self.made = np.zeros((len(found), STEPS), bool)
        for i, (_, path) in enumerate(found):
            steps[i, : len(path)] = path
            self.made[i, : len(path)] = True
        self.s, self.a = steps[..., 0].astype(int), steps[..., 1].astype(int)
        self.r = steps[..., 2]
        self.states = problem.states

    def log_probs(self, actor: Actor) -> jax.Array:
        """Of the action in every step."""
        table = jax.nn.log_softmax(actor.net.weights[0] + actor.net.biases[0])
        return jnp.where(self.made, table[self.s, self.a], 0.0)

    def probabilities(self, actor: Actor) -> jax.Array:
        return self.chance * jnp.exp(self.log_probs(actor).sum(axis=1))

    def returns(self, gamma: float) -> Array:
        return self.r @ gamma ** np.arange(STEPS)

    def moments(self, actor: Actor, gamma: float = 1.0) -> tuple[jax.Array, jax.Array]:
        """E[G] and E[G^2]."""
        p, g = self.probabilities(actor), self.returns(gamma)
        return p @ g, p @ g**2

    def mean_and_variance(self, actor: Actor, gamma: float = 1.0) -> tuple[jax.Array, jax.Array]:
        mean, square = self.moments(actor, gamma)
        return mean, square - mean**2

    def step_moments(self, actor: Actor) -> tuple[jax.Array, jax.Array]:
        """E[R] and E[R^2] of the reward of a step."""
        p = self.probabilities(actor)
        return p @ self.r.mean(axis=1), p @ (self.r**2).mean(axis=1)


def _paths(problem: Problem, s: int, chance: float, so_far: tuple[Any, ...]) -> Iterator[Any]:
    if s in problem.ends or len(so_far) == STEPS:
        yield chance, so_far
        return
    for a, t in itertools.product(range(ACTIONS), np.flatnonzero(problem.chances[s].sum(axis=0))):
        step = s, a, problem.rewards[s, a, t]
        yield from _paths(problem, int(t), chance * problem.chances[s, a, t], (*so_far, step))


def values(paths: Paths, actor: Actor, gamma: float) -> tuple[jax.Array, jax.Array]:
    """E[G] and E[G^2] from every state, if `paths` begin in all of them with `chance` 1."""
    p, g = paths.probabilities(actor), paths.returns(gamma)
    nothing = jnp.zeros(paths.states)
    return nothing.at[paths.s[:, 0]].add(p * g), nothing.at[paths.s[:, 0]].add(p * g**2)


def from_everywhere(problem: Problem) -> Paths:
    anywhere = np.ones(problem.states)
    anywhere[list(problem.ends)] = 0.0
    return Paths(problem, anywhere)


def tabular(seed: int, states: int) -> Actor:
    """A softmax policy that is far from uniform."""
    rng = np.random.default_rng(seed)
    weights, biases = rng.standard_normal((states, ACTIONS)), rng.standard_normal(ACTIONS)
    net = MLP((jnp.asarray(weights, jnp.float32),), (jnp.asarray(biases, jnp.float32),), "tanh")
    return Actor(net, None)


def critic_of(v: jax.Array) -> MLP:
    return MLP((v[:, None],), (jnp.zeros(1),), "tanh")


def learner_of(agent: Any, actor: Actor) -> Any:
    """A learner of this agent that acts with `actor`."""
    learner = agent._new_learner()
    learner.net = eqx.tree_at(lambda net: net.actor, learner.net, actor)
    return learner


def ascent(_: Any = None, __: float = 0.0) -> optax.GradientTransformation:
    """In place of an optimiser: what it returns is added, and is minus the gradient of a loss."""
    return optax.sgd(1.0)


def rows(tree: Any, count: int) -> Array:
    """The leaves of a tree of stacked arrays, side by side."""
    leaves = [np.asarray(x, np.float64).reshape(count, -1) for x in jax.tree.leaves(tree)]
    return np.hstack(leaves)


def flat(tree: Any) -> Array:
    return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(tree)])


def distance(samples: Array, exact: Array) -> Array:
    """How many standard errors the mean of the samples is away, component by component."""
    error = samples.std(axis=0) / np.sqrt(len(samples))
    # Otherwise the samples could not tell a wrong gradient from a right one.
    assert error.max() < 0.1 * np.abs(exact).max()
    return np.asarray(np.abs(samples.mean(axis=0) - exact) / (error + 1e-6))


def agree(samples: Array, exact: Array) -> None:
    assert distance(samples, exact).max() < 4.5


@dataclass(frozen=True)
class Sampled:
    """Episodes that a learner handed to its update, in turn; its policy stayed as it was."""

    episodes: Episode
    returns: Array
    weights: Array
    before: Array
    """The running estimates, the mean and with Tamar's the variance, before every episode."""
    after: Array


def sampled(kind: type[Any], problem: Problem, actor: Actor, risk: float) -> Sampled:
    """Episodes from the real learner."""
    agent = kind(lambda: Finite(problem), risk=risk, hidden=(), learning_rate=1e-4)
    learner = learner_of(agent, actor)
    learner._refresh_policy()
    seen: list[tuple[Any, ...]] = []
    weigh = learner.weigh

    def estimates() -> tuple[float, float]:
        return learner.y, getattr(learner, "v", 0.0)

    def noted(g: float) -> float:
        before = estimates()
        weight = weigh(g)
        seen.append((g, before, estimates()))
        return float(weight)

    def note(net: Any, episode: Episode, weight: Any, settings: Any) -> tuple[Any, Any]:
        seen[-1] = (episode, weight, *seen[-1])
        return net, np.float32(0.0)

    learner.weigh = noted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel_actors, "update", note)
        while len(seen) < EPISODES:
            learner.advance(learner.steps + 320, lambda: False)
    learner.close()
    episodes, weights, returns, before, after = zip(*seen, strict=True)
    together = jax.tree.map(lambda *x: np.stack(x), *episodes)
    return Sampled(together, *map(np.array, (returns, weights, before, after)))


def ascents(
    actor: Actor, episodes: Episode, weights: Array, patch: pytest.MonkeyPatch, **options: float
) -> Array:
    """How the real update moves the policy, episode by episode, with a plain optimiser."""
    patch.setattr(parallel_actors, "policy_optimizer", ascent)
    net = parallel_actors.Networks(actor, ascent().init(actor))
    settings = MVPSettings(**{"ent_coef": 0.0, **options})  # type: ignore[arg-type]

    def moved(episode: Episode, weight: jax.Array) -> Any:
        after, _ = parallel_actors.update.__wrapped__(net, episode, weight, settings)
        return jax.tree.map(lambda new, old: new - old, after.actor, actor)

    moves = jax.jit(jax.vmap(moved))(episodes, np.float32(weights))
    return rows(moves, len(weights))


def expected_ascent(paths: Paths, actor: Actor, weights: Array, patch: pytest.MonkeyPatch) -> Array:
    """The mean of `ascents` over all trajectories, each counted as it is likely."""
    unit = np.eye(paths.states, dtype=np.float32)
    episodes = Episode(unit[paths.s], paths.a, paths.made)
    return np.asarray(paths.probabilities(actor)) @ ascents(actor, episodes, weights, patch)


def test_mvp_climbs_its_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, actor, risk_aversion = looping(5), tabular(5, 3), 0.7
    paths = Paths(problem, problem.start)
    drawn = sampled(mvpi.MVP, problem, actor, risk_aversion)
    y = 0.8

    def objective(actor: Actor) -> jax.Array:
        mean, square = paths.moments(actor)
        return 2.0 * y * mean - square

    def weights(returns: Array) -> Array:
        return np.array([mvp.weight(y, g) for g in returns])

    exact = flat(jax.grad(objective)(actor))
    mean_move = expected_ascent(paths, actor, weights(paths.returns(1.0)), monkeypatch)
    np.testing.assert_allclose(mean_move, exact, atol=1e-5)
    agree(ascents(actor, drawn.episodes, weights(drawn.returns), monkeypatch), exact)

    # What the learner itself did: first y moved, then the episode counted with the new one.
    (before, _), (after, _) = drawn.before.T, drawn.after.T
    rate = 100.0 * 1e-4
    slope = 2.0 * drawn.returns + 1.0 / risk_aversion - 2.0 * before
    np.testing.assert_allclose(after, before + rate * slope, rtol=1e-12, atol=1e-12)
    expected = 2.0 * after * drawn.returns - drawn.returns**2
    np.testing.assert_allclose(drawn.weights, expected, rtol=1e-5, atol=1e-6)
    mean, _ = paths.moments(actor)
    best_y = float(mean) + 0.5 / risk_aversion
    assert after[EPISODES // 2 :].mean() == pytest.approx(best_y, abs=0.05)


def test_tamar_climbs_its_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, actor, risk_aversion = looping(5), tabular(5, 3), 0.7
    paths = Paths(problem, problem.start)
    drawn = sampled(mvpi.Tamar, problem, actor, risk_aversion)
    j, v = map(float, paths.mean_and_variance(actor))
    limit = 0.4 * v

    def objective(actor: Actor) -> jax.Array:
        mean, variance = paths.mean_and_variance(actor)
        return mean - risk_aversion * jnp.maximum(0.0, variance - limit) ** 2

    exact = flat(jax.grad(objective)(actor))

    def weights(returns: Array) -> Array:
        return np.array([tamar.weight(g, j, v, risk_aversion, limit) for g in returns])

    mean_move = expected_ascent(paths, actor, weights(paths.returns(1.0)), monkeypatch)
    np.testing.assert_allclose(mean_move, exact, atol=1e-5)
    agree(ascents(actor, drawn.episodes, weights(drawn.returns), monkeypatch), exact)

    # A constant times the score has mean 0: with 2 J^2 the gradient of J^2 would be lost.
    wrong = drawn.returns - risk_aversion * 2.0 * (v - limit) * (drawn.returns**2 - 2.0 * j**2)
    assert distance(ascents(actor, drawn.episodes, wrong, monkeypatch), exact).max() > 10.0

    # A variance below the limit costs nothing.
    free = [tamar.weight(g, j, v, risk_aversion, 1.01 * v) for g in drawn.returns]
    np.testing.assert_array_equal(free, drawn.returns)

    # What the learner itself did: the episode counted with the old estimates, then they moved.
    (mean, spread), (new_mean, new_spread) = drawn.before.T, drawn.after.T
    pairs = zip(drawn.returns, mean, spread, strict=True)
    expected = [tamar.weight(g, j, v, risk_aversion, 50.0) for g, j, v in pairs]
    np.testing.assert_allclose(drawn.weights, expected, rtol=1e-5, atol=1e-6)
    rate = 100.0 * 1e-4
    g = drawn.returns
    np.testing.assert_allclose(new_mean, mean + rate * (g - mean), rtol=1e-12, atol=1e-12)
    goal = g**2 - new_mean**2 - spread
    np.testing.assert_allclose(new_spread, spread + rate * goal, rtol=1e-12, atol=1e-12)
    assert new_mean[EPISODES // 2 :].mean() == pytest.approx(j, abs=0.05)
    assert new_spread[EPISODES // 2 :].mean() == pytest.approx(v, rel=0.1)


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
@pytest.mark.parametrize("weight", [3.0, -2.0])
def test_an_update_from_an_episode_goes_uphill(
    optimizer: Any, weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = MVPSettings(optimizer=optimizer, learning_rate=0.005)
    states, actions = [0, 2, 1, 2, 0], [1, 0, 1, 1, 0]
    episode = parallel_actors.padded(tuple(np.eye(3, dtype=np.float32)[states]), tuple(actions))
    actor = tabular(3, 3)

    def objective(actor: Actor) -> jax.Array:
        table = jax.nn.log_softmax(actor.net.weights[0] + actor.net.biases[0])
        entropy = -jnp.sum(jnp.exp(table) * table, axis=1)
        log_prob = jnp.sum(table[np.array(states), np.array(actions)])
        return weight * log_prob + settings.ent_coef * jnp.mean(entropy[np.array(states)])

    uphill = flat(jax.grad(objective)(actor))
    together = jax.tree.map(lambda x: np.asarray(x)[None], episode)
    plain = ascents(actor, together, np.array([weight]), monkeypatch, ent_coef=settings.ent_coef)
    np.testing.assert_allclose(plain[0], uphill, rtol=1e-4, atol=1e-6)

    monkeypatch.undo()
    chosen = parallel_actors.policy_optimizer(settings)
    net = parallel_actors.Networks(jax.tree.map(jnp.copy, actor), chosen.init(actor))
    after, _ = parallel_actors.update(net, episode, np.float32(weight), settings)
    move = flat(after.actor) - flat(actor)
    np.testing.assert_array_equal(np.sign(move), np.sign(uphill))
    assert float(objective(after.actor)) > float(objective(actor))


def prashanth_settings(**options: Any) -> PrashanthSettings:
    chosen = {"hidden": (), "gamma": 0.8, "perturbation": 0.01, "ent_coef": 0.0}
    return PrashanthSettings(**{**chosen, **options})


@pytest.mark.parametrize("scheme", ["spsa", "smoothed"])
@pytest.mark.parametrize("starts", [[0], [0, 0, 1]])
def test_prashanth_climbs_its_objective(
    scheme: Any, starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one start this is E[G] - lam Var(G); from several, its mean over them."""
    problem, risk_aversion, count = layered(2, early=True), 0.7, 2_500
    settings = prashanth_settings(scheme=scheme)
    actor = tabular(4, problem.states)
    everywhere = from_everywhere(problem)

    def objective(actor: Actor) -> jax.Array:
        v, u = values(everywhere, actor, settings.gamma)
        return jnp.mean((v - risk_aversion * (u - v**2))[np.array(starts)])

    if starts == [0]:  # the same from the definitions
        paths = Paths(problem, np.eye(problem.states)[0])
        mean, variance = paths.mean_and_variance(actor, settings.gamma)
        assert float(objective(actor)) == pytest.approx(float(mean - 0.7 * variance), rel=1e-5)

    def exact_critics(actor: Actor) -> prashanth.Critics:
        return prashanth.Critics(*map(critic_of, values(everywhere, actor, settings.gamma)))

    agent = mvpi.Prashanth(lambda: Finite(problem), risk_aversion, hidden=(), scheme=scheme)
    learner = learner_of(agent, actor)
    deltas = []
    for _ in range(count):
        learner._perturb()
        deltas.append(learner._delta)
    learner.close()
    monkeypatch.setattr(prashanth, "optimizers", lambda _: (ascent(), ascent()))
    seen = jnp.eye(problem.states, dtype=jnp.float32)

    def moved(delta: Actor) -> Any:
        there = prashanth.perturbed(actor, delta, settings)
        critics = exact_critics(actor), exact_critics(there)
        net = prashanth.Networks(actor, critics, ascent().init(actor), ascent().init(critics))
        at = seen[np.array(starts)]
        after = prashanth.update_actor(net, delta, seen, at, jnp.array(risk_aversion), settings)
        return jax.tree.map(lambda new, old: new - old, after.actor, actor)

    together = jax.tree.map(lambda *x: np.stack(x), *deltas)
    moves = rows(jax.jit(jax.vmap(moved))(together), count)
    agree(moves, flat(jax.grad(objective)(actor)))
    spread = rows(together, count)
    if scheme == "spsa":
        np.testing.assert_array_equal(np.abs(spread), 1.0)
    else:
        assert (spread**4).mean() == pytest.approx(3.0, abs=0.1)


def rational(problem: Problem) -> Problem:
    """A problem whose probabilities are 1/4, 1/2, 3/4 or 1: they can be counted out."""
    rng = np.random.default_rng(0)
    chances = np.zeros_like(problem.chances)
    for s, a in itertools.product(range(problem.states), range(ACTIONS)):
        possible = np.flatnonzero(problem.chances[s, a])
        counts = 1 + rng.multinomial(4 - possible.size, np.full(possible.size, 1 / possible.size))
        chances[s, a, possible] = counts / 4
    return replace(problem, chances=chances)


def counted_out(problem: Problem, policy: Array) -> prashanth.Steps:
    """Transitions from all states, each as often as it is likely."""
    found = [
        (s, a, t)
        for s, a, t in itertools.product(
            range(problem.states), range(ACTIONS), range(problem.states)
        )
        if s not in problem.ends
        for _ in range(round(16 * policy[s, a] * problem.chances[s, a, t]))
    ]
    assert len(found) == 16 * (problem.states - len(problem.ends))
    s, a, t = np.array(found).T
    unit = np.eye(problem.states, dtype=np.float32)
    continues = np.isin(t, problem.ends, invert=True)
    r = problem.rewards[s, a, t].astype(np.float32)
    return prashanth.Steps(unit[s], r, unit[t], continues.astype(np.float32))


def test_the_critics_of_prashanth_find_values_and_square_values() -> None:
    """The expected TD update of both pairs of critics, each with its own policy's transitions."""
    problem = rational(layered(5, early=True))
    rng = np.random.default_rng(1)
    policies = [rng.integers(1, 4, (problem.states, 1)) / 4 for _ in range(2)]
    tables = [np.hstack([p, 1.0 - p]) for p in policies]
    halves = [counted_out(problem, table) for table in tables]
    steps = jax.tree.map(lambda *x: np.concatenate(x), *halves)
    settings = prashanth_settings(n_envs=len(steps.r), optimizer="adam", max_grad_norm=None)
    everywhere = from_everywhere(problem)

    def train(net: prashanth.Networks, rate: float) -> prashanth.Networks:
        chosen = replace(settings, critic_learning_rate=rate)

        def one(net: prashanth.Networks, _: Any) -> tuple[prashanth.Networks, jax.Array]:
            return prashanth.update_critics(net, steps, chosen)

        learned: prashanth.Networks = jax.jit(lambda net: jax.lax.scan(one, net, None, 1_000)[0])(
            net
        )
        return learned

    spaces = mvpi.rollout.spaces.Spaces.of(Finite(problem), discrete=True)
    net = prashanth.initial_networks(rng, spaces, settings)
    for rate in (0.1, 0.01, 0.001):
        net = train(net, rate)
    known = np.eye(problem.states, dtype=np.float32)[:-1]  # all but the end
    for table, critics in zip(tables, net.critics, strict=True):
        actor = Actor(MLP((jnp.log(jnp.asarray(table)),), (jnp.zeros(ACTIONS),), "tanh"), None)
        for critic, exact in zip(
            (critics.v, critics.u), values(everywhere, actor, settings.gamma), strict=True
        ):
            np.testing.assert_allclose(critic(known)[:, 0], exact[:-1], atol=1e-3)


def test_what_the_actors_of_prashanth_see_confirms_exact_critics() -> None:
    """One long round of the real learner: no TD error on average, in any state, of either half."""
    problem = layered(6, early=True)
    actor = tabular(8, problem.states)
    agent = mvpi.Prashanth(
        lambda: Finite(problem), 1.0, hidden=(), gamma=0.8, perturbation=0.5, n_steps=600
    )
    learner = learner_of(agent, actor)
    learner._begin_round()
    seen: list[tuple[Any, ...]] = []

    def note(net: Any, delta: Actor, steps: Any, starts: Any, *rest: Any) -> tuple[Any, Any]:
        seen.append((delta, steps, starts))
        return net, np.float32(0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prashanth, "update", note)
        learner.advance(16 * 600, lambda: False)
    learner.close()
    ((delta, steps, starts),) = seen
    np.testing.assert_array_equal(starts.sum(axis=1), starts[:, :2].sum(axis=1))

    def errors(critics: prashanth.Critics, part: prashanth.Steps) -> Array:
        def slope(step: prashanth.Steps) -> Any:
            one = jax.tree.map(lambda x: x[None], step)
            return jax.grad(prashanth.td_loss)(critics, one, 0.8)

        together = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), part)
        samples = rows(jax.jit(jax.vmap(slope))(together), len(together.r.ravel()))
        return np.asarray(np.abs(samples.mean(axis=0)) / (samples.std(axis=0) + 1e-6))

    everywhere = from_everywhere(problem)
    parts = [jax.tree.map(lambda x, k=k: x[:, k : k + 8], steps) for k in (0, 8)]
    limit = 4.5 / np.sqrt(8 * 600)
    policies = actor, prashanth.perturbed(actor, delta, agent.settings)
    for policy, own, other in zip(policies, parts, reversed(parts), strict=True):
        critics = prashanth.Critics(*map(critic_of, values(everywhere, policy, 0.8)))
        assert errors(critics, own).max() < limit
        assert errors(critics, other).max() > 2.0 * limit  # the halves do not act alike


@dataclass(frozen=True)
class Fixed(MeanVariance):
    """Mean-variance with `y` known beforehand."""

    y: float

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return self.y


class Rewarded:
    """What PPO is tested on: rewards of a step have the mean `y`, which is the learner's `y`."""

    def __init__(self) -> None:
        self.problem = layered(9)
        self.actor = tabular(10, self.problem.states)
        self.paths = Paths(self.problem, self.problem.start)
        self.y = float(self.paths.step_moments(self.actor)[0])
        self.episodes = self._rollouts(Fixed(0.7, self.y))

    def augmented(self, r: Array) -> Array:
        return r - 0.7 * r**2 + 2.0 * 0.7 * r * self.y

    def _rollouts(self, risk: Fixed) -> ppo.Rollout:
        """Whole episodes as PPO collects them for its update, one a row."""
        count = STEPS * EPISODES
        sizes = {"n_steps": count, "batch_size": count}
        agent = mvpi.PPO(lambda: Finite(self.problem), risk, hidden=(), **sizes)
        learner = learner_of(agent, self.actor)
        learner._refresh_policy()
        seen: list[ppo.Rollout] = []

        def note(net: Any, rollout: ppo.Rollout, *rest: Any) -> tuple[Any, Any]:
            seen.append(rollout)
            return net, np.zeros(2, np.float32)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ppo, "update", note)
            learner.advance(count, lambda: False)
        learner.close()
        (rollout,) = seen
        assert rollout.done.reshape(-1, STEPS)[:, -1].all()
        episodes: ppo.Rollout = jax.tree.map(lambda x: x.reshape(-1, STEPS, *x.shape[1:]), rollout)
        return episodes


@pytest.fixture(scope="module")
def rewarded() -> Rewarded:
    return Rewarded()


def step_ascents(
    episodes: ppo.Rollout,
    actor: Actor,
    critic: MLP,
    settings: PPOSettings,
    patch: pytest.MonkeyPatch,
) -> Array:
    """How PPO's real update moves the policy, episode by episode, times the steps of an episode."""
    patch.setattr(ppo, "optimizers", lambda _: (ascent(), ascent()))
    net = ppo.Networks(actor, critic, ascent().init(actor), ascent().init(critic))
    settings = replace(settings, n_steps=STEPS, batch_size=STEPS, n_epochs=1)

    def moved(rollout: ppo.Rollout) -> Any:
        after, _ = ppo.update.__wrapped__(net, rollout, jnp.arange(STEPS)[None], settings)
        return jax.tree.map(lambda new, old: STEPS * (new - old), after.actor, actor)

    return rows(jax.jit(jax.vmap(moved))(episodes), EPISODES)


def policy_gradient(paths: Paths, actor: Actor, rewards: Array, gamma: float) -> Array:
    """E[sum over t of grad log pi(a_t | s_t) times the discounted rewards from t on]."""
    ahead = np.zeros_like(rewards)
    for t in range(STEPS):
        ahead[:, t] = rewards[:, t:] @ gamma ** np.arange(STEPS - t)
    p = jax.lax.stop_gradient(paths.probabilities(actor))
    return flat(jax.grad(lambda actor: p @ jnp.sum(paths.log_probs(actor) * ahead, axis=1))(actor))


@pytest.mark.parametrize("gamma", [0.6, pytest.param(0.999_999, marks=pytest.mark.slow)])
def test_ppo_climbs_its_objective(
    gamma: float, rewarded: Rewarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor, paths = rewarded.actor, rewarded.paths
    exact = policy_gradient(paths, actor, rewarded.augmented(paths.r), gamma)

    def objective(actor: Actor) -> jax.Array:
        """The mean and variance of the reward of a step."""
        mean, square = paths.step_moments(actor)
        return mean - 0.7 * (square - mean**2)

    if gamma > 0.99:
        climbs = STEPS * flat(jax.grad(objective)(actor))
        np.testing.assert_allclose(exact, climbs, rtol=1e-4, atol=1e-5)

    # Values of augmented rewards, by listing the trajectories from every state.
    everywhere = from_everywhere(rewarded.problem)
    ahead = rewarded.augmented(everywhere.r) @ gamma ** np.arange(STEPS)
    nothing = jnp.zeros(paths.states)
    true = nothing.at[everywhere.s[:, 0]].add(everywhere.probabilities(actor) * ahead)

    def moves(value: jax.Array, gae_lambda: float) -> Array:
        settings = PPOSettings(
            hidden=(), gamma=gamma, normalize_advantage=False, gae_lambda=gae_lambda
        )
        return step_ascents(rewarded.episodes, actor, critic_of(value), settings, monkeypatch)

    agree(moves(nothing, 1.0), exact)
    agree(moves(true, 1.0), exact)
    agree(moves(true, 0.3), exact)  # with the true values later rewards are not needed
    assert distance(moves(nothing, 0.3), exact).max() > 5.0
