"""The network behind a model's deterministic action, as weights, biases and one activation.

Affine maps that follow each other become one: batch normalisation, which is an affine map when a
policy acts, is folded into the layers beside it. Everything else than affine maps and one kind of
activation is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from mvpi._types import Array, Vector
from mvpi.errors import InputError

_TORCH: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.LeakyReLU: "leaky_relu",
    nn.ELU: "elu",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
}
_USUAL = {"negative_slope": 0.01, "alpha": 1.0, "approximate": "none"}
"""Settings of activations: with others, they are other functions."""
_NOTHING = (nn.Flatten, nn.Identity, nn.Dropout)
"""Modules that change nothing when a policy acts on vectors."""


@dataclass
class Layers:
    """Affine maps and activations, in their order."""

    inputs: int
    weights: list[Array] = field(default_factory=list)
    biases: list[Array] = field(default_factory=list)
    activation: str | None = None
    _open: bool = False
    """Whether the last map may still be folded with one that follows."""

    def affine(self, weight: Array, bias: Array) -> None:
        """`x @ weight + bias`."""
        if self._open:
            bias = self.biases.pop() @ weight + bias
            weight = self.weights.pop() @ weight
        self.weights.append(weight)
        self.biases.append(bias)
        self._open = True

    def scale(self, factor: Array, shift: Array) -> None:
        """`x * factor + shift`."""
        if self._open:
            self.weights[-1] = self.weights[-1] * factor
            self.biases[-1] = self.biases[-1] * factor + shift
        else:
            self.affine(np.diag(factor), shift)

    def activate(self, name: str) -> None:
        """Apply an activation, the same after every layer."""
        if self.activation not in {None, name}:
            raise InputError(
                f"this policy has {self.activation} and {name} units, its file has one activation"
            )
        if not self._open:
            self.affine(np.eye(self.inputs), np.zeros(self.inputs))
        self.activation, self._open = name, False

    def arrays(self) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
        """Weights and biases in single precision."""
        single = (tuple(a.astype(np.float32) for a in part) for part in (self.weights, self.biases))
        weights, biases = single
        return weights, biases


def double(values: Any) -> Array:
    """An array or a tensor in double precision."""
    if isinstance(values, torch.Tensor):
        values = values.numpy(force=True)
    return np.asarray(values, np.float64)


def add_modules(layers: Layers, modules: Iterable[Any]) -> None:
    """Add modules of torch, one after the other."""
    for module in modules:
        kind: Any = type(module)
        if kind is nn.Sequential:
            add_modules(layers, module)
        elif kind is nn.Linear:
            bias = np.zeros(module.out_features) if module.bias is None else double(module.bias)
            layers.affine(double(module.weight).T, bias)
        elif kind in _TORCH:
            layers.activate(activation_of(module))
        elif kind.__name__ == "BatchRenorm1d":
            factor, shift = double(module.scale), double(module.bias)
            normalise(layers, module.ra_mean, module.ra_var, module.eps, factor, shift)
        elif kind is nn.BatchNorm1d and module.track_running_stats and module.affine:
            factor, shift = double(module.weight), double(module.bias)
            normalise(layers, module.running_mean, module.running_var, module.eps, factor, shift)
        elif kind not in _NOTHING:
            raise InputError(
                f"this policy has a {kind.__name__}, which a policy file cannot hold: keep the "
                "model file"
            )


def activation_of(module: Any) -> str:
    """The name of an activation of torch."""
    for name, usual in _USUAL.items():
        if getattr(module, name, usual) != usual:
            raise InputError(f"a policy file knows {module} with {name}={usual} alone")
    return _TORCH[type(module)]


def normalise(
    layers: Layers, mean: Any, variance: Any, epsilon: float, factor: Array, shift: Array
) -> None:
    """Add a batch normalisation by its running statistics."""
    factor = factor / np.sqrt(double(variance) + epsilon)
    layers.scale(factor, shift - double(mean) * factor)
