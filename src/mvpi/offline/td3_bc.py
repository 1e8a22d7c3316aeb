"""Off-line MVPI for continuous actions: Algorithm 2, improved by TD3+BC (Fujimoto and Gu 2021).

    y = dual of the rewards in the data
    repeat, `ratio_every` updates at a time:
        draw        a batch of the data; r <- augment(r, y)
        critics     as in TD3:  t = r + gamma min_i Q'_i(s', pi'(s') + noise)
        actor       every `policy_delay` updates: pi <- descend on
                        -alpha Q_1(s, pi(s)) / mean|Q_1| + mean (pi(s) - a)^2 + c excess(z)
        evaluate    `ratio_steps` more updates of the policy's density ratios; y = median of the
                    duals of the rewards weighted by them (`mvpi.offline._lstd_dual`), unless it
                    is given

The second term of the actor's loss is behaviour cloning; with `alpha = 0` there is nothing else.
Risk 0 is TD3+BC itself. Networks see observations scaled to mean 0 and deviation 1 and actions
scaled to [-1, 1]; the policy that is returned has the scaling in its first layer.

With a measure that sees columns (`RiskRange`, `OfReturn`), networks see these as well
(`mvpi.augmenter.columns`). Every drawn transition gets a fresh risk aversion `lam`, the same in its
observation and the next; the return so far `G_t` is counted in the data (`mvpi.offline._episodes`).
The reward is augmented with `y(lam)`, or `y(lam) - G_t` (`mvpi.offline._extended_dual`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_number, check_output
from mvpi._settings import make_settings
from mvpi._storage.arrays import FORMAT
from mvpi._types import Array
from mvpi._version import __version__
from mvpi.agents.policy import Deterministic
from mvpi.agents.td3 import TD3, Batch
from mvpi.agents.td3_networks import initial_networks
from mvpi.augmenter.columns import Columns
from mvpi.errors import Divergence, InputError
from mvpi.offline._action_box import action_box
from mvpi.offline._bc_update import update
from mvpi.offline._episodes import with_returns
from mvpi.offline._extended_dual import ExtendedDuals, estimated_frontier
from mvpi.offline._lstd_dual import PolicyDuals
from mvpi.offline._residual_error import PolicyDual
from mvpi.offline._state_action_pairs import moments
from mvpi.offline.dataset import Batch as Rows
from mvpi.offline.dataset import Dataset, check_data
from mvpi.offline.density_ratio import CoverageWarning, DensityRatio, weighted_dual
from mvpi.offline.settings import TD3BCSettings
from mvpi.risk import RETURN_SO_FAR, RISK_AVERSION, Risk, as_risk, learnable, risk_text
from mvpi.risk.extended import range_of
from mvpi.rollout.spaces import FlatObservations, Spaces
from mvpi.stats import mean, variance

Anything = npt.NDArray[Any]
Row = dict[str, float | int | None]
OnRow = Callable[[Row], Any]

_UPDATES_TOGETHER = 100
"""About as many updates are made in one compiled call."""


def learn_continuous(
    data: Dataset,
    risk: Risk | float,
    discount: float,
    *,
    updates: int = 100_000,
    y: float | None = None,
    seed: int = 0,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    on_row: OnRow | None = None,
    **settings: Any,
) -> Deterministic | TD3:
    """A risk-averse policy for continuous actions from data.

    With a `RiskRange` or `OfReturn` it is an agent as `mvpi.load` gives one: of a range,
    `at(risk_aversion)` is the policy at one of them, and `frontier()` what the data say of all.

    Args:
        data: observations and actions are vectors of floats; it is drawn from, never copied.
        risk: a number (weight of the per-step variance) or any `mvpi.Risk`. `OfReturn` needs
            episodes in order, and counts returns without discount.
        discount: in [0, 1); with `OfReturn` that of the critics alone, best close to 1.
        updates: of the critics; a multiple of `policy_delay`.
        y: the number in the augmented reward, where it is known; left out, it is estimated. With a
            range it differs along it, and must be left out.
        seed: of initial networks and of what is drawn.
        low: the smallest actions, a number or one per dimension; left out, those that `data` knows,
            or the smallest in it.
        high: the largest ones, in the same way.
        on_row: called with every row of the metrics, one per estimate of `y`.
        settings: fields of `TD3BCSettings`.

    Rows have `y`, the interval `y_low` to `y_high` of its estimate, `fitted_q_mean`, the effective
    size, mean and variance of the policy's rewards, and the losses. With `OfReturn` mean and
    variance are of returns; with a range all of it is for the middle of the range, and the largest
    value at both ends and in the middle are there too. Warns with `CoverageWarning` when the data
    hardly cover the policy that was learned, or the estimates of its `y` disagree.

    >>> rng = np.random.default_rng(0)
    >>> s, a = rng.normal(size=(500, 1)), rng.uniform(-1, 1, (500, 1))
    >>> data = Dataset(s, a, a[:, 0], s, terminations=np.ones(500, bool), starts=s)
    >>> sizes = {"updates": 200, "hidden": (16, 16), "ratio_steps": 100}
    >>> policy = learn_continuous(data, risk=0.0, discount=0.9, **sizes)
    >>> policy.predict([0.5]).shape
    (1,)
    """
    chosen = make_settings(TD3BCSettings, settings)
    learner = TD3BC(data, risk, discount, y=y, seed=seed, low=low, high=high, settings=chosen)
    learner.learn(updates, on_row)
    return learner.agent(as_risk(risk)) if as_risk(risk).columns else learner.policy


class TD3BC:
    """The state of off-line learning: networks, density ratios, `y`, risk and random generator."""

    def __init__(
        self,
        data: Dataset,
        risk: Risk | float,
        discount: float,
        *,
        y: float | None = None,
        seed: int = 0,
        low: npt.ArrayLike | None = None,
        high: npt.ArrayLike | None = None,
        settings: TD3BCSettings | None = None,
    ) -> None:
        if check_data(data).n_states is not None:
            raise InputError(
                f"observations must be vectors of floats, got {data}; for finite data use "
                "mvpi.offline.learn_finite"
            )
        if data.n_actions is not None:
            raise InputError(
                f"actions must be vectors of floats, got {data}; discrete actions with vector "
                "observations are not learned here: use `mvpi offline relabel` and a library such "
                "as d3rlpy"
            )
        self.risk = learnable(as_risk(risk))
        if check_number(discount, "discount", at_least=0.0, at_most=1.0) == 1.0:
            raise InputError("discount must be < 1, got 1; use one close to it, such as 0.999")
        self.seed = check_count(seed, "seed", at_least=0)
        self.settings = TD3BCSettings() if settings is None else settings
        self._episodes = with_returns(data) if self.risk.of_return else None
        self.data = data if self._episodes is None else self._episodes.data
        """What is drawn from; with `OfReturn`, observations end with the return so far."""
        self.columns = Columns(self.risk, self._return_scale())
        self._size = data.observations.shape[1]
        sizes = self._size + self.columns.size, data.actions.shape[1]
        self.box = action_box(data, low, high)
        self._centre = 0.5 * (self.box.low.astype(np.float64) + self.box.high)
        self._reach = self.box.high - self._centre
        at_rest = np.zeros(self.columns.size), np.ones(self.columns.size)
        self._mean, self._scale = (
            np.append(x[: self._size], y) for x, y in zip(moments(data), at_rest, strict=True)
        )
        self._td3 = self.settings.td3(float(discount))
        self.rng = np.random.default_rng([self.seed, 0])  # the ratio has a stream of its own
        self.net = initial_networks(self.rng, *sizes, self._td3)
        self.given_y = None if y is None else check_number(y, "y")
        self.ratio = self._estimator(float(discount))
        self.updates = 0
        self.y = self._first_y()
        """With a range that in the middle."""
        self.losses = np.zeros(2)
        """Sums over the updates since the last estimate of `y`: critics and actor."""

    def learn(
        self, updates: int, on_row: OnRow | None = None, pause: Callable[[], bool] | None = None
    ) -> TD3BC:
        """Go on until `updates` updates have been made in all, or `pause` says to stop before.

        The estimate at the end counts: learning in several calls is learning in one if all but the
        last end at multiples of `ratio_every`, or where they were paused.
        """
        self.settings.check_updates(updates)
        every = self.settings.ratio_every
        while self.updates < updates:
            until = min(updates, (self.updates // every + 1) * every)
            losses = self.improve(until - self.updates, pause)
            if self.updates < until:
                break
            with warnings.catch_warnings():
                if self.updates < updates:  # what the data say of the final policy matters
                    warnings.simplefilter("ignore", CoverageWarning)
                found = self.evaluate()
            self.losses = np.zeros(2)
            if on_row is not None:
                on_row({"updates": self.updates, **found, **losses})
            if pause is not None and pause():
                break
        return self

    def improve(self, updates: int, pause: Callable[[], bool] | None = None) -> Row:
        """Improve the policy at the current `y`; returns the mean losses since it was estimated."""
        delay = self.settings.policy_delay
        together = max(1, _UPDATES_TOGETHER // delay) * delay
        for done in range(0, updates, together):
            count = min(together, updates - done)
            self.net, losses = update(self.net, self._draw(count), self.settings.alpha, self._td3)
            self.losses = self.losses + count * np.asarray(losses, np.float64)
            self.updates += count
            if not np.isfinite(self.losses).all():
                raise Divergence(
                    f"learning diverged before update {self.updates}: a loss is not finite any "
                    "more; lower the learning_rate, the risk aversion or the scale of the rewards"
                )
            if count == together and pause is not None and pause():
                break
        since = (self.updates - 1) % self.settings.ratio_every + 1
        critic_loss, actor_loss = (self.losses / since).tolist()
        return {"critic_loss": critic_loss, "actor_loss": actor_loss}

    def evaluate(self) -> Row:
        """Estimate what the current policy earns, and `y` unless it is given."""
        ratio, steps = self.ratio, self.settings.ratio_steps
        if isinstance(ratio, DensityRatio):
            estimate, found = self._by_one_ratio(ratio.update(self.policy, steps).ratio())
        elif isinstance(ratio, PolicyDuals):
            estimate, found = self._by_several(ratio.update(self.policy, steps).estimate(self.risk))
        else:
            estimate, found = ratio.update(self.policy, steps).facts(self.risk)
        spread = found["return_variance" if self.risk.of_return else "reward_variance"]
        self.risk = self.risk.repriced(spread, self.settings.budget_rate)
        self.y = estimate if self.given_y is None else self.given_y
        return {"y": self.y, "risk_aversion": self.risk.price, **found}

    def _by_one_ratio(self, ratio: Array) -> tuple[float, dict[str, float]]:
        rewards, found = self.data.rewards, weighted_dual(self.data, ratio, self.risk)
        return found.y, {
            "effective_size": found.effective_size,
            "reward_mean": mean(rewards, ratio),
            "reward_variance": variance(rewards, ratio),
        }

    def _by_several(self, found: PolicyDual) -> tuple[float, dict[str, float]]:
        if self.given_y is None:
            found.warn()
        names = ("fitted_q_mean", "effective_size", "reward_mean", "reward_variance")
        low, high = found.interval
        facts = {name: getattr(found, name) for name in names}
        return found.y, {"y_low": low, "y_high": high, **facts}

    @property
    def policy(self) -> Deterministic:
        """The current policy by itself, in numpy: it takes observations as they are."""
        weights, biases = (
            list(map(np.array, group)) for group in (self.net.actor.weights, self.net.actor.biases)
        )
        first = weights[0] / self._scale[:, None]
        biases[0] = (biases[0] - self._mean @ first).astype(np.float32)
        weights[0] = first.astype(np.float32)
        spaces = Spaces(FlatObservations(self._size), self.box)
        return Deterministic(spaces, tuple(weights), tuple(biases), columns=self.columns)

    def agent(self, risk: Risk) -> TD3:
        """The policy as `mvpi.load` would give it; `risk` may be a range of one value."""
        agent = TD3.from_file(self.policy, self._record(), risk)
        known = range_of(risk)
        if known is not None and isinstance(self.ratio, PolicyDuals):
            found = self.ratio.estimate(self.risk, variance_too=True)
            agent.estimated_frontier = estimated_frontier(known, np.array([known.low]), (found,))
        return agent

    def save(self, path: str | Path) -> None:
        """Write the policy and how it was learned to a safetensors file, for `mvpi.load`."""
        self.policy.save(check_output(path), self._record())

    def _record(self) -> dict[str, Any]:
        frontier = self.ratio.frontier if isinstance(self.ratio, ExtendedDuals) else None
        return {
            "format": FORMAT,
            "mvpi": __version__,
            "algorithm": "td3",
            "environment": {},
            "risk": risk_text(self.risk),
            "seed": self.seed,
            "settings": self._td3.record(),
            "offline": self.settings.record(),
            "steps": self.updates,
            **({} if frontier is None else {"frontier": frontier.record()}),
        }

    def _draw(self, updates: int) -> Batch:
        """Batches of the raw data, with rewards augmented."""
        data, settings = self.data, self.settings
        rows = data.batch(self.rng.integers(len(data), size=(updates, settings.batch_size)))
        noise = self.rng.standard_normal(rows.actions.shape, dtype=np.float32)
        noise *= settings.target_policy_noise
        clip = settings.target_noise_clip
        with np.errstate(over="ignore"):  # the loss will not be finite
            s, r, next_s = self._augmented(rows)
            return Batch(
                s=self._scaled(s),
                a=jnp.asarray((rows.actions - self._centre) / self._reach, jnp.float32),
                r=jnp.asarray(r, jnp.float32),
                continues=jnp.asarray(~rows.terminations, jnp.float32),
                next_s=self._scaled(next_s),
                noise=jnp.asarray(np.clip(noise, -clip, clip)),
            )

    def _augmented(self, rows: Rows) -> tuple[Anything, Array, Anything]:
        """Observations, with columns if there are any, and augmented rewards."""
        s, r, next_s = rows.observations, rows.rewards, rows.next_observations
        if not isinstance(self.ratio, ExtendedDuals):
            return s, self.risk.augment(r, self.y), next_s
        columns, shape = self.columns, r.shape
        raw = columns.raw({RISK_AVERSION: 0.0, RETURN_SO_FAR: s[..., -1]}, shape)
        columns.redraw(self.rng, raw, every=1)  # data were acted with none
        augmented = self.risk.augment_extended(r, self.ratio.y(raw), columns.named(raw))
        s, next_s = (
            np.concatenate([x[..., : self._size], columns.encode(values)], axis=-1)
            for x, values in ((s, raw), (next_s, columns.step(raw, r)))
        )
        return s, augmented, next_s

    def _return_scale(self) -> float:
        """The size of a return: as given, or the deviation of the returns in the data."""
        given, episodes = self.settings.return_scale, self._episodes
        if given is not None or episodes is None:
            return given or 1.0
        return float(np.std(episodes.returns)) or 1.0

    def _first_y(self) -> float:
        if self.given_y is not None:
            return self.given_y
        if isinstance(self.ratio, ExtendedDuals):
            return float(self.ratio.values[self.ratio.middle])
        return self.risk.dual(self.data.rewards)

    def _estimator(self, discount: float) -> DensityRatio | PolicyDuals | ExtendedDuals:
        rate, method = self.settings.ratio_learning_rate, self.settings.ratio_method
        options: dict[str, Any] = {"learning_rate": rate, "seed": self.seed}
        if self.risk.columns:
            if method != "combined":
                raise InputError(
                    f"ratio_method must be combined with {self.risk}, got {method}; leave it out"
                )
            source = self._episodes or self.data
            return ExtendedDuals(source, self.risk, discount, self.given_y, **options)
        if method == "combined":
            return PolicyDuals(self.data, discount, **options)
        return DensityRatio(self.data, discount, method, **options)

    def _scaled(self, observations: npt.NDArray[Any]) -> jax.Array:
        return jnp.asarray((observations - self._mean) / self._scale, jnp.float32)
