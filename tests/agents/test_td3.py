"""MVPI-TD3: its update against one written by hand, its rewards, problems with known answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from helpers.by_hand import Adam, Array, Layers, layers

import mvpi
from mvpi import stats
from mvpi.agents import td3
from mvpi.agents._engines import make_updates
from mvpi.agents.networks import MLP, arrays_of
from mvpi.agents.settings import TD3Settings
from mvpi.envs import Markowitz
from mvpi.risk import CVaR, Entropic, MeanVariance, Risk, VarianceBudget

SEEN, ACTIONS, BATCH = 3, 2, 7
SETTINGS = TD3Settings(hidden=(6, 5), batch_size=BATCH, learning_rate=0.01, tau=0.1, gamma=0.9)
TINY: dict[str, Any] = {
    "hidden": (8, 8),
    "learning_starts": 50,
    "batch_size": 8,
    "evaluation_every": 200,
    "evaluation_episodes": 2,
}


class Reference:
    """TD3 in float64 numpy, gradients by hand: the other route to the same numbers."""

    def __init__(self, net: td3.Networks, saturation_penalty: float) -> None:
        self.saturation_penalty = saturation_penalty
        self.actor = layers(net.actor)
        self.critics = [layers(critic) for critic in net.critics]
        self.target_actor = layers(net.target_actor)
        self.target_critics = [layers(critic) for critic in net.target_critics]
        self.adam = Adam(epsilon=1e-8)

    def update(
        self, rows: Array, noise: Array, actor_too: bool, actor_noise: Array | float = 0.0
    ) -> None:
        s, a, r, continues, following = np.split(
            rows, np.cumsum([SEEN, ACTIONS, 1, 1]).tolist(), axis=1
        )
        smoothed = np.clip(np.tanh(forward(self.target_actor, following)[-1]) + noise, -1, 1)
        both = np.hstack([following, smoothed])
        smaller = np.minimum(*(forward(c, both)[-1] for c in self.target_critics))
        target = r + SETTINGS.gamma * continues * smaller
        for i, critic in enumerate(self.critics):
            units = forward(critic, np.hstack([s, a]))
            _, gradients = backward(critic, units, 2.0 * (units[-1] - target) / len(rows))
            self.step(i, critic, gradients)
        if actor_too:
            units = forward(self.actor, s)
            z = units[-1]
            chosen = np.tanh(z)
            valued = forward(self.critics[0], np.hstack([s, chosen + actor_noise]))
            slope, _ = backward(self.critics[0], valued, np.full((len(rows), 1), -1 / len(rows)))
            excess = np.sign(z) * np.maximum(np.abs(z) - 3, 0)
            back = self.saturation_penalty * 2 * excess / excess.size
            _, gradients = backward(self.actor, units, slope[:, SEEN:] * (1 - chosen**2) + back)
            self.loss = self.saturation_penalty * (excess**2).mean() - valued[-1].mean()
            self.step(-1, self.actor, gradients)
            pairs = zip(
                [self.target_actor, *self.target_critics], [self.actor, *self.critics], strict=True
            )
            for follower, leader in pairs:
                for (w, b), (goal_w, goal_b) in zip(follower, leader, strict=True):
                    w += SETTINGS.tau * (goal_w - w)
                    b += SETTINGS.tau * (goal_b - b)

    def step(self, key: int, network: Layers, gradients: Layers) -> None:
        parameters = [p for layer in network for p in layer]
        slopes = [g for layer in gradients for g in layer]
        self.adam.step(key, parameters, slopes, SETTINGS.learning_rate)


def forward(network: Layers, x: Array) -> list[Array]:
    """The input, the units of every hidden layer, and the output."""
    units = [x]
    for i, (w, b) in enumerate(network):
        x = x @ w + b
        units.append(x if i == len(network) - 1 else np.maximum(x, 0.0))
        x = units[-1]
    return units


def backward(network: Layers, units: list[Array], slope: Array) -> tuple[Array, Layers]:
    """Gradients with respect to the input and to the parameters."""
    gradients: Layers = []
    for (w, _), inputs, outputs in reversed(list(zip(network, units[:-1], units[1:], strict=True))):
        if gradients:
            slope = slope * (outputs > 0)
        gradients.insert(0, (inputs.T @ slope, slope.sum(axis=0)))
        slope = slope @ w.T
    return slope, gradients


def random_rows(rng: np.random.Generator, updates: int) -> npt.NDArray[np.float32]:
    """Batches of transitions, some of them the last of an episode."""
    rows = rng.standard_normal((updates, BATCH, 2 * SEEN + ACTIONS + 2)).astype(np.float32)
    rows[..., SEEN + ACTIONS + 1] = rng.integers(2, size=rows.shape[:2])
    return rows


@pytest.mark.parametrize("engine", ["native", "jax"])
@pytest.mark.parametrize("smoothing", [0.0, 0.4])
@pytest.mark.parametrize("penalty", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("delay", [1, 2, 3])
def test_update_is_the_one_written_by_hand(
    delay: int, penalty: float, smoothing: float, engine: Any
) -> None:
    settings = replace(
        SETTINGS,
        policy_delay=delay,
        train_freq=2 * delay,
        saturation_penalty=penalty,
        engine=engine,
    )
    rng = np.random.default_rng(delay)
    net = saturated_in_places(td3.initial_networks(rng, SEEN, ACTIONS, settings))
    by_hand = Reference(net, penalty)
    rows = random_rows(rng, 2 * delay)
    noise = rng.uniform(-0.5, 0.5, (2 * delay, BATCH, ACTIONS)).astype(np.float32)
    actor_noise = smoothing * rng.standard_normal((2, BATCH, ACTIONS), dtype=np.float32)
    update = make_updates(net, settings, td3.update)
    losses = update(rows, noise, actor_noise if smoothing else None)
    net, expected_losses = update.networks, []
    for k, (batch, on_targets) in enumerate(zip(rows, noise, strict=True)):
        actor_too = (k + 1) % delay == 0
        by_hand.update(batch.astype(np.float64), on_targets, actor_too, actor_noise[k // delay])
        if actor_too:
            expected_losses.append(by_hand.loss)
    assert losses[1] == pytest.approx(np.mean(expected_losses), rel=1e-3)
    for ours, expected in (
        (net.actor, by_hand.actor),
        (net.critics[0], by_hand.critics[0]),
        (net.critics[1], by_hand.critics[1]),
        (net.target_actor, by_hand.target_actor),
        (net.target_critics[0], by_hand.target_critics[0]),
        (net.target_critics[1], by_hand.target_critics[1]),
    ):
        for (w, b), (expected_w, expected_b) in zip(layers(ours), expected, strict=True):
            np.testing.assert_allclose(w, expected_w, rtol=2e-3, atol=2e-5)
            np.testing.assert_allclose(b, expected_b, rtol=2e-3, atol=2e-5)


def saturated_in_places(net: td3.Networks) -> td3.Networks:
    """With actions at the border in some states, inside in others."""
    actor = net.actor
    weights = (*actor.weights[:-1], 30.0 * actor.weights[-1])
    return replace(net, actor=MLP(weights, actor.biases))


@pytest.mark.parametrize("engine", ["native", "jax"])
def test_an_actor_at_the_border_of_the_actions_comes_back(engine: Any) -> None:
    """Where tanh is flat the critic says nothing; the penalty alone moves the actor."""
    rng = np.random.default_rng(0)
    rows, noise = random_rows(rng, 2), np.zeros((2, BATCH, ACTIONS), np.float32)
    outputs = {}
    for penalty in (0.0, 0.01):
        settings = replace(SETTINGS, saturation_penalty=penalty, engine=engine)
        net = td3.initial_networks(np.random.default_rng(0), SEEN, ACTIONS, settings)
        biases = (*net.actor.biases[:-1], jnp.array([40.0, -40.0]))
        update = make_updates(
            replace(net, actor=MLP(net.actor.weights, biases)), settings, td3.update
        )
        for _ in range(200):
            update(rows.copy(), noise, None)
        outputs[penalty] = forward(layers(update.actor), rows[0, :, :SEEN])[-1]
    assert (np.abs(outputs[0.0]) > 30).all()
    assert (np.abs(outputs[0.01]) < np.abs(outputs[0.0]) - 1).all()


def test_the_policy_of_an_earlier_version_says_how_it_was_trained(tmp_path: Path) -> None:
    """Its file does not name the penalty, which it had not."""
    agent = mvpi.TD3("mvpi/Markowitz-v0", **TINY, saturation_penalty=0.0)
    assert "saturation_penalty" not in agent.config()["settings"]
    agent.save(tmp_path / "policy.safetensors")
    assert mvpi.load(tmp_path / "policy.safetensors").settings.saturation_penalty == 0.0
    agent = mvpi.TD3("mvpi/Markowitz-v0", **TINY)
    agent.save(tmp_path / "policy.safetensors")
    assert mvpi.load(tmp_path / "policy.safetensors").settings.saturation_penalty == 0.01


@pytest.mark.parametrize("engine", ["native", "jax"])
def test_the_average_actor_follows_the_actor(engine: Any) -> None:
    settings = replace(SETTINGS, averaging=4, engine=engine)
    rng = np.random.default_rng(0)
    update = make_updates(td3.initial_networks(rng, SEEN, ACTIONS, settings), settings, td3.update)
    average = layers(update.actor)
    for _ in range(5):
        update(random_rows(rng, 2), np.zeros((2, BATCH, ACTIONS), np.float32), None)
        pairs = zip(average, layers(update.actor), strict=True)
        average = [(w + (x - w) / 4, b + (c - b) / 4) for (w, b), (x, c) in pairs]
    assert update.average_actor is not None
    for ours, expected in zip(layers(update.average_actor), average, strict=True):
        np.testing.assert_allclose(ours[0], expected[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ours[1], expected[1], rtol=1e-4, atol=1e-6)


def test_predictions_are_those_of_the_average_actor() -> None:
    agent = mvpi.TD3("mvpi/Markowitz-v0", **TINY, averaging=50).learn(100)
    net = agent._learner.update.networks
    expected = np.tanh(forward(layers(net.average_actor), np.ones((1, 1)))[-1][0])
    np.testing.assert_allclose(agent.predict([1.0]), expected, rtol=1e-5)
    last = np.tanh(forward(layers(net.actor), np.ones((1, 1)))[-1][0])
    assert not np.allclose(expected, last, rtol=1e-5)


def test_smoothing_is_noise_on_the_actors_own_actions() -> None:
    """With a standard deviation of its own: other noise leaves the actor of one update alone."""
    seen: list[Any] = []

    class Noting(td3.TD3Learner):
        def _actor_noise(self, shape: tuple[int, ...]) -> Any:
            seen.append(super()._actor_noise(shape))
            return seen[-1]

    class Agent(mvpi.TD3):
        learner_type = Noting

    settings = {**TINY, "batch_size": 500, "train_freq": 6, "policy_delay": 3}
    Agent("mvpi/Markowitz-v0", **settings, actor_smoothing=0.3).learn(60)
    assert [x.shape for x in seen] == [(2, 500, 2)] * 2
    assert np.std(seen) == pytest.approx(0.3, rel=0.1)
    Agent("mvpi/Markowitz-v0", **settings).learn(60)
    assert seen[2:] == [None, None]


@pytest.mark.parametrize("later", [{"actor_smoothing": 0.25}, {"engine": "jax"}])
def test_a_setting_of_later_versions_is_recorded_only_where_it_is_used(later: Any) -> None:
    """So that runs of earlier versions go on, and are found."""
    plain = mvpi.TD3("mvpi/Markowitz-v0").config()["settings"]
    assert not later.keys() & plain.keys()
    assert mvpi.TD3("mvpi/Markowitz-v0", **later).config()["settings"] == plain | later


@pytest.mark.parametrize(("given", "updates"), [(-1, 50), (2, 10), (20, 100)])
def test_gradient_steps(given: int, updates: int) -> None:
    agent = mvpi.TD3("mvpi/Markowitz-v0", **TINY, train_freq=10, gradient_steps=given).learn(100)
    counts = [
        x for name, x in arrays_of(agent._learner.update.networks).items() if name.endswith("count")
    ]
    assert [int(x) for x in counts] == [updates // 2, updates]


class Watched(td3.TD3Learner):
    """A learner that notes what reaches the update."""

    seen: list[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], float, Array]]

    def _learn(self) -> None:
        state = self.rng.bit_generator.state
        raw = self.replay.draw(self.rng, self.settings.train_freq, self.settings.batch_size)
        self.rng.bit_generator.state = state
        window, update = self.window.rewards.copy(), self.update

        class Noting:
            actor, average_actor, networks = update.actor, None, update.networks

            def __call__(_, rows: Any, *others: Any) -> Any:
                self.seen.append((raw, rows.copy(), self.y, window))
                return update(rows, *others)

        self.update = Noting()
        super()._learn()
        self.update = update
        self._refresh_policy()


@pytest.mark.parametrize(
    "risk",
    [MeanVariance(0.0), MeanVariance(2.0), CVaR(0.2), Entropic(0.5), VarianceBudget(0.1, 1.5)],
)
def test_the_update_sees_augmented_rewards_and_the_replay_raw_ones(risk: Risk) -> None:
    class Agent(mvpi.TD3):
        learner_type = Watched

    Watched.seen = []
    agent = Agent("mvpi/Markowitz-v0", risk=risk, window=64, **TINY).learn(300)
    learner = agent._learner
    assert len(Watched.seen) == 25
    for raw, rows, y, window in Watched.seen:
        assert y == pytest.approx(risk.dual(window))
        reward = learner.replay.layout.r
        assert learner.risk == risk  # a budget moves its price only after 1,000 steps
        np.testing.assert_array_equal(
            rows[..., reward], risk.augment(raw[..., reward], y).astype(np.float32)
        )
        others = np.delete(np.arange(rows.shape[-1]), reward)
        np.testing.assert_array_equal(rows[..., others], raw[..., others])


def test_y_is_of_the_most_recent_rewards() -> None:
    agent = mvpi.TD3("mvpi/Markowitz-v0", risk=1.0, window=40, **TINY).learn(200)
    learner = agent._learner
    recent = learner.replay.rows[160:200, learner.replay.layout.r]
    assert learner.y == pytest.approx(stats.mean(recent), rel=1e-6)


def test_the_same_seed_gives_the_same_agent_and_another_another() -> None:
    def weights(seed: int) -> list[bytes]:
        agent = mvpi.TD3("mvpi/Markowitz-v0", risk=1.0, seed=seed, **TINY).learn(120)
        return [array.tobytes() for array in arrays_of(agent._learner.update.networks).values()]

    assert weights(1) == weights(1)
    assert weights(1) != weights(2)


def test_learning_in_two_calls_is_learning_in_one() -> None:
    once = mvpi.TD3("mvpi/Markowitz-v0", risk=1.0, **TINY).learn(330)
    twice = mvpi.TD3("mvpi/Markowitz-v0", risk=1.0, **TINY).learn(155).learn(330)
    np.testing.assert_array_equal(once.predict(np.ones(1)), twice.predict(np.ones(1)))


def test_a_variance_budget_raises_the_risk_aversion_while_it_is_exceeded() -> None:
    rows: list[dict[str, Any]] = []
    agent = mvpi.TD3("mvpi/Markowitz-v0", risk=VarianceBudget(1e-4), budget_every=50, **TINY)
    agent.learn(600, on_row=rows.append)
    prices = [row["risk_aversion"] for row in rows]
    assert prices == sorted(prices)
    assert 0 < prices[0] < prices[-1]


@pytest.mark.parametrize("risk", [MeanVariance(1.0), Entropic(2.0)])
def test_it_finds_the_best_portfolio(risk: Risk) -> None:
    problem = Markowitz()
    agent = mvpi.TD3(
        Markowitz, risk=risk, hidden=(64, 64), learning_starts=1_000, window=2_000, gamma=0.9
    )
    agent.learn(12_000)
    reached = problem.value(agent.predict(np.ones(1)), risk)
    assert reached > 0.9 * problem.value(problem.best_action(risk), risk)
