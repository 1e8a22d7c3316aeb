"""SAC of Stable-Baselines3 made risk-averse in one line (extra: sb3).

python examples/gallery/sac_risk_averse.py [STEPS]     two assets, whose best amounts are known
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from stable_baselines3 import SAC

import mvpi
from mvpi.sb3 import risk_averse

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000
RISK = 1.0
(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)
market = mvpi.envs.Markowitz()
settings = {"learning_rate": 1e-3, "gamma": 0.0, "ent_coef": 0.003, "learning_starts": 200}
settings |= {"train_freq": 4, "policy_kwargs": {"net_arch": [64]}, "seed": 0}

learned = {}
for name, risk in {"SAC": 0.0, f"SAC, risk aversion {RISK:g}": RISK}.items():
    model = risk_averse(SAC, "MlpPolicy", market, risk=risk, **settings)
    learned[name] = model.learn(STEPS).predict(np.ones(1), deterministic=True)[0]

figure, axes = plt.subplots(figsize=(7, 5.5), layout="constrained")
grid = np.linspace(-1, 1, 81)
values = [[market.value((a, b), RISK) for a in grid] for b in grid]
drawn = axes.contourf(grid, grid, values, levels=20, cmap="Greys_r")
figure.colorbar(drawn, label=f"mean - {RISK:g} variance of the reward of a step")
axes.plot(*market.best_action(RISK), "*", color="gold", markersize=20, label="exact optimum")
for name, amounts in learned.items():
    print(f"{name}: {amounts.round(3)}, objective {market.value(amounts, RISK):.4f}")
    axes.plot(*amounts, "o", markersize=9, label=name, clip_on=False)
axes.set(xlabel="amount of asset 1", ylabel="amount of asset 2")
axes.legend(loc="lower left")
figure.savefig(OUT / "sac_risk_averse.png", dpi=100)
