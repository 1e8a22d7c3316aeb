"""`mvpi train`: one agent in a run directory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from mvpi.agents.files import Row, read_metrics
from mvpi.agents.settings import (
    MVPSettings,
    PPOSettings,
    PrashanthSettings,
    TamarSettings,
    TD3Settings,
)
from mvpi.commands.display import number, print_json
from mvpi.commands.progress import watched
from mvpi.errors import InputError, missing
from mvpi.risk import parse_risk
from mvpi.rounding import Rounding
from mvpi.stats import check_count

if TYPE_CHECKING:
    from mvpi.agents.agent import Agent
    from mvpi.agents.run import OnRow


@dataclass(frozen=True)
class TrainOptions:
    """What can be said to every algorithm."""

    env: str
    """The id of a Gymnasium environment."""
    risk: str = "0.0"
    """A number, the weight of the variance; or cvar:LEVEL, entropic:BETA, budget:LIMIT."""
    action_noise: float = 0.0
    """Standard deviation of Gaussian noise on every action; the paper uses 0.1."""
    steps: int = 1_000_000
    """Environment steps in all."""
    seed: int = 0
    """Makes the run repeatable."""
    out: Path | None = None
    """The run directory; default: runs/ALGORITHM-ENV-risk-RISK-seed-SEED."""
    tensorboard: bool = False
    """Also write TensorBoard event files, into the run directory."""
    json: bool = False
    """Print one JSON object at the end, and nothing else."""


@dataclass(frozen=True)
class TD3Options(TrainOptions):
    """MVPI-TD3; at risk 0 it is TD3."""

    settings: Annotated[TD3Settings, tyro.conf.arg(name="")] = field(default_factory=TD3Settings)


@dataclass(frozen=True)
class PPOOptions(TrainOptions):
    """MVPI-PPO, also called TRVO; at risk 0 it is PPO."""

    settings: Annotated[PPOSettings, tyro.conf.arg(name="")] = field(default_factory=PPOSettings)


@dataclass(frozen=True)
class MVPOptions(TrainOptions):
    """MVP (Liu 2018): mean and variance of the return; risk must be above 0."""

    settings: Annotated[MVPSettings, tyro.conf.arg(name="")] = field(default_factory=MVPSettings)


@dataclass(frozen=True)
class TamarOptions(TrainOptions):
    """Tamar 2012: a price on the variance of the return beyond a limit."""

    settings: Annotated[TamarSettings, tyro.conf.arg(name="")] = field(
        default_factory=TamarSettings
    )


@dataclass(frozen=True)
class PrashanthOptions(TrainOptions):
    """Prashanth 2013: mean and variance of the return, by perturbing the policy."""

    settings: Annotated[PrashanthSettings, tyro.conf.arg(name="")] = field(
        default_factory=PrashanthSettings
    )


Options = (
    Annotated[TD3Options, tyro.conf.subcommand("td3")]
    | Annotated[PPOOptions, tyro.conf.subcommand("ppo")]
    | Annotated[MVPOptions, tyro.conf.subcommand("mvp")]
    | Annotated[TamarOptions, tyro.conf.subcommand("tamar")]
    | Annotated[PrashanthOptions, tyro.conf.subcommand("prashanth")]
)


@dataclass(frozen=True)
class Train:
    """Train an agent; the same command on the same directory resumes it."""

    options: Annotated[Options, tyro.conf.arg(name="")]

    def run(self, console: Console) -> None:
        from mvpi.agents.agent import agent_for
        from mvpi.envs import Task

        chosen = self.options
        check_count(chosen.steps, "steps")
        agent = agent_for(chosen.settings)(
            Task(chosen.env, chosen.action_noise),
            parse_risk(chosen.risk),
            chosen.seed,
            **{f.name: getattr(chosen.settings, f.name) for f in fields(chosen.settings)},
        )
        out = chosen.out or _default_directory(agent)
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
        console.print(_summary(last))
        console.print(f"run directory: {out}\nnext: mvpi evaluate {out}")


def last_row(out: Path) -> Row:
    """The last row of a run's metrics.csv."""
    rows = read_metrics(out)
    try:
        _summary(rows[-1])
    except (LookupError, TypeError):
        raise InputError(f"{out / 'metrics.csv'} is damaged: it has no complete last row") from None
    return rows[-1]


def _default_directory(agent: Agent[Any]) -> Path:
    config = agent.config()
    name = f"{agent.name}-{config['environment']['id']}-risk-{config['risk']}-seed-{agent.seed}"
    return Path("runs") / "".join(c if c.isalnum() or c in "-._" else "-" for c in name)


def _summary(row: Row) -> str:
    return (
        f"step {row['steps']:.0f}: return {_pair(row, 'return')}, "
        f"per-step reward {_pair(row, 'reward')}"
    )


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
        raise InputError(missing("--tensorboard", "tensorboardX", "tensorboard")) from None
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
