"""Random checks of the exact solver against rational arithmetic, on shapes that are hard.

    python tests/tabular/exact_checks.py [--count 10000] [--first 0] [--show 20]

MDP number `i` is always the same small MDP, with the same twenty questions or so: `optimize` for
every measure, the frontier, its points and its queries. A check is one answer to one of them. The
answers of `exact.py`, which enumerates all policies in fractions, are the truth. Judged:

    bound      no upper bound is below the true optimum
    limit      no variance is above its limit, no mean below its target, recomputed exactly
    dominated  no point of the frontier is worse than another policy in mean or in variance
    moments    mean, variance and value are those of the policy that is returned
    converged  what says so is the optimum
    error      no other exception than a limit or target that is out of reach

It prints how many of each there were and ends with exit code 1 if there was one. Tolerances
are small in units of the rewards that the policies at hand are paid, not of all rewards.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.exact import ExactMDP, Law, Moments, cvar, entropic, moments

import mvpi

DISCOUNTS = (0.01, 0.3, 0.7, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999, 1.0)
ROUNDING = Fraction(1, 10**15)
"""Share of itself by which a float may be off."""
SMALL = Fraction(1, 10**7)
"""Of the unit of the policies at hand: what counts as a difference."""
TINY = Fraction(1, 10**12)
"""Share of a limit, or of a unit, by which a policy may miss what was asked for."""


class Check:
    """One random MDP, what is true of it, and what was found wrong."""

    def __init__(self, number: int):
        self.rng = np.random.default_rng([18, number])
        p, r, self.discount, start = self._draw()
        self.mdp = mvpi.MDP(p, r, self.discount, start)
        rewards = np.broadcast_to(r.reshape(*p.shape[:2], -1), p.shape)
        self.exact = ExactMDP(p, rewards, self.discount, start)
        self.rewards = sorted({Fraction(float(x)) for x in rewards[p > 0]})
        self.asked: Counter[str] = Counter()
        self.unconverged: Counter[str] = Counter()
        self.violations: list[tuple[str, str]] = []

    def run(self) -> None:
        """Ask everything."""
        top = max(self.exact.moments, key=lambda m: m.mean)
        unit = float(self.unit(top))
        calm = min(self.exact.moments, key=lambda m: m.variance)
        prices = [0.0, *(10 ** self.rng.uniform(-2, 3, 2) / unit), 1.0 / float(self.unit(calm))]
        for price in prices:
            self.optimum(f"optimize({price:.17g})", mvpi.MeanVariance(price))
        level, weight = self.rng.choice([0.05, 0.3, 0.5, 0.9]), self.rng.choice([1.0, 0.5])
        self.optimum(f"optimize(CVaR({level}, {weight}))", mvpi.CVaR(level, weight))
        beta = 10 ** self.rng.uniform(-2, 2) / unit
        if self.rng.random() < 0.2:
            beta = 1e8
        self.optimum(f"optimize(Entropic({beta:.17g}))", mvpi.Entropic(beta))
        spreads = [m.variance for m in self.exact.vertices if m.mean >= calm.mean]
        low, high = min(spreads), max(spreads)
        share = Fraction(self.rng.choice([0.0, 1e-9, 1e-3, 0.3, 1.0]))
        limits = [0.0, _above(low), _above(low + share * (high - low))]
        for limit in limits:
            self.budget(f"optimize(VarianceBudget({limit:.17g}))", limit, self._by_optimize)
        self.frontier(prices, limits, calm.mean, top.mean)

    def frontier(
        self, prices: list[float], limits: list[float], low: Fraction, high: Fraction
    ) -> None:
        """The frontier and its queries."""
        found = self._answer("frontier", lambda: mvpi.frontier(self.mdp))
        if found is None:
            return
        if not getattr(found, "converged", True):
            self.unconverged["frontier"] += 1
        for i in range(len(found)):
            self.efficient(found, i)
        for price in prices:
            name, risk = f"best({price:.17g})", mvpi.MeanVariance(price)
            answer = self._answer(name, lambda price=price: found.best(price))
            self._judge_tradeoff(name, answer, risk)
        for limit in limits:
            self.budget(f"with_variance_at_most({limit:.17g})", limit, found.with_variance_at_most)
        share = Fraction(float(self.rng.random()))
        for target in (float(found.means[-1]), float(low + share * (high - low))):
            self.target(f"with_mean_at_least({target:.17g})", target, found)

    def optimum(self, name: str, risk: mvpi.Risk) -> None:
        """`optimize` for a measure."""
        answer = self._answer(name, lambda: mvpi.optimize(self.mdp, risk))
        if answer is None:
            return
        match risk:
            case mvpi.MeanVariance():
                self._judge_tradeoff(name, answer, risk)
            case mvpi.CVaR(level=level, weight=weight):
                truth = self.exact.best_cvar(level, weight)
                self._judge(name, answer, truth, lambda law: cvar(law, level, weight))
            case mvpi.Entropic(risk_aversion=beta):
                truth = Fraction(self.exact.best_entropic(beta))
                self._judge(name, answer, truth, lambda law: Fraction(entropic(law, beta)))

    def _judge_tradeoff(self, name: str, answer: Any, risk: mvpi.MeanVariance) -> None:
        price = Fraction(risk.risk_aversion)

        def value(law: Law) -> Fraction:
            found = moments(law)
            return found.mean - price * found.variance

        if answer is not None:
            self._judge(name, answer, self.exact.best_tradeoff(risk.risk_aversion), value)

    def _by_optimize(self, limit: float) -> Any:
        return mvpi.optimize(self.mdp, mvpi.VarianceBudget(limit))

    def budget(self, name: str, limit: float, ask: Callable[[float], Any]) -> None:
        """The largest mean within a variance."""
        least, truth = self.exact.least_variance, self.exact.most_mean(limit)
        near = abs(least - Fraction(limit)) <= TINY * least
        answer = self._answer(name, lambda: ask(limit), refusal=truth is None or near)
        if answer is None:
            return
        if truth is None:
            if not near:
                self._violation("limit", f"{name}: no policy is within it, got {answer}")
            return
        self._judge(name, answer, truth, lambda law: moments(law).mean, near=near)
        variance = moments(self.exact.of_floats(answer.policy)).variance
        if variance > Fraction(limit) * (1 + TINY):
            self._violation("limit", f"{name}: the policy has variance {float(variance):.17g}")

    def target(self, name: str, target: float, found: Any) -> None:
        """The least variance from a mean on."""
        truth = self.exact.least_variance_from(target)
        top = max(m.mean for m in self.exact.moments)
        near = abs(top - Fraction(target)) <= TINY * (abs(top) + 1)
        answer = self._answer(name, lambda: found.with_mean_at_least(target), refusal=False)
        if answer is None:
            return
        if truth is None and near:
            truth = min(m.variance for m in self.exact.moments if m.mean == top)
        if truth is None:
            self._violation("limit", f"{name}: no policy has this mean, got {answer}")
            return
        self._judge(name, answer, -truth, lambda law: -moments(law).variance, near=near, power=2)
        mean = moments(self.exact.of_floats(answer.policy)).mean
        allowed = TINY * (self.unit(self._moments(answer)) + abs(Fraction(target)))
        if mean < Fraction(target) - allowed:
            self._violation("limit", f"{name}: the policy has mean {float(mean):.17g}")

    def efficient(self, found: Any, i: int) -> None:
        """One point of the frontier."""
        self.asked["point of a frontier"] += 1
        policy = found.policies[i]
        real = moments(self.exact.of_floats(policy))
        name = f"frontier, point {i} ({found.means[i]:.9g}, {found.variances[i]:.9g})"
        self._compare(name, found.means[i], found.variances[i], real)
        unit = self.unit(real)
        least = self.exact.least_variance_from(float(real.mean))
        if least is not None and least < real.variance - SMALL * real.reach**2:
            self._violation("dominated", f"{name}: there is a variance of {float(least):.9g}")
        most = self.exact.most_mean(max(float(real.variance - SMALL * real.reach**2), 0.0))
        if most is not None and most > real.mean + SMALL * unit + ROUNDING * abs(most):
            self._violation("dominated", f"{name}: there is a mean of {float(most):.9g}")

    # How answers are judged.

    def _judge(
        self,
        name: str,
        answer: Any,
        truth: Fraction,
        value: Callable[[Law], Fraction],
        near: bool = False,
        power: int = 1,
    ) -> None:
        law = self.exact.of_floats(answer.policy)
        real = moments(law)
        unit = self.unit(real)
        self._compare(name, answer.mean, answer.variance, real)
        slack = SMALL * unit**power + ROUNDING * abs(truth)
        reached = value(law)
        if abs(Fraction(answer.value) - reached) > slack + SMALL * abs(reached - real.mean):
            self._violation(
                "moments", f"{name}: value {answer.value:.17g} is {float(reached):.17g}"
            )
        bound = answer.upper_bound
        if near:
            return
        if not bound >= truth - ROUNDING * abs(truth):
            below = float(truth - Fraction(bound)) if np.isfinite(bound) else bound
            self._violation("bound", f"{name}: {bound:.17g} is below the optimum by {below:.3g}")
        if not answer.converged:
            self.unconverged[name.split("(", maxsplit=1)[0] + _measure(name)] += 1
        elif truth - reached > slack:
            self._violation(
                "converged", f"{name}: {float(reached):.9g} where {float(truth):.9g} is possible"
            )

    def _compare(self, name: str, mean: float, variance: float, real: Moments) -> None:
        if abs(Fraction(mean) - real.mean) > SMALL * real.reach + ROUNDING * abs(real.mean):
            self._violation("moments", f"{name}: mean {mean:.17g} is {float(real.mean):.17g}")
        allowed = SMALL * real.variance + TINY**2 * real.reach**2
        if abs(Fraction(variance) - real.variance) > allowed:
            self._violation(
                "moments", f"{name}: variance {variance:.9g} is {float(real.variance):.9g}"
            )

    def _answer(self, name: str, ask: Callable[[], Any], refusal: bool = False) -> Any:
        """What is answered; None where asking for it is refused, which only some may be."""
        self.asked[name.split("(", maxsplit=1)[0] + _measure(name)] += 1
        try:
            return ask()
        except mvpi.InputError as error:
            if not refusal:
                self._violation("error", f"{name}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
            self._violation("error", f"{name}: {type(error).__name__}: {error}")
        return None

    def _violation(self, kind: str, text: str) -> None:
        self.violations.append((kind, text))

    def _moments(self, answer: Any) -> Moments:
        return moments(self.exact.of_floats(answer.policy))

    def unit(self, policy: Moments) -> Fraction:
        """Half the range of what is paid; where that is a single reward, the next one counts."""
        if policy.reach:
            return policy.reach
        others = [abs(r - policy.mean) for r in self.rewards if r != policy.mean]
        return min(others, default=abs(policy.mean) or Fraction(1))

    # Random problems.

    def _draw(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        rng = self.rng
        n, a = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        discount = float(rng.choice(DISCOUNTS))
        p = self._rows(n, a, ends_possible=discount < 1.0)
        r = self._rewards(p.shape if rng.random() < 0.5 else p.shape[:2])
        if a > 1 and rng.random() < 0.2:  # two actions that are the same but for a detail
            s, (one, other) = rng.integers(n), rng.permutation(a)[:2]
            p[s, one], r[s, one] = p[s, other], r[s, other]
        start = np.eye(n)[0] if rng.random() < 0.5 else _eighths(rng, (n,))
        return p, r, discount, start

    def _rows(self, n: int, a: int, ends_possible: bool) -> np.ndarray:
        """Probabilities: dense, with zeros, or nearly absorbing; mostly exact binary fractions.

        At discount 1 there is always a way to state 0, so that a policy has one average.
        """
        rng = self.rng
        p = _eighths(rng, (n, a, n))
        kind = rng.choice(["dense", "absorbing", "decimal", "certain"])
        stay = np.eye(n)[:, None, :]
        if kind == "absorbing":
            p = stay + 2.0 ** -rng.integers(10, 31, (n, a, 1)) * (p - stay)
        elif kind == "decimal":
            leave = 10.0 ** -rng.integers(1, 9, (n, a, 1)).astype(float)
            p = (1.0 - leave) * stay + leave * p
        elif kind == "certain":
            p = np.eye(n)[rng.integers(n, size=(n, a))]
        if not ends_possible:
            way = np.eye(n)[np.zeros((n, a), int)]
            p = p + 2.0 ** -int(rng.integers(1, 21)) * (way - p)
        return p

    def _rewards(self, shape: tuple[int, ...]) -> np.ndarray:
        """Normal, of many sizes, few different ones, or far from 0."""
        rng = self.rng
        kind = rng.choice(["normal", "sizes", "ties", "offset", "two sizes"])
        r = rng.normal(size=shape).round(3)
        if kind == "sizes":
            r = np.sign(r) * 10 ** rng.uniform(-4, 4, shape)
        elif kind == "ties":
            r = rng.integers(-1, 2, shape).astype(float)
        elif kind == "offset":
            r += 10.0 ** rng.integers(1, 7)
        elif kind == "two sizes":
            r = np.where(rng.random(shape) < 0.3, r * 10.0 ** rng.integers(3, 9), r)
        return r


def _eighths(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random distributions over the last axis, of multiples of 1/8."""
    n = shape[-1]
    drawn = rng.multinomial(8, np.full(n, 1 / n), size=shape[:-1])
    return drawn / 8.0


def _above(x: Fraction) -> float:
    """The smallest float that is not below."""
    near = float(x)
    return near if Fraction(near) >= x else float(np.nextafter(near, np.inf))


def _measure(name: str) -> str:
    """The measure in a question such as `optimize(CVaR(0.5, 1.0))`."""
    inner = name.split("(")[1:2] if name.startswith("optimize") else []
    return f"({inner[0]})" if inner and inner[0][:1].isalpha() else ""


class Tally:
    """What many checks found."""

    def __init__(self) -> None:
        self.mdps = 0
        self.asked: Counter[str] = Counter()
        self.unconverged: Counter[str] = Counter()
        self.violations: list[tuple[int, str, str]] = []

    @property
    def checks(self) -> int:
        return sum(self.asked.values())

    def run(self, number: int) -> None:
        check = Check(number)
        check.run()
        self.mdps += 1
        self.asked += check.asked
        self.unconverged += check.unconverged
        self.violations += [(number, *violation) for violation in check.violations]

    def __str__(self) -> str:
        kinds = Counter(kind for _, kind, _ in self.violations)
        lines = [f"{self.checks} checks of {self.mdps} MDPs"]
        for name, count in sorted(self.asked.items()):
            honest = self.unconverged[name]
            lines.append(f"  {count:7d} {name}" + (f", {honest} not converged" * (honest > 0)))
        names = ("bound", "limit", "dominated", "moments", "converged", "error")
        lines.append("violations: " + ", ".join(f"{name} {kinds[name]}" for name in names))
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="how many checks, at least")
    parser.add_argument("--first", type=int, default=0, help="number of the first MDP")
    parser.add_argument("--show", type=int, default=20, help="violations to print")
    options = parser.parse_args()
    tally, shown, told = Tally(), 0, time.monotonic()
    while tally.checks < options.count:
        tally.run(options.first + tally.mdps)
        for violation in tally.violations[shown : options.show]:
            print("MDP {}: {}: {}".format(*violation), flush=True)
        shown = len(tally.violations)
        if time.monotonic() > told + 60:
            told = time.monotonic()
            print(f"{tally.checks} checks, {shown} violations", flush=True)
    print(tally)
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
