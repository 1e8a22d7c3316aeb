"""A risk measure of your own: a utility and its best y; the exact solver takes it as it is."""

from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import mvpi

(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class LossAverse(mvpi.Risk):
    """What is below y counts `2 - share` times, what is above `share` times."""

    share: float

    def utility(self, t):
        return np.where(np.asarray(t) > 0, self.share, 2.0 - self.share) * t

    def dual(self, rewards, weights=None):
        return mvpi.stats.quantile(rewards, 0.5, weights)  # maximises E[y + u(R - y)]


# A newsvendor: buy at 3, sell at 5, throw the rest away; demand is 0 to 40, all alike.
days = [("day", q, 1 / 41, 5 * min(q, d) - 3 * q, "day") for q in range(41) for d in range(41)]
mdp = mvpi.MDP.from_outcomes(days, discount=0.9)
shares = np.linspace(0.02, 1.0, 50)
found = [mvpi.optimize(mdp, LossAverse(share)) for share in shares]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.step(shares, [one.policy_by_label["day"] for one in found], where="mid")
left.set(xlabel="weight of gains (1 is risk-neutral)", ylabel="newspapers bought a day")
right.plot([one.std for one in found], [one.mean for one in found], "o-")
right.set(xlabel="standard deviation of a day's profit", ylabel="mean profit of a day")
figure.savefig(OUT / "own_risk_measure.png", dpi=100)
print(found[24].policy_by_label, found[24].value, "upper bound", found[24].upper_bound)
