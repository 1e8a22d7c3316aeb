"""The state of objects as JSON and arrays.

Every value becomes an entry: a number, a text, null, or a list that begins with its kind, such as
["array", name, ...] or ["object", {attribute: entry}]. What is met again says where it was met
first: ["seen", path], or ["again", path, entry] if it can be made anew. So two attributes that are
one list, or views of one array, are that again.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise

from mvpi._storage.arrays import Arrays
from mvpi.sb3._class_names import SCHEDULES, is_known, name_of
from mvpi.sb3._state_kinds import (
    content_of,
    fields,
    has_fields,
    is_constant,
    is_given,
    is_jax_array,
    is_mujoco_data,
    is_of_system,
    is_train_state,
    mujoco_arrays,
    parts_of,
    random_state,
)

_DEEPEST = 60
"""Objects in objects: beyond that, a value is taken for hidden."""
_CONTAINERS: dict[type[Any], str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
}
_BUILT_IN = (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, deque)
"""A class of one's own that is one of these: its attributes are not all of it."""
_SHARED = (*_CONTAINERS.values(), "deque", "dict", "named", "objects", "chance")
"""Kinds of what can be one and the same at two places."""
_HOLDS_CODE = ("model.env", "callback")
"""Where functions may hold state; settings of a model that are functions are given again."""
_AS_THEY_ARE = ("float16", "float32", "float64", "int32", "int64", "uint8", "uint32", "uint64")
NEW = (*SCHEDULES, ActionNoise)
"""What a reader makes by itself; for all else an object must be there."""


class StateWriter:
    """Collects the arrays of what it is shown."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.hidden: list[str] = []
        """Where something is whose state is not known."""
        self._entries: dict[int, Any] = {}
        self._views: dict[int, list[tuple[npt.NDArray[Any], list[Any]]]] = {}
        """Arrays without memory of their own, and their entries, by the array that has it."""
        self._met: list[Any] = []
        self._depth = 0

    def entry(self, value: Any, path: str) -> Any:
        """The entry of a value found at a path."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if id(value) in self._entries:
            return self._entries[id(value)]
        self._met.append(value)  # so that no other object gets its id
        if self._depth > _DEEPEST:
            return self._hide(path)
        # An object that is met again, perhaps inside itself, is stored already.
        self._entries[id(value)] = ["seen", path]
        self._depth += 1
        entry = self._new_entry(value, path)
        self._depth -= 1
        if entry[0] in _SHARED:
            self._entries[id(value)] = ["again", path, entry]
        elif entry[0] not in ("object", "module", "buffer", "code"):
            self._entries[id(value)] = entry
        return entry

    def fields(self, value: Any, path: str) -> dict[str, Any]:
        """Entries of all attributes."""
        return {name: self.entry(field, f"{path}.{name}") for name, field in fields(value).items()}

    def _new_entry(self, value: Any, path: str) -> list[Any]:
        if isinstance(value, np.generic | np.ndarray | torch.Tensor) or is_jax_array(value):
            return self._numbers(value, path)
        kind = _CONTAINERS.get(type(value))
        if kind is not None:
            return [kind, self._items(value, path)]
        if type(value) is deque:
            return ["deque", value.maxlen, self._items(value, path)]
        if isinstance(value, dict) and not is_constant(value):
            pairs = enumerate(value.items())
            return [
                "dict",
                [
                    [self.entry(k, f"{path}.key{i}"), self.entry(v, key_path(path, i, k))]
                    for i, (k, v) in pairs
                ],
            ]
        if isinstance(value, enum.Enum):
            return ["enum", name_of(type(value)), value.name]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["named", name_of(type(value)), self._items(value, path)]
        if (state := random_state(value)) is not None:
            return ["chance", state]
        return self._object(value, path)

    def _object(self, value: Any, path: str) -> list[Any]:
        if isinstance(value, type) and issubclass(value, np.generic):
            return ["type", np.dtype(value).str]
        if isinstance(value, type) and is_known(value):
            return ["class", name_of(value)]
        if isinstance(value, NEW) and is_known(type(value)):
            return ["new", name_of(type(value)), self.fields(value, path)]
        if isinstance(value, torch.optim.Optimizer):
            return ["optimizer", self.entry(value.state_dict(), path)]
        if is_train_state(value):
            import jax

            return ["tree", self._items(jax.tree.leaves(value), path)]
        if isinstance(value, torch.nn.Module):
            return self._module(value, path)
        if is_mujoco_data(value):
            arrays = {name: self.entry(a, f"{path}.{name}") for name, a in mujoco_arrays(value)}
            return ["mujoco", float(value.time), arrays]
        if (content := content_of(value)) is not None:
            return ["compared", content]
        if is_constant(value):
            return self._constant(value, path)
        if not has_fields(value) or isinstance(value, _BUILT_IN) or is_of_system(value):
            return self._hide(path)
        if isinstance(value, ReplayBuffer):
            return self._buffer(value, path)
        return ["object", self.fields(value, path)]

    def _constant(self, value: Any, path: str) -> list[Any]:
        parts = parts_of(value) if path.startswith(_HOLDS_CODE) else {}
        if parts:
            return ["code", {n: self.entry(part, f"{path}.{n}") for n, part in parts.items()}]
        return ["given"] if is_given(value) else ["constant"]

    def _hide(self, path: str) -> list[Any]:
        self.hidden.append(path)
        return ["hidden"]

    def _items(self, values: Any, path: str) -> list[Any]:
        return [self.entry(value, f"{path}.{i}") for i, value in enumerate(values)]

    def _module(self, module: torch.nn.Module, path: str) -> list[Any]:
        """Parameters, and what else the networks inside keep: optimisers, counters, keys."""
        weights = self.entry(dict(module.state_dict()), f"{path}.weights")
        own = {}
        for name, part in module.named_modules():
            self._met.append(part)
            where = f"{path}.{name}" if name else path
            self._entries[id(part)] = ["seen", where]
            kept = {n: v for n, v in fields(part).items() if _is_state_of_module(v)}
            own[name] = {n: self.entry(v, f"{where}.{n}") for n, v in kept.items()}
        return ["module", weights, own]

    def _buffer(self, buffer: ReplayBuffer, path: str) -> list[Any]:
        """Rows that were never written are left out."""
        used = buffer.buffer_size if buffer.full else buffer.pos
        entries = {}
        for name, value in fields(buffer).items():
            where = f"{path}.{name}"
            columns = value if isinstance(value, dict) else {None: value}
            if not all(_is_column(column, buffer.buffer_size) for column in columns.values()):
                entries[name] = self.entry(value, where)
                continue
            rows = []
            for key, column in columns.items():
                last = len(column) if column[used:].any() else used
                place = where if key is None else f"{where}.{key}"
                rows.append([key, self._numbers(column[:last], place)])
            entries[name] = ["rows", rows]
        return ["buffer", entries]

    def _numbers(self, value: Any, path: str) -> list[Any]:
        if isinstance(value, np.generic):
            if value.dtype.kind not in "biuf":
                return self._hide(path)
            return ["number", value.dtype.str, self.entry(value.item(), path)]
        if isinstance(value, torch.Tensor):
            return ["tensor", *self._array(value.detach().numpy(force=True), path)]
        if is_jax_array(value):
            array = np.asarray(value)
            return (
                ["jax", *self._array(array, path)]
                if array.dtype.kind in "biuf"
                else self._hide(path)
            )
        if value.dtype == object:
            return self._objects(value, path)
        if (content := content_of(value)) is not None:
            return ["compared", content]
        if value.dtype.kind not in "biuf":
            return self._hide(path)
        entry = ["array", *self._array(value, path)]
        return self._view(value, entry, path) if isinstance(value.base, np.ndarray) else entry

    def _view(self, value: npt.NDArray[Any], entry: list[Any], path: str) -> list[Any]:
        """A part of another array, if that or another part of it was met."""
        whole: Any = value
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if whole.dtype.kind not in "biuf" or not whole.flags.forc:
            return entry
        self._met.append(whole)
        alike = self._views.setdefault(id(whole), [])
        alike.append((value, entry))
        if len(alike) == 1 and id(whole) not in self._entries:
            return entry
        known = self.entry(whole, f"{path}.base")
        for part, there in alike:
            if there[0] == "array":
                del self.arrays[there[1]]
                there[:] = ["view", known, part.dtype.str, list(part.shape), *_place(part, whole)]
        return entry

    def _array(self, value: npt.NDArray[Any], name: str) -> list[Any]:
        """Its name, type and shape, and the order of its axes in memory, which sums depend on."""
        order = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
        laid_out = np.ascontiguousarray(value.transpose(order)).reshape(
            [value.shape[axis] for axis in order]
        )
        known = laid_out.dtype.name in _AS_THEY_ARE and laid_out.dtype.isnative
        stored = laid_out if known else np.frombuffer(laid_out.tobytes(), np.uint8)
        while name in self.arrays:
            name += "+"
        self.arrays[name] = stored.copy() if stored is value else stored
        return [name, value.dtype.str, list(laid_out.shape), order]

    def _objects(self, value: npt.NDArray[Any], path: str) -> list[Any]:
        """An array of objects, such as the infos of a buffer: those that are not empty."""
        flat = enumerate(value.ravel())
        return [
            "objects",
            list(value.shape),
            [[i, self.entry(v, f"{path}.{i}")] for i, v in flat if v],
        ]


def _place(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> tuple[int, list[int]]:
    """Where a view begins in the memory of its array, and its strides, in bytes."""
    starts = [int(a.__array_interface__["data"][0]) for a in (part, whole)]
    return starts[0] - starts[1], list(part.strides)


def key_path(path: str, place: int, key: Any) -> str:
    """The path of a value in a dictionary: no other path is spelt like it."""
    return f"{path}.{key!r}" if type(key) in (int, str) else f"{path}.value{place}"


def _is_column(value: Any, rows: int) -> bool:
    return (
        isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.shape[:1] == (rows,)
    )


def _is_state_of_module(value: Any) -> bool:
    """What of a network's attributes can change while it learns; the others are its structure."""
    kinds = bool | int | float | np.ndarray | np.generic | torch.Tensor | torch.optim.Optimizer
    return isinstance(value, kinds) or is_jax_array(value) or is_train_state(value)


def is_complete(entry: Any) -> bool:
    """Whether a reader needs nothing but the entry: no object, and no code, must be there."""
    if not isinstance(entry, list):
        return True
    kind, *rest = entry
    if kind in ("list", "tuple", "set", "frozenset", "deque", "named"):
        return all(map(is_complete, rest[-1]))
    if kind == "dict":
        return all(is_complete(part) for pair in rest[0] for part in pair)
    if kind == "again":
        return is_complete(rest[1])
    if kind == "new":
        return all(map(is_complete, rest[1].values()))
    return kind in ("float", "enum", "number", "array", "tensor", "jax", "class", "type")
