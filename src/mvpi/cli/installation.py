"""What is installed: the packages of the core and of each extra, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata

from packaging.requirements import Requirement

CORE = ""
"""The name of what is installed without any extra."""
_FOR_DEVELOPERS = frozenset({"all", "bench", "dev", "docs"})


@dataclass(frozen=True)
class Group:
    """The packages that the core or an extra needs."""

    name: str
    versions: dict[str, str | None]
    """What is installed of each; None if it is not."""
    unfit: dict[str, str]
    """Those whose version is not one that is asked for, and what is: {"jax": ">=0.4.35"}."""

    @property
    def missing(self) -> list[str]:
        return [name for name, version in self.versions.items() if version is None]

    @property
    def ready(self) -> bool:
        return not self.missing and not self.unfit

    def problem(self) -> str | None:
        """What is wrong, as one line; None if nothing is."""
        verb = "is" if len(self.missing) == 1 else "are"
        parts = [f"{', '.join(self.missing)} {verb} missing"] if self.missing else []
        parts += [
            f"{name} is {self.versions[name]}, needed is {asked}"
            for name, asked in self.unfit.items()
        ]
        return "; ".join(parts) or None


def groups() -> list[Group]:
    """The core, then every extra for users; empty if mvpi itself is not installed."""
    try:
        about = metadata.metadata("mvpi")
    except metadata.PackageNotFoundError:
        return []
    extras = [name for name in about.get_all("Provides-Extra") or [] if name not in _FOR_DEVELOPERS]
    return [_group(name) for name in [CORE, *extras]]


def _group(extra: str) -> Group:
    asked = _asked(extra)
    if extra != CORE:
        core = {requirement.name for requirement in _asked(CORE) if not requirement.extras}
        asked = [requirement for requirement in asked if requirement.name not in core]
    versions = {requirement.name: installed_version(requirement.name) for requirement in asked}
    unfit = {
        requirement.name: str(requirement.specifier)
        for requirement in asked
        if (version := versions[requirement.name]) is not None
        and not requirement.specifier.contains(version, prereleases=True)
    }
    return Group(extra, versions, unfit)


def _asked(extra: str) -> list[Requirement]:
    """The requirements of an extra, those of the extras inside it included."""
    found = []
    for requirement in _requirements("mvpi"):
        if not _is_of(requirement, extra):
            continue
        if requirement.name == "mvpi":
            for inner in sorted(requirement.extras):
                found += _asked(inner)
        else:
            inside = _requirements(requirement.name) if requirement.extras else []
            # What an extra of another package asks for: gymnasium[mujoco] needs mujoco.
            found.append(requirement)
            found += [one for one in inside for each in requirement.extras if _is_of(one, each)]
    return found


def _is_of(requirement: Requirement, extra: str) -> bool:
    """Whether it is needed for an extra and not without it, or for the core."""
    marker = requirement.marker
    in_core = marker is None or marker.evaluate({"extra": CORE})
    if extra == CORE or marker is None:
        return in_core and extra == CORE
    return marker.evaluate({"extra": extra}) and not in_core


@cache
def _requirements(package: str) -> list[Requirement]:
    try:
        return [Requirement(line) for line in metadata.requires(package) or []]
    except metadata.PackageNotFoundError:
        return []


def installed_version(package: str) -> str | None:
    """The version of a package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
