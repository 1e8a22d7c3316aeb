"""Answers in rational arithmetic: every deterministic policy of a small MDP, without rounding.

Numbers given as floats are the rational numbers they stand for; rows of probabilities are made to
sum to one exactly. Nothing here uses the package. Roots, exponentials and logarithms, which are no
rational numbers, have `DIGITS` digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from math import isqrt

import numpy as np

DIGITS = 60
_CONTEXT = Context(prec=DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)

Law = list[tuple[Fraction, Fraction]]
"""Rewards and their probabilities, which sum to one."""


@dataclass(frozen=True)
class Moments:
    """Of the per-step reward of a policy."""

    mean: Fraction
    variance: Fraction
    reach: Fraction
    """Half the range of the rewards that it is paid."""

    def towards(self, other: Moments, share: Fraction) -> tuple[Fraction, Fraction]:
        """Mean and variance of the mixture of two occupancies."""
        step = other.mean - self.mean
        within = self.variance + share * (other.variance - self.variance)
        return self.mean + share * step, within + share * (1 - share) * step**2


class ExactMDP:
    """An MDP of dense float arrays: `p[s, a, next]`, `r[s, a, next]`, all as rational numbers."""

    def __init__(self, p: np.ndarray, r: np.ndarray, discount: float, start: np.ndarray):
        self.n, self.actions, _ = p.shape
        self.p = [[_normalised(row) for row in rows] for rows in p]
        self.r = [[[Fraction(float(x)) for x in row] for row in rows] for rows in r]
        self.discount = Fraction(float(discount))
        self.start = _normalised(start)

    @cached_property
    def policies(self) -> list[tuple[int, ...]]:
        """All deterministic policies."""
        return list(product(range(self.actions), repeat=self.n))

    @cached_property
    def laws(self) -> list[Law]:
        """The distribution of the reward under each of them."""
        return [self.law([_point(self.actions, a) for a in policy]) for policy in self.policies]

    @cached_property
    def moments(self) -> list[Moments]:
        """Mean and variance of each of them."""
        return [moments(law) for law in self.laws]

    def law(self, policy: Sequence[Sequence[Fraction]]) -> Law:
        """The distribution of the reward under probabilities `policy[s][a]`."""
        chosen = [[(a, share) for a, share in enumerate(row) if share] for row in policy]
        chain = [
            [sum(share * self.p[s][a][t] for a, share in chosen[s]) for t in range(self.n)]
            for s in range(self.n)
        ]
        found: dict[Fraction, Fraction] = {}
        for s, visits in enumerate(self._occupancy(chain)):
            for (a, share), t in product(chosen[s], range(self.n)):
                weight = visits * share * self.p[s][a][t]
                if weight:
                    reward = self.r[s][a][t]
                    found[reward] = found.get(reward, Fraction(0)) + weight
        return sorted(found.items())

    def of_floats(self, policy: np.ndarray) -> Law:
        """The same for a policy as the package returns it."""
        if policy.ndim == 1:
            return self.law([_point(self.actions, int(a)) for a in policy])
        return self.law([_normalised(row) for row in policy])

    def _occupancy(self, chain: list[list[Fraction]]) -> list[Fraction]:
        """`d = (1 - g) mu + g P' d` by Gauss; at discount 1 with `sum d = 1` for the last line."""
        n, g = self.n, self.discount
        rows = [
            [int(s == t) - g * chain[t][s] for t in range(n)] + [(1 - g) * self.start[s]]
            for s in range(n)
        ]
        if g == 1:
            rows[-1] = [Fraction(1)] * (n + 1)
        for k in range(n):
            pivot = next(i for i in range(k, n) if rows[i][k])
            rows[k], rows[pivot] = rows[pivot], rows[k]
            for i in range(n):
                if i != k and rows[i][k]:
                    factor = rows[i][k] / rows[k][k]
                    rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
        return [rows[k][n] / rows[k][k] for k in range(n)]

    # What is best.

    def best_tradeoff(self, risk_aversion: float) -> Fraction:
        """The largest `mean - risk_aversion * variance`."""
        price = Fraction(risk_aversion)
        return max(m.mean - price * m.variance for m in self.moments)

    def best_cvar(self, level: float, weight: float) -> Fraction:
        """The largest `(1 - weight) E[R] + weight CVaR`."""
        return max(cvar(law, level, weight) for law in self.laws)

    def best_entropic(self, beta: float) -> Decimal:
        """The largest `-log E exp(-beta R) / beta`."""
        return max(entropic(law, beta) for law in self.laws)

    @cached_property
    def vertices(self) -> list[Moments]:
        """Corners of the lower boundary of all means and second moments, by mean."""
        hull: list[Moments] = []
        for point in sorted(set(self.moments), key=lambda m: (m.mean, m.variance)):
            if hull and hull[-1].mean == point.mean:
                continue
            while len(hull) > 1 and not _turns_left(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        return hull

    @property
    def least_variance(self) -> Fraction:
        return min(m.variance for m in self.vertices)

    def most_mean(self, limit: float) -> Fraction | None:
        """The largest mean with a variance of at most `limit`, or a little below it."""
        most, corners = Fraction(limit), self.vertices
        best = max((m.mean for m in corners if m.variance <= most), default=None)
        for left, right in pairwise(corners):
            if left.variance <= most < right.variance:
                mean, _ = left.towards(right, _share_within(left, right, most))
                best = mean if best is None else max(best, mean)
        return best

    def least_variance_from(self, target: float) -> Fraction | None:
        """The least variance with a mean of at least `target`."""
        least, corners = Fraction(target), self.vertices
        found = [m.variance for m in corners if m.mean >= least]
        for left, right in pairwise(corners):
            if left.mean < least < right.mean:
                share = (least - left.mean) / (right.mean - left.mean)
                found.append(left.towards(right, share)[1])
        return min(found, default=None)


def moments(law: Law) -> Moments:
    mean = sum((w * x for x, w in law), Fraction(0))
    variance = sum((w * (x - mean) ** 2 for x, w in law), Fraction(0))
    return Moments(mean, variance, (law[-1][0] - law[0][0]) / 2)


def cvar(law: Law, level: float, weight: float) -> Fraction:
    """`(1 - weight) E[R] + weight` times the mean of the worst `level` share."""
    left, worst = Fraction(level), Fraction(0)
    for x, w in law:
        used = min(w, left)
        worst += used * x
        left -= used
    share = Fraction(weight)
    return (1 - share) * moments(law).mean + share * worst / Fraction(level)


def entropic(law: Law, beta: float) -> Decimal:
    """`-log E exp(-beta R) / beta`, `beta > 0`."""
    c, price, worst = _CONTEXT, Fraction(beta), law[0][0]
    total = Decimal(0)
    for x, w in law:
        exponent = _decimal(price * (worst - x))
        total = c.add(total, c.multiply(_decimal(w), c.exp(exponent)))
    return c.subtract(_decimal(worst), c.divide(c.ln(total), _decimal(price)))


def _decimal(x: Fraction) -> Decimal:
    return _CONTEXT.divide(Decimal(x.numerator), Decimal(x.denominator))


def _normalised(row: np.ndarray) -> list[Fraction]:
    exact = [Fraction(float(x)) for x in row]
    total = sum(exact)
    return [x / total for x in exact]


def _point(n: int, at: int) -> list[Fraction]:
    return [Fraction(int(a == at)) for a in range(n)]


def _turns_left(a: Moments, b: Moments, c: Moments) -> bool:
    """Whether `b` lies below the line from `a` to `c`, of means and second moments."""
    share = (b.mean - a.mean) / (c.mean - a.mean)
    return b.variance < a.towards(c, share)[1]


def _share_within(left: Moments, right: Moments, limit: Fraction) -> Fraction:
    """How far one can go from `left` to `right` within a variance, to `DIGITS` digits, not more."""
    step = (right.mean - left.mean) ** 2
    slope = right.variance - left.variance + step
    spare = limit - left.variance
    # Above the root: the share, 2 spare / (slope + root), is not too large.
    root = _root_above(slope**2 - 4 * step * spare)
    return 2 * spare / (slope + root)


def _root_above(x: Fraction) -> Fraction:
    digits = 10**DIGITS
    return Fraction(isqrt(x.numerator * x.denominator * digits**2) + 1, x.denominator * digits)
