"""Finite MDPs: exact evaluation, policy iteration, certified optima, the efficient frontier."""

from mvpi.tabular import examples
from mvpi.tabular._matrices import NotUnichain
from mvpi.tabular.frontier import Frontier, frontier
from mvpi.tabular.mdp import MDP
from mvpi.tabular.optimize import optimize
from mvpi.tabular.policy_iteration import Iteration, iterate, policy_iteration
from mvpi.tabular.return_policy import ReturnPolicy
from mvpi.tabular.solution import Progress, Solution

__all__ = [
    "MDP",
    "Frontier",
    "Iteration",
    "NotUnichain",
    "Progress",
    "ReturnPolicy",
    "Solution",
    "examples",
    "frontier",
    "iterate",
    "optimize",
    "policy_iteration",
]
