"""Activation functions of policies in numpy, by the names that policy files use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erf

from mvpi._types import Vector


def _elu(x: Vector) -> Vector:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _sigmoid(x: Vector) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _gelu(x: Vector) -> Any:
    return 0.5 * x * (1 + erf(x * np.float32(np.sqrt(0.5))))


def _gelu_tanh(x: Vector) -> Any:
    return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * x**3)))


ACTIVATIONS: dict[str, Callable[[Vector], Vector]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, np.float32(0.01) * x),
    "elu": _elu,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
}
"""Each keeps single precision. `gelu_tanh` is the approximation that JAX takes for `gelu`."""
