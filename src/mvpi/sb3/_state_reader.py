"""Puts a state that `mvpi.sb3._state_writer` wrote back into objects that were made anew.

Nothing in an entry is executed: classes are looked up by `known_class`, and of those only schedules
and action noises are made, without calling them. Where an entry does not fit what is there, a
`ValueError` or a `TypeError` says so.
"""

from __future__ import annotations

import copy
import enum
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from mvpi._storage.arrays import Arrays
from mvpi.sb3._class_names import known_class, loaded_class
from mvpi.sb3._state_kinds import (
    cells_of,
    content_of,
    generator_of,
    has_fields,
    is_constant,
    is_jax_array,
    is_mujoco_data,
    is_train_state,
    parts_of,
    random_state,
    set_random_state,
)
from mvpi.sb3._state_writer import NEW, key_path

_PLAIN = (bool, int, str, float)
_LEFT_ALONE = ("constant", "given")
NOTHING: Any = object()
"""What is there when nothing is."""


class StateReader:
    """Makes values of entries."""

    def __init__(self, arrays: Arrays) -> None:
        self._stored = arrays
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._made: dict[str, Any] = {}
        """Values by their paths, for other places that hold the same."""
        self._restored: dict[int, str] = {}
        """Objects whose attributes were put back, and the paths of these."""
        self.lost: list[str] = []
        """Where there is no object to put a state into."""
        self._kinds: dict[str, Callable[..., Any]] = {
            "float": self._float,
            "seen": self._seen,
            "again": self._again,
            "compared": self._compared,
            "code": self._code,
            "list": self._container(list),
            "tuple": self._container(tuple),
            "set": self._container(set),
            "frozenset": self._container(frozenset),
            "deque": self._deque,
            "dict": self._dict,
            "enum": self._enum,
            "named": self._named,
            "number": self._number,
            "array": self._array,
            "view": self._view,
            "objects": self._objects,
            "tensor": self._tensor,
            "jax": self._jax,
            "chance": self._random_state,
            "class": self._class,
            "type": self._type,
            "new": self._new,
            "optimizer": self._optimizer,
            "tree": self._tree,
            "module": self._module,
            "mujoco": self._mujoco,
            "buffer": self._object,
            "rows": self._rows,
            "object": self._object,
        }

    def value(self, entry: Any, there: Any, path: str) -> Any:
        """The value of an entry; `there` is what the object has now, and is used where it can."""
        if entry is None or type(entry) in _PLAIN:
            return entry
        kind, *rest = entry
        if kind in _LEFT_ALONE and there is not NOTHING:
            return there
        if kind in _LEFT_ALONE or kind == "hidden":
            self.lost.append(path)
            return None if there is NOTHING else there
        self._made[path] = self._kinds[kind](*rest, there=there, path=path)
        return self._made[path]

    def restore_fields(self, entries: dict[str, Any], into: Any, path: str) -> None:
        """Put back the attributes of an object."""
        for name, entry in entries.items():
            if not name.isidentifier() or name.startswith(("__", "_mvpi")):
                raise ValueError(f"an attribute {name[:80]!r}")
            there = getattr(into, name, NOTHING)
            if there is NOTHING and isinstance(entry, list) and entry[0] in _LEFT_ALONE:
                continue  # code, which is no state
            lost = len(self.lost)
            value = self.value(entry, there, f"{path}.{name}")
            if value is there or len(self.lost) > lost:
                continue
            if is_constant(there) and not is_constant(value):
                raise ValueError(f"{path}.{name} is no data")
            if hasattr(into, "__dict__") and not isinstance(into, torch.nn.Module):
                vars(into)[name] = value  # past properties and rules of its class
            else:
                object.__setattr__(into, name, value)

    def _items(self, entries: list[Any], there: Any, path: str) -> list[Any]:
        known = list(there) if isinstance(there, list | tuple | deque) else []
        known += [NOTHING] * (len(entries) - len(known))
        pairs = enumerate(zip(entries, known, strict=False))
        return [self.value(entry, old, f"{path}.{i}") for i, (entry, old) in pairs]

    def _container(self, kind: type[Any]) -> Callable[..., Any]:
        def made(entries: list[Any], there: Any, path: str) -> Any:
            return kind(self._items(entries, there, path))

        return made

    def _float(self, text: Any, there: Any, path: str) -> float:
        del there, path
        return {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}[text]

    def _deque(self, longest: Any, entries: list[Any], there: Any, path: str) -> deque[Any]:
        return deque(self._items(entries, there, path), longest)

    def _dict(self, pairs: list[Any], there: Any, path: str) -> dict[Any, Any]:
        known = there if isinstance(there, dict) else {}
        made = copy.copy(known)  # of the same class
        made.clear()
        for i, (name, entry) in enumerate(pairs):
            key = self.value(name, None, f"{path}.key{i}")
            made[key] = self.value(entry, known.get(key, NOTHING), key_path(path, i, key))
        return made

    def _seen(self, first: str = "", *, there: Any, path: str) -> Any:
        """What was put back at another path already, or is the same without that."""
        if first in self._made:
            return self._made[first]
        return self._lose(there, path) if there is NOTHING else there

    def _again(self, first: str, entry: Any, there: Any, path: str) -> Any:
        return self._made[first] if first in self._made else self.value(entry, there, path)

    def _lose(self, there: Any, path: str) -> Any:
        self.lost.append(path)
        return None if there is NOTHING else there

    def _compared(self, content: Any, there: Any, path: str) -> Any:
        return there if content_of(there) == content else self._lose(there, path)

    def _code(self, entries: dict[str, Any], there: Any, path: str) -> Any:
        """A function stays; what it holds is put back."""
        here, cells = parts_of(there), cells_of(there)
        if here.keys() != entries.keys():
            return self._lose(there, path)
        for name, entry in entries.items():
            where = f"{path}.{name}"
            value = self.value(entry, here[name], where)
            if value is here[name] or (type(value) in _PLAIN and value == here[name]):
                continue
            if name not in cells:
                return self._lose(there, where)
            if is_constant(here[name]) and not is_constant(value):
                raise ValueError(f"{where} is no data")
            cells[name].cell_contents = value
        return there

    def _enum(self, name: Any, member: Any, there: Any, path: str) -> Any:
        known: Any = loaded_class(name, enum.Enum)
        if known is None:
            same = isinstance(there, enum.Enum)
            known = type(there) if same else None
        found = None if known is None else known.__members__.get(member)
        return self._lose(there, path) if found is None else found

    def _named(self, name: Any, entries: list[Any], there: Any, path: str) -> Any:
        known: Any = loaded_class(name, tuple)
        if known is None:
            known = type(there)
        items = self._items(entries, there, path)
        if known is None or len(getattr(known, "_fields", ())) != len(items):
            return self._lose(there, path)
        return tuple.__new__(known, items)

    def _number(self, dtype: Any, entry: Any, there: Any, path: str) -> Any:
        return _dtype(dtype).type(self.value(entry, there, path))

    def _array(
        self, name: Any, dtype: Any, shape: Any, order: Any, there: Any, path: str
    ) -> npt.NDArray[Any]:
        del there, path
        if name in self._arrays:  # two attributes that are one array stay one
            return self._arrays[name]
        stored, wanted = self._stored[name], _dtype(dtype)
        if stored.dtype != wanted:
            stored = np.frombuffer(stored.tobytes(), wanted)
        laid_out = np.array(stored.reshape([int(n) for n in shape]), copy=True)
        self._arrays[name] = laid_out.transpose(np.argsort([int(axis) for axis in order]))
        return self._arrays[name]

    def _view(
        self, whole: Any, dtype: Any, shape: Any, start: Any, strides: Any, there: Any, path: str
    ) -> npt.NDArray[Any]:
        """A part of the memory of another array; numpy refuses what is not inside."""
        base = self.value(whole, None, f"{path}.base")
        memory = base.transpose(np.argsort([-abs(stride) for stride in base.strides]))
        del there
        return np.ndarray(
            [int(n) for n in shape],
            _dtype(dtype),
            memory.data,
            int(start),
            [int(n) for n in strides],
        )

    def _array_of(self, entry: tuple[Any, ...]) -> npt.NDArray[Any]:
        name, dtype, shape, order = entry
        return self._array(name, dtype, shape, order, there=None, path="")

    def _objects(self, shape: Any, pairs: Any, there: Any, path: str) -> Any:
        if not isinstance(there, np.ndarray) or list(there.shape) != shape or there.dtype != object:
            raise ValueError(f"{path} is of another shape")
        for place, entry in pairs:
            there.flat[place] = self.value(entry, NOTHING, path)
        return there

    def _tensor(self, *array: Any, there: Any, path: str) -> torch.Tensor:
        tensor = torch.from_numpy(self._array_of(array))
        if not isinstance(there, torch.Tensor):
            return tensor
        if there.shape != tensor.shape or there.dtype != tensor.dtype:
            raise ValueError(f"{path} has the shape {tuple(there.shape)}")
        with torch.no_grad():
            there.copy_(tensor)  # optimisers hold on to the tensor that is there
        return there

    def _jax(self, *array: Any, there: Any, path: str) -> Any:
        import jax.numpy as jnp

        values = self._array_of(array)
        if is_jax_array(there) and (there.shape != values.shape or there.dtype != values.dtype):
            raise ValueError(f"{path} has the shape {there.shape}")
        return jnp.array(values)

    def _random_state(self, state: Any, there: Any, path: str) -> Any:
        if random_state(there) is None:  # such as one that is made when it is first needed
            made = generator_of(state)
            return self._lose(there, path) if made is None else made
        set_random_state(there, state)
        return there

    def _class(self, name: Any, there: Any, path: str) -> Any:
        del path
        return there if isinstance(there, type) else known_class(name)

    def _type(self, name: Any, there: Any, path: str) -> Any:
        del there, path
        return _dtype(name).type

    def _new(self, name: Any, entries: dict[str, Any], there: Any, path: str) -> Any:
        cls = known_class(name)
        if not issubclass(cls, NEW):
            raise ValueError(f"{path} is no schedule and no noise")
        made = there if type(there) is cls else object.__new__(cls)
        self.restore_fields(entries, made, path)
        return made

    def _optimizer(self, entry: Any, there: Any, path: str) -> Any:
        if not isinstance(there, torch.optim.Optimizer):
            raise TypeError(f"{path} is no optimiser")
        there.load_state_dict(self.value(entry, NOTHING, path))
        return there

    def _tree(self, entries: list[Any], there: Any, path: str) -> Any:
        import jax

        if not is_train_state(there):
            raise TypeError(f"{path} is no state of a network of JAX")
        leaves, structure = jax.tree.flatten(there)
        if len(leaves) != len(entries):
            raise ValueError(f"{path} has {len(leaves)} arrays, not {len(entries)}")
        return jax.tree.unflatten(structure, self._items(entries, leaves, path))

    def _module(self, weights: Any, own: dict[str, Any], there: Any, path: str) -> Any:
        if not isinstance(there, torch.nn.Module):
            raise TypeError(f"{path} is no network")
        there.load_state_dict(self.value(weights, NOTHING, path), strict=True)
        parts = dict(there.named_modules())
        self._made |= {f"{path}.{name}" if name else path: part for name, part in parts.items()}
        for name, entries in own.items():
            self.restore_fields(entries, parts[name], f"{path}.{name}")
        return there

    def _mujoco(self, time: Any, arrays: dict[str, Any], there: Any, path: str) -> Any:
        if not is_mujoco_data(there):
            self.lost.append(path)
            return there
        for name, entry in arrays.items():
            values, now = self.value(entry, None, path), getattr(there, name)
            if not isinstance(now, np.ndarray):
                raise ValueError(f"{path}.{name} is no array")
            if now.shape == values.shape:
                now[...] = values
            elif name in ("qpos", "qvel"):
                raise ValueError(f"{path}.{name} is of another shape")
            # Others have a row per constraint or contact of now, and the next step makes them anew.
        there.time = float(time)
        return there

    def _rows(self, columns: Any, there: Any, path: str) -> Any:
        """Rows of a buffer, into its beginning: those behind them were never written."""
        for key, entry in columns:
            column = there if key is None else there[key]
            rows = self.value(entry, None, path)
            fits = isinstance(column, np.ndarray) and rows.shape[1:] == column.shape[1:]
            if not fits or len(rows) > len(column) or rows.dtype != column.dtype:
                raise ValueError(f"{path} has rows of another shape")
            column[: len(rows)] = rows
        return there

    def _object(self, entries: dict[str, Any], there: Any, path: str) -> Any:
        if there is None or there is NOTHING or is_constant(there) or not has_fields(there):
            self.lost.append(path)
            return None if there is NOTHING else there
        if self._restored.setdefault(id(there), path) != path:  # two objects have become one
            return self._lose(there, path)
        self._made[path] = there
        self.restore_fields(entries, there, path)
        return there


def _dtype(name: Any) -> np.dtype[Any]:
    found = np.dtype(str(name))
    if found.kind not in "biuf":
        raise ValueError(f"numbers of type {str(name)[:40]!r}")
    return found
