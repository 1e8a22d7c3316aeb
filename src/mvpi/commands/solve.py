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
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mvpi.commands.display import change, number, print_json
from mvpi.errors import InputError
from mvpi.risk import MeanVariance, Risk, VarianceBudget, parse_risk
from mvpi.rounding import Rounding

if TYPE_CHECKING:
    from mvpi.tabular import MDP, Frontier, Progress, Solution

Model = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]

_SHOWN_AFTER = 1.0
"""Seconds of work before progress is shown."""
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
            neutral = None if self.json else valued(mdp, risk, optimize(mdp, 0.0))
        if neutral is None:
            print_json({"risk": str(risk), **_model_facts(mdp), **_solution_facts(solution)})
            return
        name = "local optimum" if self.local else "optimum"
        console.print(f"{self.model}: {mdp}\n")
        least = smallest_reward(mdp)
        console.print(comparison(risk, {"risk-neutral": neutral, name: solution}, least))
        console.print(verdict(neutral, solution, least))
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
        console.print(frontier_table(found, smallest_reward(mdp)))
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
    from mvpi.commands.progress import COMPILING
    from mvpi.compiled import while_compiling

    console = Console(stderr=True)
    status = console.status(f"{task} ...")
    timer = threading.Timer(_SHOWN_AFTER, status.start)
    timer.daemon = True

    def report(solves: int, best: float, bound: float) -> None:
        status.update(f"{task}: {solves} solves, best {best:.6g}, bound {bound:.6g}")

    timer.start()
    try:
        with while_compiling(lambda begins: status.update(COMPILING if begins else f"{task} ...")):
            yield report
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def comparison(risk: Risk, solutions: dict[str, Solution], least: float = 0.0) -> Table:
    """A row a solution: what each policy earns, how unsteadily, and what that is worth.

    The value is the one of `risk` in every row, so the solutions must be for that risk (see
    `valued`). `least` is the smallest reward but 0, the measure of rounding errors.
    """
    title = f"value = {_value_name(risk)}"
    columns = ("", "mean", "variance", "std. dev.", "value", "upper bound")
    table = Table(*columns, title=title, box=SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for name, solution in solutions.items():
        table.add_row(name, *_cells(solution, least))
    return table


def valued(mdp: MDP, risk: Risk, solution: Solution) -> Solution:
    """A policy that was found for another measure, with the value it has for `risk`.

    Its bound was one for that other measure, so it has none. Beyond the limit of a variance budget
    the value is minus infinity.
    """
    rewards, weights = mdp.reward_distribution(mdp.occupancy(solution.policy))
    if isinstance(risk, VarianceBudget):
        allowed = solution.variance <= risk.limit * (1.0 + 1e-9)
        value = solution.mean if allowed else -math.inf
    else:
        value = risk.value(rewards, weights)
    return replace(solution, value=value, upper_bound=math.inf)


def verdict(neutral: Solution, solution: Solution, least: float = 0.0) -> str:
    """One sentence: what the risk aversion bought and what it cost."""
    before, after = (
        (rounding.variance(s.variance), rounding.level(s.mean))
        for s, rounding in ((s, _rounding(s, least)) for s in (neutral, solution))
    )
    variance, mean = (change(old, new) for old, new in zip(before, after, strict=True))
    if variance == mean == "0%":
        return "The risk-neutral policy is also the best at this risk aversion."
    return f"Against the risk-neutral policy: variance {variance}, mean {mean}."


def frontier_table(found: Frontier, least: float = 0.0) -> Table:
    """The efficient policies (a selection when there are many) and their risk aversions."""
    columns = ("mean", "variance", "std. dev.", "best for risk aversions")
    table = Table(*columns, title=_title(found), box=SIMPLE_HEAD)
    for column in table.columns:
        column.justify = "right"
    for i in _selection(len(found)):
        span = found.risk_aversions[i]
        best = "none (variance limits only)" if span is None else f"{span[0]:.5g} to {span[1]:.5g}"
        table.add_row(*_moments(float(found.means[i]), float(found.variances[i]), least), best)
    return table


def smallest_reward(mdp: MDP) -> float:
    """The size of the smallest reward but 0: no policy earns less, except by rounding."""
    sizes = abs(mdp.rewards)
    return float(sizes.min(where=sizes > 0, initial=math.inf)) if sizes.any() else 0.0


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
    if isinstance(risk, VarianceBudget):
        return f"mean, where the variance is at most {risk.limit:g}"
    return str(risk)


def _rounding(solution: Solution, least: float) -> Rounding:
    return Rounding(solution.mean, solution.variance, least)


def _moments(mean: float, variance: float, least: float) -> list[str]:
    """Mean, variance and standard deviation as cells."""
    rounding = Rounding(mean, variance, least)
    spread = rounding.variance(variance)
    return [number(rounding.level(mean)), number(spread), number(math.sqrt(spread))]


def _cells(solution: Solution, least: float) -> list[str]:
    rounding = _rounding(solution, least)
    bound = rounding.level(solution.upper_bound)
    return [
        *_moments(solution.mean, solution.variance, least),
        number(rounding.level(solution.value)),
        number(bound) if math.isfinite(bound) else "",
    ]


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
