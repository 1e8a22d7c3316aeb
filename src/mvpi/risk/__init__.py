"""The idea: risk measures of the per-step reward, and the reward that optimises them.

A concave utility `u` with `u(0) = 0` makes a risk measure, the optimized certainty equivalent

    value(R) = max over y of  E[y + u(R - y)]

so that "maximise value over policies" is "maximise over policies and one number y". For a fixed
`y` that is an ordinary, risk-neutral problem with the augmented reward

    augment(r, y) = u(r - y) - u(-y)

whose shift makes `augment(0, y) = 0`, so a finished episode keeps the value 0. Mean-variance
policy iteration alternates: `y <- dual(R)`, then improve the policy on `augment(r, y)`. Both
steps can only increase `value`.

    measure              u(t)                                  dual, the best y
    MeanVariance(lam)    t - lam t^2                           E[R]
    CVaR(level, w)       (1 - w) t - w max(-t, 0) / level      the level-quantile of R
    Entropic(beta)       (1 - exp(-beta t)) / beta             -log(E exp(-beta R)) / beta
    MonotoneMeanVariance(lam)   that up to its top, then flat  E[u'(R - y)] = 1

A new measure is a subclass with a `utility` and a `dual`; no other file changes. What else there
is to say of a measure has defaults: see `mvpi.risk.base`, and `mvpi.risk.text` for its text.
"""

from mvpi.risk.base import RETURN_SO_FAR, RISK_AVERSION, Risk
from mvpi.risk.extended import OfReturn, RiskRange, range_of
from mvpi.risk.measures import (
    CVaR,
    Entropic,
    MeanVariance,
    VarianceBudget,
    as_risk,
    learnable,
    parse_risk,
    risk_text,
)
from mvpi.risk.monotone import MonotoneMeanVariance
from mvpi.risk.text import forms
from mvpi.risk.value_at_risk import VaR

__all__ = [
    "RETURN_SO_FAR",
    "RISK_AVERSION",
    "CVaR",
    "Entropic",
    "MeanVariance",
    "MonotoneMeanVariance",
    "OfReturn",
    "Risk",
    "RiskRange",
    "VaR",
    "VarianceBudget",
    "as_risk",
    "forms",
    "learnable",
    "parse_risk",
    "range_of",
    "risk_text",
]
