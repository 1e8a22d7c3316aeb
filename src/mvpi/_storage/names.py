"""The names of files in a run directory, and names in records that have changed since.

config.json              what is trained; its checksum is the identity of the run
metrics.csv              a row per evaluation
policy.safetensors       the policy
checkpoint.safetensors   everything needed to resume
finished.json            checksums of the result
replay.rows              the replay; replaced-N.journal is its journal
.lock                    locked by the process that trains
.experiment              locked by the process that runs the experiment of that directory
"""

from __future__ import annotations

from typing import Any

CONFIG = "config.json"
METRICS = "metrics.csv"
POLICY = "policy.safetensors"
CHECKPOINT = "checkpoint.safetensors"
FINISHED = "finished.json"
REPLAY = "replay.rows"
REPLAY_JOURNALS = ("replaced-*.journal", "replaced-*.rows")
"""Patterns of the journals of the replay; the second is that of format 1."""
RUN_LOCK = ".lock"
EXPERIMENT_LOCK = ".experiment"
ONLY_TO_RESUME = (CHECKPOINT, REPLAY, *REPLAY_JOURNALS)
"""Patterns of files that a finished run no longer needs: most of its size."""

_MOVED = {
    "mvpi.risky:risky_pendulum": "mvpi.envs.noisy_zone:risky_pendulum",
    "mvpi.risky:noisy_pendulum": "mvpi.envs.noisy_zone:noisy_pendulum",
    "mvpi.risky:noisy_walk": "mvpi.envs.noisy_zone:noisy_walk",
    "mvpi.risky:RiskyZone": "mvpi.envs:RiskyZone",
    "mvpi.risky:EitherWay": "mvpi.envs:EitherWay",
    "mvpi.risky.risky_pendulum": "mvpi.envs.noisy_zone.risky_pendulum",
    "mvpi.risky.noisy_pendulum": "mvpi.envs.noisy_zone.noisy_pendulum",
    "mvpi.risky.noisy_walk": "mvpi.envs.noisy_zone.noisy_walk",
    "mvpi.envs.FourState": "mvpi.envs.problems.FourState",
    "mvpi.envs.Liquidity": "mvpi.envs.problems.Liquidity",
    "mvpi.envs.Markowitz": "mvpi.envs.problems.Markowitz",
}
"""Where environments of this package were when a record was written, and where they are now."""


def current_names(value: Any) -> Any:
    """A value of a record, with the names of today.

    >>> current_names({"entry_point": "mvpi.risky:RiskyZone"})
    {'entry_point': 'mvpi.envs:RiskyZone'}
    """
    if isinstance(value, dict):
        return {key: current_names(item) for key, item in value.items()}
    if isinstance(value, list):
        return [current_names(item) for item in value]
    return _MOVED.get(value, value) if isinstance(value, str) else value
