"""The policy of an agent by itself: a small network in numpy, enough to act.

Training hands it out, `policy.safetensors` stores it, and `mvpi.load` brings it back without
JAX. Acting in numpy costs a fraction of a call through a compiled function.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi.agents.files import Arrays, read_arrays, take, write_arrays
from mvpi.environment import Spaces
from mvpi.errors import InputError

Vector = npt.NDArray[np.float32]

KIND = "policy"
_MOST_LAYERS = 100


@dataclass(frozen=True, eq=False)
class Policy:
    """`tanh` of a network with ReLU units, scaled from [-1, 1] to the box of actions."""

    spaces: Spaces
    weights: tuple[Vector, ...]
    biases: tuple[Vector, ...]

    def __call__(self, observations: Vector) -> Vector:
        """Actions in [-1, 1]; `observations` is one row or a batch of them."""
        x = observations
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.maximum(x, 0.0, out=x)
        x = x @ self.weights[-1]
        x += self.biases[-1]
        return np.tanh(x, out=x)

    def predict(self, observation: npt.ArrayLike) -> Vector:
        """The action for an observation, or a batch of actions for a batch of them."""
        o = np.asarray(observation, dtype=np.float32)
        size = self.spaces.observation_size
        if o.ndim not in (1, 2) or o.shape[-1] != size:
            raise InputError(
                f"observation must have the shape ({size},) or (n, {size}), got {o.shape}"
            )
        low, high = self.spaces.low, self.spaces.high
        # Rounding must not leave the box.
        return np.clip(0.5 * (high + low) + 0.5 * (high - low) * self(o), low, high)

    def save(self, path: Path, record: dict[str, Any]) -> None:
        """Write the policy and whatever else `record` says of it."""
        arrays: Arrays = {"low": self.spaces.low, "high": self.spaces.high}
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays |= {f"weight.{i}": weight, f"bias.{i}": bias}
        sizes = [self.spaces.observation_size, *(b.size for b in self.biases)]
        write_arrays(path, KIND, arrays, {"sizes": sizes, **record})

    @classmethod
    def load(cls, path: Path) -> tuple[Policy, dict[str, Any]]:
        """The policy in a file, and the record beside it."""
        arrays, record = read_arrays(path, KIND)
        sizes = record.get("sizes")
        if (
            not isinstance(sizes, list)
            or not 2 <= len(sizes) <= _MOST_LAYERS
            or not all(type(n) is int and n > 0 for n in sizes)
        ):
            raise InputError(f"{path} is damaged: the sizes of its layers are missing or wrong")
        low, high = (take(arrays, name, (sizes[-1],), path) for name in ("low", "high"))
        if not (low < high).all():
            raise InputError(f"{path} is damaged: low is not below high")
        shapes = list(pairwise(sizes))
        weights = (take(arrays, f"weight.{i}", shape, path) for i, shape in enumerate(shapes))
        biases = (take(arrays, f"bias.{i}", shape[1:], path) for i, shape in enumerate(shapes))
        spaces = Spaces(sizes[0], _float32(low), _float32(high))
        return cls(spaces, tuple(map(_float32, weights)), tuple(map(_float32, biases))), record


def _float32(array: npt.NDArray[Any]) -> Vector:
    return np.asarray(array, dtype=np.float32)
