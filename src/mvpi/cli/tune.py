"""`mvpi tune`: an agent for each of several risks, side by side, and which of them to take.

The alternative to training with a range, for any measure: every risk is an experiment of its own on
the runner, so an interrupted command goes on where it was, and finished runs are kept.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from mvpi._checks import check_count
from mvpi._storage.files import write_file
from mvpi.agents.registry import AGENTS
from mvpi.cli.agent_options import AgentCommand, AgentOptions, subcommands
from mvpi.cli.display import print_json
from mvpi.cli.runner_options import RayAddress, Workers, check_runner_options, make_runner
from mvpi.cli.train import default_directory
from mvpi.envs import Task
from mvpi.errors import EnvironmentFailure, InputError
from mvpi.experiments.experiment import Experiment
from mvpi.risk import Risk, forms, learnable, parse_risk
from mvpi.risk.extended import range_of

if TYPE_CHECKING:
    from mvpi.experiments.outcome import Outcome
    from mvpi.report.risk_choice import Candidates

_ALGORITHMS = ("td3", "ppo")
_TABLE, _PICTURE = "frontier.csv", "frontier.png"
Risks = Annotated[
    tuple[str, ...],
    tyro.conf.arg(metavar="RISK [RISK ...]", help=f"Risk measures: {forms(but=('range', 'var'))}."),
]


@dataclass(frozen=True)
class TuneOptions(AgentOptions):
    """Options of every algorithm."""

    risks: Risks = ("0", "0.1", "0.3", "1")
    steps: int = 1_000_000
    """Environment steps of a run."""
    seeds: int = 1
    """Runs at every risk, with seeds 0, 1, ..."""
    episodes: int = 100
    """Episodes in which each final policy is evaluated."""
    out: Path | None = None
    """Where runs, table and picture go; left out, runs/tune-ALGORITHM-ENV."""
    workers: Workers = None
    ray: RayAddress = None
    json: bool = False
    """Print one JSON object at the end, and nothing else."""


if TYPE_CHECKING:
    Options = TuneOptions
else:
    Options = subcommands(TuneOptions, _ALGORITHMS)


@dataclass(frozen=True)
class Tune(AgentCommand):
    """Train at several risk aversions side by side, compare them and recommend one.

    Interrupted, the same command goes on. `mvpi train td3 --risk range:LOW:HIGH` trains one
    agent for all of them instead.
    """

    options: Annotated[Options, tyro.conf.arg(name="")]

    def run(self, console: Console) -> None:
        from mvpi.experiments.progress import run_experiments

        chosen = self.options
        risks = _risks(chosen.risks)
        check_count(chosen.seeds, "seeds")
        check_runner_options(chosen.workers, chosen.ray)
        ladder = {risk: list(self._experiments(risk)) for risk in risks}
        Task(chosen.env, chosen.action_noise)().close()
        out = chosen.out or default_directory("tune", chosen.algorithm, chosen.env)
        root = out / "runs"
        every = [one for experiments in ladder.values() for one in experiments]
        runner = make_runner(chosen.workers, chosen.ray)
        failures = run_experiments(every, root, runner, quiet=chosen.json)
        outcomes = {risk: _outcomes(experiments, root) for risk, experiments in ladder.items()}
        self._show({risk: found for risk, found in outcomes.items() if found}, out, console)
        if failures:
            raise EnvironmentFailure(
                f"{len(failures)} of {len(every)} experiments failed; the others are kept, the "
                "same command tries again"
            )

    def _experiments(self, risk: Risk) -> Iterator[Experiment]:
        """The runs at one risk, a seed each."""
        chosen = self.options
        usual = type(chosen.settings)()
        given = {f.name: getattr(chosen.settings, f.name) for f in fields(usual)}
        settings = {k: value for k, value in given.items() if value != getattr(usual, k)}
        for seed in range(chosen.seeds):
            yield Experiment(
                chosen.algorithm,
                chosen.env,
                risk.text,
                seed,
                chosen.steps,
                chosen.action_noise,
                chosen.episodes,
                settings,
            )

    def _show(
        self, outcomes: Mapping[Risk, Sequence[Outcome]], out: Path, console: Console
    ) -> None:
        from mvpi.cli.learned_frontier import choice_facts, point_facts, tables, verdicts
        from mvpi.report.frontier_picture import draw
        from mvpi.report.risk_choice import panels_of

        if not outcomes:
            return
        names = tuple(_name(risk) for risk in outcomes)
        panels = panels_of(names, outcomes.values())
        chosen = panels[next(iter(outcomes)).of_return]
        facts = [
            {"risk": risk.text, "seeds": len(found), **point_facts(panels, i)}
            for i, (risk, found) in enumerate(outcomes.items())
        ]
        _write_table(out / _TABLE, facts, chosen)
        title = f"{self.options.env}: {AGENTS[self.options.algorithm].class_name}"
        draw(out / _PICTURE, panels, {}, f"{title}, {self.options.steps:,} steps")
        if self.options.json:
            files = {"table": str(out / _TABLE), "picture": str(out / _PICTURE)}
            print_json({"points": facts, **choice_facts(chosen), **files})
            return
        labels = [name.removeprefix("risk aversion ") for name in names]
        for one in tables(panels, labels, "risk aversion"):
            console.print(one)
        console.print(verdicts(panels, chosen), soft_wrap=True)
        wrote = f"Wrote {out / _TABLE} and {out / _PICTURE}; the agents are in {out / 'runs'}."
        console.print(wrote, markup=False, soft_wrap=True)


def _risks(texts: Sequence[str]) -> list[Risk]:
    """The measures, each once, numbers by growing risk aversion."""
    risks = list(dict.fromkeys(parse_risk(text) for text in texts))
    if len(risks) < 2 or len(risks) < len(texts):
        raise InputError(f"--risks must be two or more, each once, got {' '.join(texts) or 'none'}")
    for risk in risks:
        learnable(risk)
        if range_of(risk) is not None:
            raise InputError(
                f"--risks must be single measures, got {risk.text}; one agent for a whole range is "
                f"`mvpi train td3 --risk {risk.text}`"
            )
    if len({risk.of_return for risk in risks}) > 1:
        raise InputError("--risks must be all of the return, or all of the reward of a step")
    prices = [risk.price for risk in risks]
    if None in prices or any(risk.variance_limit is not None for risk in risks):
        return risks
    return sorted(risks, key=lambda risk: risk.price or 0.0)


def _name(risk: Risk) -> str:
    """Such as "risk aversion 0.3"; of a measure with other numbers, its label."""
    inner = getattr(risk, "risk", risk)
    return f"risk aversion {inner.price:g}" if not inner.name else inner.label


def _outcomes(experiments: Sequence[Experiment], root: Path) -> list[Outcome]:
    """Outcomes of the finished experiments; failures were reported before."""
    found = []
    for experiment in experiments:
        with suppress(InputError, OSError):
            if (outcome := experiment.outcome(root)) is not None:
                found.append(outcome)
    return found


def _write_table(path: Path, facts: Sequence[Mapping[str, Any]], chosen: Candidates) -> None:
    """A line a risk; intervals are two columns."""
    text = io.StringIO()
    rows = [
        {**_flat(one), "efficient": i in chosen.efficient, "knee": i == chosen.knee}
        for i, one in enumerate(facts)
    ]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue().encode())


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, list):
            stem = name.removesuffix("_interval")
            flat |= {f"{stem}_low": value[0], f"{stem}_high": value[1]}
        else:
            flat[name] = value
    return flat
