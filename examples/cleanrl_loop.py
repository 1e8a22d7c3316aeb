"""A training loop in one file, in the way of CleanRL, made risk-averse by one line.

Run it with `python examples/cleanrl_loop.py`; it takes about half a minute. PPO in plain
PyTorch on a portfolio whose best answer is known. The line is the one with `mvpi.augment`.
"""

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import mvpi
from mvpi.envs import Markowitz

RISK = 2.0
STEPS, ITERATIONS, EPOCHS, MINIBATCH, CLIP = 1_000, 30, 5, 250, 0.2


def train(risk: float, seed: int = 0) -> np.ndarray:
    """The mean action after training."""
    torch.manual_seed(seed)
    env = gym.wrappers.RescaleAction(Markowitz(bound=0.5), -1.0, 1.0)
    actor = nn.Linear(1, 2)
    nn.init.zeros_(actor.weight)
    nn.init.zeros_(actor.bias)
    log_std = nn.Parameter(torch.full((2,), -1.0))
    optimizer = torch.optim.Adam([*actor.parameters(), log_std], lr=5e-3)

    observation, _ = env.reset(seed=seed)
    for _ in range(ITERATIONS):
        # Collect a rollout.
        observations, actions, rewards = [], [], []
        for _ in range(STEPS):
            seen = torch.tensor(observation, dtype=torch.float32)
            with torch.no_grad():
                action = torch.distributions.Normal(actor(seen), log_std.exp()).sample()
            observation, reward, terminated, truncated, _ = env.step(action.clamp(-1, 1).numpy())
            observations.append(seen)
            actions.append(action)
            rewards.append(reward)
            if terminated or truncated:
                observation, _ = env.reset()

        rewards = mvpi.augment(rewards, risk)  # this is all there is to risk aversion

        # Improve on it. An action here has no influence on later rewards: no value is needed.
        observations, actions = torch.stack(observations), torch.stack(actions)
        advantages = torch.tensor(rewards - rewards.mean(), dtype=torch.float32)
        advantages /= advantages.std()
        policy = torch.distributions.Normal(actor(observations), log_std.exp())
        old = policy.log_prob(actions).sum(1).detach()
        for _ in range(EPOCHS):
            for rows in torch.randperm(STEPS).split(MINIBATCH):
                policy = torch.distributions.Normal(actor(observations[rows]), log_std.exp())
                ratio = (policy.log_prob(actions[rows]).sum(1) - old[rows]).exp()
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                loss = -torch.minimum(ratio * advantages[rows], clipped * advantages[rows]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        return env.action(actor(torch.ones(1)).clamp(-1, 1).numpy())


if __name__ == "__main__":
    problem = Markowitz(bound=0.5)
    best = problem.best_action(RISK)
    for name, action in (
        ("risk-neutral", train(0.0)),
        ("risk-averse", train(RISK)),
        ("best", best),
    ):
        value = problem.value(action, RISK)
        print(f"{name:>12}: portfolio {action.round(3)}, mean - {RISK:g} variance {value:.4f}")
