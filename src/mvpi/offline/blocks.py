"""Which rows of a data set belong together: what is drawn independently is resampled as a whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mvpi.offline.dataset import Dataset

Indices = npt.NDArray[np.int64]

_FEWEST_BLOCKS = 100
"""Episodes are cut where there are not as many."""


def episode_blocks(data: Dataset) -> Indices:
    """The number of every row's episode: it goes on while rows begin where the last one led to.

    Long episodes are cut, so that there are some blocks to weigh.
    """
    begins = np.ones(len(data), np.bool_)
    for piece in data.pieces():
        now, before = slice(max(1, piece.start), piece.stop), slice(max(1, piece.start) - 1, None)
        seen = np.asarray(data.observations[now])
        led_to = np.asarray(data.next_observations[before][: len(seen)])
        moved = (seen != led_to).reshape(len(seen), -1).any(axis=1)
        begins[now] = moved | data.terminations[before][: len(seen)]
    episode = np.cumsum(begins) - 1
    longest = max(1, len(data) // _FEWEST_BLOCKS)
    inside = np.arange(len(data)) - np.flatnonzero(begins)[episode]
    begins |= inside % longest == 0
    return np.cumsum(begins) - 1
