"""The methods of a risk-neutral solve, by name; and the choice among them.

A method is a sequence of strategies. A strategy is repeated until it returns False; then the next
one is used. Policy iteration is the last of each sequence, because it converges on all problems, so
every method gives the same certified answer.
"""

from __future__ import annotations

from typing import Literal, get_args

from mvpi.errors import InputError
from mvpi.tabular._engines.linear_systems import Evaluation, has_few_successors
from mvpi.tabular._engines.local_policy_iteration import LocalPolicyIteration, is_banded
from mvpi.tabular._engines.modified_policy_iteration import ModifiedPolicyIteration
from mvpi.tabular._engines.ordered_sweeps import OrderedSweeps
from mvpi.tabular._engines.policy_iteration import AveragePolicyIteration, PolicyIteration
from mvpi.tabular._engines.strategy import Strategy
from mvpi.tabular.chain import DIRECT_UP_TO
from mvpi.tabular.mdp import MDP

Method = Literal[
    "auto",
    "modified policy iteration",
    "ordered sweeps",
    "policy iteration",
    "inexact policy iteration",
    "local policy iteration",
]
METHODS: tuple[Method, ...] = get_args(Method)


def choose(mdp: MDP) -> Method:
    """The method for a problem, by its size and its transitions.

    - small, or average reward: policy iteration (by LU, or inexact above `DIRECT_UP_TO` states);
    - transitions to neighbouring states only (queues, inventories): local policy iteration;
    - few successors per state and action (grids, shortest paths): ordered sweeps;
    - anything else, such as random and dense problems: modified policy iteration.
    """
    if mdp.n_states <= DIRECT_UP_TO:
        return "policy iteration"
    if mdp.discount == 1.0:
        return "inexact policy iteration"
    if is_banded(mdp):
        return "local policy iteration"
    if has_few_successors(mdp.transitions):
        return "ordered sweeps"
    return "modified policy iteration"


def check_method(mdp: MDP, method: str) -> Method:
    """`method`, if it exists and applies to the problem."""
    if method not in METHODS:
        options = ", ".join(repr(name) for name in METHODS)
        raise InputError(f"method must be one of {options}, got {method!r}")
    if mdp.discount == 1.0 and method in ("ordered sweeps", "local policy iteration"):
        raise InputError(
            f"method {method!r} needs a discount below 1, got 1: use 'auto' or 'policy iteration'"
        )
    if method == "local policy iteration" and not is_banded(mdp):
        raise InputError(
            "method 'local policy iteration' needs transitions to neighbouring states only, got "
            f"some {max(mdp.bandwidths)} states away: use 'auto' or number the states differently"
        )
    return method


def strategies(mdp: MDP, method: Method, *, warm: bool, far: bool) -> list[Strategy]:
    """The strategies of a method, in order.

    `warm`: values to start from are those of a good policy. `far`: most states are many steps from
    any reward.
    """
    auto = method == "auto"
    if auto:
        method = choose(mdp)
    evaluation: Evaluation = "direct" if method == "policy iteration" else "auto"
    if not auto and method == "inexact policy iteration":
        evaluation = "krylov"
    if mdp.discount == 1.0:
        last: list[Strategy] = [AveragePolicyIteration(evaluation)]
        return [ModifiedPolicyIteration(), *last] if method == METHODS[1] else last
    if method == "local policy iteration":
        return [LocalPolicyIteration(evaluated=warm)]
    if method in ("policy iteration", "inexact policy iteration"):
        return [PolicyIteration(evaluation)]
    end = PolicyIteration(with_sweeps=_sweeps_help(mdp))
    if method == "modified policy iteration":
        return [ModifiedPolicyIteration(), end]
    first: list[Strategy] = [ModifiedPolicyIteration()] if auto and not far else []
    return [*first, end] if auto and warm else [*first, OrderedSweeps(), end]


def _sweeps_help(mdp: MDP) -> bool:
    return mdp.n_states > DIRECT_UP_TO and has_few_successors(mdp.transitions)
