"""Optima of the return of an episode: against brute force over all histories, and known answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from helpers.histories import arrays, moments, random_episode
from scipy.optimize import linprog

import mvpi
from mvpi import (
    MDP,
    CVaR,
    Entropic,
    MeanVariance,
    MonotoneMeanVariance,
    OfReturn,
    VaR,
    VarianceBudget,
)
from mvpi.errors import InputError
from mvpi.risk import Risk
from mvpi.tabular import return_problem
from mvpi.tabular._objectives import LimitTooSmall

EXACT = 1e-7


@dataclass(frozen=True)
class SquareRoot(Risk):
    """A measure of one's own: smooth, concave, with the slope 1 at 0."""

    def utility(self, t):
        return np.asarray(1.0 + t - np.sqrt(1.0 + np.square(t)))

    def dual(self, rewards, weights=None):
        low, high = float(np.min(rewards)), float(np.max(rewards))
        for _ in range(60):
            y = 0.5 * (low + high)
            t = np.asarray(rewards) - y
            slope = float(np.average(1.0 - t / np.sqrt(1.0 + t**2), weights=weights))
            low, high = (y, high) if slope < 1.0 else (low, y)
        return 0.5 * (low + high)


MEASURES = [
    MeanVariance(0.0),
    MeanVariance(0.1),
    MeanVariance(1.0),
    CVaR(0.1),
    CVaR(0.5),
    CVaR(0.3, 0.5),
    Entropic(0.3),
    Entropic(3.0),
    MonotoneMeanVariance(0.2),
    VaR(0.25),
    SquareRoot(),
]


def mdp_of(episode):
    start = dict(enumerate(episode.start))
    rows = episode.rows()
    return MDP.from_outcomes(rows, discount=episode.discount, start=start)


BLOCKS = [*range(2), *(pytest.param(block, marks=pytest.mark.slow) for block in range(2, 10))]


def simulated_law(mdp, policy, start, horizon):
    """The law of the return when a policy is asked for every action, along every path."""
    law: dict[float, float] = {}
    steps = np.diff(mdp.transitions.indptr)
    rewards = mdp.rewards if mdp.rewards.ndim == 1 else np.repeat(mdp.rewards.ravel(), steps)
    paths = [(s, 0, 0.0, 0.0, p) for s, p in enumerate(start) if p > 0]
    while paths:
        s, t, paid, counted, p = paths.pop()
        if t == horizon:
            law[paid] = law.get(paid, 0.0) + p
            continue
        chances = policy.action_probabilities(mdp.state_labels[s], t, counted)
        for a in np.flatnonzero(chances):
            row = slice(*mdp.transitions.indptr[s * mdp.n_actions + a :][:2])
            for to, q, r in zip(
                mdp.transitions.indices[row], mdp.transitions.data[row], rewards[row], strict=True
            ):
                after = paid + mdp.discount**t * float(r)
                entry = (int(to), t + 1, after, policy.add(counted, t, float(r)))
                paths.append((*entry, p * float(chances[a]) * float(q)))
    return law


@pytest.mark.parametrize("block", BLOCKS)
def test_brute_force_over_all_histories(block):
    """20 episodes, every measure; each is found again by following the policy."""
    for seed in range(22 * block, 22 * block + 22):
        episode = random_episode(seed, whole=seed % 2 == 0)
        laws, mdp = episode.laws(), mdp_of(episode)
        if len(laws) > 1000:  # a dozen of 220; they would take most of the time
            continue
        for risk in MEASURES:
            best = max(risk.value(*arrays(law)) for law in laws)
            found = mvpi.optimize(mdp, OfReturn(risk), horizon=episode.horizon)
            assert found.value == pytest.approx(best, abs=EXACT), (seed, risk)
            assert found.value - 1e-10 <= best <= found.upper_bound + 1e-9, (seed, risk)
            assert found.converged, (seed, risk)
            law = simulated_law(mdp, found.policy, mdp.start, episode.horizon)
            assert moments(law) == pytest.approx((found.mean, found.variance), abs=1e-10)
            assert risk.value(*arrays(law)) == pytest.approx(found.value, abs=1e-9)


@pytest.mark.parametrize("block", BLOCKS)
def test_budgets_against_linear_programs(block):
    """The largest mean of mixtures of all policies, `E[G^2] <= limit + m^2`, by trying means."""
    for seed in range(20 * block, 20 * block + 20):
        episode = random_episode(seed, whole=seed % 2 == 0, horizon=2)
        points = np.array([moments(law) for law in episode.laws()])
        means, seconds = points[:, 0], points[:, 1] + points[:, 0] ** 2
        least, most = points[:, 1].min(), points[np.argmax(means), 1]
        limit = float(least + 0.4 * max(most - least, 0.1))
        mdp = mdp_of(episode)
        found = mvpi.optimize(mdp, OfReturn(VarianceBudget(limit)), horizon=2)
        assert found.variance <= limit * (1 + 1e-9) + 1e-12
        assert found.mean <= found.upper_bound
        law = simulated_law(mdp, found.policy, mdp.start, 2)
        assert moments(law) == pytest.approx((found.mean, found.variance), abs=1e-10)

        def least_variance(m, means=means, seconds=seconds):
            shares = linprog(
                seconds, A_eq=[np.ones(len(means)), means], b_eq=[1.0, m], bounds=(0, None)
            )
            return shares.fun - m**2 if shares.success else math.inf

        assert least_variance(found.mean) <= limit + 1e-7
        for more in (1e-5, 0.01, 0.1):
            m = found.upper_bound + more
            assert least_variance(m) > limit, (seed, more)
        grid = np.linspace(found.upper_bound, means.max(), 9)[1:]
        if means.max() > found.upper_bound + 1e-6:
            assert all(least_variance(m) > limit - 1e-7 for m in grid)


@pytest.mark.parametrize("seed", range(20))
def test_the_frontier_is_that_of_all_histories(seed):
    episode = random_episode(seed, whole=True, horizon=2)
    mdp = mdp_of(episode)
    points = [moments(law) for law in episode.laws()]
    found = mvpi.frontier(mdp, horizon=2)
    assert found.converged
    for lam in (0.0, 0.03, 0.3, 1.0, 10.0):
        best = max(m - lam * v for m, v in points)
        assert found.best(lam).value == pytest.approx(best, abs=EXACT)
        exact = mvpi.optimize(mdp, OfReturn(lam), horizon=2)
        assert exact.value == pytest.approx(best, abs=EXACT)
        assert best <= found.best(lam).upper_bound + 1e-9
    for mean, variance, policy in zip(found.means, found.variances, found.policies, strict=True):
        law = simulated_law(mdp, policy, mdp.start, 2)
        assert moments(law) == pytest.approx((mean, variance), abs=1e-10)
        assert all(m <= mean + 1e-9 or v >= variance - 1e-9 for m, v in points)


@pytest.mark.parametrize("risk", [*MEASURES, VarianceBudget(0.5)])
def test_a_grid_of_returns_has_a_valid_bound(risk):
    """Also for the policy that is found: followed as it counts, it is off by the error at most."""
    for seed in range(1, 40, 2):
        episode = random_episode(seed, whole=False)
        mdp = mdp_of(episode)
        T, step = episode.horizon, 0.05
        exact = OfReturn(risk)
        try:
            best = mvpi.optimize(mdp, exact, horizon=T)
            found = mvpi.optimize(mdp, exact, horizon=T, return_step=step)
        except LimitTooSmall:
            continue
        error = found.policy.error
        assert 0 < error <= T * step / 2 + 1e-12
        assert best.value <= found.upper_bound + 1e-9, (seed, risk)
        law = simulated_law(mdp, found.policy, mdp.start, T)
        mean, variance = moments(law)
        assert abs(mean - found.mean) <= error + 1e-12
        assert abs(math.sqrt(variance) - found.std) <= error + 1e-9
        if risk.variance_limit is not None:
            assert variance <= risk.variance_limit
        else:
            true = risk.value(*arrays(law))
            assert true <= best.value + EXACT
            assert abs(true - found.value) <= found.upper_bound - found.value + 1e-7


def test_a_grid_that_the_rewards_are_on_is_exact():
    episode = random_episode(0, whole=True)
    mdp = mdp_of(episode).with_discount(1.0)
    plain = mvpi.optimize(mdp, OfReturn(0.5), horizon=3)
    grid = mvpi.optimize(mdp, OfReturn(0.5), horizon=3, return_step=0.5)
    assert grid.policy.error == 0.0
    assert (grid.value, grid.upper_bound) == (plain.value, plain.upper_bound)


def test_decimal_rewards_are_on_a_lattice():
    """0.1 + 0.2 is not 0.3, but the same return."""
    rows = [("s", a, 0.5, r, "s") for a in (0, 1) for r in (0.1 * (a + 1), 0.3)]
    found = mvpi.optimize(MDP.from_outcomes(rows, discount=1.0), OfReturn(1.0), horizon=12)
    sizes = [len(found.policy.at(t).returns) for t in range(12)]
    assert sizes == [max(1, 2 * t + 1) for t in range(12)]


# Known answers


def test_a_betting_game_for_all_or_nothing():
    """Double or lose the stake of 1, which is kept or put up again, with probability p of a win.

    Playing k times and stopping: 2^k - 1 with probability p^k, else -1. Mean (2p)^k - 1.
    """
    p, T = 0.6, 6

    def bets(coins, choice):
        if choice == "stop" or coins == 0:
            return [(1.0, 0.0, coins)]
        return [(p, coins, 2 * coins), (1 - p, -coins, 0)]

    rows = []
    for coins in [0, *(2**k for k in range(T + 1))]:
        choices = ["stop"] if coins in (0, 2**T) else ["stop", "bet"]
        rows += [(coins, c, q, r, to) for c in choices for q, r, to in bets(coins, c)]
    mdp = MDP.from_outcomes(rows, discount=1.0, start=1)

    def law(k):
        return np.array([2.0**k - 1, -1.0]), np.array([p**k, 1 - p**k])

    for risk in (MeanVariance(0.0), MeanVariance(0.05), CVaR(0.9), CVaR(0.3), Entropic(0.1)):
        best = max(risk.value(*law(k)) for k in range(T + 1))
        found = mvpi.optimize(mdp, OfReturn(risk), horizon=T)
        assert found.value == pytest.approx(best, abs=1e-8)
    neutral = mvpi.optimize(mdp, OfReturn(0.0), horizon=T)
    assert neutral.mean == pytest.approx((2 * p) ** T - 1)
    assert neutral.policy(1, time=0, return_so_far=0.0) == "bet"


def test_asset_selling():
    """Offers 0, 1, ..., 9, all as likely; sell once within T offers, the last one is all there is.

    Risk-neutral: accept what is at least the value of waiting, v_{k+1} = E max(X, v_k), v_1 = 4.5.
    """
    T, offers = 4, range(10)
    rows = [("sold", "wait", 1.0, 0.0, "sold")]
    for x in offers:
        rows += [(x, "wait", 0.1, 0.0, y) for y in offers]
        rows.append((x, "sell", 1.0, float(x), "sold"))
    start = dict.fromkeys(offers, 0.1)
    mdp = MDP.from_outcomes(rows, discount=1.0, start=start)
    value, thresholds = 0.0, []
    for _ in range(T):
        thresholds.append(value)
        value = np.mean([max(x, value) for x in offers])
    found = mvpi.optimize(mdp, OfReturn(0.0), horizon=T)
    assert found.value == pytest.approx(value)
    for t, threshold in enumerate(reversed(thresholds)):
        for x in offers:
            if x != threshold:
                expected = "sell" if x > threshold else "wait"
                assert found.policy(x, t, 0.0) == expected
    # With a utility the same recursion holds for u(X): the entropic measure.
    beta, value = 0.5, 1.0
    for _ in range(T):
        value = np.mean([min(math.exp(-beta * x), value) for x in offers])
    averse = mvpi.optimize(mdp, OfReturn(Entropic(beta)), horizon=T)
    assert averse.value == pytest.approx(-math.log(value) / beta, abs=1e-9)
    # The chance of at least x within T offers: the quantile.
    level = 0.05
    best = max(x for x in offers if 1 - (x / 10) ** T >= 1 - level)
    assert mvpi.optimize(mdp, OfReturn(VaR(level)), horizon=T).value == best


def corridor(guard=0.2, fine=10.0, long=4):
    """One step past a guard, who may take a fine, or `long` steps around; each step costs 1."""
    rows = [
        ("start", "short", 1 - guard, -1.0, "goal"),
        ("start", "short", guard, -1.0 - fine, "goal"),
        ("start", "long", 1.0, -1.0, 1),
        ("goal", "short", 1.0, 0.0, "goal"),
    ]
    rows += [(k, "long", 1.0, -1.0, k + 1 if k < long - 1 else "goal") for k in range(1, long)]
    return MDP.from_outcomes(rows, discount=1.0, start="start")


@pytest.mark.parametrize("lam", [0.0, 0.05, 0.0624, 0.0626, 0.2])
def test_a_corridor_with_a_guard(lam):
    """Short: mean -1 - 0.2 * 10 = -3, variance 16. Long: -4 for certain. Equal at lam = 1/16."""
    found = mvpi.optimize(corridor(), OfReturn(lam), horizon=6)
    short = lam < 1 / 16
    assert found.policy("start", 0, 0.0) == ("short" if short else "long")
    assert found.value == pytest.approx(-3 - 16 * lam if short else -4)
    assert mvpi.optimize(corridor(), OfReturn(CVaR(0.1)), horizon=6).value == pytest.approx(-4)


@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_li_and_ng_on_a_grid_of_stakes(lam):
    """`(1 - q)/(4 lam q)` for free stakes; on a grid of them less, and not by much."""
    T, mu, sigma = 3, 0.15, 0.3
    rho = mu**2 / (mu**2 + sigma**2)
    q = (1 - rho) ** T
    free = (1 - q) / (4 * lam * q)
    stakes = np.linspace(0.0, 4.0, 41) / (2 * lam)
    rows = [
        ("s", k, 0.5, float(x * (mu + e)), "s")
        for k, x in enumerate(stakes)
        for e in (-sigma, sigma)
    ]
    mdp = MDP.from_outcomes(rows, discount=1.0)
    found = mvpi.optimize(mdp, OfReturn(lam), horizon=T)
    assert found.converged
    assert 0.995 * free <= found.value <= free + 1e-9
    assert found.upper_bound <= free + 1e-9
    flat = T * mu**2 / (4 * lam * sigma**2)
    assert found.value > 1.05 * flat
    b = 1 / (2 * lam * q)
    for t in range(T):
        table = found.policy.at(t)
        wanted = mu / (mu**2 + sigma**2) * (b - table.returns)
        inside = (wanted >= 0) & (wanted <= stakes[-1])
        gaps = np.abs(stakes[table.actions] - wanted)[inside]
        assert np.median(gaps) <= 2 * (stakes[1] - stakes[0])


def test_discounted_returns_are_not_average_rewards():
    """One state, reward 1 for T steps: the sum of the discounts."""
    mdp = MDP(np.ones((1, 1, 1)), [[1.0]], discount=0.5)
    found = mvpi.optimize(mdp, OfReturn(1.0), horizon=3)
    assert (found.mean, found.variance, found.value) == (1.75, 0.0, 1.75)
    assert mvpi.optimize(mdp.with_discount(1.0), OfReturn(1.0), horizon=3).mean == 3.0


def test_the_return_so_far_matters():
    """Two steps, s1 ~ +-1: a policy that looks at the first reward can undo it."""
    rows = [
        ("a", "go", 0.5, 1.0, "b"),
        ("a", "go", 0.5, -1.0, "b"),
        ("b", "plus", 1.0, 1.0, "end"),
        ("b", "minus", 1.0, -1.0, "end"),
    ]
    mdp = MDP.from_outcomes(rows, discount=1.0, start="a", absorbing=True)
    found = mvpi.optimize(mdp, OfReturn(VarianceBudget(0.0)), horizon=2)
    assert (found.mean, found.variance) == pytest.approx((0.0, 0.0))
    assert found.policy("b", 1, 1.0) == "minus"
    assert found.policy("b", 1, -1.0) == "plus"


def test_masks_and_labels():
    """Actions that a state does not have are neither used nor named."""
    rng = np.random.default_rng(5)
    p, r = rng.dirichlet(np.ones(3), (3, 4)), rng.integers(-2, 3, (3, 4)).astype(float)
    allowed = np.array([[1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 1]], bool)
    names = {"state_labels": ["x", "y", "z"], "action_labels": ["A", "B", "C", "D"]}
    masked = MDP(p, r, 0.9, 0, allowed=allowed, **names)
    worse = MDP(p, np.where(allowed, r, -50.0), 0.9, 0)
    for risk in (0.5, CVaR(0.2), VarianceBudget(1.0)):
        found = mvpi.optimize(masked, OfReturn(risk), horizon=3)
        other = mvpi.optimize(worse, OfReturn(risk), horizon=3)
        assert found.value == pytest.approx(other.value, abs=1e-8)
        for row in found.policy.rows():
            actions = row["action"] if isinstance(row["action"], dict) else [row["action"]]
            s = "xyz".index(row["state"])
            assert all(allowed[s, "ABCD".index(a)] for a in actions)
        assert len(found.policy.rows()) == len(found.policy)
        law = simulated_law(masked, found.policy, masked.start, 3)
        assert moments(law) == pytest.approx((found.mean, found.variance), abs=1e-9)


def test_an_mdp_with_two_places_to_stay_has_returns():
    """Not unichain, so there is no average reward; the return of some steps there is."""
    p = np.stack([np.eye(2), np.eye(2)], axis=1)
    mdp = MDP(p, [[1.0, 2.0], [0.0, 5.0]], discount=1.0)
    assert mvpi.optimize(mdp, OfReturn(0.0), horizon=4).mean == pytest.approx(14.0)


def test_the_policy_as_an_object():
    found = mvpi.optimize(corridor(), OfReturn(1.0), horizon=6)
    policy = found.policy
    assert policy.horizon == 6
    assert repr(found).count("ReturnPolicy(deterministic, 6 steps")
    np.testing.assert_array_equal(policy.returns, [-4.0])
    np.testing.assert_allclose(policy.probabilities, [1.0])
    assert not policy.at(0).actions.flags.writeable
    g = 0.0
    for t in range(4):
        g = policy.add(g, t, -1.0)
    assert policy("goal", 4, g) == "short"
    mixed = mvpi.optimize(corridor(), OfReturn(VarianceBudget(5.0)), horizon=6)
    assert mixed.policy.is_randomised
    assert mixed.variance == pytest.approx(5.0)
    rng = np.random.default_rng(0)
    drawn = [mixed.policy("start", 0, 0.0, rng=rng) for _ in range(2000)]
    share = mixed.policy.action_probabilities("start", 0, 0.0)
    short = list(mixed.policy.labels.actions).index("short")
    assert drawn.count("short") / 2000 == pytest.approx(share[short], abs=0.04)


def test_asking_twice_gives_the_same_answer():
    mdp = mdp_of(random_episode(7, whole=False))
    one, two = (mvpi.optimize(mdp, OfReturn(CVaR(0.3)), horizon=3) for _ in range(2))
    assert (one.value, one.upper_bound, one.trace) == (two.value, two.upper_bound, two.trace)


def test_too_many_returns_are_refused_at_once(monkeypatch):
    monkeypatch.setattr(return_problem, "MOST_TRANSITIONS", 5_000)
    rng = np.random.default_rng(0)
    rows = [
        (s, a, 0.5, float(rng.normal()), int(rng.integers(2)))
        for s in (0, 1)
        for a in (0, 1)
        for _ in (0, 1)
    ]
    mdp = MDP.from_outcomes(rows, discount=0.9)
    for solve in (
        lambda: mvpi.optimize(mdp, OfReturn(1.0), horizon=30),
        lambda: mvpi.frontier(mdp, horizon=30),
    ):
        with pytest.raises(InputError, match="too many for memory") as refused:
            solve()
        assert "\n" not in str(refused.value)
        assert "return_step=" in str(refused.value)
    step = float(str(refused.value).split("return_step=")[1].split()[0])
    found = mvpi.optimize(mdp, OfReturn(1.0), horizon=30, return_step=step)
    assert found.value <= found.upper_bound
    assert not found.converged
    with pytest.raises(InputError, match="shorter horizon"):
        mvpi.optimize(mdp, OfReturn(1.0), horizon=10**6, return_step=1e9)


def test_progress_is_reported():
    seen = []
    mdp = mdp_of(random_episode(2, whole=False, horizon=3))
    mvpi.optimize(
        mdp, OfReturn(CVaR(0.2)), horizon=3, progress=lambda *numbers: seen.append(numbers)
    )
    assert all(best <= bound for _, best, bound in seen)


def _game():
    return corridor()


def _policy():
    return mvpi.optimize(_game(), OfReturn(1.0), horizon=3).policy


def _mixed():
    return mvpi.optimize(_game(), OfReturn(VarianceBudget(5.0)), horizon=6).policy


MALFORMED = {
    "no horizon": (lambda: mvpi.optimize(_game(), OfReturn(1.0)), "horizon="),
    "horizon 0": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=0), "horizon"),
    "negative": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=-3), "horizon"),
    "half": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=2.5), "horizon"),
    "nan": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=math.nan), "horizon"),
    "text": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon="3"), "horizon"),
    "flag": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=True), "horizon"),
    "list": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=[3]), "horizon"),
    "per step": (lambda: mvpi.optimize(_game(), 1.0, horizon=3), "OfReturn"),
    "per step, step": (lambda: mvpi.optimize(_game(), 1.0, return_step=0.1), "return_step"),
    "step 0": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=3, return_step=0), "> 0"),
    "step < 0": (lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=3, return_step=-1), "> 0"),
    "step nan": (
        lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=3, return_step=math.nan),
        "return_step",
    ),
    "step text": (
        lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=3, return_step="a"),
        "return_step",
    ),
    "range": (lambda: mvpi.optimize(_game(), mvpi.RiskRange(0, 1)), "mvpi.frontier"),
    "range of return": (
        lambda: mvpi.optimize(_game(), OfReturn(mvpi.RiskRange(0, 1)), horizon=3),
        "mvpi.frontier",
    ),
    "twice": (lambda: OfReturn(OfReturn(1.0)), "already"),
    "not an MDP": (lambda: mvpi.optimize("m", OfReturn(1.0), horizon=3), "mdp"),
    "tolerance": (
        lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=3, tolerance=-1.0),
        "tolerance",
    ),
    "progress": (
        lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=3, progress=3),
        "progress",
    ),
    "limit": (
        lambda: mvpi.optimize(
            MDP.from_outcomes([(0, 0, 0.5, r, 0) for r in (1, -1)]),
            OfReturn(VarianceBudget(0.1)),
            horizon=2,
        ),
        "least variance",
    ),
    "limit on a grid": (
        lambda: mvpi.optimize(
            MDP.from_outcomes([(0, 0, 0.5, r, 0) for r in (1, -1)]),
            OfReturn(VarianceBudget(0.1)),
            horizon=2,
            return_step=0.3,
        ),
        "return_step=0.3",
    ),
    "endless": (
        lambda: mvpi.optimize(MDP(np.ones((1, 1, 1)), [[1.0]]), OfReturn(1.0), horizon=10**12),
        "shorter horizon",
    ),
    "reward of a step": (lambda: mvpi.optimize(_game(), CVaR(0.1), horizon=3), "OfReturn"),
    "iteration": (lambda: mvpi.policy_iteration(_game(), OfReturn(1.0)), "mvpi.optimize"),
    "frontier": (lambda: mvpi.frontier(_game(), horizon=0), "horizon"),
    "frontier, text": (lambda: mvpi.frontier(_game(), horizon="x"), "horizon"),
    "state": (lambda: _policy()("nowhere", 0, 0.0), "nowhere"),
    "unhashable": (lambda: _policy()([1], 0, 0.0), "labels"),
    "too late": (lambda: _policy()("start", 3, 0.0), "time"),
    "too early": (lambda: _policy()("start", -1, 0.0), "time"),
    "not there then": (lambda: _policy()("goal", 0, 0.0), "cannot be reached"),
    "return": (lambda: _policy()("start", 0, 5.0), "nearest is 0"),
    "return nan": (lambda: _policy()("start", 0, math.nan), "return_so_far"),
    "reward": (lambda: _policy().add(0.0, 0, math.inf), "reward"),
    "rng": (lambda: _mixed()("start", 0, 0.0), "rng="),
    "seed": (lambda: _mixed()("start", 0, 0.0, rng=3), "rng"),
    "by label": (
        lambda: mvpi.optimize(_game(), OfReturn(1.0), horizon=3).policy_by_label,
        "rows()",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_input_is_told_in_one_line(name):
    call, words = MALFORMED[name]
    with pytest.raises(InputError) as refused:
        call()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
