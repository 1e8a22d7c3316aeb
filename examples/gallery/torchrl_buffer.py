"""DDPG of TorchRL: its replay buffer keeps raw rewards, batches are augmented (needs torchrl)."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from tensordict.nn import TensorDictSequential
from torchrl import data, envs, modules, objectives

import mvpi

STEPS, RISK = 6_000, 2.0
(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)
figure, axes = plt.subplots(subplot_kw={"xlabel": "steps", "ylabel": "mean - 2 variance"})
env = envs.GymWrapper(market := mvpi.envs.Markowitz())
for risk in (0.0, RISK):
    torch.manual_seed(env.set_seed(0))
    actor = modules.Actor(torch.nn.Sequential(modules.MLP(1, 2, 1, 64), torch.nn.Tanh()).double())
    critic = modules.ValueOperator(modules.MLP(3, 1, 1, 64).double(), ["observation", "action"])
    noise = modules.AdditiveGaussianModule(env.action_spec, sigma_init=0.3, sigma_end=0.3)
    loss = objectives.DDPGLoss(actor, critic, delay_value=False)
    loss.make_value_estimator(gamma=0.0)  # an action has no influence on later rewards
    rates = [{"params": actor.parameters()}, {"params": critic.parameters(), "lr": 3e-3}]
    optimizer = torch.optim.Adam(rates, lr=2e-4)
    buffer = data.ReplayBuffer(storage=data.LazyTensorStorage(STEPS), batch_size=256)
    augmenter, curve = mvpi.Augmenter(risk, window=2_000), {}
    while len(buffer) < STEPS:
        buffer.extend(new := env.rollout(100, TensorDictSequential(actor, noise)))
        augmenter.observe(new["next", "reward"])  # raw, as it is stored
        for _ in range(15):
            batch = buffer.sample()
            batch["next", "reward"] = torch.tensor(augmenter.augment(batch["next", "reward"]))
            optimizer.zero_grad()
            sum(loss(batch)[key] for key in ("loss_actor", "loss_value")).backward()
            optimizer.step()
        curve[len(buffer)] = market.value(actor(env.reset())["action"].detach().numpy(), RISK)
    axes.plot(curve.keys(), curve.values(), label=f"DDPG, risk aversion {risk:g}")
axes.axhline(market.value(market.best_action(RISK), RISK), color="k", ls=":", label="exact optimum")
axes.legend()
figure.savefig(OUT / "torchrl_buffer.png", dpi=100)
