"""Off-line MVPI for continuous actions: Algorithm 2, improved by TD3+BC (Fujimoto and Gu 2021).

    y = dual of the rewards in the data
    repeat, `ratio_every` updates at a time:
        draw        a batch of the data; r <- augment(r, y)
        critics     as in TD3:  t = r + gamma min_i Q'_i(s', pi'(s') + noise)
        actor       every `policy_delay` updates: pi <- descend on
                        -alpha Q_1(s, pi(s)) / mean|Q_1| + mean (pi(s) - a)^2
        evaluate    `ratio_steps` more updates of the policy's density ratio; y = dual of the
                    rewards weighted by it

The second term of the actor's loss keeps the policy to what is in the data; with `alpha = 0` it is
all there is, and the data are cloned. Risk 0 is TD3+BC itself. Networks see observations scaled to
mean 0 and deviation 1 and actions scaled to [-1, 1]; the policy that is handed out has the scaling
in its first layer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

import mvpi
from mvpi._checks import check_count, check_number, check_output
from mvpi.agents.files import FORMAT
from mvpi.agents.networks import MLP
from mvpi.agents.policy import Deterministic
from mvpi.agents.settings import TD3Settings, make_settings
from mvpi.agents.td3 import Batch, Networks, descend, initial_networks, pi, q, update_critics
from mvpi.errors import Divergence, InputError
from mvpi.offline.columns import bound
from mvpi.offline.dataset import Dataset, check_data
from mvpi.offline.density_ratio import CoverageWarning, DensityRatio, weighted_dual
from mvpi.offline.pairs import moments
from mvpi.offline.settings import TD3BCSettings
from mvpi.risk import Risk, VarianceBudget, learnable, risk_text
from mvpi.spaces import BoxActions, FlatObservations, Spaces
from mvpi.stats import mean, variance

Array = npt.NDArray[np.float64]
Row = dict[str, float | int | None]
OnRow = Callable[[Row], Any]

_UPDATES_TOGETHER = 100
"""About as many updates are made in one compiled call."""
_SMALLEST_VALUE = 1e-6
"""Values are not scaled up from below this: they would be noise."""


def learn_continuous(
    data: Dataset,
    risk: Risk | float,
    discount: float,
    *,
    updates: int = 100_000,
    seed: int = 0,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    on_row: OnRow | None = None,
    **settings: Any,
) -> Deterministic:
    """A risk-averse policy for continuous actions from data.

    Args:
        data: observations and actions are vectors of floats; it is drawn from, never copied.
        risk: a number (weight of the per-step variance) or any `mvpi.Risk`.
        discount: in [0, 1).
        updates: of the critics; a multiple of `policy_delay`.
        seed: of initial networks and of what is drawn.
        low, high: bounds of the actions, numbers or one per dimension; left out, those that `data`
            knows, or the smallest and largest action in it.
        on_row: called with every row of the metrics, one per estimate of `y`.
        settings: fields of `TD3BCSettings`.

    Warns with `CoverageWarning` when the data hardly cover the policy that was learned.

    >>> rng = np.random.default_rng(0)
    >>> s, a = rng.normal(size=(500, 1)), rng.uniform(-1, 1, (500, 1))
    >>> data = Dataset(s, a, a[:, 0], s, terminations=np.ones(500, bool), starts=s)
    >>> sizes = {"updates": 200, "hidden": (16, 16), "ratio_steps": 100}
    >>> policy = learn_continuous(data, risk=0.0, discount=0.9, **sizes)
    >>> policy.predict([0.5]).shape
    (1,)
    """
    chosen = make_settings(TD3BCSettings, settings)
    learner = TD3BC(data, risk, discount, seed=seed, low=low, high=high, settings=chosen)
    return learner.learn(updates, on_row).policy


def update_actor(
    net: Networks, batch: Batch, alpha: float, settings: TD3Settings
) -> tuple[Networks, jax.Array]:
    """One step on the actor, then all targets follow."""

    def loss(actor: MLP) -> jax.Array:
        a = pi(actor, batch.s)
        values = q(net.critics[0], batch.s, a)
        size = jax.lax.stop_gradient(jnp.mean(jnp.abs(values)))
        cloning = jnp.mean(jnp.square(a - batch.a))
        return cloning - alpha * jnp.mean(values) / jnp.maximum(size, _SMALLEST_VALUE)

    return descend(net, loss, settings)


@partial(jax.jit, static_argnames="settings", donate_argnames="net")
def update(
    net: Networks, batches: Batch, alpha: float, settings: TD3Settings
) -> tuple[Networks, jax.Array]:
    """An update per batch; also returns the mean losses of critics and actor."""

    def round_of_updates(net: Networks, batches: Batch) -> tuple[Networks, jax.Array]:
        for i in range(settings.policy_delay):
            batch = jax.tree.map(lambda x, i=i: x[i], batches)
            net, critic_loss = update_critics(net, batch, settings)
        net, actor_loss = update_actor(net, batch, alpha, settings)
        return net, jnp.stack([critic_loss, actor_loss])

    delay = settings.policy_delay
    rounds = jax.tree.map(lambda x: x.reshape(-1, delay, *x.shape[1:]), batches)
    net, losses = jax.lax.scan(round_of_updates, net, rounds)
    return net, losses.mean(axis=0)


class TD3BC:
    """The state of off-line learning: networks, density ratio, `y`, risk and random generator."""

    def __init__(
        self,
        data: Dataset,
        risk: Risk | float,
        discount: float,
        *,
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
        self.risk = learnable(risk)
        if check_number(discount, "discount", at_least=0.0, at_most=1.0) == 1.0:
            raise InputError("discount must be < 1, got 1; use one close to it, such as 0.999")
        self.seed = check_count(seed, "seed", at_least=0)
        self.settings = TD3BCSettings() if settings is None else settings
        self.data = data
        sizes = data.observations.shape[1], data.actions.shape[1]
        self.box = _box(data, low, high)
        self._centre = 0.5 * (self.box.low.astype(np.float64) + self.box.high)
        self._reach = self.box.high - self._centre
        self._mean, self._scale = (x[: sizes[0]] for x in moments(data))
        self._td3 = self.settings.td3(float(discount))
        self.rng = np.random.default_rng([self.seed, 0])  # the ratio has a stream of its own
        self.net = initial_networks(self.rng, *sizes, self._td3)
        self.ratio = DensityRatio(
            data,
            discount,
            self.settings.ratio_method,
            learning_rate=self.settings.ratio_learning_rate,
            seed=self.seed,
        )
        self.updates = 0
        self.y = self.risk.dual(data.rewards)
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
        """Estimate the density ratio of the current policy, and `y` with it."""
        rewards = self.data.rewards
        ratio = self.ratio.update(self.policy, self.settings.ratio_steps).ratio()
        spread = variance(rewards, ratio)
        if isinstance(self.risk, VarianceBudget):
            self.risk = self.risk.repriced(spread, self.settings.budget_rate)
        found = weighted_dual(self.data, ratio, self.risk)
        self.y = found.y
        return {
            "y": self.y,
            "risk_aversion": getattr(self.risk, "risk_aversion", None),
            "effective_size": found.effective_size,
            "reward_mean": mean(rewards, ratio),
            "reward_variance": spread,
        }

    @property
    def policy(self) -> Deterministic:
        """The current policy by itself, in numpy: it takes observations as they are."""
        weights, biases = (
            list(map(np.array, group)) for group in (self.net.actor.weights, self.net.actor.biases)
        )
        first = weights[0] / self._scale[:, None]
        biases[0] = (biases[0] - self._mean @ first).astype(np.float32)
        weights[0] = first.astype(np.float32)
        spaces = Spaces(FlatObservations(len(first)), self.box)
        return Deterministic(spaces, tuple(weights), tuple(biases))

    def save(self, path: str | Path) -> None:
        """Write the policy and how it was learned to a safetensors file, for `mvpi.load`."""
        record = {
            "format": FORMAT,
            "mvpi": mvpi.__version__,
            "algorithm": "td3",
            "environment": {},
            "risk": risk_text(self.risk),
            "seed": self.seed,
            "settings": self._td3.record(),
            "offline": asdict(self.settings),
            "steps": self.updates,
        }
        self.policy.save(check_output(path), record)

    def _draw(self, updates: int) -> Batch:
        """Batches of the raw data, with rewards augmented."""
        data, settings = self.data, self.settings
        rows = data.batch(self.rng.integers(len(data), size=(updates, settings.batch_size)))
        noise = self.rng.standard_normal(rows.actions.shape, dtype=np.float32)
        noise *= settings.target_policy_noise
        clip = settings.target_noise_clip
        with np.errstate(over="ignore"):  # the loss will not be finite
            return Batch(
                s=self._scaled(rows.observations),
                a=jnp.asarray((rows.actions - self._centre) / self._reach, jnp.float32),
                r=jnp.asarray(self.risk.augment(rows.rewards, self.y), jnp.float32),
                continues=jnp.asarray(~rows.terminations, jnp.float32),
                following=self._scaled(rows.next_observations),
                noise=jnp.asarray(np.clip(noise, -clip, clip)),
            )

    def _scaled(self, observations: npt.NDArray[Any]) -> jax.Array:
        return jnp.asarray((observations - self._mean) / self._scale, jnp.float32)


def _box(data: Dataset, low: npt.ArrayLike | None, high: npt.ArrayLike | None) -> BoxActions:
    """The box of actions, in the type of the data, which must lie inside."""
    least, largest = data.actions[0], data.actions[0]
    for piece in data.pieces():
        least = np.minimum(least, data.actions[piece].min(axis=0))
        largest = np.maximum(largest, data.actions[piece].max(axis=0))
    low, high = (data.low if low is None else low), (data.high if high is None else high)
    box = BoxActions(
        np.array(least) if low is None else bound(low, least, "low"),
        np.array(largest) if high is None else bound(high, largest, "high"),
    )
    for i, (bottom, top) in enumerate(zip(box.low, box.high, strict=True)):
        if not bottom < top:
            raise InputError(
                f"low must be < high, in dimension {i} of the actions they are {bottom} and {top}; "
                "give the bounds of the actions as low and high"
            )
        if not bottom <= least[i] <= largest[i] <= top:
            raise InputError(
                f"actions must be from {bottom} to {top} in dimension {i}, the data have "
                f"{least[i]} to {largest[i]}; give wider low and high, or clip the actions"
            )
    return box
