"""The settings of every agent, and how they are checked.

An agent's settings are one frozen dataclass: keyword arguments in Python, options on the command
line, and `settings` in config.json. Each field is documented under its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from mvpi._checks import check_choice, check_count, check_flag, check_number
from mvpi._settings import layer_sizes, recorded
from mvpi._settings import make_settings as make_settings  # noqa: PLC0414 - for importers of it
from mvpi.augmenter.occupancy import Occupancy, check_occupancy
from mvpi.errors import InputError

SATURATED = 3.0
"""Outputs beyond this, before tanh, are saturated: tanh(3) = 0.995."""
SMALLEST_RATE = 0.02
"""The share of the learning rate that is left at the end of its decay."""


@dataclass(frozen=True)
class CommonSettings:
    """Settings of every agent."""

    gamma: float = 0.99
    """Discount factor, in [0, 1)."""
    hidden: tuple[int, ...] = (400, 300)
    """Units of the hidden layers, the same for all networks."""
    evaluation_every: int = 10_000
    """Environment steps between evaluations during training."""
    evaluation_episodes: int = 20
    """Episodes of each evaluation."""
    checkpoint_every: int = 10_000
    """Environment steps between checkpoints, each at the next step where one is possible."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    """Presets: names for settings that go together."""
    _fewest_layers: ClassVar[int] = 1
    _below_one: ClassVar[bool] = True
    _before: ClassVar[dict[str, Any]] = {}
    """Settings that earlier versions did not have, and the value that does what those did: at that
    value they are not in records, so that runs of earlier versions are found and go on."""

    def __post_init__(self) -> None:
        self._numbers("gamma", at_least=0.0)
        if self.gamma > 1 or (self.gamma == 1 and self._below_one):
            bound = "<" if self._below_one else "<="
            raise InputError(f"gamma must be {bound} 1, got {self.gamma}")
        object.__setattr__(self, "hidden", layer_sizes(self.hidden, self._fewest_layers))
        self._counts("evaluation_every", "evaluation_episodes", "checkpoint_every")

    @property
    def occupancy_gamma(self) -> float | None:
        """The discount of the occupancy that rewards are weighed by; None: all count alike."""
        return None

    def record(self) -> dict[str, Any]:
        """The settings as a JSON object, the same as in versions with fewer settings."""
        return recorded(self, self._before)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """The settings that `record` was made of, by this version or an earlier one."""
        return make_settings(cls, {**cls._before, **record})

    def _numbers(self, *names: str, **bounds: float) -> None:
        """Check fields that are numbers, and keep them as plain floats."""
        for name in names:
            object.__setattr__(self, name, check_number(getattr(self, name), name, **bounds))

    def _numbers_or_none(self, *names: str, **bounds: float) -> None:
        """The same for fields that may be left out."""
        self._numbers(*(name for name in names if getattr(self, name) is not None), **bounds)

    def _flags(self, *names: str) -> None:
        """Check fields that are true or false."""
        for name in names:
            object.__setattr__(self, name, check_flag(getattr(self, name), name))

    def _names(self, name: str, known: tuple[str, ...]) -> None:
        """Check a field that is one of some names."""
        check_choice(getattr(self, name), name, known)

    def _counts(self, *names: str, at_least: int = 1) -> None:
        """Check fields that are whole numbers, and keep them as plain ints."""
        for name in names:
            number = check_count(getattr(self, name), name, at_least=at_least)
            object.__setattr__(self, name, number)


@dataclass(frozen=True)
class AugmentedSettings(CommonSettings):
    """What TD3 and PPO share: they learn from augmented rewards, for any risk measure."""

    occupancy: Occupancy = "undiscounted"
    """How `y` weighs rewards; discounted, with 0 after the end: for tasks that end, with costs."""
    budget_rate: float = 0.05
    """With a variance budget: how far a measurement of the variance moves the risk aversion."""
    return_scale: float = 1.0
    """With OfReturn: the size of a return; beyond it networks see the return so far by its log."""
    risk_warmup: int = 0
    """Steps over which the risk is raised, from 1/10,000 of it; 0: all of it from the beginning."""

    _before: ClassVar[dict[str, Any]] = {
        "occupancy": "undiscounted",
        "return_scale": 1.0,
        "risk_warmup": 0,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers("budget_rate", "return_scale", above=0.0)
        self._counts("risk_warmup", at_least=0)
        check_occupancy(self.occupancy)

    @property
    def occupancy_gamma(self) -> float | None:
        return self.gamma if self.occupancy == "discounted" else None


@dataclass(frozen=True)
class TD3Settings(AugmentedSettings):
    """Settings of MVPI-TD3; the defaults are the paper's."""

    learning_rate: float = 1e-3
    """Step size of Adam, for the actor and both critics."""
    decay_steps: int = 0
    """Steps in which the learning rate falls, linearly, to a fiftieth; 0: it stays what it is."""
    buffer_size: int = 1_000_000
    """Capacity of the replay, in transitions."""
    learning_starts: int = 10_000
    """Steps with uniformly random actions before learning begins."""
    batch_size: int = 100
    """Transitions drawn for an update."""
    tau: float = 0.005
    """Step size of the soft updates of the target networks."""
    train_freq: int = 10
    """Environment steps between calls of the compiled update."""
    gradient_steps: int = -1
    """Updates in such a call; -1: as many as steps, one update per step as in the paper."""
    policy_delay: int = 2
    """Updates of the critics per update of the actor and of all target networks."""
    averaging: int = 0
    """Predict with an average of the actor over about this many of its updates; 0: the latest."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions, for actions in [-1, 1]."""
    actor_smoothing: float = 0.0
    """Standard deviation of noise on the actions in the actor's own loss; 0: none, as in TD3."""
    saturation_penalty: float = 0.01
    """Frees stuck actors: weight of mean max(|z| - 3, 0)^2, z the output before tanh; 0: none."""
    target_policy_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions."""
    target_noise_clip: float = 0.5
    """Bound of that noise."""
    window: int = 10_000
    """How many of the most recent rewards `y` is measured on: the paper's K."""
    budget_every: int = 1_000
    """With a variance budget: steps between measurements of the policy's variance."""
    engine: Literal["native", "jax"] = "native"
    """The engine of the updates: loops compiled for this processor, or JAX."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "noisy-rewards": {
            "batch_size": 256,
            "exploration_noise": 0.3,
            "actor_smoothing": 0.3,
            "train_freq": 100,
            "gradient_steps": 10,
            "averaging": 100,
        }
    }
    _before: ClassVar[dict[str, Any]] = AugmentedSettings._before | {
        "actor_smoothing": 0.0,
        "decay_steps": 0,
        "engine": "native",
        "saturation_penalty": 0.0,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers("learning_rate", above=0.0)
        self._numbers("tau", above=0.0, at_most=1.0)
        self._numbers("exploration_noise", "target_policy_noise", "target_noise_clip", at_least=0.0)
        self._numbers("actor_smoothing", "saturation_penalty", at_least=0.0)
        self._counts("buffer_size", "batch_size", "train_freq", "policy_delay", "window")
        self._counts("budget_every")
        self._counts("learning_starts", "averaging", "decay_steps", at_least=0)
        self._names("engine", ("native", "jax"))
        self._counts("gradient_steps", at_least=-1)
        if self.gradient_steps == 0:
            raise InputError("gradient_steps must be >= 1, or -1 for as many as steps, got 0")
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

    def rate_after(self, steps: int) -> float | None:
        """The share of the learning rate that is left after so many steps; None: all, always."""
        return max(1.0 - steps / self.decay_steps, SMALLEST_RATE) if self.decay_steps else None


@dataclass(frozen=True)
class StochasticSettings(CommonSettings):
    """Settings of stochastic policies."""

    hidden: tuple[int, ...] = (64, 64)
    """Units of the hidden layers, with tanh; none: linear, on states of a finite set a table."""
    learning_rate: float = 3e-4
    """Step size of the policy's optimiser."""
    ent_coef: float = 0.0
    """Weight of the policy's entropy in what is maximised."""
    max_grad_norm: float | None = None
    """Gradients are clipped to this norm."""

    _fewest_layers: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers("learning_rate", above=0.0)
        self._numbers_or_none("max_grad_norm", above=0.0)
        self._numbers("ent_coef", at_least=0.0)


@dataclass(frozen=True)
class PPOSettings(StochasticSettings, AugmentedSettings):
    """Settings of MVPI-PPO; the defaults are the paper's."""

    critic_learning_rate: float = 1e-3
    """Step size of the critic's optimiser."""
    n_steps: int = 2_048
    """Steps of a rollout, between two improvements of the policy."""
    batch_size: int = 64
    """Steps in a minibatch; divides n_steps."""
    n_epochs: int = 10
    """Passes over a rollout."""
    clip_range: float = 0.2
    """Ratios of new to old probabilities are clipped this far from 1."""
    gae_lambda: float = 0.95
    """The lambda of generalised advantage estimation."""
    target_kl: float | None = 0.01
    """No steps on the policy while its KL divergence from the old one exceeds 1.5 times this."""
    normalize_advantage: bool = True
    """Scale the advantages of a minibatch to mean 0 and variance 1."""
    normalize_observations: bool = True
    """Shift and scale observations by their running mean and standard deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers("critic_learning_rate", "clip_range", above=0.0)
        self._numbers_or_none("target_kl", above=0.0)
        self._numbers("gae_lambda", at_least=0.0, at_most=1.0)
        self._counts("n_steps", "batch_size", "n_epochs")
        self._flags("normalize_advantage", "normalize_observations")
        if self.n_steps % self.batch_size:
            raise InputError(
                f"batch_size must divide n_steps, got {self.batch_size} and {self.n_steps}"
            )
        if self.batch_size == 1 and self.normalize_advantage:
            raise InputError("batch_size must be >= 2 with normalize_advantage, got 1")


@dataclass(frozen=True)
class TotalRewardSettings(StochasticSettings):
    """What the baselines share; the defaults are the paper's."""

    gamma: float = 1.0
    """Discount factor, in [0, 1]."""
    learning_rate: float = 7e-4
    """Step size of the policy's optimiser."""
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """The optimiser of all networks."""
    n_envs: int = 16
    """Parallel environments."""
    ent_coef: float = 0.01
    """Weight of the policy's entropy in what is maximised."""
    max_grad_norm: float | None = 0.5
    """Gradients are clipped to this norm."""

    _below_one: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counts("n_envs")
        self._names("optimizer", ("rmsprop", "adam"))


@dataclass(frozen=True)
class EpisodicSettings(TotalRewardSettings):
    """What MVP and Tamar share: they learn from whole episodes."""

    estimate_rate: float = 100.0
    """Step size of running estimates as a multiple of learning_rate; the product is below 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers("estimate_rate", above=0.0)
        if self.estimate_rate * self.learning_rate >= 1:
            raise InputError(
                f"estimate_rate times learning_rate must be below 1, got {self.estimate_rate:g} "
                f"times {self.learning_rate:g}"
            )


@dataclass(frozen=True)
class MVPSettings(EpisodicSettings):
    """Settings of MVP (Liu 2018); the running estimate is `y`."""


@dataclass(frozen=True)
class TamarSettings(EpisodicSettings):
    """Settings of the method of Tamar 2012; it estimates the mean and the variance."""

    variance_limit: float = 50.0
    """The largest variance of the return without a penalty: the paper's xi."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers("variance_limit", at_least=0.0)


@dataclass(frozen=True)
class EpisodeBatchSettings(TotalRewardSettings):
    """What MeanGini and CVaRPG share: they learn from batches of whole episodes."""

    batch_episodes: int = 32
    """Episodes of a batch, at least; those that end in the same step are in the same batch."""
    n_epochs: int = 1
    """Steps of the optimiser on a batch; beyond the first, ratios of probabilities are clipped."""
    clip_range: float = 0.2
    """Ratios of new to old probabilities are clipped this far from 1."""

    _fewest_episodes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counts("batch_episodes", at_least=self._fewest_episodes)
        self._counts("n_epochs")
        self._numbers("clip_range", above=0.0)


@dataclass(frozen=True)
class MeanGiniSettings(EpisodeBatchSettings):
    """Settings of the mean-Gini policy gradient (Luo 2023)."""

    n_epochs: int = 10
    """Steps of the optimiser on a batch; beyond the first, ratios of probabilities are clipped."""

    _fewest_episodes: ClassVar[int] = 3


@dataclass(frozen=True)
class CVaRPGSettings(EpisodeBatchSettings):
    """Settings of the CVaR policy gradient (Tamar 2015)."""


@dataclass(frozen=True)
class PrashanthSettings(TotalRewardSettings):
    """Settings of the method of Prashanth 2013."""

    gamma: float = 0.99
    """Discount factor, in [0, 1)."""
    learning_rate: float = 7e-5
    """Step size of the policy's optimiser."""
    critic_learning_rate: float = 7e-4
    """Step size of the critics' optimiser."""
    scheme: Literal["spsa", "smoothed"] = "spsa"
    """How the policy is perturbed: by signs (spsa) or by Gaussian numbers (smoothed)."""
    perturbation: float = 1e-4
    """Size of the perturbation: the paper's beta."""
    max_grad_norm: float | None = 0.5
    """Gradients of the policy are clipped to this norm; those of the critics are not."""
    n_steps: int = 5
    """Steps of every actor between two perturbations."""

    _below_one: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers("critic_learning_rate", "perturbation", above=0.0)
        self._counts("n_steps")
        self._names("scheme", ("spsa", "smoothed"))
        if self.n_envs % 2:
            raise InputError(f"n_envs must be even, half are perturbed, got {self.n_envs}")


def with_preset(kind: type[CommonSettings], preset: str | None) -> dict[str, Any]:
    """What a preset of that kind of settings sets; an unknown one raises and says which there are.

    >>> with_preset(TD3Settings, "noisy-rewards")["batch_size"]
    256
    """
    if preset is None:
        return {}
    if preset not in kind.presets:
        known = ", ".join(kind.presets) or "none: this algorithm has no presets"
        raise InputError(f"unknown preset {preset!r}; known are {known}")
    return kind.presets[preset]
