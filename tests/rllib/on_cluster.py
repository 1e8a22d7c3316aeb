"""Trains on a cluster, one line of JSON an iteration: on_cluster.py ADDRESS ALGORITHM RISK N.

In a process of its own, because a process can be connected to one cluster only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ray

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import rllib_problems

from mvpi.risk import parse_risk
from mvpi.rllib import augmenter_of, risk_averse


def main(address: str, name: str, risk: str, iterations: int) -> None:
    path = {"env_vars": {"PYTHONPATH": ":".join(filter(None, sys.path))}}
    ray.init(address, log_to_driver=False, logging_level="ERROR", runtime_env=path)
    config = getattr(rllib_problems, name)()
    config.env_runners(
        num_env_runners=2,
        num_cpus_per_env_runner=1,
        sample_timeout_s=5.0 if name == "dqn" else 20.0,
    )
    config.env_runners(custom_resources_per_env_runner={"runner": 1})
    config.fault_tolerance(restart_failed_env_runners=True, env_runner_health_probe_timeout_s=5.0)
    algorithm = risk_averse(config, risk=parse_risk(risk)).build_algo()
    say(runners=[str(a) for a in nodes(algorithm)])
    for _ in range(iterations):
        result = algorithm.train()
        augmenter = augmenter_of(algorithm)
        say(
            y=augmenter.y,
            mean=result["mvpi"]["return_mean" if augmenter.columns else "reward_mean"],
            observed=augmenter.state()[1]["observed"],
            sampled=result["env_runners"].get("num_env_steps_sampled_lifetime"),
            trained=result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"],
            healthy=result["fault_tolerance"]["num_healthy_workers"],
        )
    algorithm.stop()


def nodes(algorithm: rllib_problems.Any) -> list[str]:
    """Where the env runners are."""
    return algorithm.env_runner_group.foreach_env_runner(
        lambda _: ray.get_runtime_context().get_node_id(), local_env_runner=False
    )


def say(**facts: object) -> None:
    sys.stdout.write(f"{json.dumps(facts)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
