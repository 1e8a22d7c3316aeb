"""MVPI-PPO: its update against one written by hand, time limits, and known answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from helpers.by_hand import Adam, Array, Layers, layers
from helpers.worlds import Walk

import mvpi
from mvpi.agents import ppo
from mvpi.agents.networks import MLP, arrays_of
from mvpi.agents.policy import Categorical, Gaussian, Scaling
from mvpi.agents.settings import PPOSettings
from mvpi.envs import Markowitz
from mvpi.risk import CVaR, Entropic, MeanVariance, Risk
from mvpi.rollout.spaces import BoxActions, Choices, FlatObservations, Spaces

# Alone they are not compiled, which is slow.
update_actor = jax.jit(ppo.update_actor, static_argnames="settings")
update_critic = jax.jit(ppo.update_critic, static_argnames="settings")
advantages = jax.jit(ppo.advantages, static_argnames="settings")

SEEN, ACTIONS = 3, 2
SETTINGS = PPOSettings(
    hidden=(6, 5),
    n_steps=24,
    batch_size=8,
    n_epochs=3,
    learning_rate=0.03,
    critic_learning_rate=0.01,
    gamma=0.9,
    gae_lambda=0.8,
)
TINY: dict[str, Any] = {
    "hidden": (8, 8),
    "n_steps": 64,
    "batch_size": 32,
    "n_epochs": 2,
    "evaluation_every": 10**9,
    "evaluation_episodes": 1,
}
BOX = BoxActions(np.full(ACTIONS, -1.0, np.float32), np.full(ACTIONS, 1.0, np.float32))


def spaces(actions: str) -> Spaces:
    return Spaces(FlatObservations(SEEN), BOX if actions == "box" else Choices(ACTIONS + 2))


def random_rollout(rng: np.random.Generator, actions: str, steps: int) -> ppo.Rollout:
    """Steps with terminated, truncated and going episodes among them."""
    s, following = rng.standard_normal((2, steps, SEEN)).astype(np.float32)
    a: Any
    if actions == "box":
        a = rng.standard_normal((steps, ACTIONS)).astype(np.float32)
    else:
        a = rng.integers(ACTIONS + 2, size=steps).astype(np.int32)
    terminated = rng.random(steps) < 0.2
    truncated = rng.random(steps) < 0.2
    r = rng.standard_normal(steps).astype(np.float32)
    return ppo.Rollout(s, a, r, following, terminated, terminated | truncated)


class Reference:
    """PPO in float64 numpy, gradients by hand: the other route to the same numbers."""

    def __init__(self, net: ppo.Networks, settings: PPOSettings) -> None:
        self.settings = settings
        self.actor, self.critic = layers(net.actor.net), layers(net.critic)
        box = net.actor.log_std is not None
        self.log_std = np.array(net.actor.log_std, np.float64) if box else None
        self.adam = Adam(epsilon=1e-5)
        self.skipped = 0
        self.losses: list[tuple[float, float]] = []

    def update(self, rollout: ppo.Rollout, minibatches: npt.NDArray[np.int64]) -> None:
        s = np.asarray(rollout.s, np.float64)
        a = np.asarray(rollout.a)
        advantage, value = self.advantages(rollout)
        log_prob = self.log_prob(s, a)
        for i in minibatches:
            actor_loss = self.improve_actor(s[i], a[i], advantage[i], log_prob[i])
            self.losses.append((self.improve_critic(s[i], advantage[i] + value[i]), actor_loss))

    def advantages(self, rollout: ppo.Rollout) -> tuple[Array, Array]:
        gamma, weight = self.settings.gamma, self.settings.gae_lambda
        value = forward(self.critic, np.asarray(rollout.s, np.float64))[-1][:, 0]
        following = forward(self.critic, np.asarray(rollout.next_s, np.float64))[-1][:, 0]
        advantage = np.zeros(len(value))
        later = 0.0
        for t in reversed(range(len(value))):
            ahead = 0.0 if rollout.terminated[t] else following[t]
            error = float(rollout.r[t]) + gamma * ahead - value[t]
            later = error if rollout.done[t] else error + gamma * weight * later
            advantage[t] = later
        return advantage, value

    def log_prob(self, s: Array, a: npt.NDArray[Any]) -> Array:
        outputs = forward(self.actor, s)[-1]
        if self.log_std is None:
            return np.log(softmax(outputs)[np.arange(len(a)), a])
        deviation = np.exp(self.log_std)
        density = np.exp(-(((a - outputs) / deviation) ** 2) / 2) / np.sqrt(2 * np.pi) / deviation
        return np.log(density.prod(axis=1))

    def improve_actor(self, s: Array, a: npt.NDArray[Any], advantage: Array, old: Array) -> float:
        settings, count = self.settings, len(s)
        if settings.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        change = self.log_prob(s, a) - old
        ratio = np.exp(change)
        within = np.clip(ratio, 1 - settings.clip_range, 1 + settings.clip_range)
        gain = np.minimum(ratio * advantage, within * advantage).mean()
        loss = float(-gain - settings.ent_coef * self.entropy(s))
        if settings.target_kl is not None and -change.mean() > 1.5 * settings.target_kl:
            self.skipped += 1
            return loss
        beyond = np.where(
            advantage > 0, ratio > 1 + settings.clip_range, ratio < 1 - settings.clip_range
        )
        slope = np.where(beyond, 0.0, -ratio * advantage)[:, None] / count  # of the loss
        units = forward(self.actor, s)
        if self.log_std is None:
            p = softmax(units[-1])
            entropy = -(p * np.log(p)).sum(axis=1, keepdims=True)
            output = slope * (np.eye(p.shape[1])[a] - p)
            output += settings.ent_coef / count * p * (np.log(p) + entropy)
            gradients = backward(self.actor, units, output)
            self.step("actor", self.actor, gradients, settings.learning_rate)
        else:
            z = (a - units[-1]) / np.exp(self.log_std)
            gradients = backward(self.actor, units, slope * z / np.exp(self.log_std))
            deviation = (slope * (z**2 - 1)).sum(axis=0) - settings.ent_coef
            both = [*self.actor, (self.log_std, np.zeros(0))]
            slopes = [*gradients, (deviation, np.zeros(0))]
            self.step("actor", both, slopes, settings.learning_rate)
        return loss

    def entropy(self, s: Array) -> float:
        if self.log_std is None:
            p = softmax(forward(self.actor, s)[-1])
            return float(-(p * np.log(p)).sum(axis=1).mean())
        return float(np.log(np.exp(self.log_std) * np.sqrt(2 * np.pi * np.e)).sum())

    def improve_critic(self, s: Array, goal: Array) -> float:
        units = forward(self.critic, s)
        error = units[-1] - goal[:, None]
        gradients = backward(self.critic, units, 2.0 * error / len(s))
        self.step("critic", self.critic, gradients, self.settings.critic_learning_rate)
        return float((error**2).mean())

    def step(self, key: str, network: Layers, gradients: Layers, rate: float) -> None:
        parameters = [p for layer in network for p in layer]
        slopes = [g for layer in gradients for g in layer]
        if self.settings.max_grad_norm is not None:
            norm = np.sqrt(sum((g**2).sum() for g in slopes))
            slopes = [g * min(1.0, self.settings.max_grad_norm / norm) for g in slopes]
        self.adam.step(key, parameters, slopes, rate)


def forward(network: Layers, x: Array) -> list[Array]:
    """The input, the units of every hidden layer, and the output."""
    units = [x]
    for i, (w, b) in enumerate(network):
        x = units[-1] @ w + b
        units.append(x if i == len(network) - 1 else np.tanh(x))
    return units


def backward(network: Layers, units: list[Array], slope: Array) -> Layers:
    """Gradients with respect to the parameters."""
    gradients: Layers = []
    for (w, _), inputs, outputs in reversed(list(zip(network, units[:-1], units[1:], strict=True))):
        if gradients:
            slope = slope * (1 - outputs**2)
        gradients.insert(0, (inputs.T @ slope, slope.sum(axis=0)))
        slope = slope @ w.T
    return gradients


def softmax(x: Array) -> Array:
    e = np.exp(x)
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def lively(net: ppo.Networks, rng: np.random.Generator) -> ppo.Networks:
    """Networks whose policy is not almost uniform and whose biases are not 0."""

    def shaken(x: jax.Array) -> jax.Array:
        return x + 0.3 * jnp.asarray(rng.standard_normal(x.shape), jnp.float32)

    nets = net.actor, net.critic
    return eqx.tree_at(lambda n: (n.actor, n.critic), net, jax.tree.map(shaken, nets))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.8, 1.0])
def test_advantages_are_those_of_a_loop(seed: int, gae_lambda: float) -> None:
    rng = np.random.default_rng(seed)
    settings = replace(SETTINGS, gae_lambda=gae_lambda)
    net = lively(
        ppo.initial_networks(rng, spaces("box"), spaces("box").observations.size, settings), rng
    )
    rollout = random_rollout(rng, "box", 50)
    advantage, value = advantages(net.critic, rollout, settings)
    expected, old = Reference(net, settings).advantages(rollout)
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value, old, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("actions", ["box", "choices"])
@pytest.mark.parametrize(
    "options",
    [
        {"target_kl": None},
        {"target_kl": None, "normalize_advantage": False, "ent_coef": 0.3, "max_grad_norm": 0.2},
        {"target_kl": 0.01, "clip_range": 0.05, "ent_coef": 0.05},
    ],
    ids=["plain", "entropy", "kl"],
)
def test_update_is_the_one_written_by_hand(actions: str, options: dict[str, Any]) -> None:
    settings = replace(SETTINGS, **options)
    rng = np.random.default_rng(3)
    net = lively(
        ppo.initial_networks(rng, spaces(actions), spaces(actions).observations.size, settings), rng
    )
    by_hand = Reference(net, settings)
    for _ in range(2):
        rollout = random_rollout(rng, actions, settings.n_steps)
        order = [rng.permutation(settings.n_steps) for _ in range(settings.n_epochs)]
        minibatches = np.concatenate(order).reshape(-1, settings.batch_size)
        net, losses = ppo.update(net, rollout, minibatches, settings)
        by_hand.update(rollout, minibatches)
        expected_losses = np.mean(by_hand.losses[-len(minibatches) :], axis=0)
        np.testing.assert_allclose(losses, expected_losses, rtol=2e-3, atol=2e-4)
    if settings.target_kl is not None:
        assert 0 < by_hand.skipped < 2 * 9
    for ours, expected in ((net.actor.net, by_hand.actor), (net.critic, by_hand.critic)):
        for (w, b), (expected_w, expected_b) in zip(layers(ours), expected, strict=True):
            np.testing.assert_allclose(w, expected_w, rtol=2e-3, atol=2e-4)
            np.testing.assert_allclose(b, expected_b, rtol=2e-3, atol=2e-4)
    if actions == "box":
        np.testing.assert_allclose(net.actor.log_std, by_hand.log_std, rtol=2e-3, atol=2e-4)


def sample_of(net: ppo.Networks, rng: np.random.Generator, divergence: float) -> ppo.Sample:
    """Steps of which the current policy is `divergence` less likely than the one that acted."""
    rollout = random_rollout(rng, "box", 8)
    log_prob = net.actor.log_prob(rollout.s, rollout.a) + divergence
    advantage, value = advantages(net.critic, rollout, SETTINGS)
    return ppo.Sample(rollout.s, rollout.a, advantage, value, log_prob)


@pytest.mark.parametrize(("divergence", "stays"), [(0.16, True), (0.14, False), (-1.0, False)])
def test_the_actor_stays_while_it_is_too_far_from_the_old_one(
    divergence: float, stays: bool
) -> None:
    settings = replace(SETTINGS, target_kl=0.1, clip_range=10.0)
    rng = np.random.default_rng(5)
    net = lively(
        ppo.initial_networks(rng, spaces("box"), spaces("box").observations.size, settings), rng
    )
    batch = sample_of(net, rng, divergence)
    after, _ = update_actor(net, batch, settings)
    whole = arrays_of((net.actor, net.actor_optimizer))
    moved = arrays_of((after.actor, after.actor_optimizer))
    same = [np.array_equal(whole[name], moved[name]) for name in whole]
    assert all(same) if stays else not any(same)
    after, _ = update_critic(after, batch, settings)
    for before, now in zip(layers(net.critic), layers(after.critic), strict=True):
        assert not np.array_equal(before[0], now[0])


def test_gains_beyond_the_clip_range_do_not_count() -> None:
    settings = replace(SETTINGS, target_kl=None, clip_range=0.2, normalize_advantage=False)
    rng = np.random.default_rng(6)
    net = lively(
        ppo.initial_networks(rng, spaces("box"), spaces("box").observations.size, settings), rng
    )

    def moves(ratio: float, advantage: float) -> bool:
        batch = sample_of(net, rng, -float(np.log(ratio)))
        batch = eqx.tree_at(lambda b: b.advantage, batch, jnp.full(8, advantage))
        after, _ = update_actor(net, batch, settings)
        return not np.array_equal(after.actor.net.weights[0], net.actor.net.weights[0])

    assert not moves(1.3, 1.0)
    assert not moves(0.7, -1.0)
    assert moves(1.3, -1.0)  # back to where it came from
    assert moves(0.7, 1.0)
    assert moves(1.1, 1.0)
    assert moves(0.9, -1.0)


class Clock(gym.Env[Any, Any]):
    """Shows the time, pays `rewards` in turn, and is over or cut after 5 steps."""

    def __init__(self, rewards: tuple[float, ...], cut: bool) -> None:
        self.observation_space = gym.spaces.Box(0.0, 5.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.rewards, self.cut = rewards, cut
        self.time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self.rewards[self.time % len(self.rewards)]
        self.time += 1
        over = self.time == 5
        shown = np.array([self.time], np.float32)
        return shown, reward, over and not self.cut, over and self.cut, {}


def seen_by_update(learner: Any, steps: int) -> list[tuple[ppo.Rollout, Any, float, Array]]:
    """The rollouts, their minibatches, `y` and raw rewards that reach the update; nothing is
    learned from them."""
    seen: list[tuple[ppo.Rollout, Any, float, Array]] = []

    def note(net: Any, rollout: ppo.Rollout, minibatches: Any, settings: Any) -> tuple[Any, Any]:
        kept = jax.tree.map(np.array, rollout)
        seen.append((kept, minibatches, learner.y, learner.rollout.r.copy()))
        return net, np.zeros(2, np.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppo, "update", note)
        learner.advance(steps, lambda: False)
    return seen


@pytest.mark.parametrize("risk", [MeanVariance(1.0), CVaR(0.3), Entropic(0.5)])
@pytest.mark.parametrize("rewards", [(1.0,), (1.0, -2.0, 0.5, 3.0, 1.5)], ids=["one", "some"])
@pytest.mark.parametrize("cut", [True, False])
def test_values_behind_a_time_limit_are_not_augmented(
    risk: Risk, rewards: tuple[float, ...], cut: bool
) -> None:
    gamma, count = 0.9, 12
    agent = mvpi.PPO(
        lambda: Clock(rewards, cut),
        risk,
        hidden=(),
        gamma=gamma,
        gae_lambda=1.0,
        n_steps=count,
        batch_size=4,
        n_epochs=2,
        normalize_observations=False,
    )
    learner = agent._new_learner()
    # The value of an observation is 1000 times the time it shows, and 500.
    critic = MLP((jnp.array([[1000.0]]),), (jnp.array([500.0]),), "tanh")
    learner.net = eqx.tree_at(lambda net: net.critic, learner.net, critic)
    (first, minibatches, y, raw), *_ = seen_by_update(learner, count)
    learner.close()
    time = np.arange(count) % 5
    expected = np.array([rewards[t % len(rewards)] for t in time])
    np.testing.assert_array_equal(raw, expected)
    assert y == risk.dual(expected)
    if isinstance(risk, MeanVariance):
        assert y == pytest.approx(expected.mean())
    augmented = risk.augment(expected, y)
    np.testing.assert_array_equal(first.r, augmented.astype(np.float32))
    np.testing.assert_array_equal(first.s[:, 0], time)
    np.testing.assert_array_equal(first.next_s[:, 0], time + 1)
    np.testing.assert_array_equal(first.done, time == 4)
    np.testing.assert_array_equal(first.terminated, (time == 4) & (not cut))
    np.testing.assert_array_equal(np.sort(minibatches.reshape(2, count)), [range(count)] * 2)

    advantage, _ = advantages(learner.net.critic, first, agent.settings)
    for start in range(count):
        left = min(5 - time[start], count - start)
        reached = time[start] + left
        earned = sum(gamma**k * augmented[start + k] for k in range(left))
        ahead = 0.0 if reached == 5 and not cut else gamma**left * (1000.0 * reached + 500.0)
        goal = earned + ahead - (1000.0 * time[start] + 500.0)
        assert float(advantage[start]) == pytest.approx(goal, rel=1e-4)


class Logged(Walk):
    """Notes every observation that is acted upon."""

    def __init__(self) -> None:
        super().__init__(length=20, end=0.05)
        self.shown: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        self.shown.append(observation)
        return 5.0 + 3.0 * observation, info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if not (terminated or truncated):
            self.shown.append(observation)
        return 5.0 + 3.0 * observation, reward, terminated, truncated, info


def test_observations_are_scaled_by_what_was_seen_so_far() -> None:
    env = Logged()
    learner = mvpi.PPO(env, risk=1.0, **TINY)._new_learner()
    (_, *_), (second, *_) = seen_by_update(learner, 128)
    shown = (5.0 + 3.0 * np.array(env.shown)).astype(np.float32).astype(np.float64)
    assert shown.shape == (129, 2)
    scaling = learner.normaliser.scaling()
    np.testing.assert_allclose(scaling.mean, shown.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scaling.scale, shown.std(axis=0), rtol=1e-5)
    for i in range(64):
        so_far = shown[: 64 + i + 1]
        expected = (so_far[-1] - so_far.mean(axis=0)) / so_far.std(axis=0)
        np.testing.assert_allclose(second.s[i], expected, rtol=1e-4, atol=1e-5)
    # The policy that is handed out scales in the same way, and the network sees no more.
    x = learner.rng.standard_normal((7, 2)).astype(np.float32)
    scaled = np.clip((x - shown.mean(axis=0)) / shown.std(axis=0), -10, 10)
    outputs = forward(layers(learner.net.actor.net), scaled)[-1]
    np.testing.assert_allclose(learner.policy(x), outputs, rtol=1e-3, atol=1e-5)
    learner.close()


def test_observations_can_be_left_as_they_are() -> None:
    env = Logged()
    learner = mvpi.PPO(env, normalize_observations=False, **TINY)._new_learner()
    ((rollout, *_),) = seen_by_update(learner, 64)
    np.testing.assert_allclose(rollout.s, 5.0 + 3.0 * np.array(env.shown)[:64], rtol=1e-6)
    assert learner.policy.scaling is None
    learner.close()


def four_state() -> gym.Env[Any, Any]:
    return gym.make("mvpi/FourState-v0", horizon=10)


@pytest.mark.parametrize(("env", "observations"), [(Walk, None), (four_state, range(4))])
def test_a_saved_policy_acts_the_same(tmp_path: Path, env: Any, observations: Any) -> None:
    agent = mvpi.PPO(env, risk=1.0, **TINY).learn(192)
    rng = np.random.default_rng(0)
    shown = 3.0 * rng.standard_normal((9, 2)) if observations is None else np.array(observations)
    predicted = agent.predict(shown)
    before = mvpi.evaluate(agent, env, episodes=5, seed=3)
    agent.save(tmp_path / "policy")
    loaded = mvpi.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.predict(shown), predicted)
    np.testing.assert_array_equal(loaded.predict(shown[0]), predicted[0])
    after = mvpi.evaluate(loaded, env, episodes=5, seed=3)
    np.testing.assert_array_equal(after.rewards, before.rewards)
    np.testing.assert_array_equal(after.lengths, before.lengths)
    np.testing.assert_array_equal(loaded.predict(shown), agent.predict(shown))


def test_actions_are_drawn_around_the_mean_and_put_into_the_box() -> None:
    rng = np.random.default_rng(1)
    count = 20_000
    low, high = np.array([-3.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)
    layer = rng.standard_normal((SEEN, ACTIONS)).astype(np.float32)
    log_std = np.array([-0.7, 0.3], np.float32)
    scaling = Scaling(np.full(SEEN, 0.5, np.float32), np.full(SEEN, 2.0, np.float32))
    policy = Gaussian(
        Spaces(FlatObservations(SEEN), BoxActions(low, high)),
        (layer,),
        (np.array([0.2, -0.1], np.float32),),
        scaling,
        log_std,
    )
    x = rng.standard_normal(SEEN).astype(np.float32)
    drawn = policy.sample(np.tile(x, (count, 1)), np.random.default_rng(2))
    mean = (x - 0.5) / 2.0 @ layer + [0.2, -0.1]
    deviation = np.exp(log_std)
    assert (np.abs(drawn.mean(axis=0) - mean) < 4.5 * deviation / np.sqrt(count)).all()
    assert (np.abs(drawn.std(axis=0) / deviation - 1) < 4.5 / np.sqrt(2 * count)).all()
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 4.5 / np.sqrt(count)
    done = policy.act(np.tile(x, (count, 1)), np.random.default_rng(2))
    expected = np.clip(0.5 * (low + high) + 0.5 * (high - low) * drawn, low, high)
    np.testing.assert_allclose(done, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        policy.predict(x), np.clip(0.5 * (low + high) + 0.5 * (high - low) * mean, low, high), 1e-5
    )


def test_choices_are_drawn_with_their_probabilities() -> None:
    rng = np.random.default_rng(1)
    count, choices, first = 20_000, 4, 3
    layer = rng.standard_normal((SEEN, choices)).astype(np.float32)
    policy = Categorical(
        Spaces(FlatObservations(SEEN), Choices(choices, first)),
        (layer,),
        (np.zeros(choices, np.float32),),
        None,
    )
    x = rng.standard_normal(SEEN).astype(np.float32)
    p = softmax((x @ layer).astype(np.float64))
    drawn = policy.act(np.tile(x, (count, 1)), np.random.default_rng(2))
    share = np.bincount(drawn - first, minlength=choices) / count
    assert (np.abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / count)).all()
    assert policy.predict(x) == first + np.argmax(p)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 63),
        ("batch_size", 0),
        ("clip_range", -0.2),
        ("clip_range", 0.0),
        ("clip_range", None),
        ("gae_lambda", 1.1),
        ("gae_lambda", float("nan")),
        ("target_kl", 0.0),
        ("target_kl", -0.01),
        ("target_kl", "small"),
        ("learning_rate", 0.0),
        ("critic_learning_rate", -1e-3),
        ("critic_learning_rate", float("inf")),
        ("ent_coef", -0.1),
        ("max_grad_norm", 0.0),
        ("n_steps", 0),
        ("n_steps", 100.5),
        ("n_epochs", 0),
        ("normalize_advantage", "yes"),
        ("normalize_observations", 1),
        ("budget_rate", 0.0),
        ("gamma", 1.0),
        ("gamma", -0.1),
        ("hidden", 64),
        ("hidden", (64, 0)),
        ("hidden", "64"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: Any) -> None:
    with pytest.raises(mvpi.InputError, match=rf"\b{name}\b") as caught:
        mvpi.PPO("mvpi/Markowitz-v0", **{name: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "arguments", "what"),
    [
        ("PPO", {"batch": 32}, "unknown setting batch; did you mean batch_size"),
        ("MVP", {"risk": 0.0}, "MVP.*risk must be > 0, got 0"),
        ("MVP", {}, "MVP.*risk must be > 0, got 0"),
        ("MVP", {"risk": CVaR(0.1)}, "MVP.*risk must be a number"),
        ("MVP", {"risk": 1.0, "estimate_rate": 2_000}, "estimate_rate.*learning_rate"),
        ("MVP", {"risk": 1.0, "optimizer": "sgd"}, "optimizer must be one of rmsprop, adam"),
        ("MVP", {"risk": 1.0, "gamma": 1.01}, "gamma must be <= 1"),
        ("Tamar", {"risk": CVaR(0.1)}, "Tamar.*risk must be a number"),
        ("Tamar", {"risk": 1.0, "variance_limit": -1.0}, "variance_limit"),
        ("MeanGini", {"risk": CVaR(0.1)}, "MeanGini.*Gini deviation.*risk must be a number"),
        (
            "MeanGini",
            {"risk": 1.0, "batch_episodes": 2},
            "batch_episodes must be.*>= 3, got 2",
        ),
        ("MeanGini", {"risk": 1.0, "n_epochs": 0}, "n_epochs"),
        ("MeanGini", {"risk": 1.0, "clip_range": 0.0}, "clip_range must be > 0"),
        ("CVaRPG", {}, r"CVaRPG.*risk must be mvpi.CVaR\(level, weight\)"),
        ("CVaRPG", {"risk": 1.0}, "CVaRPG.*cvar:LEVEL:WEIGHT"),
        ("CVaRPG", {"risk": mvpi.OfReturn(CVaR(0.1))}, "CVaRPG.*risk must be mvpi.CVaR"),
        ("CVaRPG", {"risk": CVaR(0.02)}, "has no worst 0.02 of them: batch_episodes must be >= 50"),
        ("Prashanth", {"risk": Entropic(1.0)}, "Prashanth.*risk must be a number"),
        ("Prashanth", {"risk": 1.0, "n_envs": 7}, "n_envs must be even"),
        ("Prashanth", {"risk": 1.0, "n_envs": 0}, "n_envs"),
        ("Prashanth", {"risk": 1.0, "gamma": 1.0}, "gamma must be < 1"),
        ("Prashanth", {"risk": 1.0, "scheme": "both"}, "scheme must be one of spsa, smoothed"),
        ("Prashanth", {"risk": 1.0, "perturbation": 0.0}, "perturbation"),
    ],
)
def test_what_an_agent_cannot_do_is_said_in_one_line(
    kind: str, arguments: dict[str, Any], what: str
) -> None:
    with pytest.raises(mvpi.InputError, match=what) as caught:
        getattr(mvpi, kind)("mvpi/FourState-v0", **arguments)
    assert "\n" not in str(caught.value)


def test_the_same_seed_gives_the_same_agent_and_another_another() -> None:
    def weights(seed: int) -> list[bytes]:
        agent = mvpi.PPO(Walk, risk=1.0, seed=seed, **TINY).learn(150)
        return [array.tobytes() for array in arrays_of(agent._learner.net).values()]

    assert weights(1) == weights(1)
    assert weights(1) != weights(2)


def test_learning_in_two_calls_is_learning_in_one() -> None:
    once = mvpi.PPO(Walk, risk=1.0, **TINY).learn(330)
    twice = mvpi.PPO(Walk, risk=1.0, **TINY).learn(155).learn(330)
    np.testing.assert_array_equal(once.predict(np.ones(2)), twice.predict(np.ones(2)))


@pytest.mark.parametrize("risk_aversion", [0.5, 1.0, 2.0])
def test_it_finds_the_best_portfolio(risk_aversion: float) -> None:
    agent = mvpi.PPO(
        "mvpi/Markowitz-v0",
        risk=risk_aversion,
        hidden=(16,),
        gamma=0.0,
        n_steps=4_000,
        batch_size=1_000,
        learning_rate=0.01,
        critic_learning_rate=0.01,
        clip_range=0.5,
        target_kl=None,
        evaluation_every=10**9,
        evaluation_episodes=1,
    )
    agent.learn(24_000)
    problem = Markowitz()
    reached = problem.value(agent.predict(np.ones(1)), risk_aversion)
    assert reached > 0.95 * problem.value(problem.best_action(risk_aversion), risk_aversion)
