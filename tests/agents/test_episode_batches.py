"""MeanGini and CVaRPG: gradients against exact ones, and gambles whose best action is known."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
import pytest

import mvpi
from mvpi._storage.arrays import read_arrays
from mvpi.agents import episode_batches, mean_gini
from mvpi.agents.episode_batches import Ended, stacked, update
from mvpi.agents.networks import MLP
from mvpi.agents.parallel_actors import Networks
from mvpi.agents.settings import CVaRPGSettings, EpisodeBatchSettings, MeanGiniSettings
from mvpi.agents.stochastic_policy import Actor
from mvpi.risk import CVaR

Array = npt.NDArray[np.float64]

OUTCOMES = np.array([[-1.0, 2.0], [0.3, 0.6], [-0.2, 0.9]])
CHANCES = np.array([[0.5, 0.5], [0.7, 0.3], [0.4, 0.6]])
LOGITS = np.array([0.4, -0.3, 0.1])
"""One step with three actions, each with two outcomes: six possible episodes."""


class Gamble(gym.Env[int, int]):
    """One step: action 0 pays 0, action 1 pays 2 or -1, equally likely."""

    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        won = self.np_random.random() < 0.5
        return 0, (0.0 if action == 0 else 2.0 if won else -1.0), True, False, {}


def probabilities(logits: Array) -> Array:
    """Of the six episodes."""
    p = np.exp(logits) / np.exp(logits).sum()
    return (p[:, None] * CHANCES).ravel()


def gini_deviation(values: Array, p: Array) -> float:
    """`E|G - G'| / 2`, from its definition."""
    return float(p @ np.abs(values[:, None] - values) @ p / 2.0)


def slopes(objective: Any, step: float = 1e-5) -> Array:
    """The gradient in the logits, by central differences."""
    moves = step * np.eye(LOGITS.size)
    return np.array([(objective(LOGITS + m) - objective(LOGITS - m)) / (2 * step) for m in moves])


def plain(_: Any) -> optax.GradientTransformation:
    """In place of an optimiser: what it adds is the gradient of what is maximised."""
    return optax.sgd(1.0)


def network(logits: Array) -> Networks:
    net = MLP((jnp.zeros((1, logits.size)),), (jnp.asarray(logits, jnp.float32),), "tanh")
    actor = Actor(net, None)
    return Networks(actor, plain(None).init(actor))


def moves(
    batches: list[tuple[int, ...]],
    weigh: Any,
    patch: pytest.MonkeyPatch,
    settings: EpisodeBatchSettings,
) -> Array:
    """How the agent's own update moves the logits, for batches of the six episodes."""
    patch.setattr(episode_batches, "policy_optimizer", plain)
    returns, made = OUTCOMES.ravel(), []
    for chosen in batches:
        g = returns[list(chosen)]
        episodes = [Ended(np.ones((1, 1), np.float32), np.array([i // 2]), 0.0) for i in chosen]
        made.append(stacked(episodes, weigh(g)))
    count = np.float32(len(batches[0]))
    net = network(LOGITS)

    def moved(episodes: Any, weights: Any) -> Any:
        after, _ = update.__wrapped__(net, episodes, weights, count, settings)
        return after.actor.net.biases[0] - net.actor.net.biases[0]

    together = jax.tree.map(lambda *x: np.stack(x), *made)
    return np.asarray(jax.jit(jax.vmap(moved))(*together), np.float64)


# ---- mean-Gini ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 4, 17])
@pytest.mark.parametrize("ties", [False, True])
def test_eta_is_the_mean_distance_from_all_returns(n: int, ties: bool) -> None:
    rng = np.random.default_rng(n)
    g = rng.integers(3, size=n).astype(float) if ties else rng.standard_normal(n)
    distances = np.abs(g[:, None] - g).mean(axis=1)
    together = mean_gini.eta(g) + distances
    np.testing.assert_allclose(together, together[0], atol=1e-12)


def test_eta_as_the_paper_writes_it() -> None:
    g = np.random.default_rng(1).standard_normal(9)
    n, r = g.size, np.sort(g)
    expected = [
        sum(2 * (j + 1) / n * (r[j + 1] - r[j]) for j in range(i, n - 1)) - (r[-1] - r[i])
        for i in range(n)
    ]
    np.testing.assert_allclose(mean_gini.eta(g)[np.argsort(g)], expected, atol=1e-12)


def test_the_gini_deviation_is_an_integral_over_the_distribution_function() -> None:
    p, values = probabilities(LOGITS), OUTCOMES.ravel()
    order = np.argsort(values)
    below = np.cumsum(p[order])[:-1]
    integral = float((below * (1.0 - below)) @ np.diff(values[order]))
    assert gini_deviation(values, p) == pytest.approx(integral, rel=1e-12)


@pytest.mark.parametrize("n", [3, 4])
def test_mean_gini_climbs_its_objective(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean move over all batches of `n` episodes is the exact gradient, at any `n`."""
    lam, values = 0.7, OUTCOMES.ravel()

    def objective(logits: Array) -> float:
        p = probabilities(logits)
        return float(p @ values) - lam * gini_deviation(values, p)

    batches = list(itertools.combinations_with_replacement(range(6), n))
    p = probabilities(LOGITS)
    chances = [
        np.prod(p[list(batch)]) * len(set(itertools.permutations(batch))) for batch in batches
    ]
    assert np.sum(chances) == pytest.approx(1.0)
    settings = MeanGiniSettings(ent_coef=0.0, n_epochs=1)
    weigh = partial(mean_gini.weights, risk_aversion=lam)
    mean_move = np.array(chances) @ moves(batches, weigh, monkeypatch, settings)
    np.testing.assert_allclose(mean_move, slopes(objective), atol=2e-6)


# ---- CVaR ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("risk", [CVaR(0.3), CVaR(0.25, 0.6), CVaR(1.0), CVaR(0.5, 0.0)])
def test_cvar_policy_gradient_climbs_its_objective(
    risk: CVaR, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exact quantile the mean move is the exact gradient; the agent's is the sampled."""
    values = OUTCOMES.ravel()
    quantile = risk.dual(values, probabilities(LOGITS))

    def objective(logits: Array) -> float:
        return risk.value(values, probabilities(logits))

    settings = CVaRPGSettings(ent_coef=0.0)
    alone = moves(
        [(i,) for i in range(6)], lambda g: risk.utility(g - quantile), monkeypatch, settings
    )
    np.testing.assert_allclose(probabilities(LOGITS) @ alone, slopes(objective), atol=2e-6)

    agent = mvpi.CVaRPG(Gamble, risk)
    learner = agent._new_learner()
    drawn = np.random.default_rng(0).choice(values, 4_000, p=probabilities(LOGITS))
    weights = learner.weigh(drawn)
    learner.close()
    assert learner.y == quantile
    expected = (1.0 - risk.weight) * (drawn - quantile) + risk.weight / risk.level * np.minimum(
        drawn - quantile, 0.0
    )
    np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-12)


# ---- the update ---------------------------------------------------------------------------------


def test_an_update_is_the_gradient_of_the_mean_over_episodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Episodes of different lengths, padded in both directions; written out by hand."""
    monkeypatch.setattr(episode_batches, "policy_optimizer", plain)
    rng = np.random.default_rng(2)
    weights = np.array([1.5, -0.5, 0.8])
    episodes = [
        Ended(np.eye(2, dtype=np.float32)[rng.integers(2, size=k)], rng.integers(3, size=k), 0.0)
        for k in (3, 20, 1)
    ]
    table = rng.standard_normal((2, 3))
    net = MLP((jnp.asarray(table, jnp.float32),), (jnp.zeros(3),), "tanh")
    actor, p = Actor(net, None), np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
    expected = np.zeros((2, 3))
    entropy = np.zeros((2, 3))
    steps = sum(len(episode.a) for episode in episodes)
    for weight, episode in zip(weights, episodes, strict=True):
        for s, a in zip(episode.s.argmax(axis=1), episode.a, strict=True):
            expected[s] += weight / 3.0 * (np.eye(3)[a] - p[s])
            logs = np.log(p[s])
            entropy[s] += -p[s] * (logs - p[s] @ logs) / steps
    settings = CVaRPGSettings(ent_coef=0.3)
    batch, padded_weights = stacked(episodes, weights)
    assert batch.s.shape == (16, 32, 2)
    start = Networks(actor, plain(None).init(actor))
    after, _ = update.__wrapped__(start, batch, padded_weights, np.float32(3), settings)
    moved = np.asarray(after.actor.net.weights[0]) - table
    np.testing.assert_allclose(moved, expected + 0.3 * entropy, atol=2e-5)


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_several_epochs_go_as_far_as_the_clip_range(
    weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probability of an action moves until its ratio leaves the range, and no further."""
    monkeypatch.setattr(episode_batches, "policy_optimizer", lambda _: optax.sgd(0.01))
    settings = MeanGiniSettings(ent_coef=0.0, n_epochs=300, clip_range=0.2)
    episode = Ended(np.ones((1, 1), np.float32), np.array([1]), 0.0)
    batch, weights = stacked([episode], np.array([weight]))
    after, _ = update.__wrapped__(network(LOGITS), batch, weights, np.float32(1), settings)
    net = after.actor.net
    before, there = (
        np.exp(x) / np.exp(x).sum() for x in (LOGITS, net.weights[0][0] + net.biases[0])
    )
    assert there[1] / before[1] == pytest.approx(1.0 + 0.2 * weight, abs=0.01)


# ---- known answers ------------------------------------------------------------------------------


def gambles(kind: Any, risk: Any, seed: int) -> float:
    """The probability of the gamble after training."""
    settings = {"hidden": (), "learning_rate": 0.02, "ent_coef": 0.0, "evaluation_every": 10**6}
    agent = kind(Gamble, risk, seed, **settings).learn(5_000)
    logits = agent.policy.weights[0][0] + agent.policy.biases[0]
    return float(np.exp(logits[1]) / np.exp(logits).sum())


@pytest.mark.parametrize(
    ("kind", "risk", "gamble"),
    [
        # Mean 1/2 and Gini deviation 3/4: alone it is worth 1/2 - 3/4 lam.
        (mvpi.MeanGini, 0.0, True),
        (mvpi.MeanGini, 0.3, True),
        (mvpi.MeanGini, 2.0, False),
        # The worse half is -1.
        (mvpi.CVaRPG, CVaR(0.5), False),
        (mvpi.CVaRPG, CVaR(0.5, 0.2), True),  # 0.8 / 2 - 0.2
        (mvpi.CVaRPG, CVaR(1.0), True),
    ],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_gamble_is_taken_if_it_is_worth_it(kind: Any, risk: Any, gamble: bool, seed: int) -> None:
    chance = gambles(kind, risk, seed)
    assert chance > 0.95 if gamble else chance < 0.05


# ---- the batch ----------------------------------------------------------------------------------


def test_a_batch_is_at_least_as_large_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 16 actors end an episode in every common step: 20 episodes are 32."""
    seen: list[tuple[float, int]] = []

    def note(net: Any, batch: Any, weights: Any, count: Any, settings: Any) -> tuple[Any, Any]:
        seen.append((float(count), int(batch.steps.sum())))
        return net, np.float32(0.0)

    monkeypatch.setattr(episode_batches, "update", note)
    mvpi.MeanGini(Gamble, 1.0, batch_episodes=20).learn(100)
    assert seen == [(32.0, 32)] * 3


def test_a_checkpoint_in_the_middle_of_a_batch_holds_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"batch_episodes": 40, "checkpoint_every": 16}
    agent = mvpi.MeanGini(Gamble, 1.0, **settings).learn(16, tmp_path)
    held, _ = read_arrays(tmp_path / "checkpoint.safetensors", "checkpoint")
    assert held["batch.lengths"].tolist() == [1] * 16
    assert set(held["batch.g"].tolist()) <= {-1.0, 0.0, 2.0}
    agent.learn(300, tmp_path)
    whole = mvpi.MeanGini(Gamble, 1.0, **settings).learn(300)
    for one, other in zip(agent.policy.parameters, whole.policy.parameters, strict=True):
        assert one.tobytes() == other.tobytes()
