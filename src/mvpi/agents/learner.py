"""A training process: what changes while an agent learns, and how to save and restore it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count
from mvpi._storage.arrays import Arrays
from mvpi.agents.networks import arrays_of, with_arrays
from mvpi.agents.policy import Policy
from mvpi.agents.settings import CommonSettings
from mvpi.environment import Source, World, failure
from mvpi.errors import Divergence, InputError
from mvpi.evaluation import Evaluation, drawing_from, run_episodes, summarise
from mvpi.risk import Risk, VarianceBudget, learnable
from mvpi.stats import mean, variance

S = TypeVar("S", bound=CommonSettings)
Rest = Callable[[], bool]
"""Asked where the state could be saved: should training pause here?"""

_TRAINING, _EVALUATION, _BUDGET = range(3)
"""Purposes of random numbers, each with streams of its own."""


class Learner(ABC, Generic[S]):
    """The state of a training run between two of its steps.

    A subclass fills in `begin` (make networks and storage), `advance` (the algorithm's loop) and
    what is to be saved. Saving is possible `at_rest`: right after the environment was reset, since
    the episode is then begun again from the generator's state; or, with `remember`, whenever the
    algorithm can pause.
    """

    loss_names: ClassVar[tuple[str, ...]]
    discrete: ClassVar[bool] = False
    """Whether finite sets of states and of actions will do."""
    remember: ClassVar[bool] = False
    """Whether the current episodes are kept, so that states can be saved in their middle."""
    policy: Policy

    def __init__(
        self,
        source: Source,
        risk: Risk,
        seed: int,
        settings: S,
        directory: Path | None = None,
        checkpoint: tuple[Arrays, dict[str, Any], Path] | None = None,
    ) -> None:
        self.settings = settings
        self.risk = learnable(risk)
        self.seed = seed
        self.directory = directory
        self.restored: Arrays = {}
        """The arrays of the checkpoint, while it is being restored."""
        self.rng = np.random.default_rng([seed, _TRAINING])
        self.steps = self.episodes = 0
        self.y = 0.0
        self.begin_period()
        self._opened = ExitStack()
        with ExitStack() as stack:
            self.worlds = [self._new_world(source, i, stack) for i in range(self.actors)]
            self.world = self.worlds[0]
            self._watched = source.evaluation()
            stack.callback(self._watched.close)
            self._refuse_shared_environments()
            if checkpoint is None:
                self.begin(stack)
            else:
                self._restore(*checkpoint, stack)
            self._opened = stack.pop_all()  # nothing failed: they stay open until `close`

    def _new_world(self, source: Source, index: int, opened: ExitStack) -> World:
        env = source.training() if index == 0 else source.evaluation()
        opened.callback(source.close, env) if index == 0 else opened.callback(env.close)
        seed = int(self.rng.integers(2**31))
        return World(env, seed, discrete=self.discrete, remember=self.remember)

    def _refuse_shared_environments(self) -> None:
        used = [self._watched, *(world.env for world in self.worlds)]
        if len({id(env) for env in used}) < len(used):
            raise InputError("the function must make a new environment at every call")

    @abstractmethod
    def begin(self, opened: ExitStack) -> None:
        """Make networks and storage, set the policy; `opened` closes files at the end."""

    @abstractmethod
    def advance(self, until: int, rest: Rest) -> None:
        """Learn until `steps` is `until`, or the state can be saved and `rest()` is true."""

    @abstractmethod
    def arrays(self) -> tuple[Any, Arrays]:
        """A tree of arrays and some by name: all that `restore_arrays` needs."""

    @abstractmethod
    def restore_arrays(self, tree: Any, arrays: Arrays) -> None:
        """Take back what `arrays` gave."""

    @property
    def actors(self) -> int:
        """How many environments are trained in side by side."""
        return 1

    @property
    def at_rest(self) -> bool:
        """Whether the state can be saved now."""
        return self.world.fresh

    def begin_episode(self, world: World) -> npt.NDArray[np.float32]:
        """Reset an environment."""
        self.episodes += 1
        return world.reset()

    def evaluate(self) -> Evaluation:
        """Episodes of the current policy, the same ones whenever asked at this step."""
        return self._watch(self.policy, _EVALUATION, episodes=self.settings.evaluation_episodes)

    def reward_moments(self, seen: Evaluation) -> tuple[float, float]:
        """Mean and variance of the per-step reward, weighed as `y` is."""
        gamma = self.settings.occupancy_gamma
        if gamma is None:
            return seen.reward_mean, seen.reward_variance
        weighed = seen.occupancy(gamma)
        return mean(*weighed), variance(*weighed)

    def add_losses(self, losses: npt.NDArray[np.float32]) -> None:
        self._check_finite(losses)
        self._losses += losses
        self._updates += 1

    def set_policy(self, policy: Policy) -> None:
        """Act with this policy from now on."""
        self._check_finite(*policy.parameters)
        self.policy = policy

    def _check_finite(self, *arrays: npt.NDArray[np.float32]) -> None:
        if not all(np.isfinite(array).all() for array in arrays):
            raise Divergence(
                f"training diverged before step {self.steps}: a network is not finite any more; "
                "lower the learning_rate, the risk aversion or the scale of the rewards"
            )

    def metrics(self) -> dict[str, float | None]:
        """What the training itself can say of the time since the last evaluation."""
        means = self._losses / max(self._updates, 1)
        return {
            "y": self.y,
            "risk_aversion": getattr(self.risk, "risk_aversion", None),
            **dict(zip(self.loss_names, means.tolist(), strict=True)),
        }

    def begin_period(self) -> None:
        """Forget the losses so far: called after an evaluation that was due."""
        self._losses = np.zeros(len(self.loss_names))
        self._updates = 0

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Everything a resumed process needs beside the replay."""
        tree, arrays = self.arrays()
        worlds = [world.state() for world in self.worlds]
        record = {
            "steps": self.steps,
            "episodes": self.episodes,
            "y": self.y,
            "risk_aversion": getattr(self.risk, "risk_aversion", None),
            "losses": self._losses.tolist(),
            "updates": self._updates,
            "random": self.rng.bit_generator.state,
            "worlds": [record for record, _ in worlds],
        }
        done = {f"actions.{i}": actions for i, (_, actions) in enumerate(worlds)}
        return arrays_of(tree) | arrays | (done if self.remember else {}), record

    def keep(self) -> None:
        """Called before a checkpoint is written: make durable what it will refer to."""

    def forget(self) -> None:
        """Called after a checkpoint was written: remove what only earlier ones needed."""

    def close(self) -> None:
        """Close the environments made for this run, and files."""
        self._opened.close()

    def hold_to_budget(self, variance: Callable[[], float], rate: float) -> None:
        """Dual ascent: raise the risk aversion while the policy's variance is above the limit.

        `variance` measures it, if it is needed; `rate` is how far one measurement moves the risk
        aversion.
        """
        if isinstance(self.risk, VarianceBudget):
            self.risk = self.risk.repriced(variance(), rate)

    def variance_of(self, policy: Policy) -> float:
        """The per-step variance of a policy as it would be used, without exploration."""
        return self.reward_moments(self._watch(policy, _BUDGET, steps=1_000))[1]

    def _watch(self, policy: Policy, purpose: int, episodes: int = 1, steps: int = 1) -> Evaluation:
        shown = run_episodes(drawing_from(policy), self._watched, self.seed, purpose, self.steps)
        try:
            return summarise(shown, episodes=episodes, steps=steps)
        except InputError as error:  # the policy fitted the training environment
            what = "returned something else in an evaluation than in training"
            raise failure(self._watched, what, error) from error

    def _restore(
        self, arrays: Arrays, record: dict[str, Any], path: Path, opened: ExitStack
    ) -> None:
        try:
            self.steps = check_count(record["steps"], "steps")
            self.restored = arrays
            self.begin(opened)
            self.episodes, self.y = int(record["episodes"]), float(record["y"])
            self._updates = check_count(record["updates"], "updates", at_least=0)
            self._losses = np.array(record["losses"], np.float64) + np.zeros(len(self.loss_names))
            self.rng.bit_generator.state = record["random"]
            if isinstance(self.risk, VarianceBudget):
                self.risk = replace(self.risk, risk_aversion=record["risk_aversion"])
            tree, _ = self.arrays()
            self.restore_arrays(with_arrays(tree, arrays, path), arrays)
            for i, (world, there) in enumerate(zip(self.worlds, record["worlds"], strict=True)):
                world.restore(there, arrays[f"actions.{i}"] if self.remember else ())
            self.restored = {}
        except InputError:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(f"{path} is damaged: {type(error).__name__} {reason}") from None
