"""What the record of a policy file says of sizes, columns and spaces, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mvpi._storage.arrays import Arrays, take
from mvpi.augmenter.columns import Columns
from mvpi.errors import InputError
from mvpi.rollout.spaces import BoxActions, Choices, FlatObservations, Spaces, States

_MOST_LAYERS = 100


def layer_sizes_in(record: dict[str, Any], path: Path) -> list[int]:
    """The sizes of all layers, those of inputs and outputs too."""
    sizes = record.get("sizes")
    if (
        not isinstance(sizes, list)
        or not 2 <= len(sizes) <= _MOST_LAYERS
        or not all(type(n) is int and n > 0 for n in sizes)
    ):
        raise InputError(f"{path} is damaged: the sizes of its layers are missing or wrong")
    return sizes


def columns_in(record: dict[str, Any], path: Path) -> Columns:
    """The columns of its input beside the observation."""
    try:
        return Columns.of_record(record.get("columns", {}))
    except (InputError, LookupError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is damaged: what its policy sees is unknown: {reason}") from None


def spaces_in(
    arrays: Arrays, record: dict[str, Any], sizes: list[int], path: Path, *, chooses: bool
) -> Spaces:
    """The spaces of a policy that `chooses` among finitely many actions, or acts in a box."""
    seen, first_state, first_choice = (
        sizes[0],
        record.get("first_state"),
        record.get("first_choice"),
    )
    if not all(first is None or type(first) is int for first in (first_state, first_choice)):
        raise InputError(f"{path} is damaged: its states or choices begin at no whole number")
    for first, count in ((first_state, sizes[0]), (first_choice, sizes[-1])):
        if first is not None and not -(2**63) <= first <= 2**63 - count:
            raise InputError(f"{path} is damaged: its states or choices are beyond 64 bits")
    observations = FlatObservations(seen) if first_state is None else States(seen, first_state)
    if (first_choice is None) == chooses:
        raise InputError(f"{path} is damaged: its policy and its actions do not belong together")
    if first_choice is not None:
        return Spaces(observations, Choices(sizes[-1], first_choice))
    low, high = (take(arrays, name, (sizes[-1],), path) for name in ("low", "high"))
    if low.dtype != high.dtype or low.dtype.kind != "f" or not (low < high).all():
        raise InputError(f"{path} is damaged: low and high bound no box of actions")
    return Spaces(observations, BoxActions(low, high))
