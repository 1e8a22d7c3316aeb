"""Sparse matrices of a user, checked before compiled code follows their indices.

scipy checks the index arrays of a matrix only when it is made: a matrix that was changed afterwards
reads and writes memory outside its arrays. `checked_csr` checks every index of every format and
returns a copy.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import bsr_array, coo_array, csc_array, csr_array, dia_array, issparse

from mvpi._checks import real_array, shown
from mvpi.errors import InputError

Indices = npt.NDArray[np.int64]
Shape = tuple[int, int]


def checked_csr(matrix: Any, name: str) -> csr_array:
    """A sparse matrix of any format as CSR of float64, in arrays of its own."""
    if not issparse(matrix) or matrix.ndim != 2:
        raise InputError(f"{name} must be a scipy sparse matrix, got {type(matrix).__name__}")
    shape: Shape = (int(matrix.shape[0]), int(matrix.shape[1]))
    kind = matrix.format
    rows: Any
    if kind in ("csr", "csc", "bsr"):
        return _from_compressed(matrix, kind, shape, name)
    if kind == "dia":
        return _from_diagonals(matrix, shape, name)
    if kind == "lil":
        rows, columns, data = _of_lists(matrix, name)
    elif kind == "dok":
        rows, columns = zip(*matrix.keys(), strict=True) if matrix.nnz else ((), ())
        data = list(matrix.values())
    else:
        (rows, columns), data = matrix.coords, matrix.data
    entries = _numbers(data, f"the data of {name}", 1)
    places = []
    for values, axis, size in zip((rows, columns), ("rows", "columns"), shape, strict=True):
        axis_name = f"the {axis} of {name}"
        places.append(_within(_whole(values, axis_name), axis_name, size))
        if len(places[-1]) != len(entries):
            raise InputError(
                f"{axis_name} must be one for each of {len(entries)} values, got {len(places[-1])}"
            )
    return coo_array((entries, tuple(places)), shape=shape).tocsr()


def check_pointers(
    indptr: npt.ArrayLike, indices: npt.ArrayLike, shape: Shape, name: str = ""
) -> tuple[Indices, Indices]:
    """The two index arrays of a compressed matrix with `shape[0]` rows, as int64."""
    prefix = f"{name}." if name else ""
    pointers = _whole(indptr, f"{prefix}indptr")
    places = _whole(indices, f"{prefix}indices")
    rows, columns = shape
    if len(pointers) != rows + 1 or pointers[0] != 0 or (np.diff(pointers) < 0).any():
        raise InputError(f"{prefix}indptr must be {rows + 1} numbers that increase from 0")
    if pointers[-1] > len(places):
        raise InputError(
            f"{prefix}indptr must increase to {len(places)}, the number of indices, got "
            f"{pointers[-1]}"
        )
    used = places[: pointers[-1]]  # scipy allows for more
    return pointers, _within(used, f"{prefix}indices", columns)


def _from_compressed(matrix: Any, kind: str, shape: Shape, name: str) -> csr_array:
    data = _numbers(matrix.data, f"the data of {name}", 3 if kind == "bsr" else 1)
    major = shape if kind != "csc" else (shape[1], shape[0])
    if kind == "bsr":
        height, width = data.shape[1:]
        if 0 in (height, width) or shape[0] % height or shape[1] % width:
            raise InputError(f"the blocks of {name} must fill its shape {shape}, got {data.shape}")
        major = (shape[0] // height, shape[1] // width)
    indptr, indices = check_pointers(matrix.indptr, matrix.indices, major, name)
    if len(data) < len(indices):
        raise InputError(f"the data of {name} must be one per index: {len(indices)}, {len(data)}")
    make = {"csr": csr_array, "csc": csc_array, "bsr": bsr_array}[kind]
    return make((data[: len(indices)], indices, indptr), shape=shape).tocsr()


def _from_diagonals(matrix: Any, shape: Shape, name: str) -> csr_array:
    data = _numbers(matrix.data, f"the data of {name}", 2)
    offsets = _whole(matrix.offsets, f"the offsets of {name}")
    inside = (offsets > -shape[0]) & (offsets < shape[1])
    if len(offsets) != len(data) or len(np.unique(offsets)) != len(offsets) or not inside.all():
        raise InputError(
            f"the offsets of {name} must be from {1 - shape[0]} to {shape[1] - 1}, each once, one "
            f"for each of {len(data)} diagonals, got {shown(offsets.tolist())}"
        )
    return dia_array((data, offsets), shape=shape).tocsr()


def _of_lists(matrix: Any, name: str) -> tuple[Indices, Any, Any]:
    """The rows, columns and values in a matrix of lists."""
    lengths = [[len(row) for row in lists] for lists in (matrix.rows, matrix.data)]
    if lengths[0] != lengths[1] or len(lengths[0]) != matrix.shape[0]:
        raise InputError(f"{name} must have a list of columns and one of values for every row")
    columns, data = (list(chain.from_iterable(lists)) for lists in (matrix.rows, matrix.data))
    return np.repeat(np.arange(matrix.shape[0]), lengths[0]), columns, data


def _numbers(data: Any, name: str, dimensions: int) -> npt.NDArray[np.float64]:
    array = np.array(real_array(data, name))
    if array.ndim != dimensions:
        raise InputError(f"{name} must have {dimensions} dimensions, got the shape {array.shape}")
    return array


def _whole(values: Any, name: str) -> Indices:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InputError(
            f"{name} must be a row of whole numbers, got {array.dtype} of shape {array.shape}"
        )
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError(f"{name} must be below 2^63, got {array.max()}")
    return np.array(array, dtype=np.int64)


def _within(places: Indices, name: str, below: int) -> Indices:
    wrong = (places < 0) | (places >= below)
    if wrong.any():
        raise InputError(f"{name} must be from 0 to {below - 1}, got {places[np.argmax(wrong)]}")
    return places
