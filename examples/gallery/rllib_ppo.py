"""PPO of RLlib made risk-averse in one line, here or on a cluster (extra: rllib).

python examples/gallery/rllib_ppo.py [ITERATIONS [ADDRESS]]     ADDRESS: of a Ray cluster
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import ray
from ray.rllib.algorithms.ppo import PPOConfig

import mvpi
from mvpi.rllib import risk_averse

ITERATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 8
(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)
ray.init(sys.argv[2] if len(sys.argv) > 2 else None, include_dashboard=False, log_to_driver=False)
market = mvpi.envs.Markowitz()
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for risk in (0.0, 1.0):
    config = PPOConfig().environment("mvpi/Markowitz-v0").env_runners(num_env_runners=0)
    config = config.training(
        gamma=0.0, lr=3e-3, train_batch_size=1_000, minibatch_size=250, num_epochs=5
    )
    algorithm = risk_averse(config.debugging(seed=0), risk=risk).build_algo()
    seen = [algorithm.train()["mvpi"] for _ in range(ITERATIONS)]
    algorithm.stop()
    for ax, key in zip(axes, ("y", "reward_variance"), strict=True):
        ax.plot([one[key] for one in seen], label=f"PPO, risk aversion {risk:g}")
best = market.best_action(1.0)
for ax, value in zip(axes, (best @ market.mean, best @ market.covariance @ best), strict=True):
    ax.axhline(value, color="black", linestyle=":", label="best at risk aversion 1")
axes[0].set(xlabel="iteration (1,000 steps)", ylabel="mean reward of a step")
axes[1].set(xlabel="iteration (1,000 steps)", ylabel="variance of the reward of a step")
axes[0].legend()
figure.savefig(OUT / "rllib_ppo.png", dpi=100)
