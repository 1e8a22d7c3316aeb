"""Off-line MVPI for finite data: against exact answers, and as it was published."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mvpi
from mvpi.cli import main
from mvpi.errors import InputError, NoConvergence
from mvpi.offline import CoverageWarning, Dataset, density_ratio
from mvpi.offline.learn import Iteration, learn, learn_finite
from mvpi.offline.published import PublishedSettings, Runs
from mvpi.paper import offline as experiment
from mvpi.risk import CVaR, Entropic, MeanVariance, Risk, VarianceBudget


def four_states(seed: int = 0) -> Dataset:
    return experiment.gathered(np.random.default_rng(seed))


def whole(mdp: mvpi.MDP, copies: int = 20) -> Dataset:
    """Data in which every transition is as frequent as in a random MDP with equal rows."""
    p = mdp.transitions.toarray().reshape(mdp.n_states, mdp.n_actions, mdp.n_states)
    s, a, following = np.nonzero(p)
    counts = np.round(copies * p[s, a, following]).astype(int)
    s, a, following = (np.repeat(x, counts) for x in (s, a, following))
    rewards = mdp.expected(lambda r: r)[s, a]
    starts = np.repeat(np.arange(mdp.n_states), np.round(100 * mdp.start).astype(int))
    return Dataset(s, a, rewards, following, np.zeros(len(s), bool), starts)


def coin_mdp(seed: int, states: int = 4, actions: int = 2, discount: float = 0.8) -> mvpi.MDP:
    """A random MDP in which every action leads to one of two states by the toss of a coin."""
    rng = np.random.default_rng(seed)
    p = np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            p[s, a, rng.choice(states, 2, replace=False)] = 0.5
    return mvpi.MDP(p, rng.normal(size=(states, actions)), discount)


@pytest.mark.parametrize(
    ("lam", "best"), [(0, 1), (1, 1), (2, 1), (1.9, 1), (3, 0), (4, 0), (8, 0)]
)
def test_the_four_states(lam: float, best: float) -> None:
    policy = learn(four_states(), lam, 0.7)
    assert policy.shape == (4, 2)
    assert policy[0, 0] == pytest.approx(best, abs=1e-12)
    np.testing.assert_array_equal(policy[1:, 0], 1.0)  # the data have no other action there


def gappy(data: Dataset) -> Dataset:
    """Some transitions end their episode; state 0, also a start, and pair (1, 0) have no rows."""
    kept = (data.observations > 0) & ((data.observations > 1) | (data.actions > 0))
    rows = data.batch(np.flatnonzero(kept))
    over = np.arange(kept.sum()) % 7 == 0
    return Dataset(*rows._replace(terminations=over), data.starts)


def whole_rewards(data: Dataset) -> Dataset:
    """Rewards that are drawn: every row has one of its own."""
    rng = np.random.default_rng(5)
    rows = data.batch(np.arange(len(data)))
    rewards = np.round(rows.rewards + rng.normal(size=len(data)), 1)
    return Dataset(*rows._replace(rewards=rewards), data.starts)


def earned(data: Dataset, policy: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """The rewards of the data, and of the steps after the end, with their weights under `policy`.

    Row by row and dense: every row is a state of the chain, and leads to the rows that begin where
    it ends, or at a start if there are none.
    """
    n, rows = len(data), data.batch(np.arange(len(data)))
    weight = np.zeros((data.n_states + 1, n + 1))  # of rows, for those who are in a state
    for i, (s, a) in enumerate(zip(rows.observations, rows.actions, strict=True)):
        alike = (rows.observations == s) & (rows.actions == a)
        weight[s, i] = policy[s, a] / alike.sum()
    weight[-1, -1] = 1.0
    start = weight[data.starts].sum(axis=0)
    start /= start.sum()
    chain = np.zeros((n + 1, n + 1))
    chain[n, n] = 1.0
    for i, over in enumerate(rows.terminations):
        after = weight[-1] if over else weight[data.next_observations[i]]
        anew = after.sum() == 0.0 or (over and discount == 1.0)
        chain[i] = start if anew else after
    if discount == 1.0:
        return np.append(rows.rewards, 0.0), stationary(chain, start)
    d = np.linalg.solve(np.eye(n + 1) - discount * chain.T, (1.0 - discount) * start)
    return np.append(rows.rewards, 0.0), np.maximum(d, 0.0)


def stationary(chain: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The share of steps in every state in the long run, from `start`."""
    onward, total, steps = np.linalg.matrix_power(chain, 1 << 20), np.zeros_like(start), 12
    d = start @ onward
    for _ in range(steps):  # of a chain with the periods 1, 2, 3 and 4
        total, d = total + d, d @ chain
    return total / steps


CUTS = {
    "whole": lambda data: data,
    "gappy": gappy,
    "drawn rewards": lambda data: whole_rewards(gappy(data)),
}


@pytest.mark.filterwarnings("ignore::mvpi.offline.CoverageWarning")
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("discount", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("risk", [0.0, 0.7, CVaR(0.4, 0.5), Entropic(1.0)], ids=str)
def test_no_policy_is_better(
    risk: Risk | float, discount: float, cut: Callable[[Dataset], Dataset]
) -> None:
    """Against all deterministic policies, evaluated row by row."""
    measure = mvpi.risk.as_risk(risk)
    data = cut(whole(coin_mdp(1, states=3), copies=4))
    seen: list[Iteration] = []
    policy = learn(data, risk, discount, on_iteration=seen.append)
    first, last = seen
    for found in seen:
        distribution = earned(data, found.policy, discount)
        assert found.value == pytest.approx(measure.value(*distribution), abs=1e-8)
        assert found.y == pytest.approx(measure.dual(*distribution), abs=1e-8)
    values = [
        measure.value(*earned(data, np.eye(2)[list(actions)], discount))
        for actions in product(range(2), repeat=3)
        if all(first.policy[s, a] > 0.0 for s, a in enumerate(actions))
    ]
    assert max(values) == pytest.approx(last.value, abs=1e-8)
    assert last.value <= last.upper_bound <= last.value + 1e-7
    assert first.upper_bound == np.inf
    np.testing.assert_array_equal(policy, last.policy)
    assert (policy[first.policy == 0.0] == 0.0).all()


@pytest.mark.parametrize("discount", [0.8, 1.0])
def test_the_optimum_at_a_given_y(discount: float) -> None:
    data, y, measure = whole_rewards(whole(coin_mdp(3), copies=4)), 0.4, MeanVariance(2.0)
    seen: list[Iteration] = []
    learn(data, measure, discount, y=y, on_iteration=seen.append)
    for found in seen:
        r, w = earned(data, found.policy, discount)
        assert found.value == pytest.approx(y + measure.utility(r - y) @ w, abs=1e-8)
        assert found.y == y
    values = [
        y + measure.utility(r - y) @ w
        for actions in product(range(2), repeat=4)
        for r, w in [earned(data, np.eye(2)[list(actions)], discount)]
    ]
    assert seen[-1].value == pytest.approx(max(values), abs=1e-8)


def test_a_local_optimum_is_not_enough() -> None:
    """Where policy iteration ends too early, the learned policy is still the optimum."""
    local = 0
    for seed in range(20):
        mdp = coin_mdp(seed, states=6, actions=3)
        value = MeanVariance(1.5).value(*rewards_of(mdp, learn(whole(mdp), 1.5, mdp.discount)))
        assert value == pytest.approx(mvpi.optimize(mdp, 1.5).value, abs=1e-9)
        local += mvpi.policy_iteration(mdp, 1.5).value < value - 1e-3
    assert local > 0


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 1.0, 3.0]))
def test_the_optimum_is_that_of_the_exact_solver(seed: int, lam: float) -> None:
    mdp = coin_mdp(seed)
    seen: list[Iteration] = []
    policy = learn(whole(mdp), lam, mdp.discount, on_iteration=seen.append)
    first, last = (MeanVariance(lam).value(*rewards_of(mdp, found.policy)) for found in seen)
    assert [found.value for found in seen] == pytest.approx([first, last], abs=1e-9)
    assert last == pytest.approx(mvpi.optimize(mdp, lam).value, abs=1e-8)
    assert last >= first - 1e-9
    assert set(np.unique(policy)) <= {0.0, 1.0}


def rewards_of(mdp: mvpi.MDP, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return mdp.expected(lambda r: r).ravel(), mdp.occupancy(policy).ravel()


def test_at_risk_0_it_is_the_optimum() -> None:
    for seed in range(8):
        mdp = coin_mdp(seed, states=6, actions=3)
        mean = float(np.dot(*rewards_of(mdp, learn(whole(mdp), 0.0, mdp.discount))))
        assert mean == pytest.approx(mvpi.optimize(mdp, 0.0).mean, abs=1e-12)


def test_a_budget_is_kept() -> None:
    # The gamble has variance 0.41, the sure loss 0.24.
    gamble = learn(four_states(), VarianceBudget(0.5), 0.7)
    assert gamble[0, 0] == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(InputError, match=r"limit must be >= 0\.2422.*, got 0\.01"):
        learn(four_states(), VarianceBudget(0.01), 0.7)


def bandit(*arms: tuple[float, float]) -> Dataset:
    """One state; every arm pays its mean plus or minus the root of its variance."""
    columns = [(a, m + sign * v**0.5) for a, (m, v) in enumerate(arms) for sign in (-1, 1)]
    actions, rewards = (np.repeat(x, 10) for x in zip(*columns, strict=True))
    zero = np.zeros(len(actions), int)
    return Dataset(zero, actions, rewards, zero, zero.astype(bool), starts=[0])


@pytest.mark.parametrize("limit", [90, 50, 10, 5, 4, 0.04])
def test_a_budget_is_used_up(limit: float) -> None:
    """One arm after the other would be the best; every mixture of two neighbours is, for a limit.

    The limit is `p v + (1 - p) w + p (1 - p) (m - n)^2`, of the part `p` of the better arm.
    """
    arms = [(10.0, 100.0), (9.5, 4.0), (9.0, 0.04)]
    policy = learn(bandit(*arms), VarianceBudget(limit), 0.9)[0]
    (m, v), (n, w) = arms[:2] if limit >= 4 else arms[1:]
    parts = np.roots([-((m - n) ** 2), v - w + (m - n) ** 2, w - limit])
    (part,) = parts[(parts > -1e-9) & (parts <= 1)]
    assert policy @ [m for m, _ in arms] == pytest.approx(n + part * (m - n), rel=1e-6)


def test_a_budget_is_kept_beyond_a_hill_of_variance() -> None:
    """From the second arm every step towards the third, without variance, has more of it."""
    data = bandit((100.0, 1e4), (90.0, 900.0), (20.0, 0.0))
    policy = learn(data, VarianceBudget(200.0), 0.9)[0]
    assert policy @ [100.0, 90.0, 20.0] > 22.4
    assert learn(data, VarianceBudget(0.0), 0.9)[0] == pytest.approx([0.0, 0.0, 1.0])


@pytest.mark.parametrize("discount", [0.8, 1.0])
def test_a_budget_is_used_as_well_as_by_the_exact_solver(discount: float) -> None:
    for seed in range(3):
        mdp = coin_mdp(seed, discount=discount)
        data, neutral = whole(mdp), mvpi.optimize(mdp, 0.0)
        limit = 0.6 * neutral.variance
        r, w = rewards_of(mdp, learn(data, VarianceBudget(limit), discount))
        assert mvpi.stats.variance(r, w) <= limit * (1 + 1e-9)
        exact = mvpi.optimize(mdp, VarianceBudget(limit)).mean
        assert mvpi.stats.mean(r, w) == pytest.approx(exact, abs=1e-9)


def test_a_finished_episode_is_0_for_ever_and_starts_anew_at_discount_1() -> None:
    # Action 0 pays 1 and ends the episode; action 1 pays 0 and leads to a state that pays 1.5.
    states, actions, rewards = [0, 0, 1], [0, 1, 0], [1.0, 0.0, 1.5]
    over, following = [True, False, True], [0, 1, 0]
    columns = [np.repeat(x, 30) for x in (states, actions, rewards, following, over)]
    data = Dataset(*columns, starts=[0])
    assert learn(data, 0.0, 0.9)[0, 1] == pytest.approx(1.0, abs=1e-12)  # 1.35 in all, not 1
    assert learn(data, 0.0, 1.0)[0, 0] == pytest.approx(1.0, abs=1e-12)  # 1 a step, not 0.75


def test_a_goal_may_be_out_of_reach_of_the_uniform_policy() -> None:
    """-1 a step on a line of 60: at first the value is -1 whatever happens near the goal."""
    states, actions = np.repeat(np.indices((59, 2)).reshape(2, -1), 5, axis=1)
    following = np.maximum(states + np.where(actions, 1, -1), 0)
    over = following == 59
    data = Dataset(states, actions, np.full(590, -1.0), following, over, starts=[0])
    np.testing.assert_allclose(learn(data, 0.0, 0.9)[:, 1], 1.0, atol=1e-3)


def table_of(env_id: str) -> Dataset:
    """Every transition of a toy-text environment, equally likely ones as often."""
    env: Any = gymnasium.make(env_id).unwrapped
    outcomes = [(s, a, *row[1:]) for s in env.P for a in env.P[s] for row in env.P[s][a]]
    ends = {following for _, _, following, _, over in outcomes if over}
    rows = [row for row in outcomes if row[0] not in ends]
    s, a, following, rewards, over = (np.array(x) for x in zip(*rows, strict=True))
    return Dataset(s, a, rewards, following, over, np.flatnonzero(env.initial_state_distrib))


@pytest.mark.filterwarnings("ignore::mvpi.offline.CoverageWarning")
@pytest.mark.parametrize("lam", [0.0, 0.1])
@pytest.mark.parametrize("env_id", ["CliffWalking-v1", "FrozenLake-v1"])
def test_episodes_that_end_are_those_of_the_exact_solver(env_id: str, lam: float) -> None:
    mdp = mvpi.MDP.from_gymnasium(env_id, 0.9)
    seen: list[Iteration] = []
    policy = np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)
    found = learn(table_of(env_id), lam, 0.9, on_iteration=seen.append)
    policy[: len(found)] = found
    value = MeanVariance(lam).value(*mdp.reward_distribution(mdp.occupancy(policy)))
    assert value == pytest.approx(mvpi.optimize(mdp, lam).value, rel=1e-6)
    assert value == pytest.approx(seen[-1].value, rel=1e-6)


def test_what_is_never_reached_does_no_harm() -> None:
    """State 2 stays where it is, and from the start nothing leads to it."""
    states, actions, rewards = [0, 0, 1, 2], [0, 1, 0, 0], [0.0, 1.0, 3.0, 9.0]
    columns = [np.repeat(x, 30) for x in (states, actions, rewards, [1, 0, 0, 2])]
    data = Dataset(*columns, np.zeros(120, bool), starts=[0])
    assert learn(data, 0.0, 1.0)[0] == pytest.approx([1.0, 0.0], abs=1e-12)


def test_a_policy_that_leaves_the_data_is_told_once() -> None:
    """The better action leads to a state without data, the other back to the start."""
    columns = [np.repeat(x, 50) for x in ([0, 0], [0, 1], [5.0, 1.0], [1, 0])]
    data = Dataset(*columns, np.zeros(100, bool), starts=[0])
    with pytest.warns(CoverageWarning) as told:
        policy = learn(data, 0.0, 0.9)
    assert policy[0, 0] == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(policy[1], 0.5)
    assert len(told) == 1
    assert "no transitions for 47.4% of what the policy does" in str(told[0].message)


def test_rare_rows_are_told_of_the_policy_that_comes_out_only() -> None:
    actions = np.array([0] * 2 + [1] * 998)
    zero = np.zeros(1000, int)
    columns = (zero, actions, 1.0 - actions, zero, zero.astype(bool))
    with pytest.warns(CoverageWarning, match=r"worth 2\.0 of the policy's own") as told:
        learn(Dataset(*columns, starts=[0]), 0.0, 0.9)
    assert len(told) == 1


def test_the_best_value_may_be_0() -> None:
    columns = np.repeat([[0, 0, 0.0, 0], [0, 1, 3.0, 1], [1, 0, -1.0, 0]], 100, axis=0)
    states, actions, following = columns[:, [0, 1, 3]].astype(int).T
    data = Dataset(states, actions, columns[:, 2], following, np.zeros(300, bool), starts=[0])
    assert learn(data, 0.0, 0.9)[0] == pytest.approx([0.0, 1.0], abs=1e-9)
    assert learn(data, 1.0, 0.9)[0] == pytest.approx([1.0, 0.0], abs=1e-9)


def test_mistakes() -> None:
    data = four_states()
    with pytest.raises(InputError, match="discount"):
        learn(data, 1.0, 1.5)
    with pytest.raises(InputError, match="iterations"):
        learn(data, 1.0, 0.7, iterations=0)
    with pytest.raises(NoConvergence, match="needs more than 1 risk-neutral solves"):
        learn(data, 1.0, 0.7, iterations=1)
    with pytest.raises(NoConvergence, match=r"known to be from .*; allow a larger tolerance"):
        learn(data, 1.0, 0.7, tolerance=0.0)
    with pytest.raises(InputError, match="y must be such that"):
        learn(data, 1.0, 0.7, y=1e200)
    nowhere = Dataset([0], [0], [1.0], [0], [False], starts=[1])
    with pytest.raises(InputError, match="no transitions from any of the starts, such as state 1"):
        learn(nowhere, 1.0, 0.7)
    apart = Dataset([0, 1], [0, 0], [1.0, 2.0], [0, 1], [False, False], starts=[0, 1])
    with pytest.raises(InputError, match="in several; use a discount below 1"):
        learn(apart, 1.0, 1.0)
    vectors = np.zeros((5, 2))
    continuous = Dataset(vectors, vectors, np.zeros(5), vectors, np.zeros(5, bool), vectors[:1])
    with pytest.raises(InputError, match=r"needs whole numbers .* there is learn_continuous"):
        learn_finite(continuous, 1.0, 0.7)
    mixed = Dataset(vectors, np.zeros(5, int), np.zeros(5), vectors, np.zeros(5, bool), vectors[:1])
    with pytest.raises(InputError, match="must be vectors of floats"):
        learn(mixed, 1.0, 0.7)


def test_vectors_are_learned_with_networks() -> None:
    rng = np.random.default_rng(0)
    s, a = rng.normal(size=(200, 2)), rng.uniform(-1, 1, (200, 1))
    data = Dataset(s, a, a[:, 0], s, np.ones(200, bool), s)
    settings = {"hidden": (8, 8), "ratio_every": 20, "ratio_steps": 5, "batch_size": 16}
    policy = learn(data, 1.0, 0.9, updates=20, **settings)
    assert policy.predict(s).shape == (200, 1)


# As published.


@pytest.fixture(scope="module")
def last_rows() -> dict[float, experiment.OfflineRow]:
    *_, last = experiment.run(runs=6)
    return {row.risk_aversion: row for row in last}


def test_the_published_experiment(last_rows: dict[float, experiment.OfflineRow]) -> None:
    means = [row.mean for row in last_rows.values()]
    assert means == sorted(means, reverse=True)
    assert last_rows[0.0].mean - 3 * last_rows[0.0].standard_error > 0.5
    assert last_rows[1.0].mean - 3 * last_rows[1.0].standard_error > 0.5
    assert last_rows[4.0].mean + 3 * last_rows[4.0].standard_error < 0.5
    assert last_rows[8.0].mean + 3 * last_rows[8.0].standard_error < 0.5


@pytest.mark.slow
def test_the_published_experiment_settles() -> None:
    *_, last = experiment.run(runs=10, iterations=2_000)
    means = {row.risk_aversion: row.mean for row in last}
    assert means[0.0] > 0.85
    assert means[1.0] > 0.85
    assert means[2.0] > 0.65
    assert means[4.0] < 0.1
    assert means[8.0] < 0.1


def test_a_published_run_is_the_same_alone_and_beside_others() -> None:
    """The first iterations by hand: a run's own numbers do not depend on its neighbours'."""
    settings = PublishedSettings(ratio_steps=3, value_steps=4)
    data = [four_states(0), four_states(0)]
    runs = Runs(data, [MeanVariance(0.0), MeanVariance(5.0)], 0.7, settings=settings)
    policies = list(runs.iterations(30))[-1]
    assert policies[0, 0, 0] != policies[1, 0, 0]
    same = Runs(data, [MeanVariance(0.0), MeanVariance(1.0)], 0.7, settings=settings)
    np.testing.assert_allclose(list(same.iterations(30))[-1][0], policies[0], rtol=1e-6)


def test_published_values_come_to_those_of_the_data() -> None:
    """With the policy held, the tables end at the exact ratio and the exact values."""
    data, discount = four_states(), 0.7
    runs = Runs([data], [MeanVariance(1.0)], discount, settings=PublishedSettings(0.05))
    uniform = runs._logits
    for _ in runs.iterations(150):
        runs._logits = uniform
    policy = np.array([[0.5, 0.5], [1, 0], [1, 0], [1, 0]])
    ratio = np.asarray(runs._ratio.players.ratio.values)[0].reshape(4, 2)
    s, a = data.observations, data.actions
    expected = density_ratio(data, policy, discount, "exact")
    np.testing.assert_allclose(ratio[s, a], expected, atol=0.1)
    r, w = earned(data, policy, discount)
    augmented = MeanVariance(1.0).augment(r[:-1], float(r @ w))
    exact = np.zeros((4, 2))
    for _ in range(100):
        target = augmented + discount * (policy * exact).sum(axis=1)[data.next_observations]
        for pair in {(int(i), int(j)) for i, j in zip(s, a, strict=True)}:
            exact[pair] = target[(s == pair[0]) & (a == pair[1])].mean()
    np.testing.assert_allclose(np.asarray(runs._q)[0].reshape(4, 2)[s, a], exact[s, a], atol=0.15)


def test_mvpi_paper_offline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--runs", "3", "--iterations", "4", "--out", str(tmp_path)]
    main(["paper", "offline", *options, "--risk-aversions", "0", "8", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [row["risk_aversion"] for row in told["rows"]] == [0.0, 8.0]
    assert (tmp_path / "offline.png").stat().st_size > 10_000
    lines = (tmp_path / "offline.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 5
    main(["paper", "offline", *options])
    assert "The gamble is best below lam = 2.4286." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "message"),
    [("--runs 1", "runs must be a whole number >= 2"), ("--risk-aversions -1", "risk aversion")],
)
def test_mistakes_on_the_command_line(
    option: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["paper", "offline", "--out", str(tmp_path), *option.split()])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64])
def test_whole_numbers_of_any_kind(kind: type) -> None:
    data = four_states()
    columns = [x.astype(kind) for x in (data.observations, data.actions)]
    following, starts = data.next_observations.astype(kind), data.starts.astype(kind)
    other = Dataset(*columns, data.rewards, following, data.terminations, starts)
    np.testing.assert_array_equal(learn(other, 4.0, 0.7), learn(data, 4.0, 0.7))
