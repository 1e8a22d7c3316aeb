"""MDPs on disk: an `.npz` file of plain arrays. Nothing in it is ever executed.

A file that `MDP.save` writes holds

    format          "mvpi-mdp 1", or 2 with any of the last three
    indptr, indices, probabilities    the transition table in CSR form, row s * A + a
    rewards         (S, A), or one per stored transition
    discount, start    a number, and a distribution or the number of the one start state
    allowed         booleans (S, A), where a state does not have all actions; the rows of pairs that
                    are not allowed are empty
    state_labels, action_labels    if there are any: an array of texts or numbers, or a text that
                    holds a JSON list, in which lists are tuples

Instead of the three arrays of the table a file may hold `transitions`, `(S, A, S)`; rewards are
then `(S, A)` or `(S, A, S)`, and all but `rewards` can be left out, with a discount of 0.99 and a
uniform start: `numpy.savez("model.npz", transitions=p, rewards=r)` makes a valid file.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from mvpi._checks import real_array
from mvpi._storage.npz import read_npz, write_npz
from mvpi.errors import InputError
from mvpi.tabular._stored_mdp import StoredMDP
from mvpi.tabular.labels import from_array, to_json
from mvpi.tabular.masks import without_repeats
from mvpi.tabular.sparse import check_pointers

Model = TypeVar("Model")


_FORMAT = "mvpi-mdp"
_VERSION = 2
"""The latest; a file has the first that knows all its arrays."""
_SINCE_2 = ("allowed", "state_labels", "action_labels")
_NAMES = frozenset(
    {
        *("format", "indptr", "indices", "probabilities", "transitions", "rewards"),
        *("discount", "start", *_SINCE_2),
    }
)


def save(mdp: StoredMDP, path: str | PathLike[str]) -> None:
    """Write `mdp` to `path`."""
    table, rewards, extras = mdp.transitions, mdp.rewards, _extras(mdp)
    if mdp.masked:
        table, rewards = without_repeats(table, rewards, mdp.allowed)
    arrays = {
        "format": np.array(f"{_FORMAT} {2 if extras else 1}"),
        "indptr": table.indptr,
        "indices": table.indices,
        "probabilities": table.data,
        "rewards": rewards,
        "discount": np.array(mdp.discount),
        "start": mdp.start,
        **extras,
    }
    write_npz(path, arrays)


def _extras(mdp: StoredMDP) -> dict[str, Any]:
    """The arrays that files of version 1 do not have."""
    extras: dict[str, Any] = {"allowed": mdp.allowed} if mdp.masked else {}
    for kind, labels in (("state", mdp.state_labels), ("action", mdp.action_labels)):
        if not isinstance(labels, range):
            extras[f"{kind}_labels"] = to_json(labels, kind)
    return extras


def load(
    path: str | PathLike[str], make: Callable[..., Model], from_rows: Callable[..., Model]
) -> Model:
    """Read an MDP; everything in the file is checked as if it were passed by hand.

    `make` and `from_rows` are the two constructors of the MDP.
    """
    arrays = read_npz(path, _NAMES, written_by="MDP.save")
    try:
        return _assemble(arrays, make, from_rows)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _assemble(
    arrays: dict[str, Any], make: Callable[..., Model], from_rows: Callable[..., Model]
) -> Model:
    _check_format(arrays.get("format"))
    if "rewards" not in arrays:
        raise InputError("the array 'rewards' is missing")
    discount = _scalar(arrays["discount"]) if "discount" in arrays else 0.99
    rewards, start = arrays["rewards"], arrays.get("start")
    if start is not None and start.ndim == 0:
        start = start.item()
    extras = {name: arrays[name] for name in _SINCE_2 if name in arrays}
    for name in _SINCE_2[1:]:
        if name in extras:
            extras[name] = from_array(extras[name], name)
    if "transitions" in arrays:
        return make(arrays["transitions"], rewards, discount, start, **extras)
    for name in ("indptr", "indices", "probabilities"):
        if name not in arrays:
            raise InputError(f"the array {name!r} is missing (or 'transitions' in its place)")
    return from_rows(_table(arrays), rewards, discount, start, **extras)


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
