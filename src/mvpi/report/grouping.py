"""Runs grouped by environment, then by agent; seeds are the repetitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mvpi.agents.registry import AGENTS
from mvpi.errors import InputError
from mvpi.experiments.outcome import Outcome
from mvpi.report.run_reader import AgentId, Run
from mvpi.risk import Risk, parse_risk
from mvpi.risk.extended import simplified
from mvpi.risk.text import exact

AgentKey = tuple[str, str, tuple[tuple[str, str], ...], int | None]


@dataclass(frozen=True)
class AgentRuns:
    """The runs of one agent in one environment, sorted by seed.

    `waiting` are runs without final episodes, of which there is only a curve. `along` are runs that
    were evaluated along a range of risk aversions, and so have no outcome of their own. `steps` is
    what the policies have learned from, None if none was evaluated. `variant` tells the agent from
    another one of the same name: the risk, settings and steps that differ.
    """

    algorithm: str
    risk: str
    settings: tuple[tuple[str, str], ...]
    steps: int | None
    runs: tuple[Run, ...]
    waiting: tuple[Run, ...] = ()
    along: tuple[Run, ...] = ()
    variant: str = ""

    @property
    def key(self) -> AgentKey:
        """What no two agents of an environment have in common."""
        return self.algorithm, self.risk, self.settings, self.steps

    @property
    def label(self) -> str:
        """Its name on the page."""
        name = agent_name(self.algorithm, self.risk)
        return f"{name} ({self.variant})" if self.variant else name

    @property
    def every_run(self) -> tuple[Run, ...]:
        """All of them, evaluated or not."""
        return *self.runs, *self.along, *self.waiting

    @property
    def outcomes(self) -> list[Outcome]:
        """One a seed."""
        return [run.outcome for run in self.runs if run.outcome is not None]

    @property
    def neutral(self) -> bool:
        """Whether it cares for the mean alone."""
        return is_neutral(measure_of(self.risk))


@dataclass(frozen=True)
class Section:
    """Everything that was run in one environment."""

    environment: str
    action_noise: float
    agents: tuple[AgentRuns, ...]

    @property
    def title(self) -> str:
        if not self.action_noise:
            return self.environment
        return f"{self.environment}, action noise {exact(self.action_noise)}"

    @property
    def judged(self) -> list[AgentRuns]:
        """The agents whose final episodes are known."""
        return [agent for agent in self.agents if agent.runs]

    @property
    def ranges(self) -> list[AgentRuns]:
        """The agents whose final episodes are known at every risk aversion of a range."""
        return [agent for agent in self.agents if agent.along]

    def neutral_agents(self, agent: AgentRuns) -> list[AgentRuns]:
        """The risk-neutral agents of the same algorithm whose final episodes are known."""
        return [a for a in self.judged if a.algorithm == agent.algorithm and a.neutral]

    def baseline(self, agent: AgentRuns) -> AgentRuns | None:
        """The risk-neutral agent of the same algorithm to compare with, if there is one.

        Of several it is one with the same settings and steps. `differences` tells in what the two
        differ.
        """
        if agent.neutral:
            return None
        neutral = self.neutral_agents(agent)
        alike = [a for a in neutral if not differences(a, agent)]
        if alike:
            return alike[0]
        return neutral[0] if len(neutral) == 1 else None


def differences(base: AgentRuns, agent: AgentRuns) -> str:
    """In what two agents differ besides their risk; nothing if in nothing."""
    found = []
    if base.steps != agent.steps:
        found.append(f"{base.steps or 0:,} against {agent.steps or 0:,} steps")
    if base.settings != agent.settings:
        found.append("other settings")
    return ", ".join(found)


def sections(runs: Iterable[Run]) -> list[Section]:
    """Runs grouped by environment and agent, in an order that depends on nothing else."""
    groups: dict[tuple[str, float], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.environment, run.action_noise].append(run)
    return [Section(*key, _agents(groups[key])) for key in sorted(groups)]


def _agents(runs: Sequence[Run]) -> tuple[AgentRuns, ...]:
    judged: dict[tuple[AgentId, int], list[Run]] = defaultdict(list)
    waiting: dict[AgentId, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda r: (r.seed, str(r.directory))):
        if run.evaluated is not None:
            judged[run.agent, run.evaluated.steps].append(run)
        else:
            waiting[run.agent].append(run)
    # A run that waits will belong to the agent of its settings; if unsure, the one of most steps.
    last = dict(sorted(judged, key=lambda key: key[1]))
    agents = [
        AgentRuns(
            *who,
            steps,
            tuple(run for run in group if run.outcome is not None),
            tuple(waiting.get(who, ()) if steps == last[who] else ()),
            tuple(run for run in group if run.outcome is None),
        )
        for (who, steps), group in judged.items()
    ]
    agents += [
        AgentRuns(*who, None, (), tuple(group)) for who, group in waiting.items() if who not in last
    ]
    agents.sort(key=_order)
    return tuple(replace(agent, variant=_variant(agent, agents)) for agent in agents)


def _order(agent: AgentRuns) -> tuple[Any, ...]:
    """As the paper lists them, each with growing risk aversion."""
    measure = measure_of(agent.risk)
    kind = "" if measure is None else type(measure).__name__
    named = measure is None or measure.name != ""
    size = 0.0 if measure is None else measure.price or 0.0
    averse = not is_neutral(measure)
    place = (list(AGENTS).index(agent.algorithm), averse, named, kind, size)
    return (*place, agent.risk, agent.steps or 0, agent.settings)


def _variant(agent: AgentRuns, agents: Sequence[AgentRuns]) -> str:
    """The risk, settings and steps in which an agent differs from others of its name."""
    name = agent_name(agent.algorithm, agent.risk)
    alike = [a for a in agents if agent_name(a.algorithm, a.risk) == name]
    mine = dict(agent.settings)
    found = [f"risk = {agent.risk}"] if any(other.risk != agent.risk for other in alike) else []
    found += [
        f"{key} = {mine[key]}"
        for key in mine
        if any(dict(other.settings).get(key) != mine[key] for other in alike)
    ]
    if agent.steps is not None and any(other.steps != agent.steps for other in alike):
        found.append(f"{agent.steps:,} steps")
    return ", ".join(found)


def agent_name(algorithm: str, risk: str) -> str:
    """The name in the paper, and the risk aversion.

    >>> agent_name("td3", "0.0"), agent_name("td3", "1.0"), agent_name("ppo", "cvar:0.1:1.0")
    ('TD3', 'MVPI-TD3, λ = 1', 'TRVO (MVPI-PPO), CVaR 0.1')
    """
    neutral, averse = (AGENTS[algorithm].label(averse=averse) for averse in (False, True))
    measure = measure_of(risk)
    if neutral != averse and is_neutral(measure):
        return neutral
    return f"{averse}, {risk if measure is None else measure.label}"


def is_neutral(measure: Risk | None) -> bool:
    """Whether a risk measure is the mean."""
    return measure is not None and measure.is_neutral


def measure_of(risk: str) -> Risk | None:
    """The measure a text names (of a range of one value, that one); None for a user's own."""
    try:
        return simplified(parse_risk(risk))
    except InputError:
        return None
