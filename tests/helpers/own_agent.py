"""An agent that the package does not know: REINFORCE with a running mean as its baseline.

16 actors; whenever one ends an episode with return G
    b      <- b + rate (G - b)
    theta  <- ascend on (G - b) log pi(episode)
"""

from __future__ import annotations

from contextlib import ExitStack

from mvpi.agents.parallel_actors import EpisodicLearner, TotalRewardAgent
from mvpi.agents.settings import MVPSettings


class ReinforceLearner(EpisodicLearner[MVPSettings]):
    """The training process; `y` is the baseline."""

    loss_names = ("actor_loss",)

    def begin(self, opened: ExitStack) -> None:
        super().begin(opened)
        self.y = 0.0

    def weigh(self, g: float) -> float:
        self.y += self.estimate_rate * (g - self.y)
        return g - self.y


class Reinforce(TotalRewardAgent[MVPSettings]):
    """Maximises the mean return."""

    name = "reinforce"
    settings_type = MVPSettings
    learner_type = ReinforceLearner
