"""Which policy of a range is used: known families of policies, and how often chance decides."""

from __future__ import annotations

import numpy as np
import pytest

from mvpi import Augmenter, InputError, OfReturn, RiskRange
from mvpi.augmenter.policy_choice import _objectives, best_of_range

RANGE = RiskRange(0.0, 1.0)
GRID = RANGE.grid(20)


def rows(lam: float, rewards: np.ndarray) -> list[tuple[float, float, float, float]]:
    """Episodes, one in a row of `rewards`."""
    return [(lam, r.size, r.sum(), np.square(r).sum()) for r in rewards]


def family(
    rng: np.random.Generator, switch: float, episodes: int = 5, steps: int = 500
) -> np.ndarray:
    """A risky policy (1.3 +- 1) below `switch`, a calm one (1) above: the best switch is at 0.3."""
    found = []
    for lam in GRID.tolist():
        noise = rng.standard_normal((episodes, steps))
        found += rows(lam, 1.3 + noise if lam < switch else 1.0 + 0.01 * noise)
    return np.array(found)


@pytest.mark.parametrize("switch", [0.1, 0.3, 0.7])
def test_the_better_policy_is_used_wherever_the_learned_switch_is(switch: float) -> None:
    episodes = family(np.random.default_rng(0), switch)
    for lam in (0.0, 0.1, 0.2):
        assert best_of_range(RANGE, lam, episodes) < switch
    for lam in (0.4, 0.5, 0.7, 1.0):
        assert best_of_range(RANGE, lam, episodes) >= switch
    assert best_of_range(RANGE, 0.0, episodes) == 0.0  # it is right: nothing changes


def test_where_policies_change_little_by_little_each_keeps_its_place() -> None:
    """Markowitz: the policy of `lam` invests 1/lam; at `lam` that of `k lam` has 2/k - 1/k^2."""
    known = RiskRange(0.5, 5.0)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        episodes = [
            rows(lam, (0.5 + 0.5 * rng.standard_normal((5, 200))) / lam)
            for lam in known.grid(20).tolist()
        ]
        for lam in known.grid(9).tolist():
            k = best_of_range(known, lam, np.concatenate(episodes)) / lam
            assert 2.0 / k - 1.0 / k**2 > 0.97


def test_chance_rarely_decides() -> None:
    """Policies that are all alike: another one is taken in at most a twentieth of all families."""
    changed = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        drawn = [rows(lam, rng.standard_normal((5, 50))) for lam in GRID.tolist()]
        changed += best_of_range(RANGE, 0.6, np.concatenate(drawn)) != 0.6
    assert changed <= 0.05 * 400


def test_standard_errors_are_those_of_repeated_samples() -> None:
    """Episodes that differ by themselves: steps of one are not taken for independent."""
    rng, lam = np.random.default_rng(1), 0.7
    group = np.repeat(np.arange(3), 40)
    values, errors = [], []
    for _ in range(600):
        level = rng.standard_normal((120, 1))
        rewards = level + 0.5 * rng.standard_normal((120, 10))
        sums = np.stack([np.full(120, 10.0), rewards.sum(axis=1), np.square(rewards).sum(axis=1)])
        value, error, freedom = _objectives(lam, sums.T, group)
        values.append(value[1])
        errors.append(error[1])
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.1)
    assert freedom.tolist() == [78.0, 117.0, 78.0]


def test_too_little_measured_changes_nothing() -> None:
    assert best_of_range(RANGE, 0.4, np.zeros((0, 4))) == 0.4
    single = family(np.random.default_rng(0), 0.8, episodes=1)
    assert best_of_range(RANGE, 0.4, single) == 0.4


def test_two_policies_are_enough() -> None:
    rng = np.random.default_rng(0)
    gamble, sure = 1.3 + rng.standard_normal((9, 300)), np.ones((9, 300))
    measured = np.array(rows(0.0, gamble) + rows(1.0, sure))
    assert best_of_range(RANGE, 1.0, measured) == 1.0
    assert best_of_range(RANGE, 0.0, measured) == 0.0


@pytest.mark.parametrize("of_return", [False, True])
def test_a_stream_of_rewards_tells_which_policy_to_use(of_return: bool) -> None:
    """The risky policy was acted below 0.8; at 0.6 the calm one is better."""
    rng = np.random.default_rng(2)
    length = 1 if of_return else 50
    augmenter = Augmenter(OfReturn(RANGE) if of_return else RANGE, window=5_000)
    for _ in range(3_000 if of_return else 1_000):
        lam = float(rng.uniform(0.0, 1.0))
        risky = lam < 0.8
        rewards = 1.3 + rng.standard_normal(length) if risky else np.ones(length)
        ends = np.arange(length) == length - 1
        columns = np.full((length, len(augmenter.columns)), lam)
        if of_return:
            columns[:, augmenter.columns.index("return_so_far")] = 0.0
        augmenter.observe(rewards, terminated=ends, columns=columns)
    assert augmenter.best_of_range(0.1) < 0.8
    assert augmenter.best_of_range(0.6) >= 0.8
    with pytest.raises(InputError, match="range of training, 0 to 1, got 2"):
        augmenter.best_of_range(2.0)
    with pytest.raises(InputError, match="no range of risk aversions"):
        Augmenter(1.0).best_of_range(1.0)
