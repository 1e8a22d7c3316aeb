"""Mean-Gini policy gradient (Luo, Liu, Poupart and Pan 2023): Gini deviation in place of variance.

The Gini deviation of the return, `D = E|G - G'| / 2` with `G'` an independent copy of `G`, has the
unit of the return. It is the integral of `F (1 - F)` over the distribution function `F` of `G`,
whose gradient is a score times a number that sorted returns give. It maximises `E[G] - lam D`.

    16 actors; whenever n episodes have ended, with returns G_1 <= ... <= G_n
        eta_i  <- sum over j >= i of (2 j / n - 1) (G_(j+1) - G_j)
        theta  <- ascend on the mean of (G_i + lam eta_i) log pi(episode i)

Both parts are taken relative to the other episodes of the batch, which leaves the mean of the
gradient exact: see `weights`. (The paper takes the gradient of `E[G]` with a critic.)
"""

from __future__ import annotations

import numpy as np

from mvpi._types import Array
from mvpi.agents.episode_batches import EpisodeBatchLearner
from mvpi.agents.parallel_actors import TotalRewardAgent
from mvpi.agents.settings import MeanGiniSettings


def eta(g: Array) -> Array:
    """The integral of `2 F - 1` from every return to the largest, `F` the share of returns below.

    Up to a constant, minus the mean distance of a return from all `n`.
    """
    n, order = g.size, np.argsort(g, kind="stable")
    pieces = (2.0 * np.arange(1, n) / n - 1.0) * np.diff(g[order])
    integrals = np.zeros(n)
    integrals[order[:-1]] = np.cumsum(pieces[::-1])[::-1]
    return integrals


def weights(g: Array, risk_aversion: float) -> Array:
    """The weights of `log pi` of episodes with returns `g`.

    A return is compared with the mean of the others, its distance from them with the mean distance
    among them: neither depends on the episode, so they change the variance of the gradient, not
    its mean. Written out, both are distances from a mean over all `n`, times a factor.
    """
    n, risky = g.size, eta(g)
    return np.asarray(
        n / (n - 1) * (g - g.mean())
        + risk_aversion * n**2 / ((n - 1) * (n - 2)) * (risky - risky.mean())
    )


class MeanGiniLearner(EpisodeBatchLearner[MeanGiniSettings]):
    """The training process: environments, network and a batch of episodes; `y` is its mean."""

    def weigh(self, g: Array) -> Array:
        self.y = float(g.mean())
        return weights(g, self.risk_aversion)


class MeanGini(TotalRewardAgent[MeanGiniSettings]):
    """Weighs the mean of an episode's return against its Gini deviation.

    `env` is an id, a `gymnasium.Env` or a function that makes one; `risk` a number, here the weight
    of the Gini deviation of the return, not of a variance; the rest are fields of
    `MeanGiniSettings`.

    >>> import mvpi
    >>> agent = mvpi.MeanGini("mvpi/FourState-v0", risk=1.0, hidden=(), batch_episodes=3)
    >>> int(agent.learn(1600).predict(0)) in (0, 1)
    True
    """

    name = "mean-gini"
    settings_type = MeanGiniSettings
    learner_type = MeanGiniLearner
    objective = "weighs the Gini deviation of the return: risk must be a number"
