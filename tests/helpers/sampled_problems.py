"""Data sets sampled from random finite MDPs, with the answers that the model gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import mvpi
from mvpi.offline import Dataset

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Sampled:
    """Data, a policy to be evaluated on them, and its true mean and variance per step."""

    data: Dataset
    policy: Array
    discount: float
    mean: float
    variance: float


def sampled(
    seed: int,
    *,
    rows: int = 1000,
    states: int = 5,
    actions: int = 2,
    discount: float = 0.9,
    ending: float = 0.0,
    episodes: bool = False,
) -> Sampled:
    """`rows` transitions: independent ones, or one after the other in episodes.

    Episodes are over with probability `ending` after every step, in some states sooner than in
    others; with `episodes` they are also cut after 20 steps. Rewards are `r(s, a, s')` and noise.
    """
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(states), (states, actions))
    over = ending * rng.uniform(0.5, 1.5, (states, actions))
    reward = rng.normal(size=(states, actions, states))
    start = rng.dirichlet(np.ones(states))
    policy, behaviour = rng.dirichlet(np.ones(actions), (2, states))
    noise = 0.5
    if episodes:
        s, a, following, ends, starts = _walk(rng, p, over, start, 0.5 * behaviour + 0.25, rows)
    else:
        s, a = rng.integers(states, size=rows), rng.integers(actions, size=rows)
        following = _draw(rng, p[s, a])
        ends = rng.random(rows) < over[s, a]
        starts = rng.choice(states, size=rows // 5, p=start)
    r = reward[s, a, following] + noise * rng.normal(size=rows)
    onward = p * (1.0 - over[:, :, None]) + over[:, :, None] * start
    mdp = mvpi.MDP(onward, np.zeros((states, actions)), discount, start)
    occupancy = mdp.occupancy(policy)[:, :, None] * p
    mean = float((occupancy * reward).sum())
    variance = float((occupancy * reward**2).sum()) - mean**2 + noise**2
    return Sampled(Dataset(s, a, r, following, ends, starts), policy, discount, mean, variance)


def _draw(rng: np.random.Generator, probabilities: Array) -> Array:
    shares = probabilities.cumsum(axis=-1)
    return (rng.random((len(shares), 1)) > shares[:, :-1]).sum(axis=-1)


def _walk(
    rng: np.random.Generator, p: Array, over: Array, start: Array, behaviour: Array, rows: int
) -> Any:
    behaviour = behaviour / behaviour.sum(axis=1, keepdims=True)
    seen, starts, step, s = [], [], 20, 0
    for _ in range(rows):
        if step == 20:
            s, step = int(rng.choice(len(start), p=start)), 0
            starts.append(s)
        a = int(rng.choice(behaviour.shape[1], p=behaviour[s]))
        following = int(rng.choice(len(start), p=p[s, a]))
        ends = rng.random() < over[s, a]
        seen.append((s, a, following, ends))
        s, step = following, 20 if ends else step + 1
    s, a, following, ends = (np.array(column) for column in zip(*seen, strict=True))
    return s, a, following, ends, np.array(starts)
