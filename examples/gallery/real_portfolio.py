"""20 real stocks, weekly, with costs: learned before 2010, tested since (extra: gallery)."""

from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from skfolio import datasets, moments, prior
from skfolio.optimization import MeanRisk, ObjectiveFunction

import mvpi

(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)
RISK, COST, START = mvpi.MeanVariance(0.05), 0.1, np.zeros(22)
weeks = 100 * datasets.load_sp500_dataset().resample("W").last().pct_change().dropna()  # percent
seen = np.stack([weeks.rolling(26).mean(), weeks.rolling(26).std()], axis=-1)[25:-1]
r, old = weeks.to_numpy()[26:], weeks.index[26:] < "2010"


def earned(theta, when=old):  # theta: a number a stock; one each for past mean and deviation
    weights = softmax(theta[:20] + seen[when] @ theta[20:], axis=1)
    shares = weights * (100 + r[when])  # they drift, and are set back to the weights at a cost
    traded = np.abs(weights[1:] - (shares / shares.sum(1, keepdims=True))[:-1]).sum(1)
    return (weights * r[when]).sum(1)[1:] - COST * traded


def improve(theta, y):  # any risk-neutral method; here quasi-Newton on the augmented reward
    return minimize(lambda t: -RISK.augment(earned(t), y).mean(), theta).x


policies = {"equal weights": START, "MVPI": mvpi.iterate(earned, improve, START, RISK).policy}
shrunk = prior.EmpiricalPrior(moments.ShrunkMu(), moments.LedoitWolf())
for name, moment in (("Markowitz", None), ("skfolio, shrunk moments", shrunk)):
    model = MeanRisk(ObjectiveFunction.MAXIMIZE_UTILITY, risk_aversion=0.05, prior_estimator=moment)
    policies[name] = np.append(np.log(np.maximum(model.fit(r[old]).weights_, 1e-9)), [0, 0])
wealth = weeks["2010":].iloc[1:, :0].copy()
for name, e in {name: earned(theta, ~old) for name, theta in policies.items()}.items():
    label = f"{name}: {52 * e.mean():.1f} ± {52**0.5 * e.std():.1f}% a year"
    wealth[f"{label}, objective {RISK.value(e):.3f}"] = np.cumprod(1 + e / 100)
wealth.plot(figsize=(8, 5), ylabel="wealth after costs").figure.savefig(OUT / "real_portfolio.png")
