"""Model files of risk-averse models: what SB3 reads of them, and what is checked before it does.

SB3's `load` reads the data of a file by `save_util.json_to_data`. Importing this module
extends that function: a record of ours becomes a plug again. So `SAC.load` and RL Zoo restore a
risk-averse model by themselves; without this package the record stays where the method was.
"""

from __future__ import annotations

import inspect
import json
import zipfile
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

from stable_baselines3.common import save_util
from stable_baselines3.common.base_class import BaseAlgorithm

from mvpi._checks import shown
from mvpi._storage.files import short
from mvpi.errors import InputError
from mvpi.risk import Risk
from mvpi.sb3._hooks import COLLECT, TRAIN, Detached, Hook
from mvpi.sb3._plug import OffPolicyPlug, OnPolicyPlug, Plug
from mvpi.sb3._record import MARK

Reader = Callable[..., dict[str, Any]]
_LIBRARIES = ("stable_baselines3", "sb3_contrib", "sbx")


def kind_of_record(record: Any) -> type[Plug]:
    """Whose record it is: only on-policy ones say whether they grow with the rollout."""
    on_policy = isinstance(record, dict) and "grows_with_rollout" in record
    return OnPolicyPlug if on_policy else OffPolicyPlug


def plug_from(record: Any, risk: Risk | float | None = None) -> Plug:
    """The plug that a record describes."""
    return kind_of_record(record).from_record(record, risk)


def restoring(read: Reader) -> Reader:
    """`json_to_data` that makes plugs of records; a record that was left out becomes an error."""
    if getattr(read, "_mvpi", False):
        return read

    @wraps(read)
    def json_to_data(json_string: str, custom_objects: Any = None) -> dict[str, Any]:
        data = read(json_string, custom_objects)
        record = record_of(data)
        if record is not None:
            plug = plug_from(record)
            data.update({name: Hook(plug, name) for name in (COLLECT, TRAIN)})
        elif any(name in data and not callable(data[name]) for name in (COLLECT, TRAIN)):
            data.update({name: Detached({MARK: None}) for name in (COLLECT, TRAIN)})
        return data

    json_to_data._mvpi = True  # type: ignore[attr-defined]
    return json_to_data


def _entry(data: dict[str, Any], name: str) -> dict[str, Any]:
    entry = data.get(name)
    return entry if type(entry) is dict else {}


def install_reader() -> None:
    """Have SB3 read records, once."""
    save_util.json_to_data = restoring(save_util.json_to_data)


def saved_data(path: Any) -> dict[str, Any]:
    """The data of a model file as JSON. Nothing in it is executed."""
    try:
        with zipfile.ZipFile(_existing(path)) as archive:
            data = json.loads(archive.read("data"))
    except Exception as error:  # noqa: BLE001 - a damaged file may raise anything
        name = shown(str(path))
        raise InputError(f"{name} is no model file of Stable-Baselines3: {short(error)}") from None
    finally:
        if hasattr(path, "seek"):
            path.seek(0)
    if not isinstance(data, dict):
        raise InputError(f"{shown(str(path))} is no model file of Stable-Baselines3")
    return data


def record_of(data: dict[str, Any]) -> Any:
    """What the data of a model file say of its risk: None if nothing."""
    return _entry(data, COLLECT).get(MARK)


def _existing(path: Any) -> Any:
    """The file that SB3 would read: with the suffix .zip if there is none without."""
    if hasattr(path, "read"):
        return path
    given = Path(path)
    return given if given.exists() else given.with_name(given.name + ".zip")


def check_algorithm(algorithm: type[Any], data: dict[str, Any], path: Any) -> None:
    """`InputError` if a model file is of another algorithm of the libraries than is asked for.

    SB3 would fail in the middle, or have A2C go on with the settings of PPO.
    """
    told = algorithms_of(data)
    related = any(issubclass(algorithm, cls) or issubclass(cls, algorithm) for cls in told)
    if told and not related and _is_of_library(algorithm):
        of = " or ".join(cls.__name__ for cls in told)
        raise InputError(
            f"{shown(str(path))} is the file of a {of} model ({_library(told[0])}), not of "
            f"{algorithm.__name__} ({_library(algorithm)}): load it by "
            f"mvpi.sb3.load({told[0].__name__}, path, env=...)"
        )


def algorithms_of(data: dict[str, Any]) -> list[type[Any]]:
    """Whose file it can be by the class of its policy and by the settings that it has."""
    module = _entry(data, "policy_class").get("__module__")
    missing = {
        cls: len(arguments(cls) - data.keys())
        for cls in _known_algorithms(BaseAlgorithm)
        if any(module == policy.__module__ for policy in cls.policy_aliases.values())
    }
    return [cls for cls, count in missing.items() if count == min(missing.values())]


def _known_algorithms(base: type[Any]) -> Iterator[type[Any]]:
    """Those of the libraries that are loaded."""
    for cls in base.__subclasses__():
        if _is_of_library(cls):
            yield cls
        yield from _known_algorithms(cls)


def _is_of_library(algorithm: type[Any]) -> bool:
    return _library(algorithm) in _LIBRARIES


def _library(algorithm: type[Any]) -> str:
    return algorithm.__module__.partition(".")[0]


def arguments(algorithm: type[Any]) -> set[str]:
    """The names of all arguments of an algorithm."""
    return {
        name
        for cls in algorithm.__mro__
        if "__init__" in vars(cls)
        for name in inspect.signature(cls).parameters
    }


def check_settings(algorithm: type[Any], settings: dict[str, Any]) -> None:
    """Settings that `load` may change: arguments of the algorithm, spelt right."""
    known = arguments(algorithm)
    for name in settings:
        if name not in known - {"self", "args", "kwargs", "env", "policy"}:
            raise InputError(f"{algorithm.__name__} has no argument {shown(name)}")
