"""Networks and trees of arrays, shared by the agents."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mvpi._storage.arrays import Arrays, take
from mvpi.errors import InputError

Tree = TypeVar("Tree")


class MLP(eqx.Module):
    """A network with ReLU or tanh units between its layers."""

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]
    units: Literal["relu", "tanh"] = eqx.field(static=True, default="relu")

    @classmethod
    def random(cls, rng: np.random.Generator, *sizes: int) -> MLP:
        """Weights and biases uniform in +-1/sqrt(inputs), PyTorch's rule and so the paper's."""
        weights, biases = [], []
        for inputs, outputs in pairwise(sizes):
            bound = 1.0 / np.sqrt(inputs)
            weights.append(_uniform(rng, bound, (inputs, outputs)))
            biases.append(_uniform(rng, bound, (outputs,)))
        return cls(tuple(weights), tuple(biases))

    @classmethod
    def orthogonal(cls, rng: np.random.Generator, *sizes: int, gain: float) -> MLP:
        """Tanh units; orthogonal weights, scaled by `gain` in the last layer; biases 0."""
        gains = [np.sqrt(2.0)] * (len(sizes) - 2) + [gain]
        pairs = zip(pairwise(sizes), gains, strict=True)
        weights = [jnp.asarray(_orthogonal(rng, *shape) * g, jnp.float32) for shape, g in pairs]
        return cls(tuple(weights), tuple(jnp.zeros(n) for n in sizes[1:]), "tanh")

    def __call__(self, x: jax.Array) -> jax.Array:
        unit = jax.nn.relu if self.units == "relu" else jnp.tanh
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = unit(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


def arrays_of(tree: Any) -> Arrays:
    """The leaves of a tree by name, as files store them."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def with_arrays(tree: Tree, arrays: Arrays, path: Path) -> Tree:
    """The tree with the leaves that `arrays_of` stored; `path` is for the message of an error."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    stored = []
    for key, leaf in leaves:
        name, now = jax.tree_util.keystr(key), np.asarray(leaf)
        array = take(arrays, name, now.shape, path)
        if array.dtype != now.dtype:
            raise InputError(f"{path} is damaged: {name} is of type {array.dtype}, not {now.dtype}")
        stored.append(jnp.asarray(array, jnp.asarray(leaf).dtype))
    restored: Tree = jax.tree_util.tree_unflatten(structure, stored)
    return restored


def _orthogonal(rng: np.random.Generator, rows: int, columns: int) -> npt.NDArray[np.float64]:
    """A random matrix whose shorter sides are orthonormal."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))
    return q if rows >= columns else q.T


def _uniform(rng: np.random.Generator, bound: float, shape: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(rng.uniform(-bound, bound, shape), dtype=jnp.float32)
