"""Risk-averse reinforcement learning by mean-variance policy iteration.

Give it an MDP and one number, the risk aversion; it gives you a policy whose reward is steadier,
and shows what the steadiness cost. The idea is in `mvpi.risk`; finite MDPs are in
`mvpi.tabular`. Names are looked up when first used, so that importing the package stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mvpi.errors import InputError
from mvpi.risk import CVaR, Entropic, MeanVariance, Risk, VarianceBudget

if TYPE_CHECKING:
    from mvpi import stats, tabular
    from mvpi.tabular import examples
    from mvpi.tabular.frontier import Frontier, frontier
    from mvpi.tabular.mdp import MDP
    from mvpi.tabular.optimize import optimize
    from mvpi.tabular.policy_iteration import iterate, policy_iteration
    from mvpi.tabular.solution import Solution

__version__ = "0.1.0"

_LAZY = {
    "MDP": "mvpi.tabular",
    "Frontier": "mvpi.tabular",
    "Solution": "mvpi.tabular",
    "examples": "mvpi.tabular",
    "frontier": "mvpi.tabular",
    "iterate": "mvpi.tabular",
    "optimize": "mvpi.tabular",
    "policy_iteration": "mvpi.tabular",
}
_MODULES = {"stats", "tabular"}

__all__ = [
    "MDP",
    "CVaR",
    "Entropic",
    "Frontier",
    "InputError",
    "MeanVariance",
    "Risk",
    "Solution",
    "VarianceBudget",
    "examples",
    "frontier",
    "iterate",
    "optimize",
    "policy_iteration",
    "stats",
    "tabular",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"mvpi.{name}")
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'mvpi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
