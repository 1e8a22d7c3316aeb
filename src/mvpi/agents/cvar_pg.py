"""CVaR policy gradient (Tamar, Glassner and Mannor 2015, GCVaR): learns from the worst episodes.

It maximises `(1 - w) E[G] + w CVaR(G)`, with CVaR the mean of the worst `level` share of returns;
the paper has `w = 1`. With `q` the quantile at `level`, the gradient of CVaR is the mean of
`(G - q) / level` times the score over the episodes below `q`: that of `E[u(G - q)]`, u the utility
of CVaR, since `q` maximises `y + E[u(G - y)]` over `y`, so that its own gradient drops out.

    16 actors; whenever n episodes have ended, with returns G_1, ..., G_n
        q      <- the empirical quantile at `level`
        theta  <- ascend on the mean of u(G_i - q) log pi(episode i),
                  u(t) = (1 - w) t - w max(-t, 0) / level
"""

from __future__ import annotations

import math
from typing import Any

from mvpi._types import Array
from mvpi.agents.episode_batches import EpisodeBatchLearner
from mvpi.agents.parallel_actors import TotalRewardAgent
from mvpi.agents.settings import CommonSettings, CVaRPGSettings
from mvpi.errors import InputError
from mvpi.risk import CVaR, Risk, as_risk


class CVaRPGLearner(EpisodeBatchLearner[CVaRPGSettings]):
    """The training process: environments, network and a batch of episodes; `y` is the quantile."""

    def weigh(self, g: Array) -> Array:
        self.y = self.risk.dual(g)
        return self.risk.utility(g - self.y)


class CVaRPG(TotalRewardAgent[CVaRPGSettings]):
    """Maximises the mean of the worst returns, alone or together with the mean of all.

    `env` is an id, a `gymnasium.Env` or a function that makes one; `risk` a `mvpi.CVaR(level,
    weight)`, here of the return; the rest are fields of `CVaRPGSettings`.

    >>> import mvpi
    >>> risk = mvpi.CVaR(0.5)
    >>> agent = mvpi.CVaRPG("mvpi/FourState-v0", risk, hidden=(), batch_episodes=3)
    >>> int(agent.learn(1600).predict(0)) in (0, 1)
    True
    """

    name = "cvar-pg"
    settings_type = CVaRPGSettings
    learner_type = CVaRPGLearner
    risk_type = CVaR
    objective = (
        "maximises a CVaR of the return: risk must be mvpi.CVaR(level, weight), "
        "cvar:LEVEL:WEIGHT on the command line"
    )

    def _set_up(self, env: Any, risk: Risk | float, seed: int, settings: CommonSettings) -> None:
        chosen = self.usable(as_risk(risk))
        assert isinstance(chosen, CVaR)
        assert isinstance(settings, CVaRPGSettings)
        if chosen.level * settings.batch_episodes < 1.0:
            raise InputError(
                f"a batch of {settings.batch_episodes} episodes has no worst {chosen.level:g} of "
                f"them: batch_episodes must be >= {math.ceil(1.0 / chosen.level)}"
            )
        super()._set_up(env, risk, seed, settings)
