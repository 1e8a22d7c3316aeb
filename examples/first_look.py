"""A first look: what risk aversion buys and costs on three small problems.

Run it with `make run`, or `python examples/first_look.py [DIRECTORY]`. It solves a machine that is
to be serviced, a small inventory and the paper's four-state example; compares the risk-neutral
policy with the one mean-variance policy iteration (MVPI) finds from it and with the certified
global optimum, all by the same objective; and saves a picture of each efficient frontier.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import mvpi


class Problem(NamedTuple):
    name: str
    story: str
    mdp: mvpi.MDP
    risk_aversion: float
    described: Callable[[Any], str]
    """A policy in words."""


def service(policy: Any) -> str:
    return f"a service after every {policy.argmax()} days"


def orders(policy: Any) -> str:
    last = {size: stock for stock, size in enumerate(policy) if size > 0}
    return "order " + ", ".join(
        f"{(0, 2, 5, 10)[size]} when {f'at most {stock}' if stock else 'none'} are left"
        for size, stock in last.items()
    )


def choice(policy: Any) -> str:
    return ("the gamble", "the sure loss")[policy[0]]


PROBLEMS = (
    Problem(
        "machine",
        "It earns 1 a day and wears out. k days after a service it breaks down with probability "
        "0.002 k, which costs 20; a day of service earns nothing.",
        mvpi.examples.maintenance(),
        0.15,
        service,
    ),
    Problem(
        "inventory",
        "Sell 0 to 4 units a day for 2 each. Units cost 1, an order of 2, 5 or 10 units costs 2 "
        "more, and a unit in stock 0.01 a day.",
        mvpi.examples.inventory(30, 0.99),
        0.07,
        orders,
    ),
    Problem(
        "four-state",
        "The paper's example: the toss of a coin for +1 or -1, or -1 for sure. MVPI stops at a "
        "local optimum.",
        mvpi.examples.four_state(),
        4.0,
        choice,
    ),
)


def valued(mdp: mvpi.MDP, risk: mvpi.Risk, solution: mvpi.Solution) -> mvpi.Solution:
    """A policy that was found for another risk, with the value it has for this one."""
    rewards, probabilities = mdp.reward_distribution(mdp.occupancy(solution.policy))
    return replace(solution, value=risk.value(rewards, probabilities), upper_bound=math.inf)


def comparison(risk: mvpi.Risk, solutions: dict[str, mvpi.Solution]) -> Table:
    """A row a solution; only the global optimum has a bound."""
    columns = ("", "mean", "variance", "std. dev.", "value", "upper bound")
    table = Table(*columns, title=f"value = {risk.value_label}", box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, found in solutions.items():
        numbers = (found.mean, found.variance, found.std, found.value, found.upper_bound)
        table.add_row(name, *(number(x) if math.isfinite(x) else "" for x in numbers))
    return table


def number(x: float) -> str:
    return f"{rounded(x):.5g}"


def rounded(x: float) -> float:
    """Without rounding errors, and without a sign of zero."""
    return round(x, 9) + 0.0


def change(before: float, after: float) -> str:
    """In percent; from 0, the difference."""
    old, new = rounded(before), rounded(after)
    return f"{100 * (new - old) / abs(old):+.2g}%" if old else f"{new - old:+.3g}"


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    for name, story, mdp, risk_aversion, described in PROBLEMS:
        risk = mvpi.MeanVariance(risk_aversion)
        with Console(stderr=True).status("solving"):  # the first solve compiles
            neutral = valued(mdp, risk, mvpi.solve(mdp))
            local = mvpi.policy_iteration(mdp, risk, neutral.policy)
            best = mvpi.optimize(mdp, risk)
        rows = {"risk-neutral": neutral, "MVPI": local, "global optimum": best}
        console.print(f"[bold]{name}[/bold], risk aversion {risk_aversion:g}", story, sep="\n")
        console.print(comparison(risk, rows))
        console.print(f"  risk-neutral:   {described(neutral.policy)}")
        console.print(f"  global optimum: {described(best.policy)}")
        variance, mean = change(neutral.variance, best.variance), change(neutral.mean, best.mean)
        console.print(f"  Against the risk-neutral policy: variance {variance}, mean {mean}.")
        picture = directory / f"frontier-{name}.png"
        mvpi.frontier(mdp).plot(str(picture))
        console.print(f"  Efficient frontier: {picture}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
