"""`mvpi solve` and `mvpi frontier`: finite MDPs."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from mvpi.commands.display import change, number, print_json
from mvpi.errors import InputError
from mvpi.risk import MeanVariance, Risk, VarianceBudget, parse_risk

if TYPE_CHECKING:
    from mvpi.tabular import MDP, Frontier, Progress, Solution

Model = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]

_SHOWN_AFTER = 1.0
"""Seconds of work before progress is shown."""
_SHOWN_STATES = 24
_SHOWN_CORNERS = 12
_INDISTINCT = 1e-9
"""Share of the spread of the rewards below which differences are not meant."""


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
            neutral = None if self.json else _valued(mdp, risk, optimize(mdp, 0.0))
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
    """A line on standard error, shown once the work has lasted a while."""
    console = Console(stderr=True)
    status = console.status(f"{task} ...")
    timer = threading.Timer(_SHOWN_AFTER, status.start)
    timer.daemon = True

    def report(solves: int, best: float, bound: float) -> None:
        status.update(f"{task}: {solves} solves, best {best:.6g}, bound {bound:.6g}")

    timer.start()
    try:
        yield report
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def comparison(risk: Risk, solutions: dict[str, Solution]) -> Table:
    """A row a solution: what each policy earns, how unsteadily, and what that is worth."""
    table = Table("", "mean", "variance", "std. dev.", "value", "upper bound")
    table.title = f"value = {_value_name(risk)}"
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for name, s in solutions.items():
        noise = _noise(s)
        value = number(s.mean if isinstance(risk, VarianceBudget) else s.value, noise)
        bounded = name != "risk-neutral" and math.isfinite(s.upper_bound)
        bound = number(s.upper_bound, noise) if bounded else ""
        deviation = number(math.sqrt(s.variance), noise)
        table.add_row(name, number(s.mean, noise), number(s.variance, 0.0), deviation, value, bound)
    return table


def verdict(neutral: Solution, solution: Solution) -> str:
    """One sentence: what the risk aversion bought and what it cost."""
    noise = max(_noise(neutral), _noise(solution))
    spread = max(neutral.variance, solution.variance)
    mean = change(neutral.mean, solution.mean, noise)
    variance = change(neutral.variance, solution.variance, _INDISTINCT * spread)
    if mean == variance == "+0%":
        return "The risk-neutral policy is also the best at this risk aversion."
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
        table.add_row(*map(number, (mean, variance, math.sqrt(variance))), best)
    return table


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


def _valued(mdp: MDP, risk: Risk, solution: Solution) -> Solution:
    """The solution for another measure with the value that `risk` gives its policy."""
    value = risk.value(*mdp.reward_distribution(mdp.occupancy(solution.policy)))
    return replace(solution, value=value)


def _noise(solution: Solution) -> float:
    """Rewards that are less apart than this are not told apart."""
    return _INDISTINCT * math.sqrt(solution.variance) + 1e-12 * abs(solution.mean)


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
