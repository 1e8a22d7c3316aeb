"""A policy that another library trained, from a file of `mvpi.sb3.export`: it acts, no more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from mvpi._checks import check_kind
from mvpi.agents.agent import Agent
from mvpi.agents.settings import CommonSettings
from mvpi.augmenter.occupancy import Occupancy, check_occupancy
from mvpi.errors import InputError


@dataclass(frozen=True)
class ExportedSettings(CommonSettings):
    """What is known of the training elsewhere."""

    source: str = ""
    """The class that trained it, such as `stable_baselines3.SAC`."""
    occupancy: Occupancy = "undiscounted"
    """Which rewards `y` was measured on."""

    _fewest_layers: ClassVar[int] = 0
    _below_one: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind(self.source, str, "source", "the name of a class")
        check_occupancy(self.occupancy)


class Exported(Agent[ExportedSettings]):
    """A trained policy: `predict`, `at`, `save`, and what `mvpi.evaluate` needs."""

    name = "exported"
    settings_type = ExportedSettings

    def learn(self, steps: int, out: str | Path | None = None, **_: Any) -> Self:
        """It cannot: the rest of its training is elsewhere."""
        del steps, out
        raise InputError(
            f"this policy was exported from {self.settings.source[:80]!r} and cannot learn here: "
            "train the model it comes from"
        )
