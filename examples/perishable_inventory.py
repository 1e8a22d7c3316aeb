"""A perishable product: the exact trade-off between expected profit and its variance.

The problem of De Moor, Gijsbrechts and Boute (2022, European Journal of Operational Research 301,
535-545, section 4): a shop orders up to 10 units a day, which arrive the next morning and last two
days. Demand is gamma distributed with mean 4 and coefficient of variation 0.5, rounded. Ordering,
holding, losing a sale and throwing a unit away cost 3, 1, 5 and 7 a unit; discount 0.99.

The model is a list of outcomes, one for every demand, each with the cost that is really paid.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from scipy.stats import gamma

import mvpi

MOST = 10
DEMANDS = range(31)
BORDERS = np.array([0.0, *(d + 0.5 for d in DEMANDS[:-1]), np.inf])
CHANCES = np.diff(gamma.cdf(BORDERS, a=1 / 0.5**2, scale=4 * 0.5**2))

State = tuple[int, int]
"""Fresh units and units in their last day, in the morning."""


def outcomes(issue: str) -> Iterator[tuple[State, int, float, float, State]]:
    """All (state, action, probability, reward, next state); the action is the order."""
    for fresh, old, order in np.ndindex(MOST + 1, MOST + 1, MOST + 1):
        for demand, chance in zip(DEMANDS, CHANCES, strict=True):
            lost = max(demand - fresh - old, 0)
            if issue == "fifo":  # customers take the oldest units first
                wasted = max(old - demand, 0)
                kept = min(max(fresh + old - demand, 0), fresh)
            else:
                kept = max(fresh - demand, 0)
                wasted = min(max(fresh + old - demand, 0), old)
            cost = 3 * order + 1 * kept + 5 * lost + 7 * wasted
            yield (fresh, old), order, chance, -cost, (order, kept)


def model(issue: str) -> mvpi.MDP:
    """The MDP for customers that take the oldest ("fifo") or the freshest ("lifo") units."""
    return mvpi.MDP.from_outcomes(outcomes(issue), discount=0.99)


def table(solution: mvpi.Solution, largest: int = 8) -> np.ndarray:
    """Orders by fresh units (rows, most first) and units in their last day (columns)."""
    orders = solution.policy_by_label
    stock = range(largest + 1)
    return np.array([[orders[fresh, old] for old in stock] for fresh in reversed(stock)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--issue", choices=("fifo", "lifo"), default="fifo")
    parser.add_argument("--risk", type=float, default=0.05, help="the weight of the variance")
    parser.add_argument("--out", help="where to save the picture of the frontier, a .png")
    options = parser.parse_args()
    mdp = model(options.issue)
    for name, risk in (("risk-neutral", 0.0), (f"risk aversion {options.risk:g}", options.risk)):
        found = mvpi.optimize(mdp, risk)
        print(f"{name}: mean {found.mean:.3f}, variance {found.variance:.2f} of a day; orders:")
        print(table(found))
    frontier = mvpi.frontier(mdp)
    print(frontier)
    if options.out:
        frontier.plot(options.out)


if __name__ == "__main__":
    main()
