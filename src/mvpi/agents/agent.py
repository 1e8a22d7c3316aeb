"""What all agents share: one constructor, `learn`, `predict`, `save`, and `load`."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

import mvpi
from mvpi._checks import check_callback, check_count, check_number, check_output, check_path
from mvpi._storage.arrays import FORMAT
from mvpi._storage.run_directory import Checkpoint, RunDirectory, begun
from mvpi.agents.policy import Policy
from mvpi.agents.run import OnRow, tell_made_again, train
from mvpi.agents.settings import SETTINGS, CommonSettings, make_settings, with_preset
from mvpi.environment import Env, Made, Source, as_source
from mvpi.envs import Task
from mvpi.errors import InputError
from mvpi.risk import Risk, as_risk, learnable, parse_risk, risk_text
from mvpi.spaces import Spaces

S = TypeVar("S", bound=CommonSettings)

AGENTS = {
    "td3": ("mvpi.agents.td3", "TD3"),
    "ppo": ("mvpi.agents.ppo", "PPO"),
    "mvp": ("mvpi.agents.mvp", "MVP"),
    "tamar": ("mvpi.agents.tamar", "Tamar"),
    "prashanth": ("mvpi.agents.prashanth", "Prashanth"),
}
"""Where each algorithm is; the key is its name on the command line and in files."""


class Agent(Generic[S]):
    """A policy, and the algorithm that improves it in an environment."""

    name: ClassVar[str]
    settings_type: ClassVar[type[CommonSettings]]
    learner_type: ClassVar[Any]

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
        self.settings: S = make_settings(self.settings_type, given)  # type: ignore[assignment]
        self.risk = self.usable(as_risk(risk))
        self.seed = check_count(seed, "seed", at_least=0)
        self.source: Source | None = as_source(env)
        self._loaded: tuple[Policy, int] | None = None
        self._learner: Any = None
        env = self.source.training()
        try:
            Spaces.of(env, self.learner_type.discrete)  # what cannot be used is said at once
        finally:
            self.source.close(env)

    @classmethod
    def usable(cls, risk: Risk) -> Risk:
        """The risk itself, or an `InputError` that says what the algorithm can do."""
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

    def predict(self, observation: npt.ArrayLike) -> npt.NDArray[Any]:
        """The deterministic action for an observation, or actions for a batch of them."""
        return self.policy.predict(observation)

    def save(self, path: str | Path) -> None:
        """Write the policy and how it was trained to a safetensors file, for `mvpi.load`."""
        self.policy.save(check_output(path), {**self.config(), "steps": self.steps})

    def config(self) -> dict[str, Any]:
        """What determines the result of training, as config.json holds it."""
        config = {
            "format": FORMAT,
            "mvpi": mvpi.__version__,
            "algorithm": self.name,
            "environment": {} if self.source is None else self.source.record,
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
        if self.source is None:
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
            finished = self._finished(directory, checkpoint, steps)
            if finished is not None:
                self._loaded = finished, steps
                return
            held = self._steps_held(directory)
            learner = self._new_learner(directory.path, checkpoint)
            try:
                tell_made_again(directory, held, learner.steps, steps, "step")
                directory.keep_rows(learner.steps, steps, self.settings.evaluation_every)
                self._loaded, self._learner = None, learner
                train(learner, steps, directory, self.save, on_row)
                self.save(directory.policy)
                directory.finish(steps)
            finally:
                # Whatever happened, the agent goes on acting as it learned to.
                self._loaded, self._learner = (learner.policy, learner.steps), None
                learner.close()
        finally:
            directory.close()

    def _finished(
        self, directory: RunDirectory, checkpoint: Checkpoint | None, steps: int
    ) -> Policy | None:
        """The policy in the directory, if it has learned all its steps already."""
        policy: Policy | None = None
        record: dict[str, Any] = {}
        if directory.policy.exists():
            policy, record = Policy.load(directory.policy)
            directory.check_belongs(record, self.config())
        reached = [record.get("steps"), checkpoint and checkpoint[1].get("steps")]
        done = max((n for n in reached if type(n) is int), default=0)
        if done > steps:
            raise InputError(
                f"{directory.path} already holds {done} steps, more than the {steps} asked "
                "for; use another directory"
            )
        if directory.is_finished(steps, can_go_back=checkpoint is not None):
            return policy if record.get("steps") == steps else None
        return None

    def _steps_held(self, directory: RunDirectory) -> int:
        """How far the policy in the directory has learned."""
        if not directory.policy.exists():
            return 0
        steps = Policy.load(directory.policy)[1].get("steps")
        return steps if type(steps) is int else 0

    def _new_learner(self, *directory_and_checkpoint: Any) -> Any:
        return self.learner_type(
            self.source, self.risk, self.seed, self.settings, *directory_and_checkpoint
        )

    @classmethod
    def _from_file(cls, policy: Policy, record: dict[str, Any], risk: Risk) -> Self:
        agent = cls.__new__(cls)
        agent.settings = cls.settings_type.of_record(record["settings"])  # type: ignore[assignment]
        agent.risk = risk
        agent.seed = check_count(record["seed"], "seed", at_least=0)
        agent.source = _source_of(record["environment"])
        agent._learner = None
        agent._loaded = policy, check_count(record["steps"], "steps", at_least=0)
        return agent


def load(path: str | Path, *, risk: Risk | float | None = None) -> Agent[Any]:
    """The agent that `save` wrote, or that a run directory holds: ready to act and be evaluated.

    No code in the file runs, and no environment is made before one is needed. `risk` must be
    given only if the agent was trained with a risk measure of your own.
    """
    path = check_path(path)
    if path.is_dir():
        path /= "policy.safetensors"
    given = None if risk is None else as_risk(risk)
    policy, record = Policy.load(path)
    kind = record.get("algorithm")
    if not isinstance(kind, str) or kind not in AGENTS:
        raise InputError(f"{path} holds an agent of the unknown kind {str(kind)[:80]!r}")
    try:
        return agent_type(kind)._from_file(policy, record, given or parse_risk(record["risk"]))
    except (InputError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is damaged, or of an agent with its own risk: {reason}") from None


def agent_type(algorithm: str) -> type[Agent[Any]]:
    """The class of an algorithm in `AGENTS`."""
    module, name = AGENTS[algorithm]
    found: type[Agent[Any]] = getattr(import_module(module), name)
    return found


def agent_for(settings: CommonSettings) -> type[Agent[Any]]:
    """The class of the agent that such settings are for."""
    return agent_type(next(name for name, kind in SETTINGS.items() if kind is type(settings)))


def _source_of(record: dict[str, Any]) -> Source | None:
    """The environment a file names; an id that would import a module of its choice is left out."""
    name, noise = record.get("id"), record.get("action_noise", 0.0)
    if not isinstance(name, str) or ":" in name:
        return None
    if not name.isprintable():
        raise InputError(f"the environment id is not readable: {name!r}")
    return Made(Task(name, check_number(noise, "action_noise", at_least=0.0)))


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise InputError(f"settings must be plain numbers, got {value!r}")
