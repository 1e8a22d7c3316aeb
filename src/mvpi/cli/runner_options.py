"""Where experiments run: on this machine, or on a Ray cluster."""

from __future__ import annotations

from typing import Annotated

import tyro

from mvpi.errors import InputError
from mvpi.experiments.runner import Runner

Workers = Annotated[
    int | None,
    tyro.conf.arg(help="Runs side by side on this machine; by default one for every core."),
]
RayAddress = Annotated[
    str | None,
    tyro.conf.arg(
        help="The address of a Ray cluster to run on instead; `out` must be on storage its nodes "
        "share."
    ),
]


def check_runner_options(workers: int | None, ray: str | None) -> None:
    """An `InputError` if both are given."""
    if ray is not None and workers is not None:
        raise InputError("give either --workers, for this machine, or --ray, not both")


def make_runner(workers: int | None, ray: str | None) -> Runner:
    """The runner that `--workers` and `--ray` ask for."""
    check_runner_options(workers, ray)
    if ray is None:
        from mvpi.experiments.local import LocalRunner

        return LocalRunner(workers)
    from mvpi.experiments.cluster import RayRunner

    return RayRunner(ray)
