"""Policy iteration on the CVaR of a return has several fixed points: docs/episode-risk.md."""

from __future__ import annotations

from functools import cache

import pytest

import mvpi

STEPS, OFFERS, LEVEL = 5, range(10), 0.2
RISK = mvpi.CVaR(LEVEL)
Law = dict[int, float]


def best_law(y: int | None) -> Law:
    """Two goods, five offers: the law of the return that is best for `y`; None: for the mean."""

    @cache
    def after(time: int, goods: int, earned: int) -> tuple[float, Law]:
        if time == STEPS or goods == 0:
            return earned if y is None else -max(y - earned, 0) / LEVEL, {earned: 1.0}
        total, law = 0.0, dict[int, float]()
        for offer in OFFERS:
            wait, sell = after(time + 1, goods, earned), after(time + 1, goods - 1, earned + offer)
            value, part = sell if sell[0] > wait[0] + 1e-12 else wait
            total += 0.1 * value
            for g, p in part.items():
                law[g] = law.get(g, 0.0) + 0.1 * p
        return total, law

    return after(0, 2, 0)[1]


def quantile(law: Law) -> int:
    """The smallest return up to which the probability is the level."""
    below = 0.0
    for g in sorted(law):
        below += law[g]
        if below >= LEVEL - 1e-12:
            return g
    raise AssertionError


def share(law: Law) -> float:
    return RISK.value(list(law), list(law.values())) / 8.603


def test_the_fixed_points_and_their_values() -> None:
    fixed = {y: share(best_law(y)) for y in range(6, 19) if quantile(best_law(y)) == y}
    assert fixed == pytest.approx(
        {6: 0.686, 7: 0.789, 8: 0.879, 9: 0.950, 10: 0.995, 11: 1.0}, abs=1e-3
    )


def test_started_at_the_risk_neutral_policy_it_ends_at_the_optimum() -> None:
    assert quantile(best_law(None)) == 11
    assert share(best_law(11)) == pytest.approx(1.0)
