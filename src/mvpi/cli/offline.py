"""`mvpi offline`: learn from a data set, evaluate a policy on one, relabel one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from mvpi.cli.display import number, print_json
from mvpi.cli.progress import watched
from mvpi.cli.usage import RewardRisk, RiskText
from mvpi.errors import InputError
from mvpi.offline import Dataset
from mvpi.offline.settings import TD3BCSettings
from mvpi.risk import parse_risk

if TYPE_CHECKING:
    import numpy as np

    from mvpi._storage.metrics import Row
    from mvpi.offline.evaluation import OfflineEvaluation

Data = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
_MOST_STATES = 20
"""Policies of more states are not printed."""


@dataclass(frozen=True)
class Learn:
    """A risk-averse policy from data: the proved optimum of finite data, TD3+BC on vectors."""

    data: Data
    """The id of a local Minari data set, an .npz file, or the directory of an `mvpi train td3`."""
    risk: RiskText = "1.0"
    discount: float = 0.99
    """Discount factor."""
    updates: int = 100_000
    """Updates of the networks in all; finite data need none."""
    y: float | None = None
    """The number in the augmented reward, where it is known; left out, estimated from the data."""
    low: tuple[float, ...] | None = None
    """The smallest actions, a number or one per dimension; left out, as the data say, or have."""
    high: tuple[float, ...] | None = None
    """The largest actions."""
    seed: int = 0
    """Makes the run repeatable; on finite data every run is."""
    out: Path = Path("runs/offline")
    """The run directory: policy, metrics, checkpoint. The same command resumes it."""
    json: bool = False
    """Print one JSON object at the end, and nothing else."""
    settings: Annotated[TD3BCSettings, tyro.conf.arg(name="")] = field(
        default_factory=TD3BCSettings
    )

    def run(self, console: Console) -> None:
        data = opened(self.data)
        if data.n_states is not None:
            self._learn_table(data, console)
        else:
            self._learn_networks(data, console)

    def _learn_table(self, data: Dataset, console: Console) -> None:
        from mvpi.offline.training import learn_finite_in

        self._refuse_network_options()
        path = self.out / "policy.npz"
        learned = learn_finite_in(self.out, data, parse_risk(self.risk), self.discount, self.y)
        policy = policy_in(path) if learned is None else learned
        if self.json:
            facts = _last_row(self.out, "iterations")
            print_json({"policy": policy.tolist(), **facts, "file": str(path)})
            return
        console.print(f"{data}")
        if len(policy) <= _MOST_STATES:
            console.print(_policy_table(policy))
        console.print(f"{path} was finished already." if learned is None else f"Wrote {path}.")

    def _refuse_network_options(self) -> None:
        """Options that finite data have no use for."""
        names = ("updates", "low", "high")
        usual = {name: getattr(Learn, name) for name in names} | asdict(TD3BCSettings())
        given = {name: getattr(self, name) for name in names} | asdict(self.settings)
        for name, value in given.items():
            if value != usual[name]:
                raise InputError(
                    f"--{name.replace('_', '-')} is for networks, and finite data are learned "
                    f"without, got {value}; leave it out"
                )

    def _learn_networks(self, data: Dataset, console: Console) -> None:
        from mvpi.offline.td3_bc import TD3BC
        from mvpi.offline.training import learn_in

        learner = TD3BC(
            data,
            parse_risk(self.risk),
            self.discount,
            y=self.y,
            seed=self.seed,
            low=self.low,
            high=self.high,
            settings=self.settings,
        )
        with ExitStack() as stack:
            on_row = None
            if not self.json:
                progress = watched(self.updates, lambda: learner.updates, "updates")
                say = stack.enter_context(progress)

                def on_row(row: Row) -> None:
                    say(_summary(row))

            learn_in(self.out, learner, self.updates, on_row)
        last = _last_row(self.out, "updates")
        if self.json:
            print_json({"out": str(self.out), **last})
            return
        earned = number(float(data.rewards.mean()))
        said = f"{_summary(last)}, mean reward of the data {earned}"
        console.print(f"{said}\nrun directory: {self.out}", soft_wrap=True)


@dataclass(frozen=True)
class EvaluateOffline:
    """What a policy would earn per step, estimated from data: with bootstrap intervals."""

    data: Data
    """The id of a local Minari data set, an .npz file, or the directory of an `mvpi train td3`."""
    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """A policy.npz or policy.safetensors, or the directory of a run."""
    discount: float = 0.99
    """Discount factor."""
    method: Literal["gradient-dice", "gen-dice", "dual-dice", "exact"] | None = None
    """How density ratios are found; left out, exact for finite data, else gen-dice."""
    confidence: float = 0.95
    """Of the intervals."""
    level: float = 0.1
    """Of CVaR."""
    seed: int = 0
    """Makes the estimate repeatable."""
    json: bool = False
    """Print one JSON object."""

    def run(self, console: Console) -> None:
        from mvpi.offline import evaluate
        from mvpi.stats import check_level

        check_level(self.level)
        data = opened(self.data)
        found = evaluate(
            data,
            policy_in(self.policy),
            self.discount,
            method=self.method,
            confidence=self.confidence,
            seed=self.seed,
        )
        rows = _estimates(found, self.level)
        if self.json:
            facts: dict[str, Any] = {name: value for name, (value, _) in rows.items()}
            print_json(facts | {"intervals": {name: both for name, (_, both) in rows.items()}})
            return
        table = Table(title=f"{self.policy} on {self.data}, per step")
        for column in ("", "estimate", f"{self.confidence:.0%} interval"):
            table.add_column(column, justify="right" if column else "left")
        for name, (value, both) in rows.items():
            cells = "" if both is None else f"{number(both[0])} to {number(both[1])}"
            table.add_row(name.replace("_", " "), number(value), cells)
        console.print(table)


@dataclass(frozen=True)
class Relabel:
    """A copy of a Minari data set with augmented rewards, for any other off-line library."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")]
    """The id of a local Minari data set."""
    new: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NEW_ID")]
    """The id of the copy."""
    risk: RewardRisk = "1.0"
    y: float | None = None
    """The number in the augmented reward; left out, measured on the data, or for --policy."""
    policy: Path | None = None
    """A policy for which y is to be measured."""
    discount: float | None = None
    """Discount factor, for that; left out, 0.99."""

    def run(self, console: Console) -> None:
        from mvpi.offline import relabel

        policy, discount = None, self.discount
        if self.policy is not None:
            policy = policy_in(self.policy)
            discount = 0.99 if discount is None else discount
        risk = parse_risk(self.risk)
        copy = relabel(self.data, self.new, risk, self.y, policy=policy, discount=discount)
        y = copy.storage.metadata["relabelled"]["y"]
        console.print(f"Wrote the Minari data set {self.new}: y = {number(y)}.", soft_wrap=True)


Command = (
    Annotated[Learn, tyro.conf.subcommand("learn")]
    | Annotated[EvaluateOffline, tyro.conf.subcommand("evaluate")]
    | Annotated[Relabel, tyro.conf.subcommand("relabel")]
)


@dataclass(frozen=True)
class Offline:
    """Learn from a data set, evaluate a policy on one, or relabel one."""

    command: Annotated[Command, tyro.conf.arg(name="")]

    def run(self, console: Console) -> None:
        self.command.run(console)


def opened(text: str) -> Dataset:
    """The data that a text on the command line names."""
    path = Path(text)
    if path.suffix == ".npz":
        return Dataset.load(path)
    return Dataset.from_run(path) if path.is_dir() else Dataset.from_minari(text)


def policy_in(path: Path) -> Any:
    """A table of probabilities, or an agent with `predict`."""
    from mvpi._storage.names import POLICY
    from mvpi._storage.npz import read_npz
    from mvpi.agents.loading import load

    if path.is_dir() and (path / "policy.npz").exists():
        if (path / POLICY).exists():
            raise InputError(f"{path} holds policy.npz and {POLICY}; name one of them")
        path /= "policy.npz"
    if path.suffix != ".npz":
        return load(path)
    arrays = read_npz(path, {"policy"}, written_by="mvpi offline learn")
    if "policy" not in arrays:
        raise InputError(f"{path}: the array 'policy' is missing")
    return arrays["policy"]


def _last_row(out: Path, count: str) -> Row:
    """The last row of the metrics, its count as a whole number."""
    from mvpi._storage.metrics import read_metrics
    from mvpi._storage.names import METRICS

    *_, last = read_metrics(out) or [{}]
    if last.get(count) is None:
        raise InputError(f"{out / METRICS} is damaged: it has no complete last row")
    return {**last, count: int(last[count] or 0)}


def _summary(row: Row) -> str:
    """`y`, its interval if there is one, and how much of the data the policy is judged by."""
    y, size = (number(row.get(name) or 0.0) for name in ("y", "effective_size"))
    low, high = row.get("y_low"), row.get("y_high")
    within = "" if low is None or high is None else f" ({number(low)} to {number(high)})"
    return f"update {row['updates']:.0f}: y = {y}{within}, effective size {size}"


def _estimates(
    found: OfflineEvaluation, level: float
) -> dict[str, tuple[float, tuple[float, float] | None]]:
    rows: dict[str, tuple[float, tuple[float, float] | None]] = {
        "mean": (found.mean, found.mean_interval),
        "variance": (found.variance, found.variance_interval),
        f"cvar_{level:g}": (found.cvar(level), found.cvar_interval(level)),
        "effective_size": (found.effective_size, None),
    }
    if found.fitted_q_mean is not None:
        rows["fitted_q_mean"] = (found.fitted_q_mean, None)
    return rows


def _policy_table(policy: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Table:
    table = Table("state", *(f"action {a}" for a in range(policy.shape[1])))
    for state, row in enumerate(policy):
        table.add_row(str(state), *(f"{share:.4f}" for share in row))
    return table
