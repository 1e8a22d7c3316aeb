"""Small problems with known answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_number, finite_array, shown
from mvpi._types import Array, Step, Vector
from mvpi.errors import InputError
from mvpi.risk import Risk, as_risk


class FourState(gym.Env[Any, Any]):
    """The paper's example: at s0 action 0 gambles for +1 or -1, action 1 takes -1 for sure.

    States s0 to s3; from s1 (+1), s2 (-1) and s3 (-1) every action returns to s0 (0). The reward
    is that of the state an action is taken in. An episode is cut after `horizon` steps.
    """

    REWARDS = (0.0, 1.0, -1.0, -1.0)

    def __init__(self, horizon: int = 100) -> None:
        self.observation_space = gym.spaces.Discrete(4)
        self.action_space = gym.spaces.Discrete(2)
        self.horizon = check_count(horizon, "horizon")
        self._state = self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self._time = 0
        return self._state, {}

    def step(self, action: int) -> Step:
        reward = self.REWARDS[self._state]
        if self._state != 0:
            self._state = 0
        elif action == 0:
            self._state = 1 + int(self.np_random.integers(2))
        else:
            self._state = 3
        self._time += 1
        return self._state, reward, False, self._time >= self.horizon, {}


class Markowitz(gym.Env[Array, Array]):
    """A portfolio: action `a` in `[-bound, bound]^n`, reward `a . x`, `x ~ N(mean, covariance)`.

    The reward of an action is Gaussian, so every risk measure of it is known: `value(action,
    risk)`; and `best_action(risk)` is the exact answer, `inverse(covariance) @ mean / (2 lam)` for
    mean-variance when that lies inside the box. The observation never changes; an episode is
    cut after `horizon` steps.
    """

    def __init__(
        self,
        mean: Sequence[float] = (0.2, 0.1),
        covariance: Sequence[Sequence[float]] = ((0.2, 0.05), (0.05, 0.1)),
        bound: float = 1.0,
        horizon: int = 100,
    ) -> None:
        self.mean = np.array(finite_array(mean, "mean"))
        self.covariance = np.array(finite_array(covariance, "covariance"))
        n = self.mean.size
        if n == 0 or self.mean.shape != (n,) or self.covariance.shape != (n, n):
            raise InputError(
                f"mean and covariance must be (n,) and (n, n), got {self.mean.shape} and "
                f"{self.covariance.shape}"
            )
        if not np.allclose(self.covariance, self.covariance.T, rtol=1e-9, atol=0.0):
            raise InputError("covariance must be symmetric")
        try:
            self._root = np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError:
            raise InputError("covariance must be positive definite") from None
        self.bound = check_number(bound, "bound", above=0.0)
        self.horizon = check_count(horizon, "horizon")
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float64)
        self.action_space = gym.spaces.Box(-self.bound, self.bound, (n,), np.float64)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return np.ones(1), {}

    def step(self, action: npt.ArrayLike) -> Step:
        returns = self.mean + self._root @ self.np_random.standard_normal(self.mean.size)
        self._time += 1
        reward = float(np.asarray(action, dtype=np.float64) @ returns)
        return np.ones(1), reward, False, self._time >= self.horizon, {}

    def value(self, action: npt.ArrayLike, risk: Risk | float) -> float:
        """The exact `risk.value` of the reward of `action` (for a budget: the mean)."""
        a = finite_array(action, "action")
        if a.shape != self.mean.shape:
            raise InputError(f"action must have the shape {self.mean.shape}, got {a.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, variance = float(a @ self.mean), float(a @ self.covariance @ a)
        if not math.isfinite(variance):
            raise InputError(f"action must be small enough to be squared, got {shown(action)}")
        return as_risk(risk).gaussian_value(mean, math.sqrt(variance))

    def best_action(self, risk: Risk | float) -> Array:
        """The action of largest `value`, inside the box; for a budget, within the budget."""
        from scipy.optimize import minimize

        risk = as_risk(risk)
        if risk.variance_limit is not None:
            return self._best_within(risk.variance_limit)

        def loss(a: Array) -> tuple[float, Array]:
            deviation = math.sqrt(float(a @ self.covariance @ a)) + 1e-12
            slope = _gaussian_slope(risk, deviation)
            gradient = self.mean + slope / deviation * (self.covariance @ a)
            return -self.value(a, risk), -gradient

        n = self.mean.size
        start = np.clip(np.linalg.solve(self.covariance, self.mean), -self.bound, self.bound)
        bounds = [(-self.bound, self.bound)] * n
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000}
        found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
        best = np.asarray(found.x)
        return best if self.value(best, risk) > 0.0 else np.zeros(n)

    def _best_within(self, limit: float) -> Array:
        """Bisection on the price of variance: the variance falls as the price rises."""

        def variance(price: float) -> float:
            a = self.best_action(price)
            return float(a @ self.covariance @ a)

        if variance(0.0) <= limit:
            return self.best_action(0.0)
        low, high = 0.0, 1.0
        while variance(high) > limit:
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if variance(middle) > limit else (low, middle)
        return self.best_action(high)


class Liquidity(gym.Env[Any, Any]):
    """A saver with a liquid and a non-liquid asset, after Tamar, Di Castro and Mannor (2012).

    Every step, action 1 locks `share` of the liquid money up for `maturity` steps; action 0 does
    nothing. Liquid money earns the factor `liquid_factor` a step. Locked money comes back times
    the factor of that time, which switches between a low and a high one, or is lost with
    probability `default`. The reward is the growth of the logarithm of all money, so the return is
    the logarithm of the final wealth; an episode ends after `horizon` steps. Observed are the
    shares of liquid money and of what matures in 1, 2, ... steps, and whether the factor is high.
    """

    def __init__(
        self,
        maturity: int = 4,
        share: float = 0.2,
        liquid_factor: float = 1.001,
        factors: tuple[float, float] = (1.1, 2.0),
        switch: float = 0.1,
        default: float = 0.05,
        horizon: int = 50,
    ) -> None:
        self.maturity = check_count(maturity, "maturity")
        self.share = check_number(share, "share", above=0.0, at_most=1.0)
        self.liquid_factor = check_number(liquid_factor, "liquid_factor", above=0.0)
        both = finite_array(factors, "factors")
        if both.shape != (2,) or not (both > 0.0).all():
            raise InputError(f"factors must be a low and a high one above 0, got {shown(factors)}")
        self.factors = tuple(both.tolist())
        self.switch = check_number(switch, "switch", at_least=0.0, at_most=1.0)
        self.default = check_number(default, "default", at_least=0.0, at_most=1.0)
        if self.share == 1.0 and self.default > 0.0:
            raise InputError("share must be < 1 unless default is 0: all money could be lost")
        self.horizon = check_count(horizon, "horizon")
        self.observation_space = gym.spaces.Box(0.0, 1.0, (self.maturity + 2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self._money = np.zeros(self.maturity + 1)
        self._money[0] = 1.0  # liquid; then what matures in 1, 2, ... steps
        self._high = int(self.np_random.integers(2))
        self._time = 0
        return self._observation(), {}

    def step(self, action: int) -> Step:
        before = self._money.sum()
        locked = self.share * self._money[0] if action == 1 else 0.0
        liquid = self.liquid_factor * (self._money[0] - locked)
        if self.np_random.random() >= self.default:
            liquid += self.factors[self._high] * self._money[1]
        self._money = np.array([liquid, *self._money[2:], locked])
        if self.np_random.random() < self.switch:
            self._high = 1 - self._high
        self._time += 1
        reward = math.log(self._money.sum() / before)
        return self._observation(), reward, self._time >= self.horizon, False, {}

    def _observation(self) -> Vector:
        shares = self._money / self._money.sum()
        return np.array([*shares, self._high], dtype=np.float32)


def _gaussian_slope(risk: Risk, std: float) -> float:
    """How the value of a Gaussian reward changes with its standard deviation."""
    low, high = 0.999 * std, 1.001 * std
    return (risk.gaussian_value(0.0, high) - risk.gaussian_value(0.0, low)) / (high - low)
