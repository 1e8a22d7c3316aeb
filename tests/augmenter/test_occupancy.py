"""The discounted occupancy estimated from steps, against its definition and exact MDPs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mvpi
from mvpi import stats
from mvpi.augmenter.occupancy import LATE, check_occupancy, discounted
from mvpi.errors import InputError
from mvpi.risk import CVaR, Entropic, MeanVariance

episodes_of_numbers = st.lists(
    st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=6), min_size=1, max_size=6
)
Steps = tuple[list[float], list[int], list[bool]]


def steps_of(episodes: list[list[float]], *, terminated: bool = True) -> Steps:
    rewards = [r for episode in episodes for r in episode]
    times = [t for episode in episodes for t in range(len(episode))]
    last = [t == len(e) - 1 for e in episodes for t in range(len(e))]
    return rewards, times, [end and terminated for end in last]


@given(episodes_of_numbers, st.sampled_from([0.0, 0.5, 0.9, 0.999]))
def test_whole_episodes_are_weighed_by_the_definition(
    episodes: list[list[float]], gamma: float
) -> None:
    values, weights = discounted(*steps_of(episodes), gamma)
    assert weights.sum() == pytest.approx(1.0)
    for f in (lambda x: x, np.square, np.cos):
        sums = [
            sum((1 - gamma) * gamma**t * float(f(r)) for t, r in enumerate(episode))
            + gamma ** len(episode) * float(f(0.0))
            for episode in episodes
        ]
        assert weights @ f(values) == pytest.approx(np.mean(sums), abs=1e-9)


@given(episodes_of_numbers, st.integers(0, 2**31))
def test_the_order_of_steps_does_not_matter(episodes: list[list[float]], seed: int) -> None:
    columns = [np.array(column) for column in steps_of(episodes)]
    order = np.random.default_rng(seed).permutation(columns[0].size)
    there = discounted(*columns, 0.8)
    here = discounted(*(column[order] for column in columns), 0.8)
    np.testing.assert_allclose(here[1][:-1], there[1][order])
    assert here[1][-1] == pytest.approx(there[1][-1])


@given(episodes_of_numbers)
def test_a_truncated_episode_is_not_finished(episodes: list[list[float]]) -> None:
    _, weights = discounted(*steps_of(episodes, terminated=False), 0.9)
    assert weights[-1] == 0.0
    assert weights.sum() == pytest.approx(1.0)


class Corridor:
    """Three states and the end, uniformly random actions: an MDP, and its episodes."""

    def __init__(self, gamma: float) -> None:
        rng = np.random.default_rng(3)
        self.p = np.zeros((4, 2, 4))
        self.p[:3] = rng.dirichlet([1.0, 1.0, 1.0, 0.4], size=(3, 2))
        self.p[3, :, 3] = 1.0
        self.r = np.array([[-1.0, 2.0], [-3.0, -0.5], [1.0, -2.0], [0.0, 0.0]])
        start = np.array([0.7, 0.3, 0.0, 0.0])
        self.start = start
        self.mdp = mvpi.MDP(self.p, self.r, discount=gamma, start=start)

    def exact(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Values of the per-step reward and their probabilities."""
        return self.r.ravel(), self.mdp.occupancy(np.full((4, 2), 0.5)).ravel()

    def steps(self, episodes: int, limit: int, seed: int) -> list[npt.NDArray[Any]]:
        """Rewards, times and terminations, one episode after the other."""
        rng = np.random.default_rng(seed)
        who, s = np.arange(episodes), rng.choice(4, size=episodes, p=self.start)
        rows, t = [], 0
        while who.size > 0 and t < limit:
            a = rng.integers(2, size=who.size)
            following = (self.p[s, a].cumsum(axis=1) < rng.random((who.size, 1))).sum(axis=1)
            ends = following == 3
            rows.append(np.array([who, self.r[s, a], np.full(who.size, t), ends]))
            who, s, t = who[~ends], following[~ends], t + 1
        number, rewards, times, ends = np.hstack(rows)
        order = np.lexsort((times, number))
        return [rewards[order], times[order], ends[order] > 0]


# With the limit, 0.8^25, 0.4% of the weight lies beyond it.
@pytest.mark.parametrize("limit", [10**9, 25])
@pytest.mark.parametrize("risk", [MeanVariance(1.0), CVaR(0.2), Entropic(0.7)], ids=repr)
def test_a_stream_tells_what_the_mdp_is(risk: mvpi.Risk, limit: int) -> None:
    corridor = Corridor(0.8)
    values, probabilities = corridor.exact()
    seen = discounted(*corridor.steps(5_000, limit, seed=1), 0.8)
    assert stats.mean(*seen) == pytest.approx(stats.mean(values, probabilities), abs=0.02)
    assert stats.variance(*seen) == pytest.approx(stats.variance(values, probabilities), abs=0.05)
    assert risk.dual(*seen) == pytest.approx(risk.dual(values, probabilities), abs=0.03)


@pytest.mark.parametrize("limit", [1, 5, 40])
@pytest.mark.parametrize("chance", [0.02, 0.3, 1.0])
def test_beyond_a_time_limit_it_goes_on_as_before(limit: int, chance: float) -> None:
    """Every step costs 1 and finishes with that chance: the MDP has a closed form, too."""
    gamma = 0.95
    p = np.array([[[1 - chance, chance]], [[0.0, 1.0]]])
    mdp = mvpi.MDP(p, np.array([[-1.0], [0.0]]), discount=gamma, start=[1.0, 0.0])
    exact = -mdp.occupancy(np.zeros(2, int))[0, 0]
    assert exact == pytest.approx(-(1 - gamma) / (1 - gamma * (1 - chance)))
    lengths = np.random.default_rng(0).geometric(chance, size=20_000)
    times = np.concatenate([np.arange(n) for n in np.minimum(lengths, limit)])
    last = np.cumsum(np.minimum(lengths, limit)) - 1
    ends = np.zeros(times.size, bool)
    ends[last] = lengths <= limit
    seen = discounted(np.full(times.size, -1.0), times, ends, gamma)
    assert stats.mean(*seen) == pytest.approx(exact, rel=0.05)


def test_a_part_of_a_stream_is_enough() -> None:
    """A rollout begins and ends in the middle of episodes."""
    corridor = Corridor(0.8)
    steps = corridor.steps(6_000, 10**9, seed=2)
    whole = stats.mean(*discounted(*steps, 0.8))
    parts = [
        stats.mean(*discounted(*(column[i : i + 100] for column in steps), 0.8))
        for i in range(0, len(steps[0]), 100)
    ]
    error = np.std(parts) / np.sqrt(len(parts))
    assert abs(np.mean(parts) - whole) < 4 * error + 0.01


@pytest.mark.parametrize("time", [5_000, LATE])
def test_only_late_steps_count_alike(time: int) -> None:
    values, weights = discounted([1.0, 2.0, 6.0], [time, time + 1, time + 2], [False] * 3, 0.99)
    assert stats.mean(values, weights) == pytest.approx(3.0, abs=1e-6)


def test_mistakes() -> None:
    with pytest.raises(InputError, match="one per reward: 2 rewards, 1 times"):
        discounted([1.0, 2.0], [0], [False, False], 0.9)
    with pytest.raises(InputError, match="got the time -1"):
        discounted([1.0], [-1], [False], 0.9)
    with pytest.raises(InputError, match="got none"):
        discounted([], [], [], 0.9)
    with pytest.raises(InputError, match="gamma < 1, got 1"):
        discounted([1.0], [0], [False], 1.0)


def test_an_occupancy_that_answers_nothing_is_refused() -> None:
    class Hostile:
        def _refuse(self, *_: Any) -> Any:
            raise RuntimeError("no answer")

        __eq__ = __repr__ = _refuse
        __hash__ = object.__hash__

    with pytest.raises(InputError, match="occupancy must be one of undiscounted, discounted, got"):
        check_occupancy(Hostile())  # type: ignore[arg-type]
