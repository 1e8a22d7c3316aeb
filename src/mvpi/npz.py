"""Plain arrays in an `.npz` file: nothing in it is ever executed, and none is left half-written."""

from __future__ import annotations

import secrets
import zipfile
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi.errors import InputError

Anything = npt.NDArray[Any]


def write_npz(path: str | PathLike[str], arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Write arrays; an existing file is replaced only once the new one is complete."""
    target = Path(path)
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with scratch.open("xb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        scratch.replace(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def read_npz(
    path: str | PathLike[str], known: Collection[str], *, written_by: str
) -> dict[str, Anything]:
    """The arrays of a file, all of which must be `known`; anything else is an `InputError`."""
    if not zipfile.is_zipfile(_existing_file(path)):
        raise InputError(f"{path} is not an .npz file; write one with {written_by} or numpy.savez")
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            unknown = sorted(set(archive.files) - set(known))
            if unknown:
                raise InputError(
                    f"{path} holds an unknown array {unknown[0]!r}; known ones are "
                    f"{', '.join(sorted(known))}"
                )
            arrays = {name: archive[name] for name in archive.files}
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - numpy and zipfile raise half a dozen kinds for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} cannot be read: {reason}") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"{path} cannot be read: {name!r} is not an array")
    return arrays


def _existing_file(path: str | PathLike[str]) -> Path:
    file = Path(path)
    if not file.exists():
        raise InputError(f"{path} does not exist")
    if not file.is_file():
        raise InputError(f"{path} is not a file")
    return file
