"""`mvpi solve`: the best policy of a finite MDP."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mvpi._rounding import Rounding
from mvpi._text import change
from mvpi.cli.display import json_label, label_text, number, print_json
from mvpi.cli.finite_mdp import CsvOptions, OfCsv, model_facts, read_model
from mvpi.cli.usage import ExactRisk
from mvpi.errors import InputError
from mvpi.risk import MeanVariance, OfReturn, Risk, parse_risk
from mvpi.risk.extended import range_of

if TYPE_CHECKING:
    from mvpi._types import Array
    from mvpi.tabular import MDP, Frontier, Progress, Solution
    from mvpi.tabular._engines.backups import Actions

Model = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]

_SHOWN_AFTER = 1.0
"""Seconds of work before progress is shown."""
_SHOWN_STATES = 24
_SHOWN_CORNERS = 12


@dataclass(frozen=True)
class Solve:
    """Find the best policy of a finite MDP at a risk aversion, and prove it."""

    model: Model
    """An .npz file, a .csv file of outcomes, or an environment that has a transition table."""
    risk: ExactRisk = "1.0"
    discount: float | None = None
    """In (0, 1], 1 is the average reward; left out, the file's own, or 0.99."""
    csv: OfCsv = field(default_factory=CsvOptions)
    horizon: int | None = None
    """The number of steps of an episode, for a risk of its return (return:RISK)."""
    return_step: float | None = None
    """With a horizon and too many returns: round rewards to multiples of this; the bound holds."""
    local: bool = False
    """Stop at the local optimum of mean-variance policy iteration."""
    json: bool = False
    """Print one JSON object, with the policy."""

    def run(self, console: Console) -> None:
        from mvpi.tabular import optimize, policy_iteration

        risk = self._checked_risk()
        mdp = read_model(self.model, self.discount, self.csv)
        with progress_display("solving") as progress:
            if self.local:
                solution = policy_iteration(mdp, risk)
            else:
                solution = optimize(mdp, risk, **self._episode, progress=progress)
            neutral = None if self.json else self._neutral(mdp, risk)
        if neutral is None:
            print_json({"risk": str(risk), **model_facts(mdp), **_solution_facts(solution)})
            return
        name = "local optimum" if self.local else "optimum"
        console.print(f"{self.model}: {mdp}\n")
        least = smallest_reward(mdp)
        console.print(comparison(risk, {"risk-neutral": neutral, name: solution}, least))
        console.print(verdict(neutral, solution, least))
        _print_policy(console, mdp, solution)

    def _checked_risk(self) -> Risk:
        """The measure, where the other options suit it; errors name options, not arguments."""
        risk = parse_risk(self.risk)
        given = [name for name in ("horizon", "return_step") if getattr(self, name) is not None]
        options = ["--" + name.replace("_", "-") for name in given]
        if self.local and (options or risk.of_return):
            other = options[0] if options else f"--risk {self.risk}"
            raise InputError(f"--local is for the reward of a step: leave out --local or {other}")
        if range_of(risk) is not None:
            raise InputError(
                f"--risk {self.risk} stands for many measures: give one risk aversion, or use "
                "mvpi frontier for all of them"
            )
        if risk.of_return and self.horizon is None:
            raise InputError(
                f"--risk {self.risk} needs the number of steps of an episode, such as --horizon 20"
            )
        if options and not risk.of_return:
            raise InputError(
                f"{options[0]} is for the return of an episode: use --risk return:{self.risk}, or "
                "leave it out"
            )
        return risk

    @property
    def _episode(self) -> dict[str, Any]:
        return {"horizon": self.horizon, "return_step": self.return_step}

    def _neutral(self, mdp: MDP, risk: Risk) -> Solution:
        """The risk-neutral policy, with its value for `risk`."""
        from mvpi.tabular import optimize

        if not isinstance(risk, OfReturn):
            return valued(mdp, risk, optimize(mdp, 0.0))
        solution = optimize(mdp, OfReturn(MeanVariance(0.0)), **self._episode)
        policy = solution.policy
        return with_value(solution, risk, (policy.returns, policy.probabilities))


@contextmanager
def progress_display(task: str) -> Iterator[Progress]:
    """A line on standard error, shown once the work has lasted a while."""
    from mvpi._compiled import while_compiling
    from mvpi.cli.progress import COMPILING

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
    """A row a solution: mean, spread and value of each policy.

    The value is the one of `risk` in every row, so the solutions must be for that risk (see
    `valued`). `least` is the smallest reward but 0, the measure of rounding errors.
    """
    title = f"value = {risk.value_label}"
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
    return with_value(solution, risk, mdp.reward_distribution(mdp.occupancy(solution.policy)))


def with_value(solution: Solution, risk: Risk, distribution: tuple[Array, Array]) -> Solution:
    """A solution with the value that a distribution has for `risk`, and no bound."""
    if risk.variance_limit is not None:
        allowed = solution.variance <= risk.variance_limit * (1.0 + 1e-9)
        value = solution.mean if allowed else -math.inf
    else:
        value = risk.value(*distribution)
    return replace(solution, value=value, upper_bound=math.inf)


def verdict(neutral: Solution, solution: Solution, least: float = 0.0) -> str:
    """One sentence: the changes of variance and mean by risk aversion."""
    before, after = (
        (rounding.variance(s.variance), rounding.level(s.mean))
        for s, rounding in ((s, _rounding(s, least)) for s in (neutral, solution))
    )
    variance, mean = (change(old, new) for old, new in zip(before, after, strict=True))
    if variance == mean == "0%":
        return "The risk-neutral policy is also the best at this risk aversion."
    return f"Against the risk-neutral policy: variance {variance}, mean {mean}."


def frontier_table(found: Frontier, least: float = 0.0, mdp: MDP | None = None) -> Table:
    """The efficient policies (a selection when there are many) and their risk aversions.

    With an `mdp` that has labels also what each policy does otherwise than the one above it.
    """
    columns = ["mean", "variance", "std. dev.", "best for risk aversions"]
    labelled = mdp is not None and mdp.labels.given
    if labelled:
        columns.append("change of the policy")
    table = Table(*columns, title=_title(found), box=SIMPLE_HEAD)
    for column in table.columns[:4]:
        column.justify = "right"
    above = None
    for i in _selection(len(found)):
        span = found.risk_aversions[i]
        best = "none (variance limits only)" if span is None else f"{span[0]:.5g} to {span[1]:.5g}"
        cells = [*_moments(float(found.means[i]), float(found.variances[i]), least), best]
        if mdp is not None and labelled:
            cells.append("" if above is None else _change(mdp, above, found.policies[i]))
        table.add_row(*map(Text, cells))
        above = found.policies[i]
    return table


def _change(mdp: MDP, before: Actions, after: Actions) -> str:
    """The change of action in the most visited state where two policies differ."""
    visits = mdp.occupancy(after).sum(axis=1) * (before != after)
    changed = visits.argsort()[::-1][: (visits > 0).sum()].tolist()
    if not changed:
        return ""
    s, (states, actions) = changed[0], (mdp.state_labels, mdp.action_labels)
    old, new = (label_text(actions[int(policy[s])]) for policy in (before, after))
    more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{label_text(states[s])}: {old} -> {new}{more}"


def smallest_reward(mdp: MDP) -> float:
    """The smallest absolute reward other than 0: smaller means are rounding errors."""
    sizes = abs(mdp.rewards)
    return float(sizes.min(where=sizes > 0, initial=math.inf)) if sizes.any() else 0.0


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
        "policy": policy_facts(solution.policy),
    }


def policy_facts(policy: Any) -> list[Any]:
    """A policy for JSON: actions or probabilities by state, or rows by time, state and return."""
    from mvpi.tabular import ReturnPolicy

    if not isinstance(policy, ReturnPolicy):
        actions: list[Any] = policy.tolist()
        return actions
    rows = policy.rows()
    for row in rows:
        action = row["action"]
        row["state"] = json_label(row["state"])
        row["action"] = (
            [[json_label(a), p] for a, p in action.items()]
            if policy.is_randomised
            else json_label(action)
        )
    return rows


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


def _print_policy(console: Console, mdp: MDP, solution: Solution) -> None:
    from mvpi.tabular import ReturnPolicy

    if isinstance(solution.policy, ReturnPolicy):
        console.print(Text(f"policy: {solution.policy}; --json prints all of it"))
        return
    if len(solution.policy) > _SHOWN_STATES:
        return
    if not mdp.labels.given:
        console.print(f"policy: {solution.policy.tolist()}")
        return
    table = Table("state", "action", box=SIMPLE_HEAD)
    for state, action in solution.policy_by_label.items():
        chosen = label_text(action)
        if isinstance(action, dict):
            chosen = ", ".join(f"{label_text(a)} {p:.4g}" for a, p in action.items())
        table.add_row(Text(label_text(state)), Text(chosen))
    console.print(table)
