"""What all agents share: one constructor, `learn`, `predict` and `save`."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_callback, check_count, check_number, check_output, check_path
from mvpi._storage.arrays import FORMAT
from mvpi._storage.run_directory import Checkpoint, RunDirectory, begun
from mvpi._types import Env
from mvpi._version import __version__
from mvpi.agents.learned_frontier import LearnedFrontier, Measured, learned_frontier
from mvpi.agents.policy import Policy
from mvpi.agents.settings import CommonSettings, make_settings, with_preset
from mvpi.agents.training import OnRow, tell_made_again, train
from mvpi.augmenter.policy_choice import best_of_range
from mvpi.envs import Task
from mvpi.errors import InputError
from mvpi.risk import RISK_AVERSION, Risk, as_risk, learnable, risk_text
from mvpi.risk.extended import RiskRange, at, check_per_step, range_of
from mvpi.rollout.factory import EnvFactory, FromFunction, as_env_factory
from mvpi.rollout.spaces import Spaces

S = TypeVar("S", bound=CommonSettings)


class Agent(Generic[S]):
    """A policy, and the algorithm that improves it in an environment."""

    name: ClassVar[str]
    settings_type: ClassVar[type[CommonSettings]]
    learner_type: ClassVar[Any]
    estimated_frontier: LearnedFrontier | None = None
    """Of an agent that learned from data with a `RiskRange`: what the data say of it."""

    def __init__(
        self,
        env: str | Env | Any,
        risk: Risk | float = 0.0,
        seed: int = 0,
        *,
        preset: str | None = None,
        **hyperparameters: Any,
    ) -> None:
        given = with_preset(self.settings_type, preset) | hyperparameters
        self._set_up(env, risk, seed, make_settings(self.settings_type, given))

    @classmethod
    def from_settings(
        cls, env: str | Env | Any, risk: Risk | float, seed: int, settings: CommonSettings
    ) -> Self:
        """An agent with settings that are checked already."""
        agent = cls.__new__(cls)
        agent._set_up(env, risk, seed, settings)
        return agent

    def _set_up(
        self, env: str | Env | Any, risk: Risk | float, seed: int, settings: CommonSettings
    ) -> None:
        self.settings: S = settings  # type: ignore[assignment]
        self.risk = self.usable(as_risk(risk))
        if settings.occupancy_gamma is not None:
            check_per_step(self.risk, 'occupancy="discounted"')
        self.seed = check_count(seed, "seed", at_least=0)
        self.env_factory: EnvFactory | None = as_env_factory(env)
        self._loaded: tuple[Policy, int] | None = None
        self._learner: Any = None
        self._measured = Measured()
        self._env: Env | None = self.env_factory.training()
        """The environment to train in, until a learner takes it."""
        self._close_env = weakref.finalize(self, self.env_factory.close, self._env)
        try:
            Spaces.of(self._env, self.learner_type.discrete)  # raises if not supported
        except BaseException:
            self._close_env()
            raise

    def __repr__(self) -> str:
        record = {} if self.env_factory is None else self.env_factory.record
        made = next((record[key] for key in ("id", "function", "env") if key in record), None)
        of = f"risk={risk_text(self.risk)}, seed={self.seed}, steps={self.steps}"
        return f"{type(self).__name__}({made!r}, {of})"

    @classmethod
    def usable(cls, risk: Risk) -> Risk:
        """The risk itself; `InputError` if the algorithm does not support it."""
        learnable(risk)
        return risk

    @property
    def steps(self) -> int:
        """Environment steps learned from so far."""
        if self._loaded is not None:
            return self._loaded[1]
        return 0 if self._learner is None else int(self._learner.steps)

    @property
    def policy(self) -> Policy:
        """The current policy by itself, in numpy."""
        if self._loaded is not None:
            return self._loaded[0]
        if self._learner is None:
            self._learner = self._new_learner()
        policy: Policy = self._learner.policy
        return policy

    def learn(
        self, steps: int, out: str | Path | None = None, *, on_row: OnRow | None = None
    ) -> Self:
        """Train until `steps` environment steps have been made in all; returns the agent.

        `out` is a directory for config.json, metrics.csv, policy.safetensors and checkpoints. If
        it holds a run with the same settings, that run is resumed, or prolonged if it had
        finished. `on_row` is called with every row of the metrics.
        """
        steps = check_count(steps, "steps")
        check_callback(on_row, "on_row")
        if out is None:
            self._learn_in_memory(steps, on_row)
        else:
            self._learn_in_directory(steps, check_path(out, "out"), on_row)
        return self

    def predict(
        self, observation: npt.ArrayLike, return_so_far: npt.ArrayLike | None = None
    ) -> npt.NDArray[Any]:
        """The deterministic action for an observation, or actions for a batch of them.

        An agent trained with `OfReturn` needs `return_so_far`, what the episode has earned before
        this step; one trained with a `RiskRange` predicts after `at(risk_aversion)`.
        """
        return self.policy.predict(observation, return_so_far)

    def at(self, risk_aversion: float) -> Self:
        """The agent at one risk aversion of the `RiskRange` it was trained with.

        It predicts, is evaluated and saved as one that was trained at that risk aversion; it
        cannot be trained further. Its policy is the one that was learned for that risk aversion,
        unless evaluations in training found another one of the range to be better at it by more
        than chance.
        """
        known, chosen = self._known_range(), at(self.risk, risk_aversion)
        episodes = self._measured_episodes().summed(of_return=self.risk.of_return)
        return self._acting_at(best_of_range(known, risk_aversion, episodes), chosen)

    def _acting_at(self, acted: float, risk: Risk) -> Self:
        """The agent with its policy of the risk aversion `acted`, used at a risk."""
        policy = self.policy
        if RISK_AVERSION in policy.columns:  # not of a range of one value
            policy = policy.at(acted)
        return self._with_policy(policy, risk, self.steps)

    def _known_range(self) -> RiskRange:
        known = range_of(self.risk)
        if known is None:
            raise InputError(f"this agent was trained at {self.risk} alone, not with a RiskRange")
        return known

    def _measured_episodes(self) -> Measured:
        return self._measured if self._learner is None else self._learner.measure_range()

    def frontier(self) -> LearnedFrontier:
        """Mean and variance at every risk aversion of a `RiskRange`, as training measured them.

        Of an agent that learned from data (`mvpi.offline.learn`) they are estimates from the data.
        """
        known = self._known_range()
        if self.estimated_frontier is not None:
            return self.estimated_frontier
        return learned_frontier(known, self._measured_episodes(), of_return=self.risk.of_return)

    def with_variance_at_most(self, limit: float) -> Self:
        """The agent at the smallest risk aversion whose measured variance is at most `limit`."""
        lam = self.frontier().with_variance_at_most(limit)
        return self._acting_at(lam, at(self.risk, lam))

    def with_mean_at_least(self, target: float) -> Self:
        """The agent at the largest risk aversion whose measured mean is at least `target`."""
        lam = self.frontier().with_mean_at_least(target)
        return self._acting_at(lam, at(self.risk, lam))

    def _with_policy(self, policy: Policy, risk: Risk, steps: int) -> Self:
        """An agent like this one that holds a policy and cannot be trained further."""
        agent = type(self).__new__(type(self))
        agent.settings, agent.seed, agent.env_factory = self.settings, self.seed, self.env_factory
        agent.risk, agent._learner, agent._env = risk, None, None
        agent._loaded, agent._measured = (policy, steps), Measured()
        return agent

    def save(self, path: str | Path) -> None:
        """Write the policy and how it was trained to a safetensors file, for `mvpi.load`."""
        file = check_output(path)
        self._measured_episodes()  # a file has no environment to measure the policy in
        self._write_policy(file)

    def _write_policy(self, path: Path) -> str:
        """The same; returns the checksum of the file."""
        facts = {**self.config(), "steps": self.steps}
        if self.estimated_frontier is not None:
            facts["frontier"] = self.estimated_frontier.record()
        elif range_of(self.risk) is not None:
            known = self._measured if self._learner is None else self._learner.latest_measured
            facts["measured"] = known.rows.tolist()
        return self.policy.save(path, facts)

    def config(self) -> dict[str, Any]:
        """What determines the result of training, as config.json holds it."""
        config = {
            "format": FORMAT,
            "mvpi": __version__,
            "algorithm": self.name,
            "environment": {} if self.env_factory is None else self.env_factory.record,
            "risk": risk_text(self.risk),
            "seed": self.seed,
            "settings": self.settings.record(),
        }
        plain: dict[str, Any] = json.loads(json.dumps(config, default=_number))
        return plain

    def _learn_in_memory(self, steps: int, on_row: OnRow | None) -> None:
        if self._loaded is not None:
            raise self._cannot_go_on()
        if self._learner is None:
            self._learner = self._new_learner()
        train(self._learner, steps, on_row=on_row)

    def _cannot_go_on(self) -> InputError:
        return InputError(
            f"this agent holds a policy of {self.steps} steps without the rest of its training; to "
            "go on, make an agent with the same settings and let it learn in the run's directory"
        )

    def _learn_in_directory(self, steps: int, out: Path, on_row: OnRow | None) -> None:
        if self.env_factory is None:
            raise InputError(
                "this agent was loaded from a file that does not name its environment; make an "
                "agent with the environment and let it learn in the run's directory"
            )
        if self._learner is not None and self._learner.steps > 0:
            raise InputError(
                f"this agent has already learned {self.steps} steps outside {out}; make a new one"
            )
        if self._loaded is not None and not begun(out):
            raise self._cannot_go_on()
        directory = RunDirectory(out, self.config())
        try:
            checkpoint = directory.checkpoint()
            policy, held = self._held(directory)
            done = max(held, _steps_of(checkpoint[1]) if checkpoint else 0)
            if done > steps:
                raise InputError(
                    f"{directory.path} already holds {done} steps, more than the {steps} asked "
                    "for; use another directory"
                )
            finished = directory.is_finished(steps, can_go_back=checkpoint is not None)
            if finished and policy is not None and held == steps:
                self._loaded = policy, steps
                return
            learner = self._new_learner(directory.path, checkpoint)
            try:
                tell_made_again(directory, held, learner.steps, steps, "step")
                directory.keep_rows(learner.steps, steps, self.settings.evaluation_every)
                self._loaded, self._learner = None, learner
                train(learner, steps, directory, self._write_policy, on_row)
            finally:
                # Also after a failure the agent keeps the policy it has learned.
                self._loaded, self._learner = (learner.policy, learner.steps), None
                self._measured = learner.latest_measured
                learner.close()
        finally:
            directory.close()

    def _held(self, directory: RunDirectory) -> tuple[Policy | None, int]:
        """The policy in the directory, if there is one, and how many steps it has learned from."""
        if not directory.policy.exists():
            return None, 0
        policy, record = Policy.load(directory.policy)
        directory.check_belongs(record, self.config())
        self._measured = _measured_in(record)
        return policy, _steps_of(record)

    def _new_learner(
        self, directory: Path | None = None, checkpoint: Checkpoint | None = None
    ) -> Any:
        env, self._env = self._env, None
        if env is not None:
            self._close_env.detach()  # the learner closes it
        facts = (self.env_factory, self.risk, self.seed, self.settings)
        return self.learner_type(*facts, directory, checkpoint, env)

    @classmethod
    def from_file(cls, policy: Policy, record: dict[str, Any], risk: Risk) -> Self:
        agent = cls.__new__(cls)
        agent.settings = cls.settings_type.of_record(record["settings"])  # type: ignore[assignment]
        agent.risk = risk
        agent.seed = check_count(record["seed"], "seed", at_least=0)
        agent.env_factory = _env_factory_of(record["environment"])
        agent._learner = agent._env = None
        agent._loaded = policy, check_count(record["steps"], "steps", at_least=0)
        agent._measured = _measured_in(record)
        agent.estimated_frontier = _frontier_in(record, risk)
        return agent


def _measured_in(record: dict[str, Any]) -> Measured:
    """The episodes along a range that the record of a policy holds."""
    try:
        return Measured(record.get("measured"))
    except (TypeError, ValueError) as error:
        raise InputError(f"what was measured along the range is damaged: {error}") from None


def _frontier_in(record: dict[str, Any], risk: Risk) -> LearnedFrontier | None:
    """What the record of a policy that was learned from data says of a range."""
    known, there = range_of(risk), record.get("frontier")
    if known is None or there is None:
        return None
    try:
        return LearnedFrontier.of_record(known, there)
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"what was estimated along the range is damaged: {error}") from None


def _steps_of(record: dict[str, Any]) -> int:
    """The steps that the record of a policy or a checkpoint states; 0 if it states none."""
    steps = record.get("steps")
    return steps if type(steps) is int else 0


def _env_factory_of(record: dict[str, Any]) -> EnvFactory | None:
    """The environment a file names; an id that would import a module of its choice is left out."""
    name, noise = record.get("id"), record.get("action_noise", 0.0)
    if not isinstance(name, str) or ":" in name:
        return None
    if not name.isprintable():
        raise InputError(f"the environment id is not readable: {name!r}")
    return FromFunction(Task(name, check_number(noise, "action_noise", at_least=0.0)))


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise InputError(f"settings must be plain numbers, got {value!r}")
