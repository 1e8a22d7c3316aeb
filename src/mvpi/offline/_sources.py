"""Where data sets come from: Minari, and the replay of a training run.

`read_minari` and `read_run` return the arguments of `mvpi.offline.Dataset` by name.
"""

from __future__ import annotations

import json
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, shown
from mvpi._storage.locks import lock, open_lock
from mvpi._storage.names import CHECKPOINT, CONFIG, POLICY, RUN_LOCK
from mvpi.errors import InputError, MissingPackage

if TYPE_CHECKING:
    import minari

Anything = npt.NDArray[Any]

_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Minari and h5py raise for a damaged file, and for invalid metadata."""
_ROWS_AT_FIRST = 1 << 16
"""Rows that memory is allocated for at first: metadata may claim any number."""


def read_minari(dataset: minari.MinariDataset | str) -> dict[str, Any]:
    """The transitions of a Minari data set, read one episode after the other."""
    source = opened_minari(dataset)
    seen = _Column(source.observation_space, "observations")
    done = _Column(source.action_space, "actions")
    with damage_as_input_error(source):
        steps, count = source.total_steps, source.total_episodes
    if steps < 1:
        raise InputError(f"the Minari data set {source.id} holds no transitions")
    rows = min(steps, _ROWS_AT_FIRST)
    observations, following = seen.empty(rows), seen.empty(rows)
    actions, starts = done.empty(rows), seen.empty(count)
    rewards = np.empty(rows)
    terminations, truncations = np.empty(rows, np.bool_), np.empty(rows, np.bool_)
    columns = (observations, following, actions, rewards, terminations, truncations)
    at = 0
    with damage_as_input_error(source):
        for i, episode in enumerate(source):
            now = slice(at, at + len(episode.rewards))
            at = now.stop
            check_lengths(source, episode.id, vars(episode))
            if at > steps:
                break
            if at > len(rewards):
                rows = min(steps, max(at, 2 * len(rewards)))
                for column in columns:
                    column.resize((rows, *column.shape[1:]), refcheck=False)
            states = seen.read(episode.observations)
            observations[now], following[now], starts[i] = states[:-1], states[1:], states[0]
            actions[now] = done.read(episode.actions)
            rewards[now], terminations[now] = episode.rewards, episode.terminations
            truncations[now] = episode.truncations
            if now.stop > now.start and not terminations[at - 1]:
                truncations[at - 1] = True  # also of an episode that was broken off
    if at != steps:
        raise InputError(
            f"the Minari data set {source.id} is damaged: {steps} transitions are announced, its "
            f"episodes have {'more' if at > steps else at}"
        )
    return {
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
        "next_observations": following,
        "terminations": terminations,
        "truncations": truncations,
        "starts": starts,
        **seen.facts,
        **done.facts,
    }


@contextmanager
def damage_as_input_error(source: minari.MinariDataset, what: str = "is damaged") -> Iterator[None]:
    """Turns what is raised for a damaged file into one line."""
    try:
        yield
    except InputError:
        raise
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"the Minari data set {source.id} {what}: {type(error).__name__} {reason}"
        ) from None


def check_lengths(source: minari.MinariDataset, number: int, episode: Mapping[str, Any]) -> None:
    """An episode has an observation more than rewards, and as many actions and ends."""
    steps = len(episode["rewards"])
    for name in ("observations", "actions", "terminations", "truncations"):
        expected = steps + (name == "observations")
        for there in _lengths(episode[name]):
            if there != expected:
                raise InputError(
                    f"the Minari data set {source.id} is damaged: episode {number} has {steps} "
                    f"rewards and {there} {name}, not {expected}"
                )


def _lengths(values: Any) -> Iterator[int]:
    """Of an array, or of all that are in it when the space is made of several."""
    if isinstance(values, Mapping):
        for part in values.values():
            yield from _lengths(part)
    else:
        yield len(values)


def opened_minari(dataset: minari.MinariDataset | str) -> minari.MinariDataset:
    try:
        import minari
    except ImportError:
        raise MissingPackage("reading Minari data", "minari", "offline") from None
    if isinstance(dataset, minari.MinariDataset):
        return dataset
    if not isinstance(dataset, str):
        raise InputError(
            f"dataset must be a MinariDataset or the id of one, got {type(dataset).__name__}"
        )
    try:
        _check_metadata(dataset)
        return minari.load_dataset(dataset)
    except _DAMAGE as error:
        there = "none"
        with warnings.catch_warnings(), suppress(*_DAMAGE):  # other data sets may be damaged too
            warnings.simplefilter("ignore")
            there = ", ".join(minari.list_local_datasets()) or there
        raise InputError(
            f"no Minari data set {shown(dataset)} can be read on this machine, there are: {there} "
            f"({' '.join(str(error).split())[:120]})"
        ) from None


def _check_metadata(dataset: str) -> None:
    """Check the number of episodes: Minari allocates memory for as many as the metadata claim."""
    from minari.storage import get_dataset_path

    data = Path(get_dataset_path(dataset)) / "data"
    if not data.is_dir():
        return  # Minari says so better
    facts: Any = json.loads((data / "metadata.json").read_text())
    if not isinstance(facts, dict):
        raise ValueError(f"its metadata are {shown(facts)}, not names and values")
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    check_count(facts["total_episodes"], "total_episodes", at_least=0, at_most=size)
    check_count(facts["total_steps"], "total_steps", at_least=0)


class _Column:
    """How the values of a space become rows."""

    def __init__(self, space: gym.Space[Any], name: str) -> None:
        self._name, self._first = name, 0
        self.facts: dict[str, Any] = {}
        """What the space says of states or actions, as arguments of `Dataset`."""
        if isinstance(space, gym.spaces.Discrete):
            self._first = int(space.start)
            what = "state" if name == "observations" else "action"
            self.facts = {f"n_{what}s": int(space.n), f"first_{what}": self._first}
            self._shape: tuple[int, ...] = ()
            self._type: npt.DTypeLike = np.int64
        elif isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
            self._shape = space.shape
            self._type = space.dtype if np.issubdtype(space.dtype, np.floating) else np.float32
            if name == "actions" and space.is_bounded():
                self.facts = {"low": space.low, "high": space.high}
        else:
            remedy = "gymnasium.wrappers.FlattenObservation"
            if name == "actions":
                remedy = "a gymnasium.ActionWrapper with a flat space"
            raise InputError(
                f"{name} must be a flat Box or Discrete, got {space}; collect the data through "
                f"{remedy}, or give the arrays to Dataset(...) yourself"
            )

    def empty(self, rows: int) -> Anything:
        return np.empty((rows, *self._shape), self._type)

    def read(self, values: Any) -> Anything:
        array = np.asarray(values)
        if array.shape[1:] != self._shape:
            raise ValueError(f"{self._name} of shape {array.shape[1:]}, not {self._shape}")
        return array.astype(self._type) - self._first


def read_run(directory: Path) -> dict[str, Any]:
    """The replay of a TD3 run at its last checkpoint; nothing in the directory is changed."""
    from mvpi._storage.arrays import UNVERIFIED, read_arrays
    from mvpi._storage.files import read_json
    from mvpi._storage.row_layout import RowLayout
    from mvpi._storage.rows import read_rows
    from mvpi._storage.run_directory import CHECKPOINT_KIND, identity
    from mvpi.agents.policy import Policy
    from mvpi.rollout.spaces import BoxActions

    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory; give that of an `mvpi train td3` run")
    config = read_json(directory / CONFIG)
    if config.get("algorithm") != "td3":
        raise InputError(
            f"{directory} holds a run of {shown(config.get('algorithm'))}, which keeps no replay; "
            "only runs of td3 do"
        )
    path = directory / CHECKPOINT
    if not path.exists():
        raise InputError(
            f"{directory} has no checkpoint yet, and so no replay; let the run go on, or lower "
            "its checkpoint_every"
        )
    with ExitStack() as locked:
        locked.enter_context(_nobody_training(directory))
        try:
            arrays, record = read_arrays(path, CHECKPOINT_KIND)
            count = check_count(record["steps"], "steps")
            size = check_count(config["settings"]["buffer_size"], "buffer_size")
        except (KeyError, TypeError):
            raise InputError(f"{path} is damaged: it does not say how long the replay is") from None
        policy, _ = Policy.load(directory / POLICY)
        box = policy.spaces.actions
        if not isinstance(box, BoxActions):
            raise InputError(f"{directory} is damaged: its policy is none of td3")
        layout = RowLayout(policy.spaces.observations.size, box.size)
        if record["format"] != UNVERIFIED and record.get("run") != identity(directory):
            raise InputError(f"{path} is of another run than config.json beside it")
        ring = read_rows(directory, (size, layout.width), count, arrays.get("replay"))
        weakref.finalize(ring, locked.pop_all().close)  # what is mapped must stay as it is
    rows = layout.split(ring[: min(count, size)])
    terminations = rows.continues == 0.0
    return {
        "observations": rows.s,
        "actions": box.to_env_action(rows.a),
        "rewards": rows.r,
        "next_observations": rows.next_s,
        "terminations": terminations,
        "starts": _starts(rows.s, rows.next_s, terminations, count, size),
        "low": box.low,
        "high": box.high,
    }


def _starts(
    observations: Anything, following: Anything, terminations: Anything, count: int, size: int
) -> Anything:
    """Observations that the transition before did not lead to.

    What was before the oldest row of a full ring is not known, so that one counts only if the
    ring has never been full.
    """
    begins = np.empty(len(observations), np.bool_)
    begins[0] = count <= size or terminations[-1] or (following[-1] != observations[0]).any()
    step = 1 << 16
    for i in range(1, len(begins), step):
        now, before = slice(i, i + step), slice(i - 1, min(i + step, len(begins)) - 1)
        moved = (following[before] != observations[now]).any(axis=1)
        begins[now] = terminations[before] | moved
    if count > size:
        begins[count % size] = False
    if not begins.any():
        raise InputError(
            f"no episode starts in the {len(observations)} transitions of the replay; a run "
            "with a larger buffer_size keeps some"
        )
    return np.asarray(observations[begins])


@contextmanager
def _nobody_training(directory: Path) -> Iterator[None]:
    """Training would overwrite what is being read."""
    path = directory / RUN_LOCK
    if not path.exists():
        yield
        return
    with open_lock(path, shared=True) as file:
        if not lock(file, shared=True):
            raise InputError(
                f"another process is training in {directory}; wait for it, or copy the directory"
            )
        yield
