"""Off-policy estimates against the model, intervals against their nominal rate."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from helpers.counted_problems import Problem, boyan_chain, random_problem
from helpers.sampled_problems import Sampled, sampled

import mvpi
from mvpi import InputError, stats
from mvpi.errors import Divergence
from mvpi.offline import Dataset, effective_size
from mvpi.offline._episodes import episode_blocks
from mvpi.offline._state_action_pairs import FinitePairs
from mvpi.offline.evaluation import OfflineEvaluation, evaluate
from mvpi.offline.fitted_q import fitted_q_mean

PROBLEMS = [random_problem(0), random_problem(1, ending=True), boyan_chain(ending=True)]


def truth(problem: Problem, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Rewards of all pairs, and how often the policy receives them."""
    s, a = np.indices(problem.policy.shape).reshape(2, -1)
    occupancy = problem.mdp(discount).occupancy(problem.policy)
    return np.cos(1.0 + s + 2.0 * a), occupancy.ravel()


def as_vectors(data: Dataset, actions: bool = False) -> Dataset:
    """The same data with states as one-hot vectors; actions too if asked for."""
    one_hot = np.eye(data.n_states)
    done = np.eye(data.n_actions)[data.actions] if actions else data.actions
    seen, following, starts = (
        one_hot[x] for x in (data.observations, data.next_observations, data.starts)
    )
    return Dataset(seen, done, data.rewards, following, data.terminations, starts)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("discount", [0.5, 0.95, 1.0])
def test_all_statistics_are_those_of_the_model(problem: Problem, discount: float) -> None:
    r, w = truth(problem, discount)
    found = evaluate(problem.data(), problem.policy, discount, method="exact", resamples=3)
    risk = mvpi.Entropic(0.7)
    assert found.mean == pytest.approx(stats.mean(r, w), abs=1e-9)
    assert found.variance == pytest.approx(stats.variance(r, w), abs=1e-9)
    assert found.sharpe == pytest.approx(stats.sharpe(r, w), abs=1e-8)
    assert found.cvar(0.2) == pytest.approx(stats.cvar(r, 0.2, w), abs=1e-9)
    assert found.value(2.0) == pytest.approx(found.mean - 2.0 * found.variance, abs=1e-9)
    assert found.value(risk) == pytest.approx(risk.value(r, w), abs=1e-9)
    if discount < 1.0:
        assert found.fitted_q_mean == pytest.approx(found.mean, abs=1e-9)
    else:
        assert found.fitted_q_mean is None


@pytest.mark.parametrize("problem", PROBLEMS)
def test_values_linear_in_indicators_are_those_of_the_table(problem: Problem) -> None:
    """Also when features are redundant, and when states are vectors."""
    data, n = problem.data(), problem.policy.size

    def indicators(s: Any, a: Any) -> np.ndarray:
        s = s.argmax(axis=1) if s.ndim == 2 else s
        rows = np.eye(n)[s * problem.policy.shape[1] + a]
        return np.concatenate([rows, rows[:, :2], np.ones((len(rows), 1))], axis=1)

    table = fitted_q_mean(data, problem.policy, 0.9)
    assert fitted_q_mean(data, problem.policy, 0.9, features=indicators) == pytest.approx(
        table, abs=1e-4
    )
    greedy = problem.policy.argmax(axis=1)
    table = fitted_q_mean(data, greedy, 0.9)
    vectors = fitted_q_mean(
        as_vectors(data), lambda s: greedy[s.argmax(axis=1)], 0.9, features=indicators
    )
    assert vectors == pytest.approx(table, abs=1e-4)


@pytest.mark.parametrize("actions", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS[:2])
def test_a_network_comes_near_the_table(problem: Problem, actions: bool) -> None:
    """With numbered actions and with vectors; rewards far from 0 are no harder."""
    greedy = problem.policy.argmax(axis=1)

    def policy(s: np.ndarray) -> np.ndarray:
        chosen = greedy[s.argmax(axis=1)]
        return np.eye(3)[chosen] if actions else chosen

    data = problem.data()
    table = fitted_q_mean(data, greedy, 0.8)
    vectors = as_vectors(data, actions)
    found = fitted_q_mean(vectors, policy, 0.8, steps=1500, hidden=(32,))
    spread = float(np.std(data.rewards))
    assert found == pytest.approx(table, abs=0.05 * spread)
    far = Dataset(
        vectors.observations,
        vectors.actions,
        1e4 + 10.0 * vectors.rewards,
        vectors.next_observations,
        vectors.terminations,
        vectors.starts,
    )
    again = fitted_q_mean(far, policy, 0.8, steps=1500, hidden=(32,))
    assert again == pytest.approx(1e4 + 10.0 * found, abs=0.01 * spread)


def test_constant_rewards_are_their_own_mean() -> None:
    data = random_problem(2, ending=True).data()
    for constant in (0.0, -3.0, 1e6):
        flat = Dataset(
            data.observations,
            data.actions,
            np.full(len(data), constant),
            data.next_observations,
            data.terminations,
            data.starts,
        )
        found = evaluate(flat, [0] * 6, 0.9, method="exact", resamples=20)
        assert found.mean == pytest.approx(constant, rel=1e-12)
        assert found.fitted_q_mean == pytest.approx(constant, rel=1e-9)
        np.testing.assert_allclose(found.mean_interval, constant, rtol=1e-12)


def covered(problem: Sampled, seed: int, resamples: int) -> tuple[bool, bool]:
    found = evaluate(
        problem.data,
        problem.policy,
        problem.discount,
        method="exact",
        resamples=resamples,
        seed=seed,
    )
    (low, high), (least, most) = found.mean_interval, found.variance_interval
    return low <= problem.mean <= high, least <= problem.variance <= most


KINDS: list[dict[str, Any]] = [
    {},
    {"rows": 300, "ending": 0.2},
    {"episodes": True, "ending": 0.1},
]


def test_intervals_cover_the_truth() -> None:
    """At 95%, 16 or fewer of 21 have a probability of 0.3%."""
    results = [covered(sampled(i, **KINDS[i % 3]), i, resamples=60) for i in range(21)]
    for hits in zip(*results, strict=True):
        assert sum(hits) >= 17


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_the_truth_at_their_rate(kind: dict[str, Any]) -> None:
    """200 data sets: 182 to 198 are within 2.6 standard errors of 95%."""
    results = [covered(sampled(100 + i, **kind), i, resamples=200) for i in range(200)]
    means, _ = zip(*results, strict=True)
    assert 182 <= sum(means) <= 198


def test_intervals_shrink_with_the_data_and_grow_with_confidence() -> None:
    def width(rows: int, confidence: float) -> float:
        p = sampled(3, rows=rows)
        found = evaluate(
            p.data, p.policy, 0.9, method="exact", confidence=confidence, resamples=100
        )
        low, high = found.mean_interval
        return high - low

    assert width(6400, 0.9) == pytest.approx(0.25 * width(400, 0.9), rel=0.5)
    assert width(400, 0.5) < 0.6 * width(400, 0.9)


def test_every_number_lies_in_its_interval_and_stays_the_same() -> None:
    p = sampled(5, rows=500)
    found, again = (evaluate(p.data, p.policy, 0.9, resamples=50) for _ in range(2))
    risk = mvpi.CVaR(0.3, 0.5)
    for interval, value in (
        (found.mean_interval, found.mean),
        (found.variance_interval, found.variance),
        (found.sharpe_interval, found.sharpe),
        (found.cvar_interval(0.1), found.cvar(0.1)),
        (found.value_interval(risk), found.value(risk)),
        (found.effective_size_interval, found.effective_size),
        (found.interval(stats.mean), found.mean),
    ):
        assert interval[0] < value < interval[1]
    assert found.interval(stats.mean) == found.mean_interval == again.mean_interval
    assert found.effective_size == effective_size(found.ratio)
    other = evaluate(p.data, p.policy, 0.9, resamples=50, seed=1)
    assert other.mean_interval != found.mean_interval


def test_transitions_are_numbered_as_they_are_counted() -> None:
    for problem in PROBLEMS:
        data = problem.data()
        shuffled = np.random.default_rng(0).permutation(len(data))
        batch = data.batch(shuffled)
        data = Dataset(*batch, data.starts)
        pairs = FinitePairs(data)
        numbers = pairs.transitions()
        whole = pairs.whole(pairs.checked(problem.policy))
        np.testing.assert_allclose(np.bincount(numbers) / len(data), whole.weight)
        np.testing.assert_array_equal(whole.x[numbers], np.concatenate(list(pairs.rows())))


def walks(episodes: int, length: int, together: float, seed: int = 0) -> Dataset:
    """Rewards of an episode share the part `together` of their variance."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(episodes, length + 1, 2))
    r = np.sqrt(together) * rng.normal(size=(episodes, 1)) + np.sqrt(1 - together) * rng.normal(
        size=(episodes, length)
    )
    seen, following = states[:, :-1].reshape(-1, 2), states[:, 1:].reshape(-1, 2)
    actions = np.zeros(episodes * length, int)
    over = np.zeros((episodes, length), bool)
    over[::2, -1] = True
    return Dataset(seen, actions, r.ravel(), following, over.ravel(), states[:, 0])


def constant(s: Any, a: Any) -> np.ndarray:
    """With this feature alone, all ratios are 1."""
    return np.ones((len(s), 1))


@pytest.mark.parametrize(("together", "error"), [(0.0, 1 / 60), (0.5, np.sqrt(0.5 + 0.5 / 9) / 20)])
def test_episodes_are_weighted_as_a_whole(together: float, error: float) -> None:
    """400 episodes of 9 steps: the standard error of their mean is known."""
    data = walks(400, 9, together)
    found = evaluate(
        data, lambda s: np.zeros(len(s), int), 0.9, features=constant, steps=10, resamples=300
    )
    np.testing.assert_allclose(found.ratio, 1.0, atol=1e-5)
    assert found.mean == pytest.approx(float(np.mean(data.rewards)), abs=1e-5)
    low, high = found.mean_interval
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.2)
    assert low < found.mean < high


def test_blocks_are_episodes_or_parts_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mvpi.offline.dataset._PIECE", 10)  # data of many pieces
    np.testing.assert_array_equal(episode_blocks(walks(200, 9, 0.0)), np.repeat(np.arange(200), 9))
    long = episode_blocks(walks(1, 1000, 0.0))
    np.testing.assert_array_equal(long, np.repeat(np.arange(100), 10))
    data = walks(200, 9, 0.0)
    shuffled = Dataset(*data.batch(np.random.default_rng(0).permutation(len(data))), data.starts)
    assert len(np.unique(episode_blocks(shuffled))) > 0.99 * len(data)
    finite = Dataset([0, 1, 0], [0, 0, 0], [0, 0, 0], [1, 1, 0], [False] * 3, [0])
    np.testing.assert_array_equal(episode_blocks(finite), [0, 1, 2])


def portfolio() -> tuple[Dataset, Any, float]:
    """Rewards `a . x` with independent x: any policy's mean is known."""
    rng = np.random.default_rng(0)
    mu, n = np.array([0.5, -0.2]), 4000
    a = rng.uniform(-1, 1, size=(n, 2))
    r = (a * (mu + 0.3 * rng.normal(size=(n, 2)))).sum(axis=1)
    ones = np.ones((n, 1))
    chosen = np.array([0.4, 0.1])

    def policy(s: np.ndarray) -> np.ndarray:
        return np.clip(chosen + 0.3 * rng.normal(size=(len(s), 2)), -1, 1)

    return Dataset(ones, a, r, ones, np.zeros(n, bool), ones[:1]), policy, float(chosen @ mu)


@pytest.mark.slow
def test_networks_come_near_the_mean_of_a_portfolio() -> None:
    data, policy, mean = portfolio()
    found = evaluate(data, policy, 0.5, steps=1500, hidden=(32, 32), resamples=100)
    low, high = found.mean_interval
    assert low < found.mean < high < low + 0.1
    assert found.fitted_q_mean == pytest.approx(mean, abs=0.03)
    assert found.mean == pytest.approx(mean, abs=0.12)


@pytest.mark.slow
def test_networks_find_the_mean_of_a_portfolio() -> None:
    data, policy, mean = portfolio()
    found = evaluate(data, policy, 0.5)
    low, high = found.mean_interval
    assert low < mean < high
    assert found.fitted_q_mean == pytest.approx(mean, abs=0.02)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("confidence must be > 0 and <= 1, got 1.5", {"confidence": 1.5}),
        ("confidence must be > 0 and <= 1, got 0.0", {"confidence": 0.0}),
        ("resamples must be a whole number >= 1, got 0", {"resamples": 0}),
        ("method must be one of", {"method": "no-dice"}),
        ("discount must be >= 0 and <= 1", {"discount": 1.2}),
        ("steps must be a whole number", {"steps": -1}),
        ("seed must be a whole number", {"seed": -1}),
        (r"hidden must be a sequence like \(400, 300\), got 64", {"hidden": 64}),
        ("each size in hidden must be a whole number >= 1, got 0", {"hidden": (8, 0)}),
    ],
)
def test_mistakes_are_told(message: str, arguments: Any) -> None:
    p = sampled(0)
    with pytest.raises(InputError, match=message):
        evaluate(p.data, p.policy, **({"discount": 0.9} | arguments))


def test_a_level_is_checked_before_the_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    p = sampled(0)
    found = evaluate(p.data, p.policy, 0.9, method="exact")
    monkeypatch.setattr("mvpi.offline.evaluation.exact_ratio", pytest.fail)
    with pytest.raises(InputError, match="level must be > 0 and <= 1, got"):
        found.cvar_interval(2.0)


def test_finite_data_are_evaluated_in_closed_form() -> None:
    """A corridor of 30 states that pays at its far end: gradients come there slowly."""
    s, right = np.repeat(np.arange(30), 8), np.tile([0, 0, 0, 0, 1, 1, 1, 1], 30)
    following = np.clip(s + np.tile([-1, -1, -1, 1, 1, 1, 1, -1], 30), 0, 29)
    r = (s == 29).astype(float)
    data = Dataset(s, right, r, following, np.zeros(240, bool), [0])
    moves = np.zeros((30, 30))
    np.add.at(moves, (s, following), np.where(right, 0.55, 0.45) / 4)
    occupancy = np.linalg.solve(np.eye(30) - 0.99 * moves.T, 0.01 * np.eye(30)[0])
    found = evaluate(data, np.tile([0.45, 0.55], (30, 1)), 0.99, resamples=20)
    assert found.mean == pytest.approx(occupancy[29], abs=1e-12)
    assert found.fitted_q_mean == pytest.approx(occupancy[29], abs=1e-12)
    low, high = found.mean_interval
    assert low < found.mean < high


def test_starts_count_as_a_sample() -> None:
    """Two states that stay and pay 0 or 1: the mean is the share of starts in the second."""
    columns = ([0, 1] * 50, [0] * 100, [0.0, 1.0] * 50, [0, 1] * 50)
    for count in (40, 4000):
        data = Dataset(*columns, np.zeros(100, bool), np.arange(count) % 2)
        found = evaluate(data, [0, 0], 0.9, method="exact")
        low, high = found.mean_interval
        assert found.mean == pytest.approx(0.5)
        assert high - low == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(count), rel=0.2)


def test_values_need_a_discount_and_features_that_see_the_starts() -> None:
    def odd(s: Any, a: Any) -> np.ndarray:
        return (s == 0)[:, None] - 0.2

    data = random_problem(0).data()
    with pytest.raises(InputError, match="needs a discount below 1, got 1"):
        fitted_q_mean(data, [0] * 6, 1.0)
    with pytest.raises(Divergence, match="gives the constant reward 1 the value"):
        fitted_q_mean(data, [0] * 6, 0.9, features=odd)


def test_an_evaluation_is_a_value() -> None:
    p = sampled(0)
    found = evaluate(p.data, p.policy, 0.9, method="exact", resamples=5)
    assert isinstance(found, OfflineEvaluation)
    with pytest.raises(AttributeError):
        found.confidence = 0.5  # type: ignore[misc]
    assert len(repr(found)) < 200


def test_finite_data_need_no_jax() -> None:
    code = (
        "import sys, mvpi.offline.relabel\n"
        "from mvpi.offline.evaluation import evaluate, Dataset\n"
        "data = Dataset([0, 1], [0, 0], [0, 1], [1, 0], [False] * 2, [0])\n"
        "evaluate(data, [0, 0], 0.5, resamples=5).mean_interval\n"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
