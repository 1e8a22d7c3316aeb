"""Risk-averse PPO of RLlib, on this machine or on a Ray cluster: copy, change the environment.

    python examples/rllib_cluster.py                                     this machine
    python examples/rllib_cluster.py --address auto --env-runners 16     the cluster this node is of

The second run with the same --out goes on from the checkpoint that the first one left, with the
same `y`. On a cluster, `mvpi` must be installed on all nodes, and --out must be storage that all of
them reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ray
import tyro
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig

from mvpi.rllib import risk_averse


@dataclass(frozen=True)
class Options:
    """Trains PPO with a risk aversion."""

    env: str = "Pendulum-v1"
    risk: float = 0.02
    """Rewards of Pendulum-v1 are between -16 and 0: a small risk aversion goes a long way."""
    address: str | None = None
    """Of a Ray cluster; left out, Ray starts on this machine."""
    env_runners: int = 2
    learners: int = 0
    """0: in this process. All learners use the same y."""
    iterations: int = 5
    out: Path = Path("out/rllib")


def main(options: Options) -> None:
    ray.init(options.address, include_dashboard=False, log_to_driver=False)
    checkpoint = options.out.absolute()
    if (checkpoint / "rllib_checkpoint.json").exists():
        algorithm = Algorithm.from_checkpoint(str(checkpoint))
    else:
        config = (
            PPOConfig()
            .environment(options.env)
            .env_runners(num_env_runners=options.env_runners)
            .learners(num_learners=options.learners)
            .training(train_batch_size=2_000, minibatch_size=500, num_epochs=5)
            .fault_tolerance(restart_failed_env_runners=True)
        )
        algorithm = risk_averse(config, risk=options.risk).build_algo()
    for _ in range(options.iterations):
        result = algorithm.train()
        risk, runners = result["mvpi"], result["env_runners"]
        print(
            f"iteration {result['training_iteration']:3}  "
            f"return {runners.get('episode_return_mean', float('nan')):9.1f}  "
            f"y {risk['y']:7.3f}  variance per step {risk['reward_variance']:7.3f}"
        )
    algorithm.save_to_path(str(checkpoint))
    algorithm.stop()


if __name__ == "__main__":
    main(tyro.cli(Options))
