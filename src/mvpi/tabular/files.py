"""MDPs on disk: an `.npz` file of plain arrays. Nothing in it is ever executed.

A file that `MDP.save` writes holds

    format          "mvpi-mdp 1"
    indptr, indices, probabilities    the transition table in CSR form, row s * A + a
    rewards         (S, A), or one per stored transition
    discount, start    a number, and a distribution or the number of the one start state

Instead of the three arrays of the table a file may hold `transitions`, `(S, A, S)`; rewards are
then `(S, A)` or `(S, A, S)`, and `format`, `discount` (0.99) and `start` (uniform) can be left
out: `numpy.savez("model.npz", transitions=p, rewards=r)` makes a valid file.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from mvpi._checks import real_array
from mvpi.errors import InputError
from mvpi.npz import read_npz, write_npz
from mvpi.tabular.sparse import check_pointers

if TYPE_CHECKING:
    from mvpi.tabular.mdp import MDP

_FORMAT = "mvpi-mdp"
_VERSION = 1
_NAMES = frozenset(
    {"format", "indptr", "indices", "probabilities", "transitions", "rewards", "discount", "start"}
)


def save(mdp: MDP, path: str | PathLike[str]) -> None:
    """Write `mdp` to `path`."""
    table = mdp.transitions
    arrays = {
        "format": np.array(f"{_FORMAT} {_VERSION}"),
        "indptr": table.indptr,
        "indices": table.indices,
        "probabilities": table.data,
        "rewards": mdp.rewards,
        "discount": np.array(mdp.discount),
        "start": mdp.start,
    }
    write_npz(path, arrays)


def load(path: str | PathLike[str]) -> MDP:
    """Read an MDP; everything in the file is checked as if it were passed by hand."""
    arrays = read_npz(path, _NAMES, written_by="MDP.save")
    try:
        return _assemble(arrays)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _assemble(arrays: dict[str, Any]) -> MDP:
    from mvpi.tabular.mdp import MDP

    _check_format(arrays.get("format"))
    if "rewards" not in arrays:
        raise InputError("the array 'rewards' is missing")
    discount = _scalar(arrays["discount"]) if "discount" in arrays else 0.99
    rewards, start = arrays["rewards"], arrays.get("start")
    if start is not None and start.ndim == 0:
        start = start.item()
    if "transitions" in arrays:
        return MDP(arrays["transitions"], rewards, discount, start)
    for name in ("indptr", "indices", "probabilities"):
        if name not in arrays:
            raise InputError(f"the array {name!r} is missing (or 'transitions' in its place)")
    return MDP.from_rows(_table(arrays), rewards, discount, start)


def _check_format(marker: Any) -> None:
    if marker is None:
        return
    words = str(marker).split()
    if len(words) != 2 or words[0] != _FORMAT or not words[1].isdecimal():
        raise InputError(f"format must be '{_FORMAT} {_VERSION}', got {str(marker)[:40]!r}")
    if int(words[1]) > _VERSION:
        raise InputError(
            f"the file has format version {words[1]}, this mvpi reads up to {_VERSION}: upgrade it"
        )


def _scalar(array: Any) -> Any:
    if np.ndim(array) != 0:
        raise InputError(f"discount must be a single number, got shape {np.shape(array)}")
    return array.item()


def _table(arrays: dict[str, Any]) -> csr_array:
    """The CSR table, with its index arrays checked before anything follows them."""
    data = real_array(arrays["probabilities"], "probabilities")
    rewards = arrays["rewards"]
    if rewards.ndim == 2:
        states = rewards.shape[0]
    elif "start" in arrays and arrays["start"].ndim == 1:
        states = len(arrays["start"])
    else:
        raise InputError("start is needed to know the number of states")
    pairs = max(arrays["indptr"].size - 1, 1)
    indptr, indices = check_pointers(arrays["indptr"], arrays["indices"], (pairs, states))
    if data.shape != indices.shape:
        raise InputError(f"probabilities must be one per index: {len(indices)}, got {data.shape}")
    return csr_array((data, indices, indptr), shape=(pairs, states))
