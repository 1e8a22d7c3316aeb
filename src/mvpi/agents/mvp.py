"""MVP (Liu 2018): block coordinate ascent on the mean and variance of the return.

The variance of the return G has a square of an expectation, which by duality is a maximum:
E[G] - lam Var(G) is, up to constants, lam times the largest of `2 y (E[G] + 1/(2 lam)) - y^2 -
E[G^2]` over y.

    16 actors; whenever one ends an episode with return G
        y      <- ascend on (2 G + 1/lam) y - y^2
        theta  <- ascend on (2 y G - G^2) log pi(episode)
"""

from __future__ import annotations

from contextlib import ExitStack

from mvpi.agents.parallel_actors import EpisodicLearner, TotalRewardAgent
from mvpi.agents.settings import MVPSettings
from mvpi.errors import InputError
from mvpi.risk import MeanVariance, Risk


def ascent_of_y(y: float, g: float, risk_aversion: float) -> float:
    """Derivative of `(2 g + 1/lam) y - y^2`."""
    return 2.0 * g + 1.0 / risk_aversion - 2.0 * y


def weight(y: float, g: float) -> float:
    """The weight of `log pi` of an episode with return `g`."""
    return 2.0 * y * g - g**2


class MVPLearner(EpisodicLearner[MVPSettings]):
    """The training process: environments, network and `y`."""

    loss_names = ("actor_loss",)

    def begin(self, opened: ExitStack) -> None:
        super().begin(opened)
        self.y = 0.0

    def weigh(self, g: float) -> float:
        self.y += self.estimate_rate * ascent_of_y(self.y, g, self.risk_aversion)
        return weight(self.y, g)


class MVP(TotalRewardAgent[MVPSettings]):
    """MVP: weighs the mean of an episode's return against its variance.

    `env` is an id, a `gymnasium.Env` or a function that makes one; `risk` a number above 0, the
    weight of the variance of the return; the rest are fields of `MVPSettings`.

    >>> import mvpi
    >>> agent = mvpi.MVP("mvpi/FourState-v0", risk=1.0, hidden=())
    >>> int(agent.learn(320).predict(0)) in (0, 1)
    True
    """

    name = "mvp"
    settings_type = MVPSettings
    learner_type = MVPLearner

    @classmethod
    def usable(cls, risk: Risk) -> Risk:
        super().usable(risk)
        if isinstance(risk, MeanVariance) and risk.risk_aversion == 0:
            raise InputError("MVP divides by the risk aversion: risk must be > 0, got 0")
        return risk
