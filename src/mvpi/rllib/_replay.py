"""Sums over n steps: RLlib's buffers form them of raw rewards, while they draw.

With `n_step` above 1, `sample` is followed by a look at the rewards that went into every sum. They
travel with what was drawn, and learners form the sums again, of augmented rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer
from scipy.signal import lfilter

from mvpi._types import Array
from mvpi.errors import InputError

Steps = Array | list[float]

STEPS = "mvpi_steps"
"""The key in an episode's `custom_data`: the rewards of a sum, and the discount."""


def attach_steps(buffer: Any, gamma: float) -> None:
    """Have everything that `buffer.sample` returns carry the rewards of its sums."""
    plain = buffer.sample

    def sample(*args: Any, **kwargs: Any) -> Any:
        drawn = plain(*args, **kwargs)
        steps = list(_steps(buffer, drawn))
        expected = discounted(steps, gamma)
        if not np.array_equal(expected, [float(e.get_rewards(0)) for e in drawn]):
            raise InputError(
                f"{type(buffer).__name__} sums rewards over n_step in its own way: use n_step=1"
            )
        for episode, rewards in zip(drawn, steps, strict=True):
            episode.custom_data[STEPS] = (rewards, gamma)
        return drawn

    buffer.sample = sample


def discounted(steps: Sequence[Steps], gamma: float) -> Array:
    """`sum_k gamma^k r_k` of every row, by the arithmetic of RLlib's buffers, to the same bits."""
    rows = np.zeros((len(steps), max(map(len, steps), default=1)))
    for row, rewards in zip(rows, steps, strict=True):
        row[: len(rewards)] = rewards
    return np.asarray(lfilter([1], [1, -gamma], rows[:, ::-1], axis=1)[:, -1])


def _steps(buffer: Any, drawn: list[Any]) -> Iterator[Array]:
    """The raw rewards of what was drawn, found where it was drawn from."""
    if isinstance(buffer, PrioritizedEpisodeReplayBuffer):
        places = [
            buffer._indices[buffer._tree_idx_to_sample_idx[i]][:2]
            for i in buffer._last_sampled_indices
        ]
    else:
        places = [(buffer.episode_id_to_index[e.id_], e.t_started) for e in drawn]
    for (index, start), episode in zip(places, drawn, strict=True):
        stored = buffer.episodes[index - buffer._num_episodes_evicted]
        n = int(episode.get_extra_model_outputs("n_step", 0))
        yield np.asarray(stored.get_rewards(slice(start, start + n)), np.float64)


def draws_new_episodes(buffer: Any) -> bool:
    """Whether `sample` makes the episodes that it returns: a buffer of the user's may not."""
    return type(buffer) in (EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer)


def refuse_other_buffers(buffer: Any) -> None:
    """Sums are only found again in buffers of episodes of one agent."""
    if not isinstance(buffer, EpisodeReplayBuffer):
        raise InputError(
            f"n_step above 1 needs an EpisodeReplayBuffer, or one that prioritises; got "
            f"{type(buffer).__name__}: use n_step=1"
        )
