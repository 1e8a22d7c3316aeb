"""The method of Tamar 2012: the return's variance is free up to a limit, then penalised.

It maximises `E[G] - lam g(Var(G) - xi)` with `g(x) = max(0, x)^2`, on two time scales.

    16 actors; whenever one ends an episode with return G
        theta  <- ascend on (G - lam g'(V - xi) (G^2 - 2 J G)) log pi(episode)
        J      <- J + rate (G - J)
        V      <- V + rate (G^2 - J^2 - V)
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from mvpi._storage.arrays import Arrays
from mvpi.agents.parallel_actors import EpisodicLearner, Networks, TotalRewardAgent
from mvpi.agents.settings import TamarSettings


def weight(g: float, j: float, v: float, risk_aversion: float, limit: float) -> float:
    """The weight of `log pi` of an episode with return `g`, for mean `j` and variance `v`."""
    derivative = 2.0 * max(0.0, v - limit)
    return g - risk_aversion * derivative * (g**2 - 2.0 * j * g)


class TamarLearner(EpisodicLearner[TamarSettings]):
    """The training process: environments, network and running estimates; `y` is the mean."""

    loss_names = ("actor_loss",)

    def begin(self, opened: ExitStack) -> None:
        super().begin(opened)
        self.y = self.v = 0.0

    def weigh(self, g: float) -> float:
        settings = self.settings
        counted = weight(g, self.y, self.v, self.risk_aversion, settings.variance_limit)
        self.y += self.estimate_rate * (g - self.y)
        self.v += self.estimate_rate * (g**2 - self.y**2 - self.v)
        return counted

    def estimates(self) -> Arrays:
        return {"variance": np.array([self.v])}

    def restore_arrays(self, net: Networks, arrays: Arrays) -> None:
        super().restore_arrays(net, arrays)
        (self.v,) = arrays["variance"].tolist()


class Tamar(TotalRewardAgent[TamarSettings]):
    """Maximises the mean return, with a price on variance beyond `variance_limit`.

    `env` is an id, a `gymnasium.Env` or a function that makes one; `risk` a number, the weight of
    the squared excess of the variance; the rest are fields of `TamarSettings`.

    >>> import mvpi
    >>> agent = mvpi.Tamar("mvpi/FourState-v0", risk=1.0, hidden=(), variance_limit=1.0)
    >>> int(agent.learn(320).predict(0)) in (0, 1)
    True
    """

    name = "tamar"
    settings_type = TamarSettings
    learner_type = TamarLearner
