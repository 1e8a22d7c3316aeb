"""Actions that a state does not have: no answer uses them, and nothing said of them matters.

Answers are compared with enumeration of all deterministic policies that use allowed actions, and
with QuantEcon's solver, which takes rewards of minus infinity.
"""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from helpers.problems import Problem, cvar, entropic, mean_and_variance, random_problem
from scipy.sparse import csr_array

import mvpi
from mvpi.errors import InputError
from mvpi.tabular._reachable import reachable_core
from mvpi.tabular.mdp import MDP

SEEDS = range(12)
DISCOUNTS = [0.9, 1.0]


def masked(seed: int, discount: float, **options) -> tuple[Problem, np.ndarray]:
    """A random problem, and which of its pairs are allowed."""
    rng = np.random.default_rng(1000 + seed)
    problem = random_problem(seed, 4, 3, discount, next_state=bool(seed % 2), **options)
    allowed = rng.random((4, 3)) < 0.6
    allowed[np.arange(4), rng.integers(3, size=4)] = True
    allowed[0] = [False, True, True]
    return problem, allowed


def with_junk(problem: Problem, allowed: np.ndarray, seed: int = 0, size: float = 1e100) -> MDP:
    """The MDP with nonsense in all pairs that are not allowed."""
    rng = np.random.default_rng(seed)
    p, r = problem.p.copy(), problem.r.copy()
    junk = rng.choice([0.0, -3.0, math.nan, 7.0], p.shape)
    p[~allowed] = junk[~allowed]
    r[~allowed] = (size * rng.choice([-1.0, 1.0, math.nan, math.inf], r.shape))[~allowed]
    return MDP(p, r, problem.discount, problem.start, allowed=allowed)


def laws(problem: Problem, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reward values and probabilities of all deterministic policies with allowed actions."""
    good = allowed[np.arange(len(allowed)), problem.policies].all(axis=1)
    values, weights = problem.laws
    return values[good], weights[good]


def uses_only(policy: np.ndarray, allowed: np.ndarray) -> bool:
    if policy.ndim == 2:
        return not policy[~allowed].any()
    return bool(allowed[np.arange(len(policy)), policy].all())


@pytest.mark.parametrize("discount", DISCOUNTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_optima_are_those_of_the_allowed_policies(seed: int, discount: float) -> None:
    problem, allowed = masked(seed, discount)
    mdp = with_junk(problem, allowed)
    values, weights = laws(problem, allowed)
    means, variances = mean_and_variance(values, weights)
    expected = {
        0.0: means,
        0.3: means - 0.3 * variances,
        2.0: means - 2.0 * variances,
        mvpi.CVaR(0.2): cvar(values, weights, 0.2),
        mvpi.CVaR(0.5, 0.4): cvar(values, weights, 0.5, 0.4),
        mvpi.Entropic(1.5): entropic(values, weights, 1.5),
    }
    for risk, candidates in expected.items():
        solution = mvpi.optimize(mdp, risk)
        assert solution.value == pytest.approx(candidates.max(), abs=1e-7)
        assert solution.upper_bound == pytest.approx(solution.value, abs=1e-6)
        assert uses_only(solution.policy, allowed)
        again = mdp.reward_distribution(mdp.occupancy(solution.policy))
        assert mvpi.risk.as_risk(risk).value(*again) == pytest.approx(solution.value, abs=1e-8)


@pytest.mark.parametrize("discount", DISCOUNTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_frontier_is_that_of_the_allowed_policies(seed: int, discount: float) -> None:
    problem, allowed = masked(seed, discount)
    mdp = with_junk(problem, allowed)
    means, variances = mean_and_variance(*laws(problem, allowed))
    found = mvpi.frontier(mdp)
    assert all(uses_only(policy, allowed) for policy in found.policies)
    for price in (0.0, 0.1, 0.5, 1.0, 3.0, 20.0):
        best = float((means - price * variances).max())
        assert found.best(price).value == pytest.approx(best, abs=1e-7)
    shares = np.linspace(0.0, 1.0, 501)
    limit = float(np.quantile(variances, 0.3))
    one, other = (np.array(side) for side in zip(*combinations(range(len(means)), 2), strict=True))
    m = means[one, None] * shares + means[other, None] * (1 - shares)
    squares = variances + means**2
    q = squares[one, None] * shares + squares[other, None] * (1 - shares)
    mixed = float(np.where(q - m**2 <= limit, m, -np.inf).max())
    for solution in (found.with_variance_at_most(limit), mvpi.optimize(mdp, budget(limit))):
        assert uses_only(solution.policy, allowed)
        assert solution.mean >= mixed - 1e-9
        mean, variance = mean_and_variance(*mdp.reward_distribution(mdp.occupancy(solution.policy)))
        assert (mean, variance) == pytest.approx((solution.mean, solution.variance), abs=1e-6)
        assert variance <= limit + 1e-6
    calm = found.with_mean_at_least(mixed)
    assert uses_only(calm.policy, allowed)
    assert calm.variance <= limit + 1e-9


def budget(limit: float) -> mvpi.VarianceBudget:
    return mvpi.VarianceBudget(limit)


@pytest.mark.parametrize("discount", DISCOUNTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_policy_iteration_and_solve(seed: int, discount: float) -> None:
    problem, allowed = masked(seed, discount)
    mdp = with_junk(problem, allowed)
    means, _ = mean_and_variance(*laws(problem, allowed))
    for solution in (mvpi.solve(mdp), mvpi.policy_iteration(mdp, 0.0)):
        assert solution.mean == pytest.approx(means.max(), abs=1e-8)
        assert uses_only(solution.policy, allowed)
    local = mvpi.policy_iteration(mdp, 1.0)
    assert uses_only(local.policy, allowed)
    uniform = allowed / allowed.sum(axis=1, keepdims=True)
    start = mvpi.MeanVariance(1.0).value(*mdp.reward_distribution(mdp.occupancy(uniform)))
    assert local.trace[0] == pytest.approx(start, abs=1e-10)
    chosen = np.argmax(allowed, axis=1)
    own = mvpi.policy_iteration(mdp, 1.0, chosen)
    there = mvpi.MeanVariance(1.0).value(*mdp.reward_distribution(mdp.occupancy(chosen)))
    assert own.trace[0] == pytest.approx(there, abs=1e-10)


@pytest.mark.parametrize("risk", [0.0, 1.0, mvpi.CVaR(0.3), mvpi.Entropic(1.0)], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_said_of_other_pairs_changes_no_bit(seed: int, risk) -> None:
    """Not even the bounds: rewards of 1e100 or of 1 in a pair that nobody can use are the same."""
    problem, allowed = masked(seed, 0.9)
    answers = [
        mvpi.optimize(with_junk(problem, allowed, seed=k, size=size), risk)
        for k, size in enumerate((1.0, 1e100, 1e300))
    ]
    for other in answers[1:]:
        assert (other.value, other.upper_bound) == (answers[0].value, answers[0].upper_bound)
        np.testing.assert_array_equal(other.policy, answers[0].policy)


@pytest.mark.parametrize("seed", range(20))
def test_rewards_of_minus_infinity_as_in_quantecon(seed: int) -> None:
    quantecon = pytest.importorskip("quantecon")
    rng = np.random.default_rng(seed)
    n, a, discount = int(rng.integers(2, 40)), int(rng.integers(2, 6)), 0.95
    problem = random_problem(seed, n, a, discount, zeros=0.3)
    rewards = problem.r.copy()
    rewards[rng.random((n, a)) < 0.4] = -math.inf
    rewards[np.arange(n), rng.integers(a, size=n)] = problem.r[:, 0]
    theirs = quantecon.markov.DiscreteDP(rewards, problem.p, discount).solve("policy_iteration")
    mdp = MDP(problem.p, rewards, discount, problem.start)
    np.testing.assert_array_equal(mdp.allowed, np.isfinite(rewards))
    ours = mvpi.solve(mdp)
    assert ours.mean == pytest.approx((1 - discount) * problem.start @ theirs.v, abs=1e-9)
    assert uses_only(ours.policy, mdp.allowed)
    np.testing.assert_array_equal(ours.policy, theirs.sigma)


@pytest.mark.parametrize("seed", range(6))
def test_all_ways_to_forbid_are_the_same(seed: int) -> None:
    problem, allowed = masked(seed, 0.9)
    full = np.array(problem.rewards)
    full[~allowed] = -math.inf
    empty = problem.p.copy()
    empty[~allowed] = 0.0
    sparse = [csr_array(empty[:, a]) for a in range(3)]
    rows = csr_array(problem.p.reshape(12, 4))
    ways = [
        MDP(problem.p, problem.rewards, 0.9, problem.start, allowed=allowed),
        MDP(problem.p, problem.rewards, 0.9, problem.start, allowed=allowed.tolist()),
        MDP(problem.p, full, 0.9, problem.start),
        MDP(empty, full, 0.9, problem.start),
        MDP(sparse, full, 0.9, problem.start),
        MDP(sparse, problem.rewards, 0.9, problem.start, allowed=allowed),
        MDP(problem.p, [csr_array(full[:, a]) for a in range(3)], 0.9, problem.start),
        MDP.from_rows(rows, full.reshape(12, 4)[problem.p.reshape(12, 4) > 0], 0.9, problem.start),
        MDP.from_rows(
            rows,
            np.array(problem.rewards)[problem.p > 0].ravel(),
            0.9,
            problem.start,
            allowed=allowed,
        ),
    ]
    for mdp in ways:
        np.testing.assert_array_equal(mdp.allowed, allowed)
        np.testing.assert_array_equal(mdp.transitions.toarray(), ways[0].transitions.toarray())
        for f in (np.negative, np.square):
            np.testing.assert_allclose(mdp.expected(f), ways[0].expected(f), rtol=1e-14)


def test_a_mask_and_minus_infinity_add_up() -> None:
    p = np.full((2, 3, 2), 0.5)
    rewards = np.array([[0.0, -math.inf, 2.0], [0.0, 1.0, 2.0]])
    mdp = MDP(p, rewards, allowed=[[True, True, True], [True, True, False]])
    np.testing.assert_array_equal(mdp.allowed, [[True, False, True], [True, True, False]])


def test_without_a_mask_every_action_is_allowed() -> None:
    mdp = random_problem(0, 3, 2, 0.9).mdp()
    assert not mdp.masked
    assert mdp.allowed.shape == (3, 2)
    assert mdp.allowed.all()
    assert not MDP(
        mdp.transitions.toarray().reshape(3, 2, 3), mdp.rewards, allowed=mdp.allowed
    ).masked
    with pytest.raises(ValueError, match="read-only"):
        mdp.allowed[0, 0] = False


def test_states_that_cannot_be_reached_get_an_allowed_action() -> None:
    """State 2 cannot be reached and does not have action 0."""
    p = np.zeros((3, 2, 3))
    p[:2, :, 0], p[2, :, 1] = 1.0, 1.0
    rewards = np.array([[1.0, -math.inf], [0.0, 0.0], [-math.inf, 5.0]])
    mdp = MDP(p, rewards, 0.9, start=0)
    for solution in (mvpi.optimize(mdp, 1.0), mvpi.solve(mdp)):
        assert solution.policy.tolist() == [0, 0, 1]
    assert mvpi.policy_iteration(mdp, 1.0).policy.tolist() == [[1, 0], [1, 0], [0, 1]]


def test_policies_go_into_the_core_and_back() -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        problem, allowed = masked(seed, 0.9, one_start=True, zeros=0.5)
        mdp = with_junk(problem, allowed)
        core = reachable_core(mdp)
        assert not core.mdp.masked
        shares = rng.random(allowed.shape) * allowed
        shares /= shares.sum(axis=1, keepdims=True)
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in allowed])
        for policy in (shares, actions):
            back = core.lifted(core.restricted(policy))
            np.testing.assert_array_equal(back[core.states], policy[core.states])
            own = core.mdp.reward_distribution(core.mdp.occupancy(core.restricted(policy)))
            whole = mdp.reward_distribution(mdp.occupancy(policy))
            assert mean_and_variance(*own) == pytest.approx(mean_and_variance(*whole), abs=1e-12)
        uniform = core.lifted(np.full(core.mdp.shape, 1.0 / core.mdp.n_actions))
        assert uses_only(uniform, allowed)
        np.testing.assert_allclose(uniform.sum(axis=1), 1.0)


def test_only_the_actions_of_a_state_are_solved_for() -> None:
    """Of 50 actions every state has 2: the core has 2."""
    rng = np.random.default_rng(0)
    allowed = np.zeros((30, 50), dtype=bool)
    for row in allowed:
        row[rng.choice(50, 2, replace=False)] = True
    p = rng.dirichlet(np.ones(30), (30, 50))
    core = reachable_core(MDP(p, rng.normal(size=(30, 50)), allowed=allowed))
    assert core.mdp.n_actions == 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("discount", DISCOUNTS)
def test_round_trip(tmp_path: Path, seed: int, discount: float) -> None:
    problem, allowed = masked(seed, discount)
    names = [("shop", 3), "b\0c\n", 2.5, -7]
    mdp = MDP(
        problem.p,
        problem.r,
        discount,
        problem.start,
        allowed=allowed,
        state_labels=names,
        action_labels=["größe", ("x", ("y", None, True)), 10**30],
    )
    mdp.save(tmp_path / "m.npz")
    back = MDP.load(tmp_path / "m.npz")
    assert back.state_labels == mdp.state_labels
    assert back.action_labels == mdp.action_labels
    assert [type(x) for x in back.state_labels] == [tuple, str, float, int]
    np.testing.assert_array_equal(back.allowed, allowed)
    np.testing.assert_allclose(back.transitions.toarray(), mdp.transitions.toarray(), rtol=1e-15)
    np.testing.assert_array_equal(back.rewards, mdp.rewards)
    assert mvpi.optimize(back, 1.0).policy_by_label == mvpi.optimize(mdp, 1.0).policy_by_label


def test_with_discount_keeps_everything_else() -> None:
    problem, allowed = masked(1, 0.9)
    mdp = MDP(problem.p, problem.r, 0.9, problem.start, allowed=allowed, state_labels=list("abcd"))
    other = mdp.with_discount(0.5)
    assert (other.discount, other.state_labels) == (0.5, mdp.state_labels)
    np.testing.assert_array_equal(other.allowed, allowed)
    fresh = Problem(problem.p, problem.r, 0.5, problem.start)
    means, _ = mean_and_variance(*laws(fresh, allowed))
    assert mvpi.solve(other).mean == pytest.approx(means.max(), abs=1e-9)


P, R = np.full((2, 2, 2), 0.5), np.array([[0.0, 1.0], [2.0, 3.0]])
MASK = np.array([[True, False], [True, True]])
HALF = np.array([[1.0, 0.0], [0.5, 0.5]])
NO = -math.inf

MALFORMED = {
    "no action by mask": (
        {"allowed": [[True, True], [False, False]]},
        "every state must have an action, state 1 has none that is allowed",
    ),
    "no action by reward": ({"rewards": [[NO, NO], [1.0, 1.0]]}, "state 0 has none"),
    "no action by both": (
        {"rewards": [[NO, 1.0], [1.0, 1.0]], "allowed": [[True, False], [True, True]]},
        "state 0 has none",
    ),
    "no action, with labels": (
        {"allowed": [[False, False], [True, True]], "state_labels": ["shop", "home"]},
        "state 'shop' has none",
    ),
    "mask of another shape": ({"allowed": [True, True]}, "an array of shape (2, 2), got bool of"),
    "mask of numbers": ({"allowed": [[1, 0], [1, 1]]}, "allowed must be True or False"),
    "mask of texts": ({"allowed": [["yes", "no"], ["yes", "yes"]]}, "allowed must be True or"),
    "mask ragged": ({"allowed": [[True], [True, True]]}, "allowed must be"),
    "mask masked": (
        {"allowed": np.ma.masked_array(MASK, [[True, False], [False, False]])},
        "allowed must not have masked entries",
    ),
    "plus infinity": ({"rewards": [[math.inf, 1.0], [1.0, 1.0]]}, "rewards[0, 0] is inf"),
    "minus infinity for one next state": (
        {"rewards": np.where(np.arange(8).reshape(2, 2, 2) == 3, NO, 1.0)},
        "rewards[0, 1, 1] is -inf; an action that a state does not have is -inf for all next",
    ),
    "bad row that is allowed": (
        {"transitions": np.full((2, 2, 2), 0.4), "allowed": MASK},
        "state 0, action 0 sums to 0.8",
    ),
    "empty row": (
        {"transitions": np.stack([np.zeros((2, 2)), np.full((2, 2), 0.5)])},
        "sums to 0; an action that a state does not have is left out with allowed=",
    ),
    "labels too few": ({"state_labels": ["a"]}, "one for each of 2 states, got 1"),
    "labels twice": ({"state_labels": ["a", "a"]}, "different from each other, got 'a' twice"),
    "labels equal numbers": ({"action_labels": [1, True]}, "got True twice"),
    "labels unhashable": ({"action_labels": [[1], [2]]}, "action_labels[0] must be a label"),
    "labels missing": ({"state_labels": ["a", None]}, "state_labels must not have missing entries"),
    "labels NaN": ({"state_labels": [math.nan, 1.0]}, "must not have missing entries, got nan"),
    "labels a number": ({"state_labels": 5}, "state_labels must be a list or an array, got 5"),
    "labels a text": ({"state_labels": "ab"}, "state_labels must be a list or an array, got 'ab'"),
    "labels a dict": ({"state_labels": {"a": 0, "b": 1}}, "must be a list or an array"),
}


@pytest.mark.parametrize(("arguments", "fragment"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_masks_and_labels(arguments, fragment) -> None:
    with pytest.raises(InputError) as caught:
        MDP(**{"transitions": P, "rewards": R, **arguments})
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


FORBIDDEN = {
    "actions": [1, 0],
    "probabilities": HALF[::-1],
    "by label": {"shop": "order", "home": "sleep"},
    "by label, mixed": {"shop": {"order": 0.5, "sleep": 0.5}, "home": "sleep"},
}


@pytest.mark.parametrize("policy", FORBIDDEN.values(), ids=FORBIDDEN.keys())
@pytest.mark.parametrize("use", ["occupancy", "policy_by_label", "policy_iteration"])
def test_a_policy_that_uses_what_is_not_allowed_is_named(policy, use) -> None:
    mdp = MDP(P, R, allowed=MASK, state_labels=["shop", "home"], action_labels=["sleep", "order"])
    ways = {
        "occupancy": mdp.occupancy,
        "policy_by_label": mdp.policy_by_label,
        "policy_iteration": lambda start: mvpi.policy_iteration(mdp, 1.0, start),
    }
    with pytest.raises(InputError) as caught:
        ways[use](policy)
    assert str(caught.value) == (
        "policy must use the actions that states have: state 'shop' does not have 'order', it has "
        "'sleep'"
    )


SHAPES = {
    "(A, S, S)": (np.stack([np.eye(3)] * 2), np.zeros((3, 2)), "use transitions.swapaxes(0, 1)"),
    "(S, S, A)": (
        np.stack([np.eye(3)] * 2, axis=-1),
        np.zeros((3, 2)),
        "got (3, 3, 2); it looks like (S, S, A): use transitions.swapaxes(1, 2)",
    ),
    "(S, S, A) with as many actions as states": (
        np.random.default_rng(0).dirichlet(np.ones(3), (3, 3)).swapaxes(1, 2),
        np.zeros((3, 3)),
        "it looks like (S, S, A): use transitions.swapaxes(1, 2)",
    ),
    "rewards (A, S)": (np.full((3, 2, 3), 1 / 3), np.zeros((2, 3)), "(A, S): use rewards.T"),
    "rewards (A, S, S)": (
        np.full((3, 2, 3), 1 / 3),
        np.zeros((2, 3, 3)),
        "they look like (A, S, S): use rewards.swapaxes(0, 1)",
    ),
    "rewards (S, S, A)": (
        np.full((3, 2, 3), 1 / 3),
        np.zeros((3, 3, 2)),
        "they look like (S, S, A): use rewards.swapaxes(1, 2)",
    ),
    "rewards (S,)": (np.full((3, 2, 3), 1 / 3), np.zeros(3), "numpy.repeat(rewards[:, None], 2, "),
}


@pytest.mark.parametrize(("p", "r", "hint"), SHAPES.values(), ids=SHAPES.keys())
def test_shapes_of_other_libraries_are_refused_with_the_way_out(p, r, hint) -> None:
    with pytest.raises(InputError) as caught:
        MDP(p, r)
    assert hint in str(caught.value)


def test_the_hints_are_right() -> None:
    problem = random_problem(0, 4, 2, 0.9, next_state=True)
    for order in ((1, 0, 2), (0, 2, 1)):
        p, r = problem.p.transpose(order), problem.r.transpose(order)
        axes = (0, 1) if order[0] == 1 else (1, 2)
        with pytest.raises(InputError, match=rf"swapaxes\({axes[0]}, {axes[1]}\)"):
            MDP(p, r)
        mdp = MDP(p.swapaxes(*axes), r.swapaxes(*axes), 0.9, problem.start)
        assert mvpi.solve(mdp).mean == pytest.approx(problem.moments[0].max(), abs=1e-9)
