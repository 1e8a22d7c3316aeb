"""An inventory: all efficient policies at once, and what three of them order (core).

python examples/gallery/inventory_frontier.py [CAPACITY]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import mvpi

CAPACITY = int(sys.argv[1]) if len(sys.argv) > 1 else 30
(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)

# Sell 0 to 4 units a day for 2 each; an order of 2, 5 or 10 units costs 2 and 1 a unit.
mdp = mvpi.examples.inventory(CAPACITY, discount=0.99)
frontier = mvpi.frontier(mdp)
policies = {f"risk aversion {lam:g}": frontier.best(lam) for lam in (0.0, 0.03, 0.07)}

figure, (left, right) = plt.subplots(
    1, 2, figsize=(13, 5), layout="constrained", width_ratios=(3, 2)
)
frontier.plot(axes=left)
left.set(xlabel="variance of the profit of a day", ylabel="mean profit of a day")
for i, (name, found) in enumerate(policies.items()):
    print(f"{name}: mean {found.mean:.4f}, variance {found.variance:.4f}")
    sizes = np.array([0, 2, 5, 10])[found.policy[:5]]
    right.bar(np.arange(5) + 0.28 * (i - 1), sizes, 0.26, label=name)
right.set(xlabel="units left in stock", ylabel="units ordered", title="What they order")
right.legend()
right.grid(alpha=0.25)
figure.savefig(OUT / "inventory_frontier.png", dpi=100)
