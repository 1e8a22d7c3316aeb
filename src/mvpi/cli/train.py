"""`mvpi train`: one agent in a run directory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from mvpi._rounding import Rounding
from mvpi._storage.metrics import Row, read_metrics
from mvpi._storage.names import METRICS
from mvpi.agents.registry import AGENTS
from mvpi.cli.agent_options import AgentCommand, AgentOptions, subcommands
from mvpi.cli.display import number, print_json
from mvpi.cli.progress import watched
from mvpi.cli.usage import LearnableRisk
from mvpi.errors import InputError, MissingPackage
from mvpi.risk import parse_risk
from mvpi.risk.extended import range_of, simplified
from mvpi.stats import check_count

if TYPE_CHECKING:
    from mvpi.agents.training import OnRow


@dataclass(frozen=True)
class TrainOptions(AgentOptions):
    """Options of every algorithm."""

    risk: LearnableRisk = "0.0"
    steps: int = 1_000_000
    """Environment steps in all."""
    seed: int = 0
    """Makes the run repeatable."""
    out: Path | None = None
    """The run directory; left out, runs/ALGORITHM-ENV-risk-RISK-seed-SEED."""
    tensorboard: bool = False
    """Also write TensorBoard event files, into the run directory."""
    json: bool = False
    """Print one JSON object at the end, and nothing else."""


if TYPE_CHECKING:
    Options = TrainOptions
else:
    Options = subcommands(TrainOptions, AGENTS)


@dataclass(frozen=True)
class Train(AgentCommand):
    """Train an agent; the same command on the same directory resumes it."""

    options: Annotated[Options, tyro.conf.arg(name="")]

    def run(self, console: Console) -> None:
        from mvpi.agents.loading import agent_type
        from mvpi.envs import Task

        chosen = self.options
        check_count(chosen.steps, "steps")
        agent = agent_type(chosen.algorithm).from_settings(
            Task(chosen.env, chosen.action_noise),
            parse_risk(chosen.risk),
            chosen.seed,
            chosen.settings,
        )
        config = agent.config()
        facts = (agent.name, config["environment"]["id"], "risk", config["risk"])
        out = chosen.out or default_directory(*facts, "seed", agent.seed)
        rows: list[Row] = []
        listeners: list[OnRow] = [rows.append]
        with ExitStack() as stack:
            if chosen.tensorboard:
                listeners.append(stack.enter_context(_tensorboard(out / "tensorboard")))
            if not chosen.json:
                say = stack.enter_context(watched(chosen.steps, lambda: agent.steps))
                listeners.append(lambda row: say(_summary(row)))

            def tell(row: Row) -> None:
                for listener in listeners:
                    listener(row)

            agent.learn(chosen.steps, out, on_row=tell)
        last = rows[-1] if rows else last_row(out)
        if chosen.json:
            print_json({**agent.config(), "steps": agent.steps, "out": str(out), "last": last})
            return
        console.print(_summary(last), soft_wrap=True)
        following = "evaluate" if range_of(simplified(agent.risk)) is None else "frontier"
        console.print(f"run directory: {out}\nnext: mvpi {following} {out}", soft_wrap=True)


def last_row(out: Path) -> Row:
    """The last row of a run's metrics.csv."""
    rows = read_metrics(out)
    try:
        _summary(rows[-1])
    except (LookupError, TypeError):
        raise InputError(f"{out / METRICS} is damaged: it has no complete last row") from None
    return rows[-1]


def default_directory(*facts: object) -> Path:
    """Below `runs`, named after the facts with dashes between them."""
    name = "-".join(map(str, facts))
    return Path("runs") / "".join(c if c.isalnum() or c in "-._" else "-" for c in name)


def _summary(row: Row) -> str:
    return (
        f"step {row['steps']:.0f}: return {_pair(row, 'return')}, "
        f"per-step reward {_pair(row, 'reward')}{_objective(row)}"
    )


def _objective(row: Row) -> str:
    """The value that is optimised, where it is not of the reward of a step alone."""
    along = [row.get(f"value_{place}") for place in ("low", "middle", "high")]
    if (value := row.get("value")) is not None:
        return f", objective {number(value)}"
    known = [number(value) for value in along if value is not None]
    return f", objective {', '.join(known)} (low, middle, high risk aversion)" if known else ""


def _pair(row: Row, name: str) -> str:
    mean, variance = row[f"{name}_mean"] or 0.0, row[f"{name}_variance"] or 0.0
    rounding = Rounding(mean, variance)
    spread = rounding.deviation(math.sqrt(variance))
    return f"{number(rounding.level(mean))} +- {number(spread)}"


@contextmanager
def _tensorboard(directory: Path) -> Iterator[OnRow]:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise MissingPackage("--tensorboard", "tensorboardX", "tensorboard") from None
    if directory.is_symlink():
        raise InputError(f"{directory} is a symbolic link, which is not followed; remove it")
    writer: Any = None

    def write(row: Row) -> None:
        nonlocal writer
        steps = int(row["steps"] or 0)
        if writer is None:
            # Rows from this step on replace those of an earlier attempt.
            writer = SummaryWriter(str(directory), purge_step=steps)
        for name, value in row.items():
            if name != "steps" and value is not None:
                writer.add_scalar(f"mvpi/{name}", value, steps)
        writer.flush()

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
