"""The policy of an agent by itself: a small network in numpy, enough to act.

Training returns it, `policy.safetensors` stores it, and `Policy.load` reads it without JAX. Acting
in numpy costs a fraction of a call through a compiled function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_number, plain_array, real_array
from mvpi._storage.arrays import Arrays, read_arrays, take, write_arrays
from mvpi._types import Vector
from mvpi.agents.activations import ACTIVATIONS
from mvpi.agents.policy_record import columns_in, layer_sizes_in, spaces_in
from mvpi.augmenter.columns import NO_COLUMNS, Columns
from mvpi.errors import InputError
from mvpi.risk import RETURN_SO_FAR, RISK_AVERSION
from mvpi.rollout.spaces import BoxActions, Spaces, States

KIND = "policy"
_FARTHEST = 10.0
"""Scaled observations are clipped here, if nothing else is said."""
_WIDEST = np.float32(80.0)
"""Bound on the logarithm of a standard deviation: far beyond any box, without overflow."""


@dataclass(frozen=True, eq=False)
class Policy(ABC):
    """A network, and the distribution of actions that its outputs parametrise."""

    head: ClassVar[str]
    spaces: Spaces
    weights: tuple[Vector, ...]
    biases: tuple[Vector, ...]
    columns: Columns = field(default=NO_COLUMNS, kw_only=True)
    """The columns of its input beside the observation."""

    @abstractmethod
    def __call__(self, x: Vector) -> Any:
        """The best actions, before `spaces` scales or numbers them, for one vector or a batch."""

    @abstractmethod
    def sample(self, x: Vector, rng: np.random.Generator) -> Any:
        """Actions drawn as the policy draws them; a deterministic one returns the best."""

    @property
    def parameters(self) -> tuple[Vector, ...]:
        """The parameters."""
        return (*self.weights, *self.biases)

    def predict(
        self, observation: npt.ArrayLike, return_so_far: npt.ArrayLike | None = None
    ) -> npt.NDArray[Any]:
        """The best action for an observation, or a batch of them for a batch."""
        return self._to_env_action(self(self._seen(observation, return_so_far)))

    def act(
        self,
        observation: npt.ArrayLike,
        rng: np.random.Generator,
        return_so_far: npt.ArrayLike | None = None,
    ) -> npt.NDArray[Any]:
        """An action drawn as the policy draws it."""
        return self._to_env_action(self.sample(self._seen(observation, return_so_far), rng))

    def at(self, risk_aversion: float) -> Policy:
        """The policy for one risk aversion of the range it was trained for.

        The column of the risk aversion is constant then, and becomes part of the first bias.
        """
        columns = self.columns.at(risk_aversion)
        place = self.spaces.observations.size + self.columns.names.index(RISK_AVERSION)
        raw = self.columns.raw({RISK_AVERSION: risk_aversion, RETURN_SO_FAR: 0.0}, ())
        x = self._first_layer_input(self.columns.encode(raw)[:1], place)
        weight, bias = self.weights[0], self.biases[0]
        return replace(
            self,
            weights=(np.delete(weight, place, axis=0), *self.weights[1:]),
            biases=(bias + x * weight[place], *self.biases[1:]),
            columns=columns,
            **self._without(place),
        )

    def _first_layer_input(self, x: Vector, place: int) -> Vector:
        """What the first layer is given of a column at a place."""
        del place
        return x

    def _without(self, place: int) -> dict[str, Any]:
        """Fields of a policy that does not see the column at a place."""
        del place
        return {}

    def _seen(self, observation: npt.ArrayLike, return_so_far: npt.ArrayLike | None) -> Vector:
        """What the network sees of observations and of the return so far."""
        x = self._vectors(observation)
        if not self.columns.size and return_so_far is None:
            return x
        given = {RETURN_SO_FAR: return_so_far, RISK_AVERSION: None}
        raw = self.columns.values(x.shape[:-1], **given)
        return np.concatenate([x, self.columns.encode(raw)], axis=-1, dtype=np.float32)

    def _to_env_action(self, actions: Any) -> npt.NDArray[Any]:
        scaled: npt.NDArray[Any] = self.spaces.actions.to_env_action(actions)
        return scaled

    def _vectors(self, observation: Any) -> Vector:
        size = self.spaces.observations.size
        if type(observation) is not np.ndarray or observation.dtype.kind != "f":
            observation = plain_array(observation, "observation")
            if observation.dtype.kind not in "iu":
                observation = real_array(observation, "observation")
        try:
            x = self.spaces.observations.vectors(observation)
        except (TypeError, ValueError) as error:
            raise InputError(f"observation must be an array of numbers: {error}") from None
        if x.ndim not in (1, 2) or x.shape[-1] != size:
            raise InputError(
                f"observation must have the shape ({size},) or (n, {size}), got {x.shape}"
            )
        if not np.isfinite(x).all():
            raise InputError("observation must be finite and within the range of float32")
        return x

    def save(self, path: Path, record: dict[str, Any]) -> str:
        """Write the policy and whatever else `record` says of it; returns the file's checksum."""
        arrays: Arrays = self._own_arrays()
        spaces: dict[str, Any] = {}
        if isinstance(self.spaces.actions, BoxActions):
            arrays |= {"low": self.spaces.actions.low, "high": self.spaces.actions.high}
        else:
            spaces["first_choice"] = self.spaces.actions.first
        if isinstance(self.spaces.observations, States):
            spaces["first_state"] = self.spaces.observations.first
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays |= {f"weight.{i}": weight, f"bias.{i}": bias}
        sizes = [len(self.weights[0]), *(b.size for b in self.biases)]
        columns = {"columns": self.columns.record()} if self.columns.size else {}
        own = self._own_facts()
        facts = {"head": self.head, "sizes": sizes, **own, **columns, **spaces, **record}
        return write_arrays(path, KIND, arrays, facts)

    @staticmethod
    def load(path: Path) -> tuple[Policy, dict[str, Any]]:
        """The policy in a file, and the record beside it."""
        arrays, record = read_arrays(path, KIND)
        head = record.setdefault("head", Deterministic.head)
        if not isinstance(head, str) or head not in HEADS:
            raise InputError(f"{path} holds a policy of the unknown kind {str(head)[:80]!r}")
        kind = HEADS[head]
        sizes = layer_sizes_in(record, path)
        columns = columns_in(record, path)
        inner = [sizes[0] - columns.size, *sizes[1:]]
        spaces = spaces_in(arrays, record, inner, path, chooses=kind._chooses(record))
        shapes = list(pairwise(sizes))
        weights = (take(arrays, f"weight.{i}", shape, path) for i, shape in enumerate(shapes))
        biases = (take(arrays, f"bias.{i}", shape[1:], path) for i, shape in enumerate(shapes))
        own = kind._own_fields(spaces, arrays, record, path, sizes[0])
        policy = kind(spaces, tuple(weights), tuple(biases), columns=columns, **own)
        if any(p.dtype != np.float32 for p in policy.parameters):
            raise InputError(f"{path} is damaged: its weights are not float32")
        return policy, record

    def _own_arrays(self) -> Arrays:
        """Arrays to store beside weights and biases."""
        return {}

    def _own_facts(self) -> dict[str, Any]:
        """What the record says of this kind of policy alone."""
        return {}

    @classmethod
    def _own_fields(
        cls, spaces: Spaces, arrays: Arrays, record: dict[str, Any], path: Path, seen: int
    ) -> dict[str, Any]:
        """Fields beside weights and biases, from what is stored of `seen` inputs."""
        del spaces, arrays, record, path, seen
        return {}

    @classmethod
    def _chooses(cls, record: dict[str, Any]) -> bool:
        """Whether the policy of a record chooses among finitely many actions."""
        del record
        return False


class Deterministic(Policy):
    """`tanh` of a network with ReLU units, scaled from [-1, 1] to the box of actions."""

    head = "deterministic"

    def __call__(self, x: Vector) -> Vector:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.maximum(x, 0.0, out=x)
        x = x @ self.weights[-1]
        x += self.biases[-1]
        return np.tanh(x, out=x)

    def sample(self, x: Vector, rng: np.random.Generator) -> Vector:
        del rng
        return self(x)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Shifts, scales and clips observations."""

    mean: Vector
    scale: Vector
    farthest: float = _FARTHEST

    def __call__(self, x: Vector) -> Vector:
        with np.errstate(over="ignore"):
            x = (x - self.mean) / self.scale
        farthest = np.float32(self.farthest)
        np.maximum(x, -farthest, out=x)
        return np.minimum(x, farthest, out=x)


@dataclass(frozen=True, eq=False)
class Scaled(Policy):
    """A network on observations that may be scaled first."""

    scaling: Scaling | None

    def _scaled(self, x: Vector) -> Vector:
        return x if self.scaling is None else self.scaling(x)

    def _first_layer_input(self, x: Vector, place: int) -> Vector:
        if self.scaling is None:
            return x
        one = replace(self.scaling, mean=self.scaling.mean[place], scale=self.scaling.scale[place])
        return one(x)

    def _without(self, place: int) -> dict[str, Any]:
        if self.scaling is None:
            return {}
        mean, scale = (np.delete(v, place) for v in (self.scaling.mean, self.scaling.scale))
        return {"scaling": replace(self.scaling, mean=mean, scale=scale)}

    def _own_arrays(self) -> Arrays:
        if self.scaling is None:
            return {}
        return {"mean": self.scaling.mean, "scale": self.scaling.scale}

    def _own_facts(self) -> dict[str, Any]:
        if self.scaling is None or self.scaling.farthest == _FARTHEST:
            return {}
        return {"farthest": self.scaling.farthest}

    @classmethod
    def _own_fields(
        cls, spaces: Spaces, arrays: Arrays, record: dict[str, Any], path: Path, seen: int
    ) -> dict[str, Any]:
        del spaces
        if "mean" not in arrays:
            return {"scaling": None}
        shape = (seen,)
        mean, scale = (take(arrays, name, shape, path) for name in ("mean", "scale"))
        if mean.dtype != np.float32 or scale.dtype != np.float32 or not (scale > 0).all():
            raise InputError(f"{path} is damaged: mean and scale cannot scale observations")
        farthest = _stored_number(record, "farthest", _FARTHEST, path)
        return {"scaling": Scaling(mean, scale, farthest)}


class Stochastic(Scaled):
    """A network with tanh units, on observations that may be scaled first."""

    @abstractmethod
    def drawn(self, x: Vector, rng: np.random.Generator) -> Any:
        """Actions drawn for scaled observations."""

    def sample(self, x: Vector, rng: np.random.Generator) -> Any:
        return self.drawn(self._scaled(x), rng)

    def _outputs(self, x: Vector) -> Vector:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.tanh(x, out=x)
        x = x @ self.weights[-1]
        x += self.biases[-1]
        return x


@dataclass(frozen=True, eq=False)
class Gaussian(Stochastic):
    """Actions drawn around the network's outputs; the standard deviation is the same everywhere."""

    head = "gaussian"
    log_std: Vector

    @property
    def parameters(self) -> tuple[Vector, ...]:
        return (*super().parameters, self.log_std)

    def __call__(self, x: Vector) -> Vector:
        return self._outputs(self._scaled(x))

    def drawn(self, x: Vector, rng: np.random.Generator) -> Vector:
        a = self._outputs(x)
        a += self._deviation * rng.standard_normal(a.shape, dtype=np.float32)
        return a

    @cached_property
    def _deviation(self) -> Vector:
        return np.exp(np.minimum(self.log_std, _WIDEST))

    def _own_arrays(self) -> Arrays:
        return super()._own_arrays() | {"log_std": self.log_std}

    @classmethod
    def _own_fields(
        cls, spaces: Spaces, arrays: Arrays, record: dict[str, Any], path: Path, seen: int
    ) -> dict[str, Any]:
        log_std = take(arrays, "log_std", (spaces.actions.size,), path)
        return super()._own_fields(spaces, arrays, record, path, seen) | {"log_std": log_std}


class Categorical(Stochastic):
    """One of finitely many actions, with probabilities proportional to the exponential."""

    head = "categorical"

    def __call__(self, x: Vector) -> npt.NDArray[np.intp]:
        best: npt.NDArray[np.intp] = self._outputs(self._scaled(x)).argmax(axis=-1)
        return best

    def drawn(self, x: Vector, rng: np.random.Generator) -> npt.NDArray[np.intp]:
        logits = self._outputs(x)
        # The largest of the logits plus Gumbel noise has the softmax distribution.
        index: npt.NDArray[np.intp] = (logits + rng.gumbel(size=logits.shape)).argmax(axis=-1)
        return index

    @classmethod
    def _chooses(cls, record: dict[str, Any]) -> bool:
        del record
        return True


TANH, CLIPPED, LARGEST = OUTPUTS = ("tanh", "clipped", "largest")
"""What an action is: `tanh` scaled to the box, the outputs clipped to it, the largest output."""


@dataclass(frozen=True, eq=False)
class Network(Scaled):
    """A deterministic policy that another library trained: any activation, any kind of output."""

    head = "network"
    activation: str
    output: str
    limit: float | None = None
    """Outputs are clipped to [-limit, limit] before `tanh`."""

    def outputs(self, x: Vector) -> Vector:
        """What the last layer gives, before it becomes an action."""
        x, activate = self._scaled(x), ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = activate(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]

    def __call__(self, x: Vector) -> Any:
        x = self.outputs(x)
        if self.output == LARGEST:
            return x.argmax(axis=-1)
        if self.limit is not None:
            x = np.clip(x, -self.limit, self.limit)
        return np.tanh(x) if self.output == TANH else x

    def sample(self, x: Vector, rng: np.random.Generator) -> Any:
        del rng
        return self(x)

    def _to_env_action(self, actions: Any) -> npt.NDArray[Any]:
        box = self.spaces.actions
        if self.output == CLIPPED and isinstance(box, BoxActions):
            inside: npt.NDArray[Any] = np.clip(actions, box.low, box.high)
            return inside.astype(box.low.dtype)
        return super()._to_env_action(actions)

    def _own_facts(self) -> dict[str, Any]:
        own = {"activation": self.activation, "output": self.output, "limit": self.limit}
        return super()._own_facts() | own

    @classmethod
    def _own_fields(
        cls, spaces: Spaces, arrays: Arrays, record: dict[str, Any], path: Path, seen: int
    ) -> dict[str, Any]:
        own = super()._own_fields(spaces, arrays, record, path, seen)
        for name, known in (("activation", ACTIVATIONS), ("output", OUTPUTS)):
            own[name] = record.get(name)
            if not isinstance(own[name], str) or own[name] not in known:
                raise InputError(f"{path} has the unknown {name} {str(own[name])[:80]!r}")
        if record.get("limit") is not None:
            own["limit"] = _stored_number(record, "limit", 0.0, path)
        return own

    @classmethod
    def _chooses(cls, record: dict[str, Any]) -> bool:
        return record.get("output") == LARGEST


HEADS: dict[str, type[Policy]] = {
    kind.head: kind for kind in (Deterministic, Gaussian, Categorical, Network)
}


def _stored_number(record: dict[str, Any], name: str, default: float, path: Path) -> float:
    """A number above 0 in a record."""
    try:
        return check_number(record.get(name, default), name, above=0.0)
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from None
