"""Off-line MVPI for finite data: against exact answers, and as it was published."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mvpi
from mvpi.cli import main
from mvpi.errors import InputError, NoConvergence
from mvpi.experiments import offline as experiment
from mvpi.offline import Dataset
from mvpi.offline.learn import Climber, Iteration, learn, learn_finite
from mvpi.offline.published import PublishedSettings, Runs
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
    assert policy[0, 0] == pytest.approx(best, abs=1e-3)
    np.testing.assert_array_equal(policy[1:, 0], 1.0)  # the data have no other action there


@pytest.mark.parametrize("discount", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("risk", [0.0, 0.7, CVaR(0.4, 0.5), Entropic(1.0)], ids=str)
def test_the_slope_is_that_of_the_value(risk: Risk | float, discount: float) -> None:
    measure = mvpi.risk.as_risk(risk)
    for seed in range(3):
        climber = Climber(whole(coin_mdp(seed)), measure, discount)
        climber._logits = np.random.default_rng(seed).normal(size=(4, 2))
        climber.here, climber._visits = climber._seen(climber._logits)
        slope = climber._slope()
        numeric = np.zeros_like(slope)
        for at in np.ndindex(*slope.shape):
            step = np.zeros_like(slope)
            step[at] = 1e-5
            up, down = (climber._seen(climber._logits + x)[0].value for x in (step, -step))
            numeric[at] = (up - down) / 2e-5
        assert np.abs(numeric).max() > 1e-3
        np.testing.assert_allclose(slope, numeric, atol=2e-5)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 1.0, 3.0]))
def test_values_never_decrease_and_the_end_is_a_local_optimum(seed: int, lam: float) -> None:
    mdp = coin_mdp(seed)
    seen: list[Iteration] = []
    policy = learn(whole(mdp), lam, mdp.discount, on_iteration=seen.append)
    assert all(after.value >= before.value for before, after in pairwise(seen))
    exact = MeanVariance(lam).value(*rewards_of(mdp, policy))
    assert seen[0].value == pytest.approx(MeanVariance(lam).value(*rewards_of(mdp, seen[0].policy)))
    assert exact >= seen[0].value - 1e-9
    assert exact <= mvpi.optimize(mdp, lam).upper_bound + 1e-6


def rewards_of(mdp: mvpi.MDP, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return mdp.expected(lambda r: r).ravel(), mdp.occupancy(policy).ravel()


def test_at_risk_0_it_is_the_optimum() -> None:
    for seed in range(8):
        mdp = coin_mdp(seed, states=6, actions=3)
        mean = float(np.dot(*rewards_of(mdp, learn(whole(mdp), 0.0, mdp.discount))))
        assert mean == pytest.approx(mvpi.optimize(mdp, 0.0).mean, abs=1e-3)


def test_a_budget_is_kept() -> None:
    # The gamble has variance 0.41, the sure loss 0.24.
    gamble = learn(four_states(), VarianceBudget(0.5), 0.7)
    sure = learn(four_states(), VarianceBudget(0.3), 0.7)
    assert gamble[0, 0] == pytest.approx(1.0, abs=1e-3)
    assert sure[0, 0] == pytest.approx(0.0, abs=1e-3)
    with pytest.raises(InputError, match=r"variance is at most 0\.01; raise the limit"):
        learn(four_states(), VarianceBudget(0.01), 0.7)


def test_episodes_that_end_start_anew() -> None:
    # Action 0 pays 1 and ends the episode; action 1 pays 0 and leads to a state that pays 1.5.
    states, actions, rewards = [0, 0, 1], [0, 1, 0], [1.0, 0.0, 1.5]
    over, following = [True, False, True], [0, 1, 0]
    columns = [np.repeat(x, 30) for x in (states, actions, rewards, following, over)]
    data = Dataset(*columns, starts=[0])
    assert learn(data, 0.0, 0.9)[0, 0] == pytest.approx(1.0, abs=1e-3)  # 1 a step, not 0.75


def test_slopes_may_become_as_small_as_numbers_can_be() -> None:
    """The value of the best policy is 0, so that every gain counts, until there is none."""
    columns = np.repeat([[0, 0, 0.0, 0], [0, 1, 3.0, 1], [1, 0, -1.0, 0]], 100, axis=0)
    states, actions, following = columns[:, [0, 1, 3]].astype(int).T
    data = Dataset(states, actions, columns[:, 2], following, np.zeros(300, bool), starts=[0])
    assert learn(data, 0.0, 0.9)[0] == pytest.approx([0.0, 1.0])
    assert learn(data, 1.0, 0.9)[0] == pytest.approx([1.0, 0.0])


def test_mistakes() -> None:
    data = four_states()
    with pytest.raises(InputError, match="discount"):
        learn(data, 1.0, 1.5)
    with pytest.raises(InputError, match="iterations"):
        learn(data, 1.0, 0.7, iterations=0)
    with pytest.raises(NoConvergence, match="still improves after 1 iterations"):
        learn(data, 1.0, 0.7, iterations=1)
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
    climber = Climber(data, MeanVariance(1.0), discount)
    ratio = np.asarray(runs._ratio.players.ratio.values)[0].reshape(4, 2)
    pairs = data.observations, data.actions
    expected = climber._ratio.ratio()
    np.testing.assert_allclose(ratio[pairs], expected, atol=0.1)
    q = np.asarray(runs._q)[0].reshape(4, 2)
    exact = climber._action_values().reshape(4, 2)
    np.testing.assert_allclose(q[pairs], exact[pairs], atol=0.15)


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
