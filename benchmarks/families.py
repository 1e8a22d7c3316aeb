"""The MDPs of the solver's benchmark, by family; all with discount 0.999.

Some are public examples of the package. The others are here: classic problems of the textbooks on
which solvers behave differently.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi.tabular import examples
from mvpi.tabular.mdp import MDP

Family = Literal[
    "random", "grid", "inventory", "torus", "two-item", "path", "street", "assets", "dense"
]
FAMILIES: tuple[Family, ...] = get_args(Family)
ONLY_SIZE = {"assets": 1_000, "dense": 2_000}
"""Families whose tables are full: they have one size."""
DISCOUNT = 0.999


def build(family: str, states: int) -> MDP:
    """The MDP of a family that has about so many states."""
    side = round(math.sqrt(states))
    if family == "random":
        return examples.random_sparse(states, 4, 5, DISCOUNT)
    if family == "grid":
        return examples.grid_world(side, discount=DISCOUNT)
    if family == "inventory":
        return examples.inventory(states - 1, DISCOUNT)
    if family == "torus":
        return torus(side)
    if family == "two-item":
        return two_item_inventory(side - 1)
    if family == "path":
        return shortest_path(states)
    if family == "street":
        return shortest_street(side)
    return asset_selling(states) if family == "assets" else dense(states)


def torus(side: int, slip: float = 0.2, seed: int = 0) -> MDP:
    """A grid without edges, a normal reward per cell, moves as in `examples.grid_world`."""
    moves = _moves(side, wrap=True)
    columns = np.empty((side * side, 4, 4), dtype=np.int32)
    for a in range(4):
        columns[:, a] = np.stack(
            [moves[a], moves[a - 1], moves[a - 3], np.arange(side * side)], axis=1
        )
    chances = np.array([1 - slip, 0.4 * slip, 0.4 * slip, 0.2 * slip])
    rewards = np.random.default_rng(seed).normal(size=side * side)
    return MDP.from_rows(_table(columns, chances), rewards[:, None].repeat(4, axis=1), DISCOUNT)


def two_item_inventory(capacity: int) -> MDP:
    """Two items, each as in `examples.inventory` with orders of 0, 5 or 10, and one order cost.

    What is sold, hence the reward, depends on the next state.
    """
    n = capacity + 1
    orders = np.array([(i, j) for i in (0, 5, 10) for j in (0, 5, 10)])
    demand = np.stack(np.divmod(np.arange(25), 5), axis=1)
    chance = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    stock = np.stack(np.divmod(np.arange(n * n), n), axis=1)
    available = np.minimum(stock[:, None] + orders, capacity)
    left = np.maximum(available[:, :, None] - demand, 0)
    table = _table((left[..., 0] * n + left[..., 1]).astype(np.int32), np.outer(chance, chance))
    held, lengths = available.sum(axis=2), np.diff(table.indptr)
    cost = orders.sum(axis=1) + 2 * orders.any(axis=1) + 0.01 * held
    sold = np.repeat(held.ravel(), lengths) - sum(np.divmod(table.indices, n))
    return MDP.from_rows(table, 2.0 * sold - np.repeat(cost.ravel(), lengths), DISCOUNT)


def shortest_path(states: int, actions: int = 4, seed: int = 0) -> MDP:
    """A random directed graph: an action is an edge and costs up to 1; state 0 is the goal."""
    rng = np.random.default_rng(seed)
    following = rng.integers(0, states, (states, actions), dtype=np.int32)
    following[:, 0] = np.maximum(np.arange(states) - 1, 0)
    rewards = -rng.random((states, actions))
    following[0], rewards[0] = 0, 0.0
    return MDP.from_rows(_table(following[:, :, None], np.ones(1)), rewards, DISCOUNT)


def shortest_street(side: int, seed: int = 0) -> MDP:
    """A grid with certain moves that cost 0.5 to 1.5 each, and a goal in the middle."""
    following = np.stack(_moves(side, wrap=False), axis=1).astype(np.int32)
    rewards = -(0.5 + np.random.default_rng(seed).random(following.shape))
    goal = (side // 2) * side + side // 2
    following[goal], rewards[goal] = goal, 0.0
    return MDP.from_rows(_table(following[:, :, None], np.ones(1)), rewards, DISCOUNT)


def asset_selling(offers: int) -> MDP:
    """Sell at the offer of the day, or pay a little and wait for the next; all are as likely.

    The last state is reached by selling, and pays nothing.
    """
    p = np.zeros((offers + 1, 2, offers + 1))
    p[:offers, 0, :offers] = 1.0 / offers
    p[:offers, 1, offers] = p[offers, :, offers] = 1.0
    rewards = np.zeros((offers + 1, 2))
    rewards[:offers, 0] = -1e-3
    rewards[:offers, 1] = np.arange(offers) / offers
    return MDP(p, rewards, DISCOUNT)


def dense(states: int, actions: int = 5, seed: int = 0) -> MDP:
    """Every state may follow every other; normal rewards."""
    rng = np.random.default_rng(seed)
    p = rng.random((states, actions, states))
    return MDP(p / p.sum(axis=2, keepdims=True), rng.normal(size=(states, actions)), DISCOUNT)


def _moves(side: int, *, wrap: bool) -> list[npt.NDArray[np.int64]]:
    """Where the moves up, right, down and left lead from each cell of a grid."""
    row, column = np.divmod(np.arange(side * side), side)
    steps = [(row + d, column + e) for d, e in ((-1, 0), (0, 1), (1, 0), (0, -1))]
    if wrap:
        return [r % side * side + c % side for r, c in steps]
    return [np.clip(r, 0, side - 1) * side + np.clip(c, 0, side - 1) for r, c in steps]


def _table(columns: npt.NDArray[np.int32], chances: npt.NDArray[np.float64]) -> csr_array:
    """Transitions from next states `(S, A, K)` and the chance of each of the `K`."""
    states, actions, successors = columns.shape
    pairs = states * actions
    data = np.broadcast_to(chances.ravel(), columns.shape).ravel()
    starts = np.arange(0, pairs * successors + 1, successors)
    table = csr_array((data, columns.ravel(), starts), shape=(pairs, states))
    table.sum_duplicates()
    return table
