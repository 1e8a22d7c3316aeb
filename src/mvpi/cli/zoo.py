"""`mvpi zoo`: the trained agents that come with the package."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from mvpi.agents.zoo import agents
from mvpi.cli.display import print_json


@dataclass(frozen=True)
class Zoo:
    """List trained agents to start from, and what each earns; `mvpi evaluate NAME` runs one."""

    json: bool = False
    """Print one JSON object."""

    def run(self, console: Console) -> None:
        if self.json:
            print_json({"agents": [{"name": one.name, **asdict(one)} for one in agents()]})
            return
        table = Table(
            title="Trained agents: mean and std. of 100 returns, moments of rewards of a step",
            pad_edge=False,
            caption="mvpi evaluate NAME runs one of them",
        )
        table.add_column("name", no_wrap=True)
        for title in ("mean", "std.", "step mean", "step var."):
            table.add_column(title, justify="right", no_wrap=True)
        for one in agents():
            earned = (one.mean, one.deviation, one.reward_mean, one.reward_variance)
            table.add_row(one.name, *(f"{value:.4g}" for value in earned))
        console.print(table)
