"""Where experiments run: on this machine, or on a Ray cluster."""

from __future__ import annotations

from mvpi.errors import InputError
from mvpi.experiments.runner import Runner


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
