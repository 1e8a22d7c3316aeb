"""The list of agents. A new one is a module, its settings, and an entry here.

Commands, experiments, reports and `mvpi.TD3` and its like are derived from this list. Importing it
imports no agent: JAX takes a moment.
"""

from __future__ import annotations

from typing import NamedTuple

from mvpi.agents.settings import (
    CommonSettings,
    CVaRPGSettings,
    MeanGiniSettings,
    MVPSettings,
    PPOSettings,
    PrashanthSettings,
    TamarSettings,
    TD3Settings,
)


class Entry(NamedTuple):
    """The module, class and settings of an agent."""

    module: str
    class_name: str
    settings: type[CommonSettings]
    summary: str
    """One line for `mvpi train --help`."""
    risk: str = ""
    """What `--risk` may be, of an agent that takes one kind; otherwise any measure it can learn."""
    default_risk: str | None = "0.0"
    """Of `--risk`; None: it must be given."""
    labels: tuple[str, ...] = ()
    """What reports call it: risk-neutral and, if that differs, risk-averse; default: its class."""

    def label(self, *, averse: bool) -> str:
        """Its name in reports."""
        return (self.labels or (self.class_name,))[-1 if averse else 0]


AGENTS = {
    "td3": Entry(
        *("mvpi.agents.td3", "TD3", TD3Settings),
        "MVPI-TD3; at risk 0 it is TD3.",
        labels=("TD3", "MVPI-TD3"),
    ),
    "ppo": Entry(
        *("mvpi.agents.ppo", "PPO", PPOSettings),
        "MVPI-PPO, also called TRVO; at risk 0 it is PPO.",
        labels=("PPO", "TRVO (MVPI-PPO)"),
    ),
    "mvp": Entry(
        *("mvpi.agents.mvp", "MVP", MVPSettings),
        "MVP (Liu 2018): mean and variance of the return; risk must be above 0.",
        risk="Weight of the variance of the return, above 0.",
        default_risk=None,
    ),
    "tamar": Entry(
        *("mvpi.agents.tamar", "Tamar", TamarSettings),
        "Tamar 2012: a price on the variance of the return beyond a limit.",
        risk="Weight of the variance of the return.",
    ),
    "prashanth": Entry(
        *("mvpi.agents.prashanth", "Prashanth", PrashanthSettings),
        "Prashanth 2013: mean and variance of the return, by perturbing the policy.",
        risk="Weight of the variance of the return.",
    ),
    "mean-gini": Entry(
        *("mvpi.agents.mean_gini", "MeanGini", MeanGiniSettings),
        "Luo 2023: mean and Gini deviation of the return; risk is the weight of the latter.",
        risk="Weight of the Gini deviation of the return.",
        labels=("Mean-Gini",),
    ),
    "cvar-pg": Entry(
        *("mvpi.agents.cvar_pg", "CVaRPG", CVaRPGSettings),
        "Tamar 2015: CVaR of the return; risk must be cvar:LEVEL[:WEIGHT].",
        risk="cvar:LEVEL[:WEIGHT]: the worst share LEVEL of episodes, weighed with WEIGHT.",
        default_risk=None,
        labels=("CVaR-PG",),
    ),
}
"""Every agent by its name on the command line and in files."""
SETTINGS = {name: entry.settings for name, entry in AGENTS.items()}
"""The settings of every agent, by the same names."""
