"""Options of `mvpi train` and `mvpi tune`: a subcommand for each agent, from its settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, make_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, Union

import tyro

from mvpi.agents.registry import AGENTS
from mvpi.agents.settings import CommonSettings, with_preset


@dataclass(frozen=True)
class AgentOptions:
    """Options of every algorithm."""

    env: str
    """The id of a Gymnasium environment."""
    action_noise: float = 0.0
    """Standard deviation of Gaussian noise on every action; the paper uses 0.1."""

    algorithm: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def settings(self) -> CommonSettings: ...


@dataclass(frozen=True)
class _Preset:
    """The option of an algorithm that has presets."""

    preset: str | None = None
    """Defaults of the settings for a kind of problem: noisy-rewards. Other options override it."""


def subcommands(options: type[AgentOptions], names: Iterable[str]) -> Any:
    """A subcommand for each of the named agents: the options, and the settings of the agent."""
    return Union[tuple(_subcommand(name, options) for name in names)]  # noqa: UP007


def _subcommand(name: str, options: type[AgentOptions]) -> Any:
    entry = AGENTS[name]
    kind: Any = entry.settings
    settings = Annotated[kind, tyro.conf.arg(name="")]
    own: list[Any] = [("settings", settings, field(default_factory=entry.settings))]
    if entry.risk:
        text = Annotated[str, tyro.conf.arg(metavar="RISK", help=entry.risk)]
        begun: dict[str, Any] = {}
        if entry.default_risk is not None:
            begun["default"] = entry.default_risk
        own.append(("risk", text, field(**begun, kw_only=True)))
    made = make_dataclass(
        f"{entry.class_name}{options.__name__}",
        own,
        bases=(_Preset, options) if entry.settings.presets else (options,),
        namespace={"__doc__": entry.summary, "algorithm": name},
        frozen=True,
    )
    return Annotated[made, tyro.conf.subcommand(name)]


class AgentCommand:
    """A command whose options are those of an agent."""

    options: Any

    def with_defaults(self) -> Self | None:
        """Defaults to read the options again with, if they name a preset; None otherwise."""
        preset = getattr(self.options, "preset", None)
        if preset is None:
            return None
        kind: type[CommonSettings] = type(self.options.settings)
        settings = kind(**with_preset(kind, preset))
        command: Any = self
        changed: Self = replace(command, options=replace(self.options, settings=settings))
        return changed
