"""Density ratios as saddle points: GradientDICE, DualDICE and GenDICE, compiled.

The ratio `tau` of a policy's occupancy to the data solves the Bellman flow equations: the flow into
every pair is its own weight. The residual, tested with a function `f`, the critic, is

    flow(tau, f) = (1 - gamma) E_start[f(s0, a0)] + E_data[tau(s, a) (gamma f(s', a') - f(s, a))]

which is 0 for every `f` at the true ratio. The methods search a saddle point, the minimum in `tau`
and the maximum in `f` (and in the number `eta`, which holds the mean of `tau` at 1):

    gradient-dice (Zhang 2020)      flow - E[f^2] / 2      + penalty (eta (E[tau] - 1) - eta^2 / 2)
    gen-dice (Zhang R. 2020)        flow - E[tau f^2] / 4  + penalty (eta (E[tau] - 1) - eta^2 / 2)
    dual-dice (Nachum 2019)         flow + E[tau^2] / 2

DualDICE is usually written with the sign of everything turned. GenDICE needs `tau >= 0` and takes
the square of a function. After the end of an episode `f(s', a')` is `f` at a start.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvpi.agents.networks import MLP
from mvpi.offline._state_action_pairs import PairBatch

Method = Literal["gradient-dice", "dual-dice", "gen-dice"]
Optimizer = Literal["extragradient", "sgd", "adam"]

_POWER_ITERATIONS = 30


class Table(eqx.Module):
    """A number per pair."""

    values: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.values[x]


class Linear(eqx.Module):
    """A weighted sum of features."""

    weights: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.weights


class Network(eqx.Module):
    """A network with one output."""

    layers: MLP

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers(x)[..., 0]


Function = Table | Linear | Network


class Players(eqx.Module):
    """The variables of the saddle-point problem."""

    ratio: Function
    critic: Function
    eta: jax.Array


class State(eqx.Module):
    """All that an update changes."""

    players: Players
    optimizer: optax.OptState


class Rules(NamedTuple):
    """Method and optimizer: static arguments of the compiled updates."""

    method: Method
    optimizer: Optimizer


class Settings(NamedTuple):
    """Numbers that updates depend on."""

    discount: float
    penalty: float
    metric: jax.Array
    """The natural size of steps of every parameter, for extragradient steps."""


class Pace(NamedTuple):
    """The learning rate of the first update, and its decrease per update, as a share of it."""

    rate: float
    fall: float


def networks(rng: np.random.Generator, size: int, hidden: tuple[int, ...]) -> Players:
    """Random networks; that of the ratio is around 1."""
    ratio, critic = (MLP.random(rng, size, *hidden, 1) for _ in range(2))
    ratio = eqx.tree_at(lambda net: net.biases[-1], ratio, jnp.ones(1))
    return Players(Network(ratio), Network(critic), jnp.zeros(()))


def start(players: Players) -> State:
    """Before the first update."""
    return State(players, optax.scale_by_adam().init(players))


def ratio(function: Function, x: jax.Array, method: Method) -> jax.Array:
    """`tau`, which GenDICE keeps from being negative."""
    return jnp.square(function(x)) if method == "gen-dice" else function(x)


def transport(tau: jax.Array, critic: Function, batch: PairBatch, discount: float) -> jax.Array:
    """`E_data[tau (gamma f' - f)]`: inflow minus weight of the pairs, tested with the critic."""
    next_f = jnp.sum(batch.following_weight * critic(batch.following), axis=-1)
    anew = 1.0 - jnp.sum(batch.following_weight, axis=-1)
    next_f = next_f + anew * at_starts(critic, batch)
    return jnp.sum(batch.weight * tau * (discount * next_f - critic(batch.x)))


def at_starts(critic: Function, batch: PairBatch) -> jax.Array:
    """`E_start[f(s0, a0)]`."""
    return jnp.sum(batch.start_weight * critic(batch.starts))


def saddle(players: Players, batch: PairBatch, settings: Settings, method: Method) -> jax.Array:
    """The function to be least in the ratio and largest in critic and eta."""
    tau, f, eta = ratio(players.ratio, batch.x, method), players.critic(batch.x), players.eta
    flow = (1.0 - settings.discount) * at_starts(players.critic, batch)
    flow = flow + transport(tau, players.critic, batch, settings.discount)
    off = jnp.sum(batch.weight * tau) - 1.0
    mean_is_one = settings.penalty * (eta * off - 0.5 * eta**2)
    match method:
        case "gradient-dice":
            return flow - 0.5 * jnp.sum(batch.weight * f**2) + mean_is_one
        case "gen-dice":
            return flow - 0.25 * jnp.sum(batch.weight * tau * f**2) + mean_is_one
        case "dual-dice":
            return flow + 0.5 * jnp.sum(batch.weight * tau**2)


def losses(players: Players, batch: PairBatch, settings: Settings, method: Method) -> Players:
    """The gradients to descend: the ratio minimises, critic and eta maximise."""
    gradient = jax.grad(saddle)(players, batch, settings, method)
    return Players(gradient.ratio, *jax.tree.map(jnp.negative, (gradient.critic, gradient.eta)))


@jax.jit
def coupling_norm(players: Players, batch: PairBatch, settings: Settings) -> jax.Array:
    """The norm of the operator that couples ratio and critic, in the metric, by the power method.

    Extragradient steps with a rate below one over it converge.
    """

    discount, metric = settings.discount, settings.metric

    def power_step(critic: Function, _: None) -> tuple[Function, jax.Array]:
        def on_ratio(other: Function) -> jax.Array:
            return transport(other(batch.x), critic, batch, discount)

        tau = _times(metric, jax.grad(on_ratio)(players.ratio))

        def on_critic(other: Function) -> jax.Array:
            return transport(tau(batch.x), other, batch, discount)

        image = _times(metric, jax.grad(on_critic)(critic))
        size = jnp.sqrt(sum(jnp.sum(leaf**2 / metric) for leaf in jax.tree.leaves(image)))
        # The operator may be 0: a single pair that leads to itself.
        return _times(1.0 / jnp.where(size > 0.0, size, 1.0), image), size

    def initial(leaf: jax.Array) -> jax.Array:
        return 1.5 + jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32))

    first = jax.tree.map(initial, players.critic)
    _, sizes = jax.lax.scan(power_step, first, None, length=_POWER_ITERATIONS)
    return jnp.sqrt(sizes[-1] + settings.penalty**2)


def step(
    state: State, batch: PairBatch, rate: jax.Array, settings: Settings, rules: Rules
) -> State:
    """One update of all players at once."""
    players, method, metric = state.players, rules.method, settings.metric
    gradient = losses(players, batch, settings, method)
    match rules.optimizer:
        case "adam":
            move, optimizer = optax.scale_by_adam().update(gradient, state.optimizer)
            return State(_moved(players, move, rate), optimizer)
        case "sgd":
            return State(_moved(players, gradient, rate), state.optimizer)
        case "extragradient":
            if method == "gen-dice":  # the square, and the critic's curvature, grow with tau
                largest = jnp.max(ratio(players.ratio, batch.x, method))
                rate = rate / (2.0 * jnp.sqrt(largest) + 0.5 * rate * largest + 1e-6)
            ahead = _moved(players, _scaled(gradient, metric), rate)
            gradient = losses(ahead, batch, settings, method)
            return State(_moved(players, _scaled(gradient, metric), rate), state.optimizer)


@partial(jax.jit, static_argnames="rules", donate_argnames="state")
def update_on(
    state: State, batch: PairBatch, steps: int, pace: Pace, settings: Settings, rules: Rules
) -> State:
    """`steps` updates, all of them on the same batch."""

    def one(i: jax.Array, state: State) -> State:
        return step(state, batch, pace.rate * (1.0 - pace.fall * i), settings, rules)

    updated: State = jax.lax.fori_loop(0, steps, one, state)
    return updated


@partial(jax.jit, static_argnames="rules", donate_argnames="state")
def update_through(
    state: State, batches: PairBatch, pace: Pace, settings: Settings, rules: Rules
) -> State:
    """An update per batch."""

    def one(state: State, drawn: tuple[PairBatch, jax.Array]) -> tuple[State, None]:
        batch, i = drawn
        return step(state, batch, pace.rate * (1.0 - pace.fall * i), settings, rules), None

    return jax.lax.scan(one, state, (batches, jnp.arange(len(batches.weight))))[0]


@partial(jax.jit, static_argnames="method")
def ratios(function: Function, x: jax.Array, method: Method) -> jax.Array:
    """`tau` at many pairs."""
    return ratio(function, x, method)


def _scaled(gradient: Players, metric: jax.Array) -> Players:
    return Players(_times(metric, gradient.ratio), _times(metric, gradient.critic), gradient.eta)


def _times(factor: jax.Array, function: Function) -> Any:
    return jax.tree.map(lambda leaf: factor * leaf, function)


def _moved(players: Players, move: Players, rate: jax.Array) -> Players:
    moved: Players = jax.tree.map(lambda p, m: p - rate * m, players, move)
    return moved
