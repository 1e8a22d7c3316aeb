"""MDPs of known structure and any size, for examples, tests and benchmarks."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from mvpi._checks import check_count, check_number
from mvpi.errors import InputError
from mvpi.tabular.mdp import MDP

FOUR_STATE_DISCOUNT = 0.7
_MOST_TRANSITIONS = 10**8


def four_state(discount: float = FOUR_STATE_DISCOUNT) -> MDP:
    """The paper's example: a gamble that is better on average, or a sure loss.

    In state 0, which pays 0, action 0 leads to state 1 or 2 by the toss of a coin, action 1 to
    state 3. From there every action leads back to state 0; leaving state 1 pays +1, 2 and 3 -1.
    With `p` the probability of action 0 and `g = discount / (1 + discount)`, the mean reward of a
    step is `-g (1 - p)` and its variance `g - mean^2`: the gamble (p = 1) is best below a risk
    aversion of `1 / g`, the sure loss (p = 0) above. The discount is 0.7 when left out.
    """
    p = np.zeros((4, 2, 4))
    p[0, 0, 1] = p[0, 0, 2] = 0.5
    p[0, 1, 3] = 1.0
    p[1:, :, 0] = 1.0
    return MDP(p, np.array([0.0, 1.0, -1.0, -1.0])[:, None].repeat(2, 1), discount, start=0)


def random_sparse(
    states: int, actions: int = 4, successors: int = 5, discount: float = 0.99, seed: int = 0
) -> MDP:
    """Random successors, Dirichlet probabilities, standard normal rewards: it mixes fast."""
    states, actions = check_count(states, "states"), check_count(actions, "actions")
    successors = check_count(successors, "successors")
    _check_size(states * actions * successors)
    rng = np.random.default_rng(check_count(seed, "seed", at_least=0))
    pairs = states * actions
    columns = rng.integers(0, states, (pairs, successors), dtype=np.int32)
    probabilities = rng.dirichlet(np.ones(successors), pairs)
    return MDP.from_rows(
        _rows(states, columns, probabilities), rng.normal(size=(states, actions)), discount
    )


def grid_world(
    side: int, slip: float = 0.2, discount: float = 0.999, seed: int | None = None
) -> MDP:
    """A `side` x `side` grid with four moves and a goal in the middle; it mixes slowly.

    A move goes as intended, or with probability `slip` to one of the two sides or nowhere. Each
    step costs 1 until the goal, which absorbs. With a `seed`, cells cost a random amount between
    0 and 2 instead.
    """
    side = check_count(side, "side")
    slip = check_number(slip, "slip", at_least=0.0, at_most=1.0)
    if seed is not None:
        seed = check_count(seed, "seed", at_least=0)
    n = side * side
    _check_size(16 * n)
    cell = np.arange(n)
    row, column = np.divmod(cell, side)
    moves = [
        np.clip(row + d, 0, side - 1) * side + np.clip(column + e, 0, side - 1)
        for d, e in ((-1, 0), (0, 1), (1, 0), (0, -1))
    ]
    columns = np.empty((n, 4, 4), dtype=np.int32)
    for a in range(4):
        columns[:, a] = np.stack([moves[a], moves[a - 1], moves[a - 3], cell], axis=1)
    probabilities = np.broadcast_to([1 - slip, 0.4 * slip, 0.4 * slip, 0.2 * slip], columns.shape)
    rewards = -np.ones(n) if seed is None else -2 * np.random.default_rng(seed).random(n)
    goal = (side // 2) * side + side // 2
    columns[goal], rewards[goal] = goal, 0.0
    table = _rows(n, columns.reshape(n * 4, 4), probabilities.reshape(n * 4, 4))
    return MDP.from_rows(table, rewards[:, None].repeat(4, 1), discount)


def inventory(capacity: int, discount: float = 0.999) -> MDP:
    """Stock from 0 to `capacity`; order 0, 2, 5 or 10 units against a demand of 0 to 4 a day.

    A unit sells for 2 and costs 1, an order costs 2, and each of the first 1000 units costs 0.01
    a day to hold. What is sold, hence the reward, depends on the next state. It mixes slowly:
    the stock changes by a few units a day.
    """
    capacity = check_count(capacity, "capacity")
    _check_size(20 * capacity)
    stock = np.arange(capacity + 1)
    order = np.array([0, 2, 5, 10])
    demand, chance = np.arange(5), np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    available = np.minimum(stock[:, None] + order, capacity)
    columns = np.maximum(available[:, :, None] - demand, 0).reshape(-1, 5).astype(np.int32)
    table = _rows(capacity + 1, columns, np.broadcast_to(chance, columns.shape))
    cost = order + 2 * (order > 0) + 0.01 * np.minimum(available, 1000)
    per_transition = np.diff(table.indptr)
    sold = np.repeat(available.ravel(), per_transition) - table.indices
    rewards = 2.0 * sold - np.repeat(cost.ravel(), per_transition)
    return MDP.from_rows(table, rewards, discount)


def maintenance(days: int = 20, discount: float = 0.99) -> MDP:
    """A machine that wears out: run it (action 0), or spend the day on a service (action 1).

    The state is the number of days since the last service or repair, up to `days - 1`. A day's run
    earns 1, but `k` days after the service the machine breaks down with probability 0.002 k; the
    repair costs 20. A day of service earns nothing. The risk-neutral policy has a service every
    seventh day; the more risk-averse, the sooner.
    """
    days = check_count(days, "days", at_least=2)
    _check_size(2 * days * days)
    p, r = np.zeros((days, 2, days)), np.zeros((days, 2, days))
    since = np.arange(days)
    breakdown = np.minimum(0.002 * since, 1.0)
    p[since, 0, np.minimum(since + 1, days - 1)] = 1.0 - breakdown
    r[since, 0, np.minimum(since + 1, days - 1)] = 1.0
    p[since, 0, 0] += breakdown
    r[since, 0, 0] = -20.0
    p[:, 1, 0] = 1.0
    return MDP(p, r, discount, start=0)


def _check_size(transitions: int) -> None:
    if transitions > _MOST_TRANSITIONS:
        raise InputError(
            f"an example must have at most {_MOST_TRANSITIONS:.0e} transitions, this one has "
            f"{transitions:.3e}; ask for a smaller one"
        )


def _rows(states: int, columns: np.ndarray, probabilities: np.ndarray) -> csr_array:
    pairs, successors = columns.shape
    table = csr_array(
        (probabilities.ravel(), columns.ravel(), np.arange(0, pairs * successors + 1, successors)),
        shape=(pairs, states),
    )
    table.sum_duplicates()
    return table
