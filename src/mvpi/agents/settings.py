"""The settings of every agent, and how they are checked.

An agent's settings are one frozen dataclass: keyword arguments in Python, options on the command
line, and `settings` in config.json. Each field is documented under its name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from mvpi.errors import InputError
from mvpi.stats import check_count, check_number

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class CommonSettings:
    """What every agent can be told."""

    gamma: float = 0.99
    """Discount factor, in [0, 1)."""
    hidden: tuple[int, ...] = (400, 300)
    """Units of the hidden layers, the same for all networks."""
    evaluation_every: int = 10_000
    """Environment steps between evaluations during training."""
    evaluation_episodes: int = 20
    """Episodes of each evaluation."""
    checkpoint_every: int = 10_000
    """Environment steps between checkpoints, each at the end of an episode."""
    budget_every: int = 1_000
    """With a variance budget: steps between measurements of the policy's variance."""
    budget_rate: float = 0.05
    """With a variance budget: how far a measurement moves the risk aversion."""

    def __post_init__(self) -> None:
        self._numbers("gamma", at_least=0.0)
        if self.gamma >= 1:
            raise InputError(f"gamma must be < 1, got {self.gamma}")
        object.__setattr__(self, "hidden", _sizes(self.hidden))
        self._counts("evaluation_every", "evaluation_episodes", "checkpoint_every", "budget_every")
        self._numbers("budget_rate", above=0.0)

    def _numbers(self, *names: str, **bounds: float) -> None:
        """Check fields that are numbers, and keep them as plain floats."""
        for name in names:
            object.__setattr__(self, name, check_number(getattr(self, name), name, **bounds))

    def _counts(self, *names: str, at_least: int = 1) -> None:
        """Check fields that are whole numbers, and keep them as plain ints."""
        for name in names:
            number = check_count(getattr(self, name), name, at_least=at_least)
            object.__setattr__(self, name, number)


@dataclass(frozen=True)
class TD3Settings(CommonSettings):
    """Settings of MVPI-TD3; the defaults are the paper's."""

    learning_rate: float = 1e-3
    """Step size of Adam, for the actor and both critics."""
    buffer_size: int = 1_000_000
    """Transitions the replay holds."""
    learning_starts: int = 10_000
    """Steps with uniformly random actions before learning begins."""
    batch_size: int = 100
    """Transitions drawn for an update."""
    tau: float = 0.005
    """How far the target networks follow at each of their updates."""
    train_freq: int = 10
    """Environment steps between calls of the compiled update."""
    gradient_steps: int = -1
    """Updates in such a call; -1: as many as steps, one update per step as in the paper."""
    policy_delay: int = 2
    """Updates of the critics per update of the actor and of all target networks."""
    averaging: int = 0
    """Predict with the mean of the actor over about this many of its updates; 0: with the last."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions, for actions in [-1, 1]."""
    target_policy_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions."""
    target_noise_clip: float = 0.5
    """Bound of that noise."""
    window: int = 10_000
    """How many of the most recent rewards `y` is measured on: the paper's K."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers("learning_rate", above=0.0)
        self._numbers("tau", above=0.0, at_most=1.0)
        self._numbers("exploration_noise", "target_policy_noise", "target_noise_clip", at_least=0.0)
        self._counts("buffer_size", "batch_size", "train_freq", "policy_delay", "window")
        self._counts("learning_starts", "averaging", at_least=0)
        if self.gradient_steps != -1:
            self._counts("gradient_steps")
        if self.updates % self.policy_delay:
            name = "train_freq" if self.gradient_steps == -1 else "gradient_steps"
            raise InputError(
                f"{name} must be a multiple of policy_delay, got {self.updates} and "
                f"{self.policy_delay}"
            )

    @property
    def updates(self) -> int:
        """Updates in a call of the compiled function."""
        return self.train_freq if self.gradient_steps == -1 else self.gradient_steps


def make_settings(kind: type[Settings], given: dict[str, Any]) -> Settings:
    """Settings of that kind; an unknown name raises and says the nearest known one."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"unknown setting {name}; {hint}")
    return kind(**given)


def _sizes(hidden: Any) -> tuple[int, ...]:
    if isinstance(hidden, str | bytes) or not hasattr(hidden, "__iter__"):
        raise InputError(f"hidden must be a sequence like (400, 300), got {hidden!r}")
    sizes = tuple(check_count(size, "each size in hidden") for size in hidden)
    if not sizes:
        raise InputError("hidden must name at least one layer")
    return sizes
