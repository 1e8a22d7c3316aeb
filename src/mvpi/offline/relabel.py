"""A Minari data set with augmented rewards, for off-line methods of any other library.

    relabel(dataset, new_id, risk)        r <- augment(r, y) in a copy that is otherwise identical

A risk-neutral method trained on the copy makes one improvement step of mean-variance policy
iteration, with `y` measured on the data; for the next step relabel the original again, with the new
`policy`. Rewards of the copy say nothing of performance: evaluate with raw ones.

Episodes are copied one by one into a hidden directory, which gets its name when all is there. A
program that is killed leaves no data set behind, and the next attempt removes what is left.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_number
from mvpi._storage.locks import lock
from mvpi.errors import InputError
from mvpi.offline._sources import check_lengths, damage_as_input_error, opened_minari
from mvpi.offline.dataset import Dataset
from mvpi.offline.density_ratio import density_ratio, weighted_dual
from mvpi.risk import Risk, risk_text
from mvpi.risk.extended import check_per_step

if TYPE_CHECKING:
    import h5py
    import minari

Rewards = npt.NDArray[Any]

_FILE = "main_data.hdf5"


def relabel(
    dataset: minari.MinariDataset | str,
    new_id: str,
    risk: Risk | float,
    y: float | None = None,
    *,
    policy: Any = None,
    discount: float | None = None,
    **options: Any,
) -> minari.MinariDataset:
    """Write the data set `new_id` with rewards `risk.augment(r, y)`, and return it.

    Args:
        dataset: a Minari data set, all of it or some episodes, or the id of a local one.
        new_id: of the copy, such as "hopper/steady-v0"; there must be none of that id yet.
        risk: a number (mean-variance) or any `mvpi.Risk`.
        y: the number in the augmented reward. Left out, it is measured: on the data as they are,
            or as it is for `policy`.
        policy: anything that `density_ratio` takes; the data are then weighted by its ratio.
        discount: of that ratio, given with `policy` and only then.
        options: of `density_ratio`.

    Observations, actions, ends, infos and the environment stay as they are. The metadata say under
    "relabelled" what was done.
    """
    measure = check_per_step(risk, "relabel")
    if measure.needs_price:
        raise InputError(
            f"{measure} finds its risk aversion while learning, and relabelling does not learn; "
            "give the risk aversion too"
        )
    source = opened_minari(dataset)
    if source.storage.FORMAT != "hdf5":
        raise InputError(
            f"the Minari data set {source.id} must be stored as hdf5 to be relabelled, it is "
            f"{source.storage.FORMAT}; create it again with data_format='hdf5'"
        )
    if source.total_episodes == 0:
        raise InputError(f"the Minari data set {source.id} holds no episodes")
    _check_free(new_id)
    if y is None:
        y = _measured(source, measure, policy, discount, options)
    elif policy is not None or discount is not None or options:
        raise InputError(f"y is given, {y!r}, so policy, discount and options must not be")
    y = check_number(y, "y")
    with _data_of(new_id) as data:
        steps = _copy(source, data / _FILE, measure, y)
        _write_metadata(source, data, new_id, measure, y, steps)
    return opened_minari(new_id)


def _check_free(new_id: str) -> None:
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.storage import get_dataset_path

    try:
        parse_dataset_id(new_id)
    except (TypeError, ValueError):
        raise InputError(
            f"new_id must be like name-v0 or group/name-v0, with a version, got {new_id!r:.80}"
        ) from None
    if get_dataset_path(new_id).exists():
        raise InputError(
            f"there is a Minari data set {new_id} already; choose another id, or delete it with "
            f"`minari delete {new_id}`"
        )


def _measured(
    source: minari.MinariDataset,
    risk: Risk,
    policy: Any,
    discount: float | None,
    options: dict[str, Any],
) -> float:
    if policy is None:
        if discount is not None or options:
            given = ", ".join(["discount"] * (discount is not None) + list(options))
            raise InputError(f"{given} is for the ratio of a policy; give policy as well")
        return risk.dual(np.concatenate([rewards for _, rewards in _episodes(source)]))
    if discount is None:
        raise InputError("discount must be given with policy, such as discount=0.99")
    data = Dataset.from_minari(source)
    return weighted_dual(data, density_ratio(data, policy, discount, **options), risk).y


def _episodes(source: minari.MinariDataset) -> Iterator[tuple[h5py.Group, Rewards]]:
    """The episodes in the file of the data set, their lengths checked, and their rewards."""
    import h5py

    with damage_as_input_error(source), h5py.File(source.storage.data_path / _FILE, "r") as file:
        for i in source.episode_indices:
            group = file[f"episode_{i}"]
            check_lengths(source, i, group)
            yield group, group["rewards"][()]


def _copy(source: minari.MinariDataset, path: Path, risk: Risk, y: float) -> int:
    """Everything but the rewards as it is; returns the number of steps."""
    import h5py

    steps = 0
    with h5py.File(path, "w", track_order=True) as file:
        for i, (group, raw) in enumerate(_episodes(source)):
            copy = file.create_group(f"episode_{i}")
            with damage_as_input_error(source, "cannot be copied"):
                for name in group:
                    if name != "rewards":
                        group.copy(name, copy)
                copy.attrs.update(group.attrs)
            copy.attrs["id"] = i
            with np.errstate(over="ignore", invalid="ignore"):
                rewards = risk.augment(raw, y)
            if not np.isfinite(rewards).all():
                raise InputError(
                    f"augmented rewards must be finite, in episode {source.episode_indices[i]} "
                    f"some are not; y is {y:g} and risk {risk_text(risk)}"
                )
            copy.create_dataset("rewards", data=rewards, chunks=True, maxshape=(None,))
            steps += len(rewards)
    return steps


def _write_metadata(
    source: minari.MinariDataset, data: Path, new_id: str, risk: Risk, y: float, steps: int
) -> None:
    from mvpi._storage.files import write_file

    metadata = source.storage.read_raw_metadata(source.storage.data_path)
    name = risk_text(risk)
    note = f"Rewards of {source.id}, augmented by mvpi for the risk {name} with y = {y!r}."
    metadata |= {
        "dataset_id": new_id,
        "total_episodes": len(source.episode_indices),
        "total_steps": steps,
        "dataset_size": round((data / _FILE).stat().st_size / 1e6, 1),
        "description": "\n\n".join(filter(None, [metadata.get("description"), note])),
        "relabelled": {"risk": name, "y": y, "source": source.id},
    }
    write_file(data / "metadata.json", json.dumps(metadata).encode())


@contextmanager
def _data_of(new_id: str) -> Iterator[Path]:
    """A directory for data that becomes the data set if all goes well, and otherwise vanishes."""
    from minari.namespace import create_namespace, list_local_namespaces
    from minari.storage import get_dataset_path

    hidden: Path = get_dataset_path() / f".{new_id.replace('/', '--')}.part"
    hidden.mkdir(exist_ok=True)
    descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not lock(descriptor):
            raise InputError(
                f"another process is writing {new_id}; wait for it, or choose another id"
            )
        try:
            data = hidden / "data"
            shutil.rmtree(data, ignore_errors=True)  # of a process that was killed
            data.mkdir()
            yield data
            _check_free(new_id)
            namespace, _, _ = new_id.rpartition("/")
            if namespace and namespace not in list_local_namespaces():
                create_namespace(namespace)
            hidden.rename(get_dataset_path(new_id))
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)
