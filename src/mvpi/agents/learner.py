"""A training process: the state of a learning agent, and its checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, repeat
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count
from mvpi._storage.arrays import Arrays, refusing_damage
from mvpi._storage.run_directory import Checkpoint
from mvpi._types import Env
from mvpi.agents.learned_frontier import KEPT, Measured, objectives
from mvpi.agents.networks import arrays_of, with_arrays
from mvpi.agents.policy import Policy
from mvpi.agents.settings import CommonSettings
from mvpi.augmenter.columns import Columns
from mvpi.errors import Divergence, InputError
from mvpi.risk import MeanVariance, Risk, learnable, range_of
from mvpi.rollout.evaluation import Act, Evaluation, drawing_from, run_episodes, summarise
from mvpi.rollout.factory import EnvFactory
from mvpi.rollout.guard import GuardedEnv, failure
from mvpi.stats import mean, variance

S = TypeVar("S", bound=CommonSettings)
CheckpointDue = Callable[[], bool]
"""Called wherever a checkpoint is possible; returns whether one is due."""

_BUDGET_EPISODES = 20
"""Episodes from which the variance of the return is estimated for a variance budget."""
_FIRST_SHARE = 1e-4
"""The share of the risk that counts at the beginning of `risk_warmup`."""
_TRAINING, _EVALUATION, _BUDGET, _FINAL = range(4)
"""Uses of random numbers, each with its own stream."""


class Learner(ABC, Generic[S]):
    """The state of a training run between two of its steps.

    A subclass fills in `begin` (make networks and storage), `advance` (the algorithm's loop) and
    what a checkpoint holds. A checkpoint is possible where `can_checkpoint` is true: right after
    the environment was reset, since a resumed run resets it again from the generator's state; or,
    with `remember`, between two updates, since it also repeats the actions of the episode.
    """

    loss_names: ClassVar[tuple[str, ...]]
    discrete: ClassVar[bool] = False
    """Whether discrete observations and actions are supported."""
    remember: ClassVar[bool] = False
    """Whether a checkpoint is possible within an episode, because episodes are stored."""
    policy: Policy

    def __init__(
        self,
        env_factory: EnvFactory,
        risk: Risk,
        seed: int,
        settings: S,
        directory: Path | None = None,
        checkpoint: Checkpoint | None = None,
        env: Env | None = None,
    ) -> None:
        """`env` is an environment of `env_factory.training()`, if there is one already."""
        self.settings = settings
        measure = learnable(risk)
        # Without risk the return so far is of no use: the plain agent, bit for bit.
        plain = measure.of_return and measure.is_neutral
        self.risk = MeanVariance(0.0) if plain else measure
        self.seed = seed
        self.directory = directory
        self.restored: Arrays = {}
        """The arrays of the checkpoint, while it is being restored."""
        self.rng = np.random.default_rng([seed, _TRAINING])
        self.steps = self.episodes = 0
        self.y = 0.0
        self.measured = Measured()
        """What evaluations found at every risk aversion of a range."""
        self._final: tuple[int, Measured] | None = None
        self.begin_period()
        self._opened = ExitStack()
        with ExitStack() as stack:
            first = env_factory.training() if env is None else env
            stack.callback(env_factory.close, first)
            self.envs = [self._guarded(first)]
            while len(self.envs) < self.actors:
                self.envs.append(self._guarded(self._opened_copy(env_factory, stack)))
            self.env = self.envs[0]
            self._evaluation_env = self._opened_copy(env_factory, stack)
            self._refuse_shared_environments()
            if checkpoint is None:
                self.begin(stack)
            else:
                self._restore(*checkpoint, stack)
            self._opened = stack.pop_all()  # nothing failed: they stay open until `close`

    def _guarded(self, env: Env) -> GuardedEnv:
        seed = int(self.rng.integers(2**31))
        scale = getattr(self.settings, "return_scale", 1.0)
        return GuardedEnv(
            env,
            seed,
            discrete=self.discrete,
            remember=self.remember,
            columns=Columns(self.risk, scale),
            rng=self.rng,
        )

    @staticmethod
    def _opened_copy(env_factory: EnvFactory, opened: ExitStack) -> Env:
        env = env_factory.evaluation()
        opened.callback(env.close)
        return env

    def _refuse_shared_environments(self) -> None:
        used = [self._evaluation_env, *(guarded.env for guarded in self.envs)]
        if len({id(env) for env in used}) < len(used):
            raise InputError("the function must make a new environment at every call")

    @abstractmethod
    def begin(self, opened: ExitStack) -> None:
        """Make networks and storage, set the policy; `opened` closes files at the end."""

    @abstractmethod
    def advance(self, until: int, checkpoint_due: CheckpointDue) -> None:
        """Learn until `steps` is `until`, or a checkpoint is possible and `checkpoint_due()`."""

    @abstractmethod
    def arrays(self) -> tuple[Any, Arrays]:
        """A tree of arrays and arrays by name: the state that `restore_arrays` restores."""

    @abstractmethod
    def restore_arrays(self, tree: Any, arrays: Arrays) -> None:
        """Restore the state that `arrays` returned."""

    @property
    def actors(self) -> int:
        """Number of parallel environments."""
        return 1

    @property
    def can_checkpoint(self) -> bool:
        """Whether the state can be written to a checkpoint now."""
        return self.env.fresh

    def begin_episode(self, env: GuardedEnv) -> npt.NDArray[np.float32]:
        """Reset an environment."""
        self.episodes += 1
        return env.reset()

    def evaluate(self) -> Evaluation:
        """Evaluation episodes of the current policy; the same ones for the same step."""
        if range_of(self.risk) is not None:
            return self._evaluate_range(self.measured, _EVALUATION, 1)
        episodes = self.settings.evaluation_episodes
        return self._evaluated(self.policy, _EVALUATION, episodes=episodes)

    @property
    def latest_measured(self) -> Measured:
        """Episodes along a range: of the current policy if `measure_range` was called for it."""
        final = self._final
        return self.measured if final is None or final[0] != self.steps else final[1]

    def measure_range(self) -> Measured:
        """Several episodes of the current policy at every risk aversion of a range, once for it.

        Evaluations in training are of policies that changed since. They keep their own random
        numbers, so that training goes on as if this had not been called.
        """
        if len(self.measured.rows) and self.latest_measured is self.measured:
            final = Measured()
            self._evaluate_range(final, _FINAL, KEPT)
            self._final = self.steps, final
        return self.latest_measured

    def _evaluate_range(self, measured: Measured, purpose: int, sweeps: int) -> Evaluation:
        """Episodes at equal distances over a range, so many times; they are added to `measured`."""
        known = range_of(self.risk)
        assert known is not None
        lams = known.grid(max(self.settings.evaluation_episodes, 2))
        acting = cycle([self.policy.at(lam) for lam in lams])
        seen = self._evaluated(acting, purpose, episodes=sweeps * lams.size)
        measured.add(np.tile(lams, sweeps), seen)
        return seen

    def reward_moments(self, seen: Evaluation) -> tuple[float, float]:
        """Mean and variance of the per-step reward, weighed as `y` is."""
        gamma = self.settings.occupancy_gamma
        if gamma is None:
            return seen.reward_mean, seen.reward_variance
        weighed = seen.occupancy(gamma)
        return mean(*weighed), variance(*weighed)

    def objective(self, seen: Evaluation) -> dict[str, float]:
        """The value that is optimised, of a measure that is not of the reward of a step alone.

        Of `OfReturn` it is the value of the returns; of a range, values along it, which the latest
        evaluations together give.
        """
        if range_of(self.risk) is not None:
            return objectives(self.measured, of_return=self.risk.of_return)
        return {"value": self.risk.value(seen.returns)} if self.risk.of_return else {}

    @property
    def risk_share(self) -> float:
        """The share of the risk that counts now: raised by equal factors during `risk_warmup`."""
        warmup = getattr(self.settings, "risk_warmup", 0)
        return float(_FIRST_SHARE ** (1.0 - self.steps / warmup)) if self.steps < warmup else 1.0

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
        """Statistics of training since the last evaluation."""
        means = self._losses / max(self._updates, 1)
        return {
            "y": self.y,
            "risk_aversion": self.risk.price,
            **dict(zip(self.loss_names, means.tolist(), strict=True)),
        }

    def begin_period(self) -> None:
        """Reset the mean losses; called after an evaluation that was due."""
        self._losses = np.zeros(len(self.loss_names))
        self._updates = 0

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """The state of a checkpoint, apart from the replay."""
        tree, arrays = self.arrays()
        envs = [env.state() for env in self.envs]
        record = {
            "steps": self.steps,
            "episodes": self.episodes,
            "y": self.y,
            "risk_aversion": self.risk.price,
            "losses": self._losses.tolist(),
            "updates": self._updates,
            "random": self.rng.bit_generator.state,
            "worlds": [record for record, _ in envs],
        }
        done = {f"actions.{i}": actions for i, (_, actions) in enumerate(envs)}
        measured = {} if range_of(self.risk) is None else {"measured": self.measured.rows}
        return arrays_of(tree) | arrays | (done if self.remember else {}) | measured, record

    def flush(self) -> None:
        """Called before a checkpoint is written: make durable what it will refer to."""

    def prune(self) -> None:
        """Called after a checkpoint was written: remove what only earlier ones needed."""

    def close(self) -> None:
        """Close the environments made for this run, and files."""
        self._opened.close()

    def hold_to_budget(self, variance: Callable[[], float], rate: float) -> None:
        """Dual ascent: raise the risk aversion while the policy's variance is above the limit.

        `variance` measures it, if it is needed; `rate` is how far one measurement moves the risk
        aversion.
        """
        if self.risk.variance_limit is not None:
            self.risk = self.risk.repriced(variance(), rate)

    def variance_of(self, policy: Policy) -> float:
        """The variance that a budget limits, of the policy without exploration."""
        if self.risk.of_return:
            return self._evaluated(policy, _BUDGET, episodes=_BUDGET_EPISODES).variance
        return self.reward_moments(self._evaluated(policy, _BUDGET, steps=1_000))[1]

    def _evaluated(
        self, policy: Policy | Iterator[Policy], purpose: int, episodes: int = 1, steps: int = 1
    ) -> Evaluation:
        """Episodes of one policy, or of one after the other."""
        policies = repeat(policy) if isinstance(policy, Policy) else policy

        def begin(rng: np.random.Generator) -> Act:
            return drawing_from(next(policies))(rng)

        shown = run_episodes(begin, self._evaluation_env, self.seed, purpose, self.steps)
        try:
            return summarise(shown, episodes=episodes, steps=steps)
        except InputError as error:  # the policy fitted the training environment
            what = "returned something else in an evaluation than in training"
            raise failure(self._evaluation_env, what, error) from error

    def _restore(
        self, arrays: Arrays, record: dict[str, Any], path: Path, opened: ExitStack
    ) -> None:
        with refusing_damage(path):
            self.steps = check_count(record["steps"], "steps")
            self.restored = arrays
            self.begin(opened)
            self.episodes, self.y = int(record["episodes"]), float(record["y"])
            self._updates = check_count(record["updates"], "updates", at_least=0)
            self._losses = np.array(record["losses"], np.float64) + np.zeros(len(self.loss_names))
            self.rng.bit_generator.state = record["random"]
            self.risk = self.risk.with_price(record["risk_aversion"])
            if range_of(self.risk) is not None:
                self.measured = Measured(arrays["measured"])
            tree, _ = self.arrays()
            self.restore_arrays(with_arrays(tree, arrays, path), arrays)
            for i, (env, there) in enumerate(zip(self.envs, record["worlds"], strict=True)):
                env.restore(there, arrays[f"actions.{i}"] if self.remember else ())
            self.restored = {}
