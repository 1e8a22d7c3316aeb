"""MDPs of Gymnasium's toy-text environments against the environments themselves."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import mvpi
from mvpi import MDP, InputError

ENVIRONMENTS = {
    "FrozenLake-v1": (16, 4),
    "FrozenLake8x8-v1": (64, 4),
    "Taxi-v4": (500, 6),
    "CliffWalking-v1": (48, 4),
}


@pytest.fixture(params=ENVIRONMENTS)
def env(request: pytest.FixtureRequest):
    made = gymnasium.make(request.param)
    yield made
    made.close()


class TableEnv(gymnasium.Env[int, int]):
    """Nothing but a table."""

    def __init__(self, table: Any, start: Any = (1.0, 0.0)):
        self.P = table
        self.initial_state_distrib = start


def value_iteration(table: Any, discount: float) -> np.ndarray:
    """Optimal values, straight from `P`; an episode is over after a terminated transition."""
    values = np.zeros(len(table))
    while True:
        new = np.array(
            [
                max(
                    sum(p * (r + discount * values[t] * (not end)) for p, t, r, end in outcomes)
                    for outcomes in table[s].values()
                )
                for s in range(len(table))
            ]
        )
        if np.abs(new - values).max() < 1e-11:
            return new
        values = new


def test_table(env) -> None:
    unwrapped = env.unwrapped
    mdp = MDP.from_gymnasium(env, discount=0.9)
    n, a = ENVIRONMENTS[env.spec.id]
    assert (mdp.n_states, mdp.n_actions, mdp.discount) == (n, a, 0.9)
    np.testing.assert_allclose(mdp.start, unwrapped.initial_state_distrib, atol=1e-12)
    rows = mdp.transitions.toarray().reshape(n, a, n)
    np.testing.assert_allclose(rows.sum(axis=-1), 1.0, atol=1e-12)
    means, squares = mdp.expected(lambda r: r), mdp.expected(np.square)
    ended = {
        t
        for actions in unwrapped.P.values()
        for row in actions.values()
        for _, t, _, end in row
        if end
    }
    assert ended
    for s in range(n):
        for action in range(a):
            expected, mean, square = np.zeros(n), 0.0, 0.0
            if s in ended:
                expected[s] = 1.0
            else:
                for p, t, r, _ in unwrapped.P[s][action]:
                    expected[t] += p
                    mean, square = mean + p * r, square + p * r**2
            np.testing.assert_allclose(rows[s, action], expected, atol=1e-12)
            assert means[s, action] == pytest.approx(mean, abs=1e-12)
            assert squares[s, action] == pytest.approx(square, abs=1e-9)


def test_an_id_and_an_environment_give_the_same(env) -> None:
    by_id, by_env = MDP.from_gymnasium(env.spec.id), MDP.from_gymnasium(env)
    assert by_id.discount == 0.99
    np.testing.assert_array_equal(by_id.transitions.toarray(), by_env.transitions.toarray())
    np.testing.assert_array_equal(by_id.rewards, by_env.rewards)
    np.testing.assert_array_equal(by_id.start, by_env.start)


@pytest.mark.parametrize("discount", [0.9, 0.97])
def test_risk_neutral_value_is_that_of_value_iteration(env, discount: float) -> None:
    mdp = MDP.from_gymnasium(env, discount)
    values = value_iteration(env.unwrapped.P, discount)
    expected = (1 - discount) * float(mdp.start @ values)
    solution = mvpi.optimize(mdp, 0.0)
    assert solution.mean == pytest.approx(expected, abs=1e-7)
    assert solution.upper_bound >= solution.mean - 1e-12


@pytest.mark.parametrize("slippery", [True, False])
def test_frozen_lake_played_for_real(slippery: bool) -> None:
    discount, episodes = 0.95, 3000
    env = gymnasium.make("FrozenLake-v1", is_slippery=slippery).unwrapped
    solution = mvpi.optimize(MDP.from_gymnasium(env, discount), 0.0)
    env.reset(seed=7)
    returns = np.zeros(episodes)
    for k in range(episodes):
        state, weight, terminated = env.reset()[0], 1.0, False
        while not terminated and weight > 1e-6:
            state, reward, terminated, _, _ = env.step(int(solution.policy[state]))
            returns[k] += weight * reward
            weight *= discount
    env.close()
    error = returns.std() / np.sqrt(episodes)
    assert returns.mean() == pytest.approx(solution.mean / (1 - discount), abs=4 * error + 1e-6)


GOOD = [(1.0, 0, 0.0, False)]
GAMBLE = [(0.5, 1, 1.0, True), (0.5, 0, -2.0, False)]


def test_a_state_entered_in_both_ways_gets_an_absorbing_copy() -> None:
    table = {
        0: {0: [(0.5, 1, 1.0, True), (0.5, 1, 0.0, False)], 1: [(1.0, 0, 0.0, False)]},
        1: {0: [(1.0, 0, 2.0, False)], 1: [(0.25, 1, 3.0, True), (0.75, 1, 3.0, True)]},
    }
    discount = 0.8
    mdp = MDP.from_gymnasium(TableEnv(table), discount)
    assert mdp.n_states == 3
    np.testing.assert_array_equal(mdp.start, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(
        mdp.transitions.toarray().reshape(3, 2, 3),
        [[[0, 0.5, 0.5], [1, 0, 0]], [[1, 0, 0], [0, 0, 1]], [[0, 0, 1], [0, 0, 1]]],
    )
    np.testing.assert_allclose(mdp.expected(lambda r: r), [[0.5, 0], [2, 3], [0, 0]])
    values = value_iteration(table, discount)
    expected = (1 - discount) * values[0]
    assert mvpi.optimize(mdp, 0.0).mean == pytest.approx(expected, abs=1e-8)


def test_a_terminal_start_state_is_played_first() -> None:
    table = {
        0: {0: [(1.0, 1, 0.0, False)]},
        1: {0: [(1.0, 0, 5.0, True)]},
    }
    mdp = MDP.from_gymnasium(TableEnv(table), 0.5)
    assert mdp.n_states == 3
    assert mvpi.optimize(mdp, 0.0).mean == pytest.approx(0.5 * 0.5 * 5.0)


def test_an_episode_of_one_kind_of_end_needs_no_copy() -> None:
    table = {0: {0: [(1.0, 1, 1.0, True)]}, 1: {0: [(1.0, 0, 9.0, False)]}}
    mdp = MDP.from_gymnasium(TableEnv(table), 0.5)
    assert mdp.n_states == 2
    assert mvpi.optimize(mdp, 0.0).mean == pytest.approx(0.5)


def test_repeated_outcomes_keep_their_rewards() -> None:
    table = {0: {0: [(0.25, 0, 1.0, False), (0.25, 0, 1.0, False), (0.5, 0, -1.0, False)]}}
    mdp = MDP.from_gymnasium(TableEnv(table, [1.0]), 0.9)
    solution = mvpi.optimize(mdp, 0.0)
    assert (solution.mean, solution.variance) == pytest.approx((0.0, 1.0))


@pytest.mark.parametrize("missing", [{0: GAMBLE}, {0: GAMBLE, 1: []}, [GAMBLE]], ids=str)
def test_a_state_may_have_fewer_actions(missing: Any) -> None:
    """State 0 has only the gamble; state 1 is final, its actions do not matter."""
    table = {0: missing, 1: {}, 2: {0: GOOD, 1: [(1.0, 1, 4.0, True)]}}
    mdp = MDP.from_gymnasium(TableEnv(table, [1.0, 0.0, 0.0]), 0.5)
    np.testing.assert_array_equal(mdp.allowed, [[True, False], [True, True], [True, True]])
    solution = mvpi.optimize(mdp, 0.0)
    assert solution.policy[0] == 0
    assert solution.mean == pytest.approx(0.5 * (0.5 * 1.0 - 0.5 * 2.0) / (1 - 0.25))


def refused(env: Any) -> str:
    with pytest.raises(InputError) as caught:
        MDP.from_gymnasium(env)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["Blackjack-v1", "CartPole-v1"])
def test_environments_without_a_table(name: str) -> None:
    message = refused(name)
    assert name in message
    assert "transition table" in message


@pytest.mark.parametrize(
    "name",
    [
        "NoSuchLake-v1",
        "FrozenLake-v99",
        "FrozenLake-v0",
        "not an id",
        "",
        "no_such_module:Env-v0",
        ":FrozenLake-v1",
        "./model",
    ],
)
def test_unknown_ids(name: str) -> None:
    assert repr(name) in refused(name)


@pytest.mark.parametrize("env", [None, 3, {0: {}}, object])
def test_things_that_are_no_environments(env: Any) -> None:
    assert "environment" in refused(env)


@pytest.mark.parametrize(
    "table",
    [
        {},
        [[GOOD], [GOOD]],
        None,
        {0: {0: GOOD}, 2: {0: GOOD}},
        {1: {0: GOOD}, 2: {0: GOOD}},
        {0: {0: GOOD, 2: GOOD}, 1: {0: GOOD}},
        {0: {0: GOOD}, 1: {0: GOOD, "left": GOOD}},
        {0: {0: GOOD}, 1: {-1: GOOD}},
        {0: {0: GOOD, 10**12: GOOD}, 1: {0: GOOD}},
        {0: {}, 1: {}},
        {0: {0: GOOD}, 1: {}},
        {0: {0: GOOD}, 1: {0: []}},
        {0: {0: GOOD}, 1: None},
        {0: {0: GOOD}, 1: {0: [(1.0, 0, 0.0)]}},
        {0: {0: GOOD}, 1: {0: [(1.0, 0, 0.0, False, 1)]}},
        {0: {0: GOOD}, 1: {0: [("half", 0, 0.0, False)]}},
        {0: {0: GOOD}, 1: {0: [(1.0, 0, None, False)]}},
        {0: {0: GOOD}, 1: {0: [(1.0, float("nan"), 0.0, False)]}},
        {0: {0: GOOD}, 1: {0: [(1.0, float("inf"), 0.0, False)]}},
        {0: {0: GOOD}, 1: {0: [(1.0, 2, 0.0, False)]}},
        {0: {0: [(1.0, 2, 0.0, False)]}, 1: {0: GOOD}},
        {0: {0: [(1.0, 2, 0.0, True)]}, 1: {0: GOOD}},
        {0: {0: [(1.0, -1, 0.0, False)]}, 1: {0: GOOD}},
        {0: {0: GOOD}, 1: {0: [(1.0, -1, 0.0, True)]}},
        {0: {0: GOOD}, 1: {0: [(0.5, 0, 0.0, False)]}},
        {0: {0: GOOD}, 1: {0: [(-1.0, 0, 0.0, False), (2.0, 1, 0.0, False)]}},
        {0: {0: GOOD}, 1: {0: [(float("nan"), 0, 0.0, False)]}},
        {0: {0: GOOD}, 1: {0: [(1.0, 0, float("inf"), False)]}},
    ],
    ids=str,
)
def test_malformed_tables(table: Any) -> None:
    refused(TableEnv(table))


@pytest.mark.parametrize(
    "start",
    [None, [1.0], [0.5, 0.2], [-1.0, 2.0], [np.nan, 1.0], ["a", "b"], [[1.0], 0.0], 0],
    ids=str,
)
def test_malformed_starts(start: Any) -> None:
    refused(TableEnv({0: {0: GOOD}, 1: {0: GOOD}}, start))
