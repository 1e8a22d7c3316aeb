"""`mvpi frontier`: of a finite MDP all efficient policies, of an agent every risk aversion."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console

from mvpi.cli.display import print_json
from mvpi.cli.finite_mdp import CsvOptions, OfCsv, model_facts, read_model
from mvpi.cli.solve import frontier_table, policy_facts, progress_display, smallest_reward
from mvpi.errors import InputError

if TYPE_CHECKING:
    from mvpi.tabular import MDP, Frontier

_OF_AGENTS = ("points", "episodes", "seed", "env", "action_noise")
"""Options that an MDP has no use for."""


@dataclass(frozen=True)
class FrontierCommand:
    """The efficient frontier of a finite MDP, or of an agent trained with a range.

    Of a finite MDP it is exact. Of an agent, episodes are run at several risk aversions: mean
    against standard deviation of the reward of a step and of the return, the non-dominated part
    and the knee, and the exact frontier beside it where the environment has a transition table.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL|DIR")]
    """A model as `mvpi solve` takes it, or a run of `mvpi train td3 --risk range:LOW:HIGH`."""
    discount: float | None = None
    """Of an MDP: in (0, 1], 1 is the average reward; left out, the file's own, or 0.99."""
    csv: OfCsv = field(default_factory=CsvOptions)
    horizon: int | None = None
    """Of an MDP: the number of steps of an episode, for the frontier of its return."""
    out: Path | None = None
    """Where to save the picture, a .png, .svg or .pdf; none when left out."""
    spread: Literal["variance", "standard deviation"] = "variance"
    """Of an MDP: what the horizontal axis of the picture shows."""
    points: int | None = None
    """Of an agent: how many risk aversions, at equal distances along its range; left out, 11."""
    episodes: int | None = None
    """Of an agent: episodes at each of them; left out, 100."""
    seed: int | None = None
    """Of an agent: seed of the episodes; left out, 0."""
    env: str | None = None
    """Of an agent: another environment than the one it was trained in."""
    action_noise: float | None = None
    """Of an agent: other noise on the actions than in training."""
    json: bool = False
    """Print one JSON object, with all policies of an MDP or all returns of an agent."""

    def run(self, console: Console) -> None:
        if self.out is not None:
            check_picture_path(self.out)
        path = Path(self.model)
        if path.is_dir() or path.suffix == ".safetensors":
            self._refuse("an agent", "discount", "horizon")
            self.csv.refuse(self.model)
            if self.spread != FrontierCommand.spread:
                raise InputError("--spread is for MDPs: that of an agent is a standard deviation")
            self._run_agent(console)
        else:
            self._refuse("an MDP", *_OF_AGENTS)
            self._run_mdp(console)

    def _refuse(self, what: str, *options: str) -> None:
        for name in options:
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise InputError(f"--{option} does not apply to {what}, and {self.model} is one")

    def _run_agent(self, console: Console) -> None:
        from mvpi.cli.learned_frontier import show

        options = {name: getattr(self, name) for name in _OF_AGENTS}
        given = {name: value for name, value in options.items() if value is not None}
        show(Path(self.model), console, out=self.out, json=self.json, **given)

    def _run_mdp(self, console: Console) -> None:
        from mvpi.tabular import frontier

        mdp = read_model(self.model, self.discount, self.csv)
        with progress_display("exploring") as progress:
            found = frontier(mdp, horizon=self.horizon, progress=progress)
        if self.out is not None:
            found.plot(str(self.out), spread=self.spread)
        if self.json:
            print_json(_frontier_facts(mdp, found))
            return
        console.print(f"{self.model}: {mdp}\n")
        # Policies that look at the time and the return differ in more than a state says.
        labelled = mdp if self.horizon is None else None
        console.print(frontier_table(found, smallest_reward(mdp), labelled))
        if self.out is not None:
            console.print(f"picture: {self.out}")


def check_picture_path(path: Path) -> None:
    """An `InputError` if no picture can be saved there."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"out must end in .png, .svg or .pdf, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"out must be in a directory that exists, {path.parent} does not")


def _frontier_facts(mdp: MDP, found: Frontier) -> dict[str, Any]:
    return {
        **model_facts(mdp),
        "means": found.means.tolist(),
        "variances": found.variances.tolist(),
        "risk_aversions": [None if r is None else list(r) for r in found.risk_aversions],
        "policies": [policy_facts(policy) for policy in found.policies],
        "converged": found.converged,
        "solves": found.solves,
    }
