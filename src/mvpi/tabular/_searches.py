"""The search for the global optimum that suits a risk measure, by `Risk.search`.

Mean-variance, and the mean under a variance budget, are answered on the moment polytope
(`mvpi.tabular._vertex_search`): `m - lam (q - m^2)` is convex in `(m, q)`, so a vertex is optimal.

Any other measure is a search over its dual variable (`mvpi.tabular._dual_search`). For the
entropic measure the best policy is the same for all `y`: one solve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mvpi.risk import Risk
from mvpi.tabular._dual_search import DualSearch
from mvpi.tabular._engines.backups import Actions
from mvpi.tabular._objectives import (
    Budget,
    LeastVariance,
    LimitTooSmall,
    Tradeoff,
    gradient_direction,
)
from mvpi.tabular._problem import Problem
from mvpi.tabular._scales import Candidate, MultiScaleSearch, most_mean
from mvpi.tabular._vertex_search import VertexSearch, own_units, start_search
from mvpi.tabular._vertices import Vertex, unit
from mvpi.tabular.quantile_search import QuantileSearch
from mvpi.tabular.solution import (
    Certificate,
    Progress,
    Solution,
    describe,
    describe_moments,
)

_CHANGES_OF_UNITS = 6
"""Largest number of searches, each in units of the rewards paid where the last one ended."""
_LARGEST_EXPONENT = 40.0
"""Exponents are clipped here: costs are counted as smaller, which keeps upper bounds valid."""
_ACCURACY = 1e-10
"""Largest tolerance for expected exponentials, which are near 1 at a good `y`."""
_ENTROPIC_ROUNDING = 1e-14
"""Relative error of an expected exponential."""
_ENTROPIC_SOLVES = 60
"""Bisections of the range of the rewards down to rounding."""


def optimum(problem: Problem, risk: Risk, tolerance: float, progress: Progress | None) -> Solution:
    if risk.is_neutral and risk.search != "dual":  # the dual search also finds y
        return problem.largest_mean(tolerance)
    return _SEARCHES[risk.search](problem, risk, tolerance, progress)


def _best_by_dual(
    problem: Problem, risk: Risk, tolerance: float, progress: Progress | None
) -> Solution:
    polytope = start_search(problem, tolerance)
    (centre, scale), solves = polytope.units, polytope.solves
    return DualSearch(problem, risk, tolerance * scale, progress, solves, centre).run()


def _in_own_units(
    polytope: VertexSearch,
    search: Callable[[VertexSearch, MultiScaleSearch], tuple[Vertex, Sequence[float]]],
    tolerance: float,
) -> tuple[MultiScaleSearch, tuple[float, ...]]:
    """Repeat `search` until its units suit the vertex where it ends.

    Variances are differences of moments. Far from the centre, or where rewards differ by far less
    than the scale, the difference cancels: the search is repeated in units of the rewards paid
    there. Returns all searches and the trace of the last one.
    """
    scales = MultiScaleSearch()
    for _ in range(_CHANGES_OF_UNITS):
        vertex, trace = search(polytope, scales)
        if len(scales.explored) > 1:
            scales.add(polytope, [polytope.beside(vertex)])
        mean, variance = polytope.statistics(vertex)
        units = own_units(polytope.problem, vertex.policy, mean, variance)
        if polytope.units.suit(mean, units):
            break
        solves = polytope.solves
        polytope = VertexSearch(
            polytope.problem, vertex.policy, tolerance, units=units, solves=solves
        )
    return scales, tuple(map(polytope.mean, trace))


def _best_tradeoff(
    problem: Problem, risk: Risk, tolerance: float, progress: Progress | None
) -> Solution:
    price = _price(risk)

    def search(polytope: VertexSearch, scales: MultiScaleSearch) -> tuple[Vertex, Sequence[float]]:
        objective = Tradeoff(price * polytope.scale)
        _begin_tradeoff(polytope, objective)
        answer = polytope.answer(objective, tolerance, _in_rewards(polytope, progress))
        vertex = max(polytope.vertices(), key=lambda c: objective.at(c.point))
        scales.add(polytope, [vertex])
        return vertex, answer.trace

    def value(candidate: Candidate) -> float:
        return candidate.mean - price * candidate.variance

    scales, trace = _in_own_units(start_search(problem, tolerance), search, tolerance)
    best = max(scales.efficient(), key=value)
    bound = scales.upper_bound(lambda one: Tradeoff(price * one.scale), value(best))
    certificate = scales.certificate(best, bound, tolerance, trace)
    return describe_moments(*best, value(best), certificate)


def _begin_tradeoff(polytope: VertexSearch, objective: Tradeoff) -> None:
    """Start with the means that an optimum can have.

    Its mean is at least the value of any policy and at most the largest mean. Two gradient steps
    from the largest mean give a policy of good value, hence a good lower limit.
    """
    top, top_line = polytope.top
    right = gradient_direction(objective.price, top_line.h)
    end, end_line = polytope.farthest(*right, near=[top])
    known, begun = [polytope.first, top, end], [(end, end_line)]
    inner = gradient_direction(objective.price, end.point.m)
    if inner != right:
        begun.insert(0, polytope.farthest(*inner, near=known))
        known.append(begun[0][0])
    left = gradient_direction(objective.price, max(objective.at(c.point) for c in known))
    if left == right:
        left = unit(1e5)
    polytope.begin([polytope.farthest(*left, near=known), *begun])


def _best_under_budget(
    problem: Problem, risk: Risk, tolerance: float, progress: Progress | None
) -> Solution:
    limit = risk.variance_limit
    assert limit is not None

    def search(polytope: VertexSearch, scales: MultiScaleSearch) -> tuple[Vertex, Sequence[float]]:
        polytope.begin_at_least_variance()
        objective = Budget.of(limit, polytope.scale)
        answer = polytope.answer(objective, tolerance, _in_rewards(polytope, progress))
        if answer.best == -math.inf:
            polytope.answer(LeastVariance(), tolerance)
            end = min(polytope.vertices(), key=lambda vertex: vertex.point.variance)
        else:
            interval = max(polytope.intervals, key=objective.reached)
            near_left = objective.reached(interval) - interval.left.point.m <= 0.5 * interval.width
            end = interval.left if near_left else interval.right
        scales.add(polytope, polytope.vertices())
        return end, answer.trace

    scales, trace = _in_own_units(start_search(problem, tolerance), search, tolerance)
    best = most_mean(problem, scales.boundary(), limit)
    if best is None:
        raise LimitTooSmall(limit, scales.least_variance.variance)
    bound = scales.upper_bound(lambda one: Budget.of(limit, one.scale), best.mean)
    certificate = scales.certificate(best, bound, tolerance, trace)
    return describe_moments(*best, best.mean, certificate)


def _in_rewards(polytope: VertexSearch, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    return lambda solves, best, bound: progress(solves, polytope.mean(best), polytope.mean(bound))


def _best_entropic(
    problem: Problem, risk: Risk, tolerance: float, progress: Progress | None
) -> Solution:
    """All `y` have the same best policy; the choice of `y` only keeps the exponents in range.

    `y` is the value of the best policy so far. Where that is so far below the optimum that better
    policies cannot be distinguished in floating point, half-way to the bound is tried.
    """
    polytope = start_search(problem, tolerance)
    scale, beta = polytope.scale, _price(risk)
    bound = float(problem.rewards.max())
    best, policy = -math.inf, polytope.top[0].policy
    y = risk.dual(*problem.distribution(policy))
    trace: list[float] = []
    while len(trace) < _ENTROPIC_SOLVES:
        found, upper = _entropic_solve(problem, risk, y, policy, 0.1 * tolerance * scale)
        bound = min(bound, upper)
        value = risk.dual(*problem.distribution(found))
        if value > best:
            best, policy = value, found
        trace.append(best)
        if bound - best <= tolerance * scale or (y == best and beta * (bound - best) < 1.0):
            break
        if progress is not None:
            progress(polytope.solves + len(trace), best, bound)
        y = best if y != best else 0.5 * (best + bound)
    solves = polytope.solves + len(trace)
    certificate = Certificate(bound, tolerance * scale, solves, tuple(trace))
    return describe(policy, problem.distribution(policy), risk, certificate)


def _entropic_solve(
    problem: Problem, risk: Risk, y: float, policy: Actions, tolerance: float
) -> tuple[Actions, float]:
    """The best policy for `u(r - y)`, and an upper bound on all values.

    With `c` a lower bound on `E[exp(-beta (R - y))]`, no value is above `y - log(c) / beta`. For a
    small risk aversion the exponentials are all near 1, and `u` is more accurate.
    """
    beta = _price(risk)
    if beta * float(np.ptp(problem.rewards)) < 1.0:
        rewards = problem.expected_utility(risk, y)
        optimum = problem.solve(rewards, policy=policy, tolerance=tolerance)
        share = beta * (optimum.upper + _ENTROPIC_ROUNDING * float(np.ptp(problem.rewards)))
        return optimum.policy, y - math.log1p(-share) / beta if share < 1.0 else math.inf
    costs = problem.expected(lambda r: np.exp(np.minimum(beta * (y - r), _LARGEST_EXPONENT)))
    optimum = problem.solve(-costs, policy=policy, tolerance=min(beta * tolerance, _ACCURACY))
    least = -optimum.upper - _ENTROPIC_ROUNDING * abs(optimum.upper)
    return optimum.policy, y - math.log(least) / beta if least > 0.0 else math.inf


def _price(risk: Risk) -> float:
    assert risk.price is not None, f"{risk} has no risk aversion"
    return risk.price


def _best_quantile(
    problem: Problem, risk: Risk, tolerance: float, progress: Progress | None
) -> Solution:
    assert risk.required_probability is not None
    return QuantileSearch(problem, risk, risk.required_probability, tolerance, progress).run()


_SEARCHES = {
    "dual": _best_by_dual,
    "moments": _best_tradeoff,
    "exponential": _best_entropic,
    "constrained": _best_under_budget,
    "quantile": _best_quantile,
}
"""By `Risk.search`."""
