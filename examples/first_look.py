"""A first look: what risk aversion buys and costs on three small problems.

Run it with `make run`, or `python examples/first_look.py [DIRECTORY]`. It solves the paper's
four-state example, FrozenLake and a small inventory, compares the risk-neutral policy with the
one mean-variance policy iteration finds and with the certified global optimum, and saves the
picture of each efficient frontier.
"""

import sys
from pathlib import Path

from rich.console import Console

import mvpi
from mvpi.commands.solve import comparison, verdict

PROBLEMS = {
    "four states": ("a gamble or a sure loss", mvpi.examples.four_state(), 4.0),
    "frozen lake": ("FrozenLake-v1", mvpi.MDP.from_gymnasium("FrozenLake-v1"), 1.5),
    "inventory": ("order 0, 2, 5 or 10 units a day", mvpi.examples.inventory(30, 0.99), 0.07),
}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    for name, (description, mdp, risk_aversion) in PROBLEMS.items():
        neutral = mvpi.optimize(mdp, 0.0)
        local = mvpi.policy_iteration(mdp, risk_aversion, neutral.policy)
        best = mvpi.optimize(mdp, risk_aversion)
        console.rule(f"[bold]{name}[/bold]: {description}, risk aversion {risk_aversion:g}")
        solutions = {
            "risk-neutral": neutral,
            "MVPI from there": local,
            "global optimum": best,
        }
        console.print(comparison(mvpi.MeanVariance(risk_aversion), solutions))
        console.print(verdict(neutral, best))
        picture = directory / f"frontier-{name.replace(' ', '-')}.png"
        mvpi.frontier(mdp).plot(str(picture))
        console.print(f"efficient frontier: {picture}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
