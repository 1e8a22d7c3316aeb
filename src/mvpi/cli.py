"""The command line. What goes wrong is one line on standard error.

The exit status is 2 for a mistake of the user, 1 where a solve did not converge.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from mvpi.errors import InputError, NoConvergence
from mvpi.risk import MeanVariance, Risk, VarianceBudget, parse_risk

if TYPE_CHECKING:
    from mvpi.tabular import MDP, Frontier, Progress, Solution

Model = Annotated[str, tyro.conf.Positional]

_SHOWN_STATES = 24
_SHOWN_CORNERS = 12


@dataclass(frozen=True)
class Solve:
    """Find the best policy of a finite MDP at a risk aversion, and prove it."""

    model: Model
    """An .npz file (see `mvpi.MDP.save`), or the id of an environment with a transition table."""
    risk: str = "1.0"
    """A number, the weight of the variance; or cvar:LEVEL, entropic:BETA, budget:LIMIT."""
    discount: float | None = None
    """In (0, 1], 1 is the average reward; default: the file's own, or 0.99."""
    local: bool = False
    """Stop at the local optimum of mean-variance policy iteration."""
    json: bool = False
    """Print one JSON object, with the policy."""

    def run(self, console: Console) -> None:
        from mvpi.tabular import optimize, policy_iteration

        risk = parse_risk(self.risk)
        mdp = read_model(self.model, self.discount)
        with progress_display("solving") as progress:
            if self.local:
                solution = policy_iteration(mdp, risk)
            else:
                solution = optimize(mdp, risk, progress=progress)
            neutral = None if self.json else optimize(mdp, 0.0)
        if neutral is None:
            print_json({"risk": str(risk), **_model_facts(mdp), **_solution_facts(solution)})
            return
        name = "local optimum" if self.local else "optimum"
        console.print(f"{self.model}: {mdp}\n")
        console.print(comparison(risk, {"risk-neutral": neutral, name: solution}))
        console.print(verdict(neutral, solution))
        _print_policy(console, solution)


@dataclass(frozen=True)
class FrontierCommand:
    """Find all efficient policies of a finite MDP, for every risk aversion at once."""

    model: Model
    """An .npz file (see `mvpi.MDP.save`), or the id of an environment with a transition table."""
    discount: float | None = None
    """In (0, 1], 1 is the average reward; default: the file's own, or 0.99."""
    out: Path | None = None
    """Where to save the picture, a .png, .svg or .pdf; none when left out."""
    spread: Literal["variance", "standard deviation"] = "variance"
    """What the horizontal axis of the picture shows."""
    json: bool = False
    """Print one JSON object, with all policies."""

    def run(self, console: Console) -> None:
        from mvpi.tabular import frontier

        if self.out is not None:
            _check_picture_path(self.out)
        mdp = read_model(self.model, self.discount)
        with progress_display("exploring") as progress:
            found = frontier(mdp, progress=progress)
        if self.out is not None:
            found.plot(str(self.out), spread=self.spread)
        if self.json:
            print_json(_frontier_facts(mdp, found))
            return
        console.print(f"{self.model}: {mdp}\n")
        console.print(frontier_table(found))
        if self.out is not None:
            console.print(f"picture: {self.out}")


Command = (
    Annotated[Solve, tyro.conf.subcommand("solve")]
    | Annotated[FrontierCommand, tyro.conf.subcommand("frontier")]
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `mvpi` command."""
    console = Console(highlight=False)
    try:
        command: Solve | FrontierCommand = tyro.cli(
            Command,
            prog="mvpi",
            description="Risk-averse reinforcement learning by mean-variance policy iteration.",
            args=arguments,
        )
        command.run(console)
    except (InputError, OSError, MemoryError) as error:
        message = str(error) or type(error).__name__
        sys.exit(_failed(" ".join(message.split())))
    except NoConvergence as error:
        sys.exit(_failed(str(error), status=1))
    except KeyboardInterrupt:
        sys.exit(_failed("interrupted", status=130))


def _failed(message: str, status: int = 2) -> int:
    print(f"mvpi: {message}", file=sys.stderr)
    return status


def read_model(model: str, discount: float | None) -> MDP:
    """The MDP in a file, or that of an environment id; `discount` replaces its own."""
    from mvpi.tabular import MDP

    if model.endswith(".npz") or Path(model).exists():
        mdp = MDP.load(model)
        if discount is None or discount == mdp.discount:
            return mdp
        return MDP.from_rows(mdp.transitions, mdp.rewards, discount, mdp.start)
    return MDP.from_gymnasium(model, 0.99 if discount is None else discount)


@contextmanager
def progress_display(task: str) -> Iterator[Progress]:
    """A line on standard error, shown once the work has lasted longer than a second."""
    console = Console(stderr=True)
    status = console.status(f"{task} ...")
    timer = threading.Timer(1.0, status.start)
    timer.daemon = True

    def report(solves: int, best: float, bound: float) -> None:
        status.update(f"{task}: {solves} solves, best {best:.6g}, bound {bound:.6g}")

    timer.start()
    try:
        yield report
    finally:
        timer.cancel()
        status.stop()


def comparison(risk: Risk, solutions: dict[str, Solution]) -> Table:
    """A row a solution: what each policy earns, how unsteadily, and what that is worth."""
    table = Table("", "mean", "variance", "std. dev.", "value", "upper bound")
    table.title = f"value = {_value_name(risk)}"
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for name, s in solutions.items():
        neutral = name == "risk-neutral"
        value = _number(_value_of(risk, s)) if _comparable(risk, neutral) else ""
        bound = "" if neutral or math.isinf(s.upper_bound) else _number(s.upper_bound)
        row = map(_number, (s.mean, s.variance, math.sqrt(s.variance)))
        table.add_row(name, *row, value, bound)
    return table


def verdict(neutral: Solution, solution: Solution) -> str:
    """One sentence: what the risk aversion bought and what it cost."""
    if solution.mean == neutral.mean and solution.variance == neutral.variance:
        return "The risk-neutral policy is also the best at this risk aversion."
    variance = _change(neutral.variance, solution.variance)
    mean = _change(neutral.mean, solution.mean)
    return f"Against the risk-neutral policy: variance {variance}, mean {mean}."


def frontier_table(found: Frontier) -> Table:
    """The efficient policies (a selection when there are many) and their risk aversions."""
    table = Table("mean", "variance", "std. dev.", "best for risk aversions", title=_title(found))
    for column in table.columns:
        column.justify = "right"
    for i in _selection(len(found)):
        span = found.risk_aversions[i]
        best = "none (variance limits only)" if span is None else f"{span[0]:.5g} to {span[1]:.5g}"
        mean, variance = float(found.means[i]), float(found.variances[i])
        table.add_row(*map(_number, (mean, variance, math.sqrt(variance))), best)
    return table


def print_json(facts: dict[str, Any]) -> None:
    """One JSON object on standard output; numbers that are not finite become null."""
    print(json.dumps(_finite(facts), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _model_facts(mdp: MDP) -> dict[str, Any]:
    return {"states": mdp.n_states, "actions": mdp.n_actions, "discount": mdp.discount}


def _solution_facts(solution: Solution) -> dict[str, Any]:
    return {
        "mean": solution.mean,
        "variance": solution.variance,
        "value": solution.value,
        "dual": solution.dual,
        "upper_bound": solution.upper_bound,
        "converged": solution.converged,
        "solves": solution.solves,
        "trace": list(solution.trace),
        "policy": solution.policy.tolist(),
    }


def _frontier_facts(mdp: MDP, found: Frontier) -> dict[str, Any]:
    return {
        **_model_facts(mdp),
        "means": found.means.tolist(),
        "variances": found.variances.tolist(),
        "risk_aversions": [None if r is None else list(r) for r in found.risk_aversions],
        "policies": [policy.tolist() for policy in found.policies],
        "solves": found.solves,
    }


def _value_name(risk: Risk) -> str:
    if isinstance(risk, MeanVariance):
        return f"mean - {risk.risk_aversion:g} variance"
    return "mean" if isinstance(risk, VarianceBudget) else str(risk)


def _comparable(risk: Risk, neutral: bool) -> bool:
    return not neutral or isinstance(risk, MeanVariance | VarianceBudget)


def _value_of(risk: Risk, solution: Solution) -> float:
    if isinstance(risk, MeanVariance):
        return solution.mean - risk.risk_aversion * solution.variance
    return solution.mean if isinstance(risk, VarianceBudget) else solution.value


def _number(value: float) -> str:
    """Five digits, and rounding noise shown as the zero it is."""
    return f"{round(value, 12) + 0.0:.5g}"


def _change(before: float, after: float) -> str:
    if before == 0:
        return f"{after - before:+.3g}"
    return f"{100 * (after - before) / abs(before):+.3g}%"


def _title(found: Frontier) -> str:
    shown = len(list(_selection(len(found))))
    kind = "efficient policies" if shown == len(found) else f"efficient policies, {shown} shown"
    return f"{len(found)} {kind}"


def _selection(count: int) -> Sequence[int]:
    if count <= _SHOWN_CORNERS:
        return range(count)
    last = _SHOWN_CORNERS - 1
    return sorted({round(k * (count - 1) / last) for k in range(_SHOWN_CORNERS)})


def _print_policy(console: Console, solution: Solution) -> None:
    if len(solution.policy) <= _SHOWN_STATES:
        console.print(f"policy: {solution.policy.tolist()}")


def _check_picture_path(path: Path) -> None:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"out must end in .png, .svg or .pdf, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"out must be in a directory that exists, {path.parent} does not")


if __name__ == "__main__":
    main()
