"""The bounds of actions that are learned from data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mvpi.errors import InputError
from mvpi.offline._column_checks import bound
from mvpi.offline.dataset import Dataset
from mvpi.rollout.spaces import BoxActions


def action_box(data: Dataset, low: npt.ArrayLike | None, high: npt.ArrayLike | None) -> BoxActions:
    """The box of actions, in the type of the data, which must lie inside."""
    least, largest = data.actions[0], data.actions[0]
    for piece in data.pieces():
        least = np.minimum(least, data.actions[piece].min(axis=0))
        largest = np.maximum(largest, data.actions[piece].max(axis=0))
    low, high = (data.low if low is None else low), (data.high if high is None else high)
    box = BoxActions(
        np.array(least) if low is None else bound(low, least, "low"),
        np.array(largest) if high is None else bound(high, largest, "high"),
    )
    for i, (bottom, top) in enumerate(zip(box.low, box.high, strict=True)):
        if not bottom < top:
            raise InputError(
                f"low must be < high, in dimension {i} of the actions they are {bottom} and {top}; "
                "give the bounds of the actions as low and high"
            )
        if not bottom <= least[i] <= largest[i] <= top:
            raise InputError(
                f"actions must be from {bottom} to {top} in dimension {i}, the data have "
                f"{least[i]} to {largest[i]}; give wider low and high, or clip the actions"
            )
    return box
