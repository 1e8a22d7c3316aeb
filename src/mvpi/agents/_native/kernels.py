"""Compiled updates of networks: forward and backward passes, Adam, and all of TD3's update.

A network is one flat vector `theta`, its layers at the places that a `Layout` names. The units of a
batch, and the gradients of a loss with respect to them, are vectors too: layer by layer, a row for
each element of the batch. Rows are as long as whole lines of the cache; what is beyond the last
unit is zero and stays zero, in parameters as well.

Batches come as rows of the replay. `RowColumns` says where their parts begin; states and actions
stand side by side at the beginning, so that a row is an input of a critic as it is.

Work is shared among threads by rows of the batch, by critics and by parameters, never inside a
sum: results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, prange

from mvpi._compiled import without_and_with_threads
from mvpi.agents._native.matrix_products import (
    LANES,
    LINE,
    OPTIONS,
    product,
    product_with_transposed,
)
from mvpi.agents.settings import SATURATED

_ANY = np.float32(-np.inf)
"""Lower bound of linear units: none."""
_FAINT = np.float32(1e-37)
"""Smaller numbers are flushed to zero."""
_0, _1 = np.int64(0), np.int64(1)
"""Plain 0 and 1 are types of their own to numba: it would compile the functions they are passed to
once more."""


class Layout(NamedTuple):
    """Offsets and sizes of the layers of a network; one number a layer."""

    inputs: np.ndarray
    outputs: np.ndarray
    columns: np.ndarray
    """Outputs, rounded up to whole registers."""
    row: np.ndarray
    """Outputs, rounded up to whole lines of the cache."""
    weights: np.ndarray
    biases: np.ndarray
    units: np.ndarray
    """Where the units of a batch begin, in rows of a batch: to be multiplied by its size."""


def layout(*sizes: int) -> tuple[Layout, int, int]:
    """A network with layers of these sizes; its parameters, and units of an element of a batch."""
    inputs, outputs = np.array(sizes[:-1]), np.array(sizes[1:])
    columns, row = (-(-outputs // size) * size for size in (LANES, LINE))
    ends = np.cumsum((inputs + 1) * row)
    units = np.cumsum(row)
    layers = Layout(
        inputs, outputs, columns, row, ends - (inputs + 1) * row, ends - row, units - row
    )
    return layers, int(ends[-1]), int(units[-1])


def aligned_zeros(*shape: int) -> np.ndarray:
    """An array that begins, and whose rows of whole lines begin, at a line of the cache."""
    size = math.prod(shape)
    memory = np.zeros(size + LINE, np.float32)
    skip = -memory.ctypes.data // memory.itemsize % LINE
    return memory[skip : skip + size].reshape(shape)


@njit(**OPTIONS)
def forward(net, theta, x, x_row, batch, first, last, units):
    """All units for rows `first` to `last` of the batch `x`; returns where the outputs begin."""
    source, at, row = x, first * x_row, x_row
    for i in range(len(net.inputs)):
        hidden = i + 1 < len(net.inputs)
        to = net.units[i] * batch + first * net.row[i]
        product(
            last - first, net.columns[i],
            source, at, row, _1, theta, net.weights[i], net.row[i], net.inputs[i],
            theta, net.biases[i], np.float32(0.0) if hidden else _ANY,
            units, to, net.row[i],
        )  # fmt: skip
        source, at, row = units, to, net.row[i]
    return at


@njit(**OPTIONS)
def backward_inputs(net, theta, batch, first, last, units, gradients, panel, zeros):
    """Backpropagation from the outputs to all hidden units, for rows `first` to `last`."""
    for i in range(len(net.inputs) - 1, 0, -1):
        row, row_before = net.row[i], net.row[i - 1]
        begin = net.units[i - 1] * batch + first * row_before
        product_with_transposed(
            last - first, net.inputs[i],
            gradients, net.units[i] * batch + first * row, row,
            theta, net.weights[i], row, net.outputs[i],
            panel, zeros, gradients, begin, row_before,
        )  # fmt: skip
        end = begin + (last - first) * row_before
        _mask(units[begin:end], gradients[begin:end])


@njit(**OPTIONS)
def _add(terms, totals):
    for k in range(len(terms)):
        totals[k] += terms[k]


@njit(**OPTIONS)
def _mask(units, gradients):
    """The derivative of ReLU: the gradient is zero at inactive units."""
    for k in range(len(units)):
        gradients[k] = gradients[k] if units[k] > 0.0 else np.float32(0.0)


@njit(**OPTIONS)
def backward_weights(net, x, x_row, batch, part, parts, units, gradients, theta_gradient, zeros):
    """The gradient of the parameters, or a part of it, from the gradients at all units."""
    for i in range(len(net.inputs)):
        source, at, row = x, 0, x_row
        if i > 0:
            source, at, row = units, net.units[i - 1] * batch, net.row[i - 1]
        first, last = net.inputs[i] * part // parts, net.inputs[i] * (part + 1) // parts
        product(
            last - first, net.columns[i],
            source, at + first, _1, row, gradients, net.units[i] * batch, net.row[i], batch,
            zeros, _0, _ANY, theta_gradient, net.weights[i] + first * net.row[i], net.row[i],
        )  # fmt: skip
        if part == 0:
            bias = theta_gradient[net.biases[i] : net.biases[i] + net.columns[i]]
            for j in range(len(bias)):
                bias[j] = 0.0
            for k in range(batch):
                at = net.units[i] * batch + k * net.row[i]
                _add(gradients[at : at + len(bias)], bias)


@njit(**OPTIONS)
def adam(theta, theta_gradient, mean, square, rate, count):
    """The `count`-th step of Adam."""
    keep_mean, keep_square, tiny = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
    rest_mean, rest_square = np.float32(0.1), np.float32(0.001)
    mean_scale = np.float32(rate / (1.0 - 0.9**count))
    square_scale = np.float32(1.0 / (1.0 - 0.999**count))
    for k in range(len(theta)):
        g = theta_gradient[k]
        m = keep_mean * mean[k] + rest_mean * g
        v = keep_square * square[k] + rest_square * (g * g)
        # Flushed to zero: some processors are very slow with subnormal numbers.
        mean[k] = np.float32(0.0) if abs(m) < _FAINT else m
        square[k] = np.float32(0.0) if v < _FAINT else v
        theta[k] -= mean_scale * mean[k] / (np.sqrt(square_scale * square[k]) + tiny)


@njit(**OPTIONS)
def soft_update(theta, target, tau):
    """`target <- target + tau (theta - target)`."""
    for k in range(len(theta)):
        target[k] += np.float32(tau) * (theta[k] - target[k])


class TD3State(NamedTuple):
    """The state that the update changes: networks as vectors, pairs of critics as two rows."""

    actor: np.ndarray
    average_actor: np.ndarray
    """Of length 0 if there is none."""
    critics: np.ndarray
    target_actor: np.ndarray
    target_critics: np.ndarray
    actor_mean: np.ndarray
    actor_square: np.ndarray
    critics_mean: np.ndarray
    critics_square: np.ndarray


class TD3Scratch(NamedTuple):
    """Memory for an update. Matrices have a row for each critic, `panels` for each thread."""

    pairs: np.ndarray
    """States with actions, the input of a critic."""
    values: np.ndarray
    """Targets of the critics, then values of the actor's actions."""
    actor_units: np.ndarray
    actor_gradients: np.ndarray
    critic_units: np.ndarray
    critic_gradients: np.ndarray
    theta_gradients: np.ndarray
    panels: np.ndarray
    zeros: np.ndarray
    losses: np.ndarray


class TD3Numbers(NamedTuple):
    """The settings that the update needs."""

    gamma: float
    learning_rate: float
    tau: float
    policy_delay: int
    averaging: int
    saturation_penalty: float


@njit(**OPTIONS)
def _target_values(part, parts, columns, actor, critic, net, rows, noise, gamma, scratch):
    """`r + gamma min_i Q'_i(next_s, next_a)` for some rows of the batch."""
    batch, width = rows.shape
    first, last = batch * part // parts, batch * (part + 1) // parts
    both, actions = columns.r, noise.shape[1]
    next_s = rows.reshape(-1)[columns.next_s :]
    at = forward(actor, net.target_actor, next_s, width, batch, first, last, scratch.actor_units)
    pairs = scratch.pairs
    for k in range(first, last):
        for j in range(columns.a):
            pairs[k, j] = rows[k, columns.next_s + j]
        for j in range(actions):
            a = np.float32(math.tanh(scratch.actor_units[at + j])) + noise[k, j]
            pairs[k, columns.a + j] = min(max(a, np.float32(-1.0)), np.float32(1.0))
        at += actor.row[-1]
    for i in range(2):
        theta, units = net.target_critics[i], scratch.critic_units[i]
        at = forward(critic, theta, scratch.pairs.reshape(-1), both, batch, first, last, units)
    for k in range(first, last):
        smaller = min(scratch.critic_units[0, at], scratch.critic_units[1, at])
        discount = np.float32(gamma) * rows[k, columns.continues]
        scratch.values[k] = rows[k, columns.r] + discount * smaller
        at += critic.row[-1]


@njit(**OPTIONS)
def _update_critic(i, critic, net, rows, rate, count, scratch):
    """A step of Adam for one critic on the squared error to the target values."""
    batch, width = rows.shape
    x, theta, zeros = rows.reshape(-1), net.critics[i], scratch.zeros
    units, gradients, theta_gradient = (
        scratch.critic_units[i],
        scratch.critic_gradients[i],
        scratch.theta_gradients[i],
    )
    at = forward(critic, theta, x, width, batch, _0, batch, units)
    loss = 0.0
    for k in range(batch):
        error = units[at] - scratch.values[k]
        loss += error * error
        gradients[at] = np.float32(2.0) * error / np.float32(batch)
        at += critic.row[-1]
    scratch.losses[i] = loss / batch
    backward_inputs(critic, theta, batch, _0, batch, units, gradients, scratch.panels[i], zeros)
    backward_weights(critic, x, width, batch, _0, _1, units, gradients, theta_gradient, zeros)
    adam(theta, theta_gradient, net.critics_mean[i], net.critics_square[i], rate, count)


@njit(**OPTIONS)
def _excess(z):
    """How far an output before tanh is beyond saturation."""
    return max(abs(z) - np.float32(SATURATED), np.float32(0.0))


@njit(**OPTIONS)
def _actor_gradient(
    part, parts, columns, actor, critic, net, rows, actor_noise, saturation_penalty, scratch
):
    """The gradient of `saturation_penalty excess(z) - Q_1(s, tanh(z) + actor_noise)` at the actor's
    units, for some rows of the batch; `z` is its output, and `values` are the negative losses."""
    batch, width = rows.shape
    first, last = batch * part // parts, batch * (part + 1) // parts
    both, actions = columns.r, actor.outputs[-1]
    theta, panel, zeros = net.critics[0], scratch.panels[part], scratch.zeros
    units, gradients = scratch.actor_units, scratch.actor_gradients
    chosen = forward(actor, net.actor, rows.reshape(-1), width, batch, first, last, units)
    pairs, weight = scratch.pairs, np.float32(saturation_penalty / actions)
    for k in range(first, last):
        for j in range(columns.a):
            pairs[k, j] = rows[k, j]
        at = chosen + (k - first) * actor.row[-1]
        scratch.values[k] = 0.0
        for j in range(actions):
            z = units[at + j]
            pairs[k, columns.a + j] = math.tanh(z)
            if len(actor_noise):
                pairs[k, columns.a + j] += actor_noise[k, j]
            scratch.values[k] -= weight * _excess(z) * _excess(z)
    values, value_gradients = scratch.critic_units[0], scratch.critic_gradients[0]
    at = forward(critic, theta, scratch.pairs.reshape(-1), both, batch, first, last, values)
    for k in range(first, last):
        scratch.values[k] += values[at]
        value_gradients[at] = np.float32(-1.0) / np.float32(batch)
        at += critic.row[-1]
    backward_inputs(critic, theta, batch, first, last, values, value_gradients, panel, zeros)
    row = critic.row[0]
    of_actions = critic.weights[0] + columns.a * row
    product_with_transposed(
        last - first, actions,
        value_gradients, first * row, row, theta, of_actions, row, critic.outputs[0],
        panel, zeros, gradients, chosen, actor.row[-1],
    )  # fmt: skip
    weight *= np.float32(2.0) / np.float32(batch)
    for k in range(last - first):
        for at in range(chosen + k * actor.row[-1], chosen + k * actor.row[-1] + actions):
            z = units[at]
            a = np.float32(math.tanh(z))
            gradients[at] *= np.float32(1.0) - a * a
            gradients[at] += weight * math.copysign(_excess(z), z)
    backward_inputs(actor, net.actor, batch, first, last, units, gradients, panel, zeros)


@njit(**OPTIONS)
def _update_actor(part, parts, net, numbers, count, scratch):
    """A step of Adam for some of the actor's parameters, then soft updates of the targets."""
    n = len(net.actor)
    some = slice(n * part // parts, n * (part + 1) // parts)
    mean, square = net.actor_mean[some], net.actor_square[some]
    actor, theta_gradient = net.actor[some], scratch.theta_gradients[0, :n][some]
    adam(actor, theta_gradient, mean, square, numbers.learning_rate, count)
    soft_update(actor, net.target_actor[some], numbers.tau)
    if len(net.average_actor):
        soft_update(actor, net.average_actor[some], 1.0 / numbers.averaging)
    n = net.critics.shape[1]
    some = slice(n * part // parts, n * (part + 1) // parts)
    for i in range(2):
        soft_update(net.critics[i][some], net.target_critics[i][some], numbers.tau)


def _update(parts, columns, actor, critic, net, rows, noise, actor_noise, numbers, count, scratch):
    """As many updates of TD3 as there are batches, after `count` before them, with `parts` threads.

    Returns the mean losses of critics and actor at the updates of the latter.
    """
    updates, batch, width = rows.shape
    critic_loss, actor_loss = 0.0, 0.0
    for k in range(updates):
        for part in prange(parts):
            _target_values(
                part, parts, columns, actor, critic, net, rows[k], noise[k], numbers.gamma, scratch
            )
        for i in prange(2):
            _update_critic(i, critic, net, rows[k], numbers.learning_rate, count + k + 1, scratch)
        if (k + 1) % numbers.policy_delay:
            continue
        turn = k // numbers.policy_delay
        for part in prange(parts):
            _actor_gradient(
                part, parts, columns, actor, critic, net, rows[k], actor_noise[turn],
                numbers.saturation_penalty, scratch,
            )  # fmt: skip
        for part in prange(parts):
            backward_weights(
                actor, rows[k].reshape(-1), width, batch, part, parts,
                scratch.actor_units, scratch.actor_gradients, scratch.theta_gradients[0],
                scratch.zeros,
            )  # fmt: skip
        for part in prange(parts):
            turns = count // numbers.policy_delay + turn + 1
            _update_actor(part, parts, net, numbers, turns, scratch)
        critic_loss += scratch.losses[0] + scratch.losses[1]
        for q in scratch.values:
            actor_loss -= q / batch
    turns = updates // numbers.policy_delay
    return critic_loss / turns, actor_loss / turns


update, update_with_threads = without_and_with_threads(_update, **OPTIONS)
