"""PPO in one file, in the way of CleanRL, made risk-averse by one line (needs torch)."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.distributions import Normal

import mvpi

ITERATIONS, STEPS, RISK = int(sys.argv[1]) if len(sys.argv) > 1 else 40, 1_000, 2.0
(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)
env = mvpi.envs.Markowitz(bound=0.5)
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for risk in (0.0, RISK):
    torch.manual_seed(0)
    env.reset(seed=0)
    mean, log_std = torch.zeros(2, requires_grad=True), torch.full((2,), -1.5, requires_grad=True)
    optimizer = torch.optim.Adam([mean, log_std], lr=5e-3)
    curve = []
    for _ in range(ITERATIONS):
        actions = Normal(mean, log_std.exp()).sample((STEPS,))
        old = Normal(mean, log_std.exp()).log_prob(actions).sum(1).detach()
        rewards = np.array([env.step(a)[1] for a in actions.clamp(-0.5, 0.5).double().numpy()])
        rewards = mvpi.augment(rewards, risk)  # this is all there is to risk aversion
        advantages = torch.tensor((rewards - rewards.mean()) / rewards.std())
        for _ in range(20):
            ratio = (Normal(mean, log_std.exp()).log_prob(actions).sum(1) - old).exp()
            clipped = ratio.clamp(0.8, 1.2) * advantages
            optimizer.zero_grad()
            (-torch.minimum(ratio * advantages, clipped).mean()).backward()
            optimizer.step()
        curve.append(env.value(mean.detach().clamp(-0.5, 0.5).double().numpy(), RISK))
    axes.plot(STEPS * np.arange(1, ITERATIONS + 1), curve, label=f"PPO, risk aversion {risk:g}")
axes.axhline(env.value(env.best_action(RISK), RISK), color="black", ls=":", label="exact optimum")
axes.set(xlabel="steps", ylabel=f"mean - {RISK:g} variance of a reward")
axes.legend()
figure.savefig(OUT / "own_loop.png", dpi=100)
