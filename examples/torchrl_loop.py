"""TorchRL with a replay buffer, made risk-averse by an `Augmenter`.

Run it with `python examples/torchrl_loop.py`; it takes about a minute. DDPG of
TorchRL on a portfolio whose best answer is known. The replay buffer keeps raw rewards; the
augmenter sees every new reward, and augments what is drawn.
"""

import numpy as np
import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import GymWrapper
from torchrl.modules import MLP, AdditiveGaussianModule, TanhModule, ValueOperator
from torchrl.objectives import DDPGLoss, SoftUpdate

import mvpi
from mvpi.envs import Markowitz

RISK = 2.0
STEPS, FRAMES, UPDATES, BATCH = 12_000, 100, 15, 256


def train(risk: float, seed: int = 0) -> np.ndarray:
    """The action after training."""
    torch.manual_seed(seed)
    env = GymWrapper(Markowitz(bound=0.5))
    env.set_seed(seed)

    network = nn.Sequential(MLP(in_features=1, out_features=2, num_cells=[64]))
    policy = TensorDictSequential(
        TensorDictModule(network.double(), in_keys=["observation"], out_keys=["param"]),
        TanhModule(in_keys=["param"], out_keys=["action"], spec=env.action_spec),
    )
    critic = ValueOperator(
        MLP(in_features=3, out_features=1, num_cells=[64]).double(),
        in_keys=["observation", "action"],
    )
    exploration = AdditiveGaussianModule(
        env.action_spec, sigma_init=0.3, sigma_end=0.3, annealing_num_steps=1
    )
    loss = DDPGLoss(policy, critic)
    loss.make_value_estimator(gamma=0.0)  # an action here has no influence on later rewards
    targets = SoftUpdate(loss, tau=0.005)
    optimizer = torch.optim.Adam(
        [
            {"params": loss.actor_network_params.flatten_keys().values(), "lr": 2e-4},
            {"params": loss.value_network_params.flatten_keys().values(), "lr": 3e-3},
        ]
    )

    augmenter = mvpi.Augmenter(risk, window=2_000)
    buffer = ReplayBuffer(storage=LazyTensorStorage(STEPS), batch_size=BATCH)
    collector = Collector(
        env,
        TensorDictSequential(policy, exploration),
        frames_per_batch=FRAMES,
        total_frames=STEPS,
        init_random_frames=1_000,
        auto_register_policy_transforms=False,
    )
    for collected in collector:
        augmenter.observe(collected["next", "reward"])
        buffer.extend(collected)
        for _ in range(UPDATES):
            batch = buffer.sample()
            augmented = augmenter.augment(batch["next", "reward"])
            batch["next", "reward"] = torch.as_tensor(augmented, dtype=torch.float32)
            losses = loss(batch)
            optimizer.zero_grad()
            (losses["loss_actor"] + losses["loss_value"]).backward()
            optimizer.step()
            targets.step()
    collector.shutdown()
    with torch.no_grad():
        return policy(env.reset())["action"].numpy()


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
