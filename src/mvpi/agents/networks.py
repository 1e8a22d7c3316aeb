"""Networks and trees of arrays, shared by the agents."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mvpi.agents.files import Arrays, take

Tree = TypeVar("Tree")


class MLP(eqx.Module):
    """A network with ReLU units between its layers."""

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]

    @classmethod
    def random(cls, rng: np.random.Generator, *sizes: int) -> MLP:
        """Weights and biases uniform in +-1/sqrt(inputs), PyTorch's rule and so the paper's."""
        weights, biases = [], []
        for inputs, outputs in pairwise(sizes):
            bound = 1.0 / np.sqrt(inputs)
            weights.append(_uniform(rng, bound, (inputs, outputs)))
            biases.append(_uniform(rng, bound, (outputs,)))
        return cls(tuple(weights), tuple(biases))

    def __call__(self, x: jax.Array) -> jax.Array:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.relu(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


def arrays_of(tree: Any) -> Arrays:
    """The leaves of a tree by name, as files store them."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def with_arrays(tree: Tree, arrays: Arrays, path: Path) -> Tree:
    """The tree with the leaves that `arrays_of` stored; `path` is for the message of an error."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    named = [(jax.tree_util.keystr(key), jnp.asarray(leaf)) for key, leaf in leaves]
    stored = [jnp.asarray(take(arrays, name, x.shape, path), x.dtype) for name, x in named]
    restored: Tree = jax.tree_util.tree_unflatten(structure, stored)
    return restored


def _uniform(rng: np.random.Generator, bound: float, shape: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(rng.uniform(-bound, bound, shape), dtype=jnp.float32)
