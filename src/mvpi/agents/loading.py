"""Agents by name, and from files: `mvpi.load`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from mvpi._checks import check_path
from mvpi._storage.names import POLICY
from mvpi.agents import zoo
from mvpi.agents.agent import Agent
from mvpi.agents.exported import Exported
from mvpi.agents.policy import Policy
from mvpi.agents.registry import AGENTS
from mvpi.errors import InputError
from mvpi.risk import Risk, as_risk, parse_risk


def load(path: str | Path, *, risk: Risk | float | None = None) -> Agent[Any]:
    """The agent that `save` wrote, or that a run directory holds: ready to act and be evaluated.

    No code in the file runs, and no environment is made before one is needed. `risk` must be
    given only if the agent was trained with a risk measure of your own. Files of `mvpi.sb3.export`
    are read, too. A path such as
    `zoo:HalfCheetah-v4:1.0` names a trained agent of the package; `mvpi zoo` lists them.
    """
    path = zoo.find(str(path)) if str(path).startswith(zoo.PREFIX) else check_path(path)
    if path.is_dir():
        path /= POLICY
    given = None if risk is None else as_risk(risk)
    policy, record = Policy.load(path)
    kind = record.get("algorithm")
    if not isinstance(kind, str) or kind not in {*AGENTS, Exported.name}:
        raise InputError(f"{path} holds an agent of the unknown kind {str(kind)[:80]!r}")
    try:
        known: type[Agent[Any]] = Exported if kind == Exported.name else agent_type(kind)
        return known.from_file(policy, record, given or parse_risk(record["risk"]))
    except (InputError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is damaged, or of an agent with its own risk: {reason}") from None


def agent_type(algorithm: str) -> type[Agent[Any]]:
    """The class of an algorithm in `AGENTS`."""
    entry = AGENTS[algorithm]
    found: type[Agent[Any]] = getattr(import_module(entry.module), entry.class_name)
    return found
