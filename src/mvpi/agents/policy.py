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

    def predict(self, observation: npt.ArrayLike) -> npt.NDArray[Any]:
        """The action for an observation, or a batch of actions for a batch of them."""
        size = self.spaces.observation_size
        try:
            o = np.asarray(observation, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(f"observation must be an array of numbers: {error}") from None
        if o.ndim not in (1, 2) or o.shape[-1] != size:
            raise InputError(
                f"observation must have the shape ({size},) or (n, {size}), got {o.shape}"
            )
        return self.spaces.actions(self(o))

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
        if low.dtype != high.dtype or low.dtype.kind != "f" or not (low < high).all():
            raise InputError(f"{path} is damaged: low and high bound no box of actions")
        shapes = list(pairwise(sizes))
        weights = (take(arrays, f"weight.{i}", shape, path) for i, shape in enumerate(shapes))
        biases = (take(arrays, f"bias.{i}", shape[1:], path) for i, shape in enumerate(shapes))
        parameters = tuple(weights), tuple(biases)
        if any(p.dtype != np.float32 for group in parameters for p in group):
            raise InputError(f"{path} is damaged: its weights are not float32")
        return cls(Spaces(sizes[0], low, high), *parameters), record
