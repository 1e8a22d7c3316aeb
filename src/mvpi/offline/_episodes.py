"""Episodes in a data set: rows that follow each other.

episode_blocks(data)     blocks for the bootstrap: rows of one episode are resampled together
with_returns(data)       the same data with the return so far beside every observation
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.offline._column_checks import Anything
from mvpi.offline.dataset import Booleans, Dataset

Indices = npt.NDArray[np.int64]

_FEWEST_BLOCKS = 100
"""Episodes are cut into shorter blocks if there are fewer than this."""
_LEAST_KNOWN = 0.5
"""Share of the rows that must be of episodes which begin at a start."""


def episode_blocks(data: Dataset) -> Indices:
    """The number of every row's episode: it goes on while a row begins where the one before ended.

    Long episodes are cut, so that there are enough blocks to resample.
    """
    begins = _moved(data)
    begins[1:] |= data.terminations[:-1]
    episode = np.cumsum(begins) - 1
    longest = max(1, len(data) // _FEWEST_BLOCKS)
    inside = np.arange(len(data)) - np.flatnonzero(begins)[episode]
    begins |= inside % longest == 0
    return np.cumsum(begins) - 1


class Episodes(NamedTuple):
    """Data whose observations end with the return so far, and the returns of whole episodes."""

    data: Dataset
    """Only rows whose return so far is known; an episode is over at its end, truncated or not."""
    last: Indices
    """The last rows of whole episodes."""
    returns: Array
    """Their returns."""


def with_returns(data: Dataset) -> Episodes:
    """The episodes of data in order, or an `InputError` if there are none.

    An episode begins after a termination, after a truncation and, where truncations are not given,
    where a row does not begin where the one before led to. Rows before the first start, such as
    those of a replay whose oldest rows were overwritten, are left out: what was earned before them
    is not known.
    """
    begins, ends = _bounds(data)
    number = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    known = _are_starts(data, first)[number]
    whole = np.flatnonzero(ends & known)
    if not whole.size:
        raise InputError(
            "the risk of the return needs whole episodes, and none in the data begins at a start "
            "and ends; give rows in order, with truncations where a time limit cut an episode"
        )
    if known.mean() < _LEAST_KNOWN:
        raise InputError(
            "the risk of the return needs episodes in order, but only "
            f"{known.mean():.1%} of the rows are of one that begins at a start; give rows in the "
            "order they were gathered in, and every start"
        )
    rewards = np.asarray(data.rewards, np.float64)
    total = np.cumsum(rewards)
    so_far = total - rewards - (total - rewards)[first][number]
    kept = np.flatnonzero(known)
    rows = data.batch(kept)
    after = (so_far + rewards)[kept]
    extended = Dataset(
        _beside(rows.observations, so_far[kept]),
        rows.actions,
        rows.rewards,
        _beside(rows.next_observations, after),
        ends[kept],
        _beside(np.asarray(data.starts), np.zeros(len(data.starts))),
        n_actions=data.n_actions,
        low=data.low,
        high=data.high,
    )
    last = np.flatnonzero(ends[kept])
    return Episodes(extended, last, after[last])


def _bounds(data: Dataset) -> tuple[Booleans, Booleans]:
    """Which rows begin an episode, and which end one."""
    moved, ends = _moved(data), np.array(data.terminations)
    if data.truncations is not None:
        ends |= data.truncations
        begins = np.append(True, ends[:-1])
        astray = np.flatnonzero(moved & ~begins)
        if astray.size:
            raise InputError(
                f"the risk of the return needs rows in order: row {astray[0]} does not begin where "
                "the one before led to, and no termination or truncation is between them"
            )
        return begins, ends
    begins = moved
    begins[1:] |= ends[:-1]
    if len(begins) > 1 and begins.all() and not ends.any():
        raise InputError(
            "the risk of the return needs rows in order: no row begins where the one before led "
            "to, and no episode terminates; give the rows in the order they were gathered in"
        )
    ends[:-1] = begins[1:]
    return begins, ends


def _moved(data: Dataset) -> Booleans:
    """Which rows do not begin where the one before led to; the first one does not."""
    moved = np.ones(len(data), np.bool_)
    for piece in data.pieces():
        now, before = slice(max(1, piece.start), piece.stop), slice(max(1, piece.start) - 1, None)
        seen = np.asarray(data.observations[now])
        led_to = np.asarray(data.next_observations[before][: len(seen)])
        moved[now] = (seen != led_to).reshape(len(seen), -1).any(axis=1)
    return moved


def _are_starts(data: Dataset, rows: Indices) -> Booleans:
    """Whether the observations of some rows are among the starts."""
    kind = data.observations.dtype
    starts = {s.tobytes() for s in np.asarray(data.starts).astype(kind) + kind.type(0)}
    seen = np.asarray(data.observations[rows]) + kind.type(0)  # -0.0 is 0.0
    return np.array([s.tobytes() in starts for s in seen], np.bool_)


def _beside(observations: Anything, so_far: Array) -> Anything:
    """Observations with the return so far as their last entry."""
    kind = np.result_type(observations.dtype, np.float32)
    return np.concatenate([observations, so_far[:, None]], axis=1, dtype=kind)
