"""Networks and Adam in float64 numpy: what compiled updates are compared with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mvpi.agents.networks import MLP

Array = npt.NDArray[np.float64]
Layers = list[tuple[Array, Array]]


class Adam:
    """The optimiser, with moments of its own for every network, which `key` names."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.moments: dict[str | int, tuple[int, list[Array], list[Array]]] = {}

    def step(
        self, key: str | int, parameters: list[Array], slopes: list[Array], rate: float
    ) -> None:
        """Move the parameters, in place."""
        zeros = [np.zeros_like(p) for p in parameters]
        count, m, v = self.moments.get(key, (0, zeros, [z.copy() for z in zeros]))
        count += 1
        for i, (p, g) in enumerate(zip(parameters, slopes, strict=True)):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            unbiased = m[i] / (1 - 0.9**count), v[i] / (1 - 0.999**count)
            p -= rate * unbiased[0] / (np.sqrt(unbiased[1]) + self.epsilon)
        self.moments[key] = (count, m, v)


def layers(network: MLP) -> Layers:
    """The weights and biases of a network."""
    pairs = zip(network.weights, network.biases, strict=True)
    return [(np.array(w, np.float64), np.array(b, np.float64)) for w, b in pairs]
