"""Algorithm 1 as a framework: any evaluation, any improvement, and what the paper proves."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from helpers.examples import examples
from helpers.problems import (
    Problem,
    best_linear,
    forbidding,
    mean_and_variance,
    random_problem,
    state_occupancy,
)
from hypothesis import given
from hypothesis import strategies as st

from mvpi.errors import InputError
from mvpi.risk import CVaR, Entropic, MeanVariance, Risk, VarianceBudget
from mvpi.tabular import NotUnichain
from mvpi.tabular.examples import four_state
from mvpi.tabular.mdp import MDP
from mvpi.tabular.optimize import optimize
from mvpi.tabular.policy_iteration import Iteration, iterate, policy_iteration

RISKS = [MeanVariance(0.7), MeanVariance(3.0), CVaR(0.3), CVaR(0.2, 0.5), Entropic(1.5)]


def reward_law(problem: Problem):
    """`evaluate` for `iterate`: exact rewards and probabilities, in plain numpy."""

    def evaluate(policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pi = policy if policy.ndim == 2 else np.eye(problem.p.shape[1])[policy]
        chain = np.einsum("sa,sat->st", pi, problem.p)
        d = state_occupancy(chain, problem.discount, problem.start)
        return problem.rewards.ravel(), (d[:, None, None] * pi[:, :, None] * problem.p).ravel()

    return evaluate


def augmented(problem: Problem, risk: Risk, y: float) -> np.ndarray:
    """`E[augment(r, y) | s, a]`."""
    return (problem.p * risk.augment(problem.rewards, y)).sum(axis=2)


def by_value_iteration(problem: Problem, risk: Risk):
    def improve(_, y: float) -> np.ndarray:
        r, v = augmented(problem, risk, y), np.zeros(len(problem.p))
        for _ in range(400):
            q = r + problem.discount * problem.p @ v
            v = q.max(axis=1)
        return q.argmax(axis=1)

    return improve


def by_linear_programming(problem: Problem, risk: Risk):
    def improve(_, y: float) -> np.ndarray:
        return best_linear(problem, augmented(problem, risk, y))[1].argmax(axis=1)

    return improve


# Any risk-neutral method can do the improvement


@pytest.mark.parametrize("improvement", [by_value_iteration, by_linear_programming])
@pytest.mark.parametrize("risk", RISKS, ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_iterate_with_another_solver_climbs_like_policy_iteration(improvement, risk, seed):
    problem = random_problem(seed, 6, 3, 0.9, next_state=True)
    uniform = np.full((6, 3), 1 / 3)
    found = iterate(reward_law(problem), improvement(problem, risk), uniform, risk, tolerance=1e-12)
    exact = policy_iteration(problem.mdp(), risk)
    assert found.converged
    assert found.value == pytest.approx(exact.value, abs=1e-9)
    np.testing.assert_allclose(found.trace, exact.trace, atol=1e-9)
    assert found.dual == pytest.approx(exact.dual, abs=1e-9)


@pytest.mark.parametrize(("lam", "gamble"), [(1.0, True), (4.0, False)])
def test_iterate_with_monte_carlo_finds_the_known_answer(lam, gamble):
    """Evaluation from sampled rewards, improvement from sampled returns: no model is used.

    From the uniform policy the gamble is the answer below 2.43, the sure loss above.
    """
    problem = plain_four_state()
    rng = np.random.default_rng(0)
    risk = MeanVariance(lam)

    def evaluate(policy: np.ndarray) -> np.ndarray:
        """The reward of a step at a random, geometrically distributed time."""
        rewards = simulate(problem, policy, rng)
        time = np.minimum(rng.geometric(1 - problem.discount, 4000) - 1, rewards.shape[1] - 1)
        return rewards[np.arange(4000), time]

    def improve(policy: np.ndarray, y: float) -> np.ndarray:
        """Greedy in the mean augmented return of 4000 episodes for each first action."""
        returns = []
        for action in (0, 1):
            rewards = simulate(problem, policy, rng, first_action=action)
            weights = problem.discount ** np.arange(rewards.shape[1])
            returns.append((risk.augment(rewards, y) @ weights).mean())
        better = np.zeros((4, 2))
        better[:, int(np.argmax(returns))] = 1.0
        return better

    uniform = np.full((4, 2), 0.5)
    found = iterate(evaluate, improve, uniform, risk, iterations=5, tolerance=-math.inf)
    assert found.policy[0].tolist() == ([1.0, 0.0] if gamble else [0.0, 1.0])
    assert found.value == pytest.approx(optimize(four_state(), lam).value, abs=0.1)
    assert len(found.trace) == 6


def plain_four_state() -> Problem:
    """The four-state example as plain arrays."""
    mdp = four_state()
    return Problem(mdp.transitions.toarray().reshape(4, 2, 4), mdp.rewards, mdp.discount, mdp.start)


def simulate(
    problem: Problem,
    policy: np.ndarray,
    rng: np.random.Generator,
    first_action: int | None = None,
) -> np.ndarray:
    """Rewards of 4000 episodes of 30 steps from state 0, `(4000, 30)`."""
    state, rewards = np.zeros(4000, int), np.empty((4000, 30))
    for t in range(rewards.shape[1]):
        action = (rng.random(len(state)) > policy[state, 0]).astype(int)
        if t == 0 and first_action is not None:
            action[:] = first_action
        rewards[:, t] = problem.r[state, action]
        cumulative = problem.p[state, action].cumsum(axis=1)
        state = (rng.random((len(state), 1)) > cumulative).sum(axis=1)
    return rewards


# Proposition 1: every improvement counts, also a partial one


@examples(60)
@given(st.integers(0, 10_000), st.sampled_from(RISKS), st.sampled_from([0.9, 1.0]))
def test_changing_one_state_at_a_time_is_monotone_too(seed, risk, discount):
    """The improvement may be small: the value still never falls, and ends where no state helps."""
    problem = random_problem(seed, 4, 3, discount)
    evaluate = reward_law(problem)

    def improve(policy: np.ndarray, y: float) -> np.ndarray:
        def worth(candidate):
            values, weights = evaluate(candidate)
            return float(weights @ risk.augment(values, y))

        neighbours = [policy]
        for s in range(4):
            for a in range(3):
                neighbours.append(policy.copy())
                neighbours[-1][s] = a
        return max(neighbours, key=worth)

    start = np.random.default_rng(seed).integers(3, size=4)
    found = iterate(evaluate, improve, start, risk, tolerance=1e-12)
    assert found.converged
    assert all(a < b for a, b in pairwise(found.trace))
    # One change at a time is policy iteration in disguise: its fixed points are the same.
    again = policy_iteration(problem.mdp(), risk, found.policy)
    assert again.value == pytest.approx(found.value, abs=1e-9)


# Proposition 2: with gradient steps, the gradient of J goes to zero


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def reward_per_step(problem: Problem, logits: np.ndarray, rewards: np.ndarray) -> float:
    """`E[r]` under a softmax policy."""
    pi = softmax(logits)
    d = state_occupancy(np.einsum("sa,sat->st", pi, problem.p), problem.discount, problem.start)
    return float((d[:, None] * pi * rewards).sum())


def gradient(problem: Problem, logits: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Of `E[r]` by the policy gradient theorem: `d(s) pi(a|s) (q(s,a) - v(s))`."""
    pi = softmax(logits)
    chain = np.einsum("sa,sat->st", pi, problem.p)
    d = state_occupancy(chain, problem.discount, problem.start)
    v = np.linalg.solve(np.eye(len(d)) - problem.discount * chain, (pi * rewards).sum(axis=1))
    q = rewards + problem.discount * problem.p @ v
    return d[:, None] * pi * (q - v[:, None])


def ascend(problem: Problem, logits: np.ndarray, rewards: np.ndarray, steps: int) -> np.ndarray:
    """Gradient ascent whose step doubles after a success and halves until Armijo is satisfied."""
    step, value = 1e3, reward_per_step(problem, logits, rewards)
    for _ in range(steps):
        g = gradient(problem, logits, rewards)
        square = float((g**2).sum())
        while step * square > 1e-16:
            candidate = logits + step * g
            new = reward_per_step(problem, candidate, rewards)
            if new >= value + 0.1 * step * square:
                logits, value, step = candidate, new, 2 * step
                break
            step /= 2
    return logits


def mean_variance_gradient(problem: Problem, logits: np.ndarray, lam: float) -> np.ndarray:
    """Of `E[R] - lam Var(R) = E[R] - lam E[R^2] + lam E[R]^2`, by the chain rule."""
    first = (problem.p * problem.rewards).sum(axis=2)
    second = (problem.p * problem.rewards**2).sum(axis=2)
    mean = reward_per_step(problem, logits, first)
    slope = 1 + 2 * lam * mean
    return slope * gradient(problem, logits, first) - lam * gradient(problem, logits, second)


@pytest.fixture(params=[1, 2, 3])
def random_mdp(request) -> Problem:
    return random_problem(request.param, 5, 3, 0.9, next_state=True)


def test_the_gradient_of_the_augmented_reward_is_that_of_the_objective(random_mdp):
    """At `y = E[R]`, by differences of `J_lambda`: what makes Proposition 2 work."""
    lam, rng = 0.8, np.random.default_rng(0)
    logits = rng.normal(size=(5, 3))
    evaluate = reward_law(random_mdp)

    def objective(x):
        mean, variance = mean_and_variance(*evaluate(softmax(x)))
        return mean - lam * variance

    y = MeanVariance(lam).dual(*evaluate(softmax(logits)))
    exact = gradient(random_mdp, logits, augmented(random_mdp, MeanVariance(lam), y))
    direction = rng.normal(size=(5, 3))
    step = 1e-5
    quotient = (objective(logits + step * direction) - objective(logits - step * direction)) / (
        2 * step
    )
    assert (exact * direction).sum() == pytest.approx(quotient, abs=1e-8)
    np.testing.assert_allclose(exact, mean_variance_gradient(random_mdp, logits, lam), atol=1e-12)


@pytest.mark.parametrize("steps", [5, 200])
@pytest.mark.parametrize("lam", [0.5, 2.0])
def test_proposition_2_softmax_policies_reach_a_stationary_point(random_mdp, steps, lam):
    """Full or partial gradient ascent inside: the value climbs, the gradient of J vanishes."""
    risk = MeanVariance(lam)
    exact = reward_law(random_mdp)

    def improve(logits: np.ndarray, y: float) -> np.ndarray:
        return ascend(random_mdp, logits, augmented(random_mdp, risk, y), steps)

    start = np.random.default_rng(0).normal(size=(5, 3))
    found = iterate(
        lambda logits: exact(softmax(logits)), improve, start, risk, iterations=100, tolerance=1e-10
    )
    before = np.linalg.norm(mean_variance_gradient(random_mdp, start, lam))
    after = np.linalg.norm(mean_variance_gradient(random_mdp, found.policy, lam))
    assert all(a < b for a, b in pairwise(found.trace))
    assert before > 1e-2
    assert after < 1e-5
    assert found.value <= optimize(random_mdp.mdp(), risk).upper_bound


# How an alternation ends


def steps_on_a_line(values: list[float], **options) -> Iteration[int]:
    """Policies 0, 1, 2, ... with these values (a constant reward is worth itself)."""
    return iterate(
        evaluate=lambda i: [values[min(i, len(values) - 1)]],
        improve=lambda i, _: i + 1,
        policy=0,
        risk=1.0,
        **options,
    )


def test_it_stops_when_the_value_stops_growing():
    found = steps_on_a_line([0.0, 1.0, 2.0, 2.0, 3.0])
    assert (found.policy, found.value, found.dual) == (2, 2.0, 2.0)
    assert found.trace == (0.0, 1.0, 2.0)
    assert found.converged


def test_a_worse_policy_is_not_taken():
    found = steps_on_a_line([0.0, 1.0, -5.0, 9.0])
    assert (found.policy, found.trace, found.converged) == (1, (0.0, 1.0), True)


def test_gains_below_the_tolerance_end_it():
    assert steps_on_a_line([0.0, 1.0, 1.05, 2.0], tolerance=0.1).policy == 1


def test_running_out_of_iterations_is_not_convergence():
    found = steps_on_a_line([0.0, 1.0, 2.0, 3.0], iterations=2)
    assert (found.policy, found.converged) == (2, False)


def test_with_noise_it_goes_on_and_returns_the_best_policy_seen():
    values = [0.0, 2.0, 1.0, 3.0, -1.0]
    found = steps_on_a_line(values, iterations=4, tolerance=-math.inf)
    assert (found.policy, found.value, found.dual) == (3, 3.0, 3.0)
    assert found.trace == tuple(values)


def test_the_improvement_is_told_the_dual_of_its_policy():
    seen: list[tuple[int, float]] = []

    def improve(i: int, y: float) -> int:
        seen.append((i, y))
        return i + 1

    samples = [[0.0, 1.0], [2.0, 4.0], [2.0, 4.0]]
    iterate(lambda i: samples[i], improve, 0, risk=0.1)
    assert seen == [(0, 0.5), (1, 3.0)]


def test_a_sample_with_weights_is_a_distribution():
    found = iterate(lambda _: ([0.0, 4.0], [3.0, 1.0]), lambda i, _: i, 0, risk=0.0)
    assert found.value == 1.0


def test_an_open_variance_budget_is_sent_to_optimize():
    with pytest.raises(InputError, match="use optimize") as caught:
        policy_iteration(four_state(), VarianceBudget(0.3))
    assert "\n" not in str(caught.value)


def test_a_huge_cost_of_an_action_nobody_takes_does_not_end_the_climb_early():
    costly, free = forbidding(1, 1e12)
    start = np.zeros(4, dtype=int)
    expected = policy_iteration(free.mdp(), 1.0, start)
    assert expected.solves > 2
    for policy in (start, None):
        found = policy_iteration(costly.mdp(), 1.0, policy)
        assert found.value == pytest.approx(expected.value, abs=1e-12)


@pytest.mark.parametrize("sample", [(1.0, 2.0), (1.0, 2.0, 3.0), ([1.0], [1.0], [1.0])])
def test_a_tuple_of_rewards_is_not_taken_for_rewards_and_weights(sample):
    with pytest.raises(InputError, match=r"tuple of two arrays \(rewards, weights\)") as caught:
        iterate(lambda _: sample, lambda policy, _: policy, 0, 1.0)
    assert "\n" not in str(caught.value)


def test_a_variance_budget_with_a_price_climbs_like_mean_variance():
    mdp = random_problem(3, 5, 3, 0.9).mdp()
    priced = policy_iteration(mdp, VarianceBudget(limit=0.25, risk_aversion=1.5))
    plain = policy_iteration(mdp, 1.5)
    np.testing.assert_array_equal(priced.policy, plain.policy)
    assert priced.value == pytest.approx(plain.value + 1.5 * 0.25, abs=1e-12)


def test_without_a_start_it_starts_from_the_uniform_policy():
    problem = random_problem(4, 5, 3, 0.9)
    found = policy_iteration(problem.mdp(), 1.0)
    mean, variance = mean_and_variance(*reward_law(problem)(np.full((5, 3), 1 / 3)))
    assert found.trace[0] == pytest.approx(mean - variance, abs=1e-12)


def test_on_average_reward_it_climbs_from_a_unichain_start_only():
    """Staying everywhere has two closed classes; the uniform policy has one."""
    stay_or_swap = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    mdp = MDP(stay_or_swap, [[0.0, 0.0], [1.0, 1.0]], discount=1.0)
    assert policy_iteration(mdp, 0.5).value == pytest.approx(1.0, abs=1e-9)
    with pytest.raises(NotUnichain):
        policy_iteration(mdp, 0.5, [0, 0])


def test_a_terrible_action_does_not_blind_the_entropic_improvement():
    """Going to state 1 costs 0.1 and pays 1 from then on; losing 10 is possible, not necessary.

    The utility of -10 is -1e21: an accuracy relative to that would see no other difference.
    """
    p = np.zeros((2, 3, 2))
    p[0, [0, 2], 0] = 1.0
    p[0, 1, 1] = 1.0
    p[1, :, 1] = 1.0
    mdp = MDP(p, [[0.0, -0.1, -10.0], [1.0, 1.0, -10.0]], discount=0.9, start=0)
    risk = Entropic(5.0)
    found = policy_iteration(mdp, risk, [0, 0])
    assert found.value == pytest.approx(risk.value([-0.1, 1.0], [0.1, 0.9]), abs=1e-9)
    assert found.policy[0] == 1
