"""Off-line from a Minari file: a gamble for +1 or -1, or -1 for sure (extra: offline)."""

import os
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import minari
import numpy as np

import mvpi

EPISODES, STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3, "steps-mid"
(OUT := Path("out/gallery").resolve()).mkdir(parents=True, exist_ok=True)
os.environ["MINARI_DATASETS_PATH"] = str(OUT / "minari")
warnings.filterwarnings("ignore", module="minari")  # it asks for authors and the like
if (name := f"gamble/random{EPISODES}-v0") not in minari.list_local_datasets():
    env = minari.DataCollector(mvpi.envs.Task("mvpi/FourState-v0")())
    env.action_space.seed(0)
    for seed in range(EPISODES):
        env.reset(seed=seed)
        while not env.step(env.action_space.sample())[3]:  # truncated after 100 steps
            pass
    env.create_dataset(name)
data = mvpi.offline.Dataset.from_minari(name)

lams = np.linspace(0, 5, 26)
policies = [mvpi.offline.learn(data, lam, discount=0.7) for lam in lams]
found = [mvpi.offline.evaluate(data, policy, 0.7, method="exact") for policy in policies]
exact = [mvpi.optimize(mvpi.examples.four_state(), lam) for lam in lams]
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for of, c in (("mean", "tab:blue"), ("variance", "tab:red")):
    axes.plot(lams, [getattr(e, of) for e in exact], ":", c=c, label=f"{of}, exact", ds=STEPS)
    axes.plot(lams, [getattr(e, of) for e in found], c=c, label=f"{of}, from the log", ds=STEPS)
    low, high = np.array([getattr(e, f"{of}_interval") for e in found]).T
    axes.fill_between(lams, low, high, color=c, alpha=0.2, lw=0, step="mid")
axes.set(xlabel="risk aversion (one over reward)", ylabel="mean and variance of a reward")
axes.legend(loc="center right")
figure.savefig(OUT / "offline_minari.png", dpi=100)
