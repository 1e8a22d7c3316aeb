"""A perishable product: orders of the risk-neutral and of a risk-averse shop, exact (core).

    python examples/gallery/perishable_inventory.py [MOST]

A unit arrives the morning after its order and lasts two days. De Moor et al. (2022), section 4.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import gamma

import mvpi

MOST = int(sys.argv[1]) if len(sys.argv) > 1 else 10  # units in an order
STOCK = range(MOST - 1)  # shown
(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)
DEMAND = np.diff(gamma.cdf([0.0, *(np.arange(30) + 0.5), np.inf], a=4, scale=1))  # of 0 to 30 units

outcomes = []  # state, action, probability, reward, next state; customers take the oldest first
for fresh, old, order in np.ndindex(MOST + 1, MOST + 1, MOST + 1):
    for demand, chance in enumerate(DEMAND):
        kept = min(max(fresh + old - demand, 0), fresh)
        lost, wasted = max(demand - fresh - old, 0), max(old - demand, 0)
        cost = 3 * order + kept + 5 * lost + 7 * wasted
        outcomes.append(((fresh, old), order, chance, -cost, (order, kept)))
mdp = mvpi.MDP.from_outcomes(outcomes, discount=0.99)

figure, axes = plt.subplots(1, 2, figsize=(9, 5), layout="constrained", sharey=True)
for ax, risk in zip(axes, (0.0, 0.05), strict=True):
    best = mvpi.optimize(mdp, risk)
    orders = np.array([[best.policy_by_label[f, o] for o in STOCK] for f in STOCK])
    ax.imshow(orders, origin="lower", vmin=0, vmax=8, cmap="Blues")
    for (fresh, old), units in np.ndenumerate(orders):
        ax.text(old, fresh, units, ha="center", va="center")
    ax.set(xlabel="units in their last day", ylabel="fresh units")
    ax.set_title(f"risk aversion {risk:g}: costs {-best.mean:.1f} ± {best.std:.1f} a day")
figure.savefig(OUT / "perishable_inventory.png", dpi=100)
