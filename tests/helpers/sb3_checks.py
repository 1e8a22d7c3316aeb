"""What the tests of the plug measure: weights, and rewards at the input of an update."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter


def weights(model: Any) -> list[Any]:
    """All networks of a model, of torch or of JAX, as arrays."""
    policy = model.policy
    if isinstance(policy, torch.nn.Module) and len(policy.state_dict()) > 0:
        return [tensor.numpy().copy() for tensor in policy.state_dict().values()]
    import jax

    states = [value for name, value in sorted(vars(policy).items()) if name.endswith("_state")]
    return [np.array(leaf) for state in states for leaf in jax.tree.leaves(state.params)]


def equal(ours: list[Any], theirs: list[Any]) -> bool:
    return len(ours) == len(theirs) > 1 and all(map(np.array_equal, ours, theirs))


class Drawn:
    """Watches a replay buffer: every batch that reaches `train`, with the `y` of that moment."""

    def __init__(self, model: Any) -> None:
        from mvpi.sb3 import augmenter_of

        self.batches: list[tuple[Any, float]] = []
        draw = model.replay_buffer.sample

        def sample(*args: Any, **kwargs: Any) -> Any:
            batch = draw(*args, **kwargs)
            self.batches.append((batch, augmenter_of(model).y))
            return batch

        model.replay_buffer.sample = sample


class Rollouts(BaseCallback):
    """Keeps the rewards and advantages of every rollout, as they go into `train`."""

    def __init__(self) -> None:
        super().__init__()
        self.rewards: list[Any] = []
        self.advantages: list[Any] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.rewards.append(self.model.rollout_buffer.rewards.copy())  # type: ignore[attr-defined]
        self.advantages.append(self.model.rollout_buffer.advantages.copy())  # type: ignore[attr-defined]


class LoggedRows(KVWriter):
    """Keeps every row that SB3 writes to its log."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        self.rows.append(dict(key_values))

    def close(self) -> None:
        pass
