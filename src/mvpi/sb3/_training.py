"""Training that goes on in another process as if it had not been interrupted.

    save_training(model, directory)
    model = load_training(SAC, directory, env=env)
    model.learn(steps, reset_num_timesteps=False)

The directory holds one file, training.safetensors: arrays and JSON, no code. In it are the settings
of the model, its networks and optimisers, its buffer, its counters, the random states of Python,
numpy, torch and JAX, its environments, its risk, and the counters of callbacks. Settings that are
code, such as a schedule that is a function, are given again to `load_training`.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import get_device

from mvpi._checks import check_kind, check_path, shown
from mvpi._storage import files
from mvpi._storage.arrays import Arrays, read_arrays, write_arrays
from mvpi.errors import InputError, ResumeWarning, warn
from mvpi.sb3._buffers import EpisodeClock
from mvpi.sb3._class_names import name_of
from mvpi.sb3._environments import check_environments, known_environments, made
from mvpi.sb3._extension import extended
from mvpi.sb3._hooks import COLLECT, TRAIN, plug_in, was_risk_averse
from mvpi.sb3._loading import arguments, plug_from
from mvpi.sb3._outside import outside_state
from mvpi.sb3._state_kinds import is_flax_module, random_state, set_random_state
from mvpi.sb3._state_reader import NOTHING, StateReader
from mvpi.sb3._state_writer import StateWriter, is_complete

TRAINING = "training.safetensors"
"""The file in the directory."""
KIND = "training of Stable-Baselines3"
_LEFT_OUT = (COLLECT, TRAIN, "_logger", "_custom_logger", "start_time", "device", "n_envs")
"""Attributes of a model that belong to a process, or that come from its environments."""
_VERSIONED = (
    "mvpi",
    "stable_baselines3",
    "sb3_contrib",
    "sbx",
    "gymnasium",
    "numpy",
    "torch",
    "jax",
)
"""Packages whose versions bits may depend on."""
_NO_SETTINGS = ("self", "env", "policy", "device", "_init_setup_model")

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)
Callbacks = BaseCallback | list[BaseCallback] | None


def save_training(
    model: BaseAlgorithm, directory: str | os.PathLike[str], *, callback: Callbacks = None
) -> None:
    """Write all that `load_training` needs to go on exactly, between two calls of `learn`.

    `callback` is what is passed to `learn`, if its counters are to go on, too. The directory is
    made if it is not there; what it held is replaced once everything is written.
    """
    check_kind(model, BaseAlgorithm, "model", "a model of Stable-Baselines3")
    if was_risk_averse(model) and plug_in(model) is None:
        raise InputError("this model was loaded without its risk: give it one by mvpi.sb3.attach")
    if model.get_env() is None:
        raise InputError("this model has no environment: give it one by model.set_env")
    path = check_path(directory, "directory")
    writer = StateWriter()
    record = _record(model, writer) | {"callback": _callback_entries(callback, writer)}
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_arrays(path / TRAINING, KIND, writer.arrays, record)
        files.remove_partial_files(path)
    except OSError as error:
        raise InputError(f"cannot write to the directory {path}: {error.strerror}") from None


def load_training(
    algorithm: type[Algorithm],
    directory: str | os.PathLike[str],
    env: Any,
    *,
    callback: Callbacks = None,
    device: Any = "auto",
    **settings: Any,
) -> Algorithm:
    """The model that `save_training` wrote; `learn(steps, reset_num_timesteps=False)` goes on.

    Make `env` as for the first run; its state is restored. `settings` are those that
    files cannot hold: functions, and classes of your own. `callback` gets its counters back.
    Nothing in the file is executed. The random states of this process become those of the file.
    """
    given: Any = algorithm
    if not (isinstance(given, type) and issubclass(given, BaseAlgorithm)):
        raise InputError(f"algorithm must be a class of Stable-Baselines3, got {shown(algorithm)}")
    path = check_path(directory, "directory") / TRAINING
    arrays, record = read_arrays(path, KIND)
    if record.get("algorithm") != name_of(algorithm):
        there = files.short(record.get("algorithm"), 80)
        raise InputError(
            f"{path} is of {there}, not of {name_of(algorithm)}: pass the class it was saved with"
        )
    _check_settings(algorithm, record, settings, path)
    if env is None:
        raise InputError("env must be the environment to go on in, got None")
    own, where = made(env), _device(device)
    try:
        return _loaded(algorithm, arrays, record, own, callback, where, settings)
    except (InputError, Warning):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {files.short(error, 200)}"
        raise InputError(f"{path} is damaged, or env is another one: {reason}") from error


def _record(model: Any, writer: StateWriter) -> dict[str, Any]:
    plug = plug_in(model)
    state = {n: v for n, v in vars(model).items() if n not in _LEFT_OUT}
    entries = {name: writer.entry(value, f"model.{name}") for name, value in state.items()}
    made_by_setup = {name for name, value in state.items() if is_flax_module(value)}
    given = (arguments(type(model)) - {*_NO_SETTINGS, *made_by_setup}) & entries.keys() | {
        "policy_class"
    }
    return {
        "algorithm": name_of(type(model)),
        "spaces": [str(model.observation_space), str(model.action_space)],
        "n_envs": model.n_envs,
        "environments": known_environments(model.env),
        "model": entries,
        "given": sorted(name for name in given if not is_complete(entries[name])),
        "risk": None if plug is None else plug.record(),
        "metrics": {} if plug is None else plug._metrics,
        "random": _global_random_states(writer),
        "outside": outside_state(model.get_env()),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Of the packages in use."""
    loaded = {name: sys.modules[name] for name in _VERSIONED if name in sys.modules}
    return {name: str(getattr(package, "__version__", "")) for name, package in loaded.items()}


def _compare_versions(there: dict[str, str]) -> None:
    """A `ResumeWarning` where a package is of another version than it was."""
    changed = [
        f"{name} {files.short(there[name], 20)} (now {here})"
        for name, here in _versions().items()
        if there.get(name, here) != here
    ]
    if changed:
        warn(
            f"this training was saved with {', '.join(changed)}: it goes on, but perhaps not "
            "exactly as it would have",
            ResumeWarning,
        )


def _global_random_states(writer: StateWriter) -> dict[str, Any]:
    """Random states of the process, which SB3 and environments draw from."""
    return {
        "python": random_state(random._inst),
        "numpy": random_state(np.random.mtrand._rand),
        "torch": writer.entry(torch.get_rng_state(), "random.torch"),
    }


def _set_global_random_states(states: dict[str, Any], reader: StateReader) -> None:
    set_random_state(random._inst, states["python"])
    set_random_state(np.random.mtrand._rand, states["numpy"])
    torch.set_rng_state(reader.value(states["torch"], NOTHING, "random.torch"))


def _device(device: Any) -> torch.device:
    try:
        return get_device(device)
    except (RuntimeError, TypeError) as error:
        reason = files.short(error, 200)
        raise InputError(f"device {shown(device)} is none of torch: {reason}") from None


def _check_settings(
    algorithm: type[Any], record: dict[str, Any], settings: dict[str, Any], path: Path
) -> None:
    code = record.get("given", [])
    if not isinstance(code, list):
        raise InputError(f"{path} is damaged: it has no list of the settings that were code")
    given = ["policy" if name == "policy_class" else name for name in code]
    for name in given:
        if name not in settings:
            raise InputError(
                f"{shown(name)} was code, which {path} does not hold: pass it to load_training, "
                f"{files.short(name, 40)}=..."
            )
    for name in settings:
        if name == "risk":
            raise InputError(
                "risk is that of the file: change it by mvpi.sb3.attach(model, risk=...)"
            )
        if name not in arguments(algorithm):
            raise InputError(f"{algorithm.__name__} has no argument {shown(name)}")
        if name not in given:
            raise InputError(f"{path} has its own {shown(name)}, leave it out")


def _loaded(
    algorithm: type[Algorithm],
    arrays: Arrays,
    record: dict[str, Any],
    env: Any,
    callback: Callbacks,
    device: Any,
    settings: dict[str, Any],
) -> Algorithm:
    reader = StateReader(arrays)
    plug = None if record["risk"] is None else plug_from(record["risk"])
    if plug is not None:
        env = extended(env, plug.augmenter.risk, plug.columns.return_scale)
    model = _made_anew(algorithm, record, env, device, settings, reader)
    rewrapped = not _check_environments(model, record)
    if rewrapped:
        _forget_environments(record["model"]["env"])
    if plug is not None:
        times = plug._clock.times  # which an environment that is new to the plug resets
        plug.attach(model)
        plug._clock, plug._metrics = EpisodeClock(times), dict(record["metrics"])
    if record["model"]["_last_obs"] is not None:
        model.env.reset()  # makes what an environment has only in an episode
    reader.restore_fields(record["model"], model, "model")
    _restore_callback(record["callback"], callback, reader)
    _set_global_random_states(record["random"], reader)
    _compare_versions(record.get("versions", {}))
    if rewrapped or reader.lost or record["outside"] != outside_state(model.env):
        _begin_new_episodes(model, plug, reader.lost, warned=rewrapped)
    loaded: Algorithm = model
    return loaded


def _made_anew(
    algorithm: type[Any],
    record: dict[str, Any],
    env: Any,
    device: Any,
    settings: dict[str, Any],
    reader: StateReader,
) -> Any:
    """A model with the settings of the record, before its first step."""
    entries = record["model"]
    own = settings.pop("policy", None)
    policy = reader.value(entries["policy_class"], NOTHING, "policy_class") if own is None else own
    model = algorithm(policy=policy, env=env, device=device, _init_setup_model=False)
    for name in vars(model).keys() & entries.keys():
        if name not in settings and is_complete(entries[name]):
            value = reader.value(entries[name], NOTHING, f"model.{name}")
            vars(model)[name] = policy if name == "policy_class" else value
    vars(model).update(settings)
    with warnings.catch_warnings():
        # SB3 takes the class of n-step buffers that it chose itself for one of the user.
        warnings.filterwarnings("ignore", "`n_steps=", UserWarning)
        model._setup_model()
    return model


def _check_environments(model: Any, record: dict[str, Any]) -> bool:
    """Whether the states of environments fit those that are given; `InputError` if these differ."""
    if model.n_envs != record["n_envs"]:
        raise InputError(
            f"training went on in {files.short(record['n_envs'])} environments, env has "
            f"{model.n_envs}"
        )
    here = [str(model.observation_space), str(model.action_space)]
    for name, there, now in zip(("observations", "actions"), record["spaces"], here, strict=True):
        if there != now:
            raise InputError(f"env has the {name} {now}, training went on in {files.short(there)}")
    return check_environments(record.get("environments"), model.env)


def _forget_environments(entry: Any) -> None:
    """Leave out the states of single environments, which fit no others."""
    while "venv" in entry[1]:
        entry = entry[1]["venv"]
    entry[1].pop("envs", None)


def _begin_new_episodes(model: Any, plug: Any, lost: list[str], *, warned: bool) -> None:
    where = f" ({files.short(', '.join(dict.fromkeys(lost)), 200)})" if lost else ""
    if lost or not warned:
        warn(
            f"{model.env} keeps state outside its random generators and attributes{where}: a new "
            "episode begins; training goes on, but not exactly as it would have",
            ResumeWarning,
        )
    model._last_obs = None  # `learn` resets the environments
    if plug is not None:
        plug._clock.reset()


def _callbacks(callback: Callbacks) -> list[BaseCallback]:
    listed = callback if isinstance(callback, list) else [] if callback is None else [callback]
    for one in listed:
        check_kind(one, BaseCallback, "callback", "a callback of Stable-Baselines3")
    return listed


def _callback_entries(callback: Callbacks, writer: StateWriter) -> list[Any]:
    known = _callbacks(callback)
    return [[name_of(type(c)), writer.fields(c, f"callback.{i}")] for i, c in enumerate(known)]


def _restore_callback(entries: list[Any], callback: Callbacks, reader: StateReader) -> None:
    here = _callbacks(callback)
    names = [name_of(type(c)) for c in here]
    if names != [name for name, _ in entries]:
        raise InputError(
            f"callback must be {files.short([name for name, _ in entries])}, as when the training "
            f"was saved, got {names}"
        )
    for i, (one, (_, state)) in enumerate(zip(here, entries, strict=True)):
        reader.restore_fields(state, one, f"callback.{i}")
