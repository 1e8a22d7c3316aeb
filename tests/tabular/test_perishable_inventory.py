"""The published optimal policies for a perishable product, from an outcome list.

De Moor, Gijsbrechts and Boute (2022), European Journal of Operational Research 301, figure 3: the
orders by units in stock, rows 8 to 0 fresh units, columns 0 to 8 units in their last day.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import mvpi
from mvpi.tabular.mdp import MDP

LIFO = [[order] * 9 for order in (0, 0, 0, 0, 1, 2, 3, 3, 3)]
FIFO = [
    [1, 0, 0, 0, 0, 0, 0, 0, 0],
    [1, 1, 0, 0, 0, 0, 0, 0, 0],
    [2, 1, 1, 0, 0, 0, 0, 0, 0],
    [2, 2, 1, 1, 0, 0, 0, 0, 0],
    [3, 2, 2, 1, 1, 1, 1, 0, 0],
    [3, 3, 2, 2, 1, 1, 1, 1, 1],
    [4, 3, 3, 3, 2, 2, 2, 2, 2],
    [4, 4, 3, 3, 3, 3, 3, 3, 3],
    [4, 4, 4, 4, 4, 4, 4, 4, 4],
]


def example():
    path = Path(__file__).parents[2] / "examples" / "perishable_inventory.py"
    spec = importlib.util.spec_from_file_location("perishable_inventory", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def inventory():
    return example()


def value_iteration(rows: list, discount: float) -> dict:
    """The value of every state by the textbook, on plain arrays of the outcomes."""
    names = sorted({row[0] for row in rows})
    number = {name: i for i, name in enumerate(names)}
    s, t = (np.array([number[row[k]] for row in rows]) for k in (0, 4))
    a = np.array([row[1] for row in rows])
    p, r = (np.array([row[k] for row in rows]) for k in (2, 3))
    values = np.zeros(len(names))
    for _ in range(2500):
        q = np.bincount(s * 11 + a, p * (r + discount * values[t])).reshape(-1, 11)
        values = q.max(axis=1)
    return dict(zip(names, values, strict=True))


@pytest.mark.parametrize(("issue", "published"), [("lifo", LIFO), ("fifo", FIFO)])
def test_the_published_policies(inventory, issue: str, published: list) -> None:
    mdp = inventory.model(issue)
    solution = mvpi.optimize(mdp, 0.0)
    np.testing.assert_array_equal(inventory.table(solution), published)
    values = value_iteration(list(inventory.outcomes(issue)), 0.99)
    expected = 0.01 * np.mean(list(values.values()))
    assert solution.mean == pytest.approx(expected, abs=1e-8)
    assert solution.upper_bound == pytest.approx(expected, abs=1e-7)


def test_mean_rewards_lose_their_variance(inventory) -> None:
    """The same policy of the same model, its rewards averaged over the demand."""
    mdp = inventory.model("fifo")
    solution = mvpi.solve(mdp)
    averaged = MDP.from_rows(mdp.transitions, mdp.expected(lambda r: r), 0.99)
    rewards, weights = averaged.reward_distribution(averaged.occupancy(solution.policy))
    assert mvpi.stats.mean(rewards, weights) == pytest.approx(solution.mean)
    assert solution.variance == pytest.approx(70.197, abs=1e-3)
    assert mvpi.stats.variance(rewards, weights) == pytest.approx(10.587, abs=1e-3)


def test_the_frontier_is_drawn(inventory, tmp_path: Path, monkeypatch, capsys) -> None:
    picture = tmp_path / "frontier.png"
    monkeypatch.setattr("sys.argv", ["perishable_inventory.py", "--out", str(picture)])
    inventory.main()
    assert picture.stat().st_size > 10_000
    assert "risk-neutral: mean -15.132, variance 70.20" in capsys.readouterr().out
