"""The public names: how each is called, with good arguments, and what else each argument may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from values import VALUES

_NUMBERS = {"-1", "-1.5"}
_OPTIONAL = {"None"}
_NOTHING: set[str] = set()
_ANYTHING = set(VALUES)
_FLAG = {"True", "numpy True", "True in 0 dimensions"}
_NAMES = {"text", "number in text", "numpy text", "lines"}
"""What a file may be called."""
_SAMPLE = {"-1", "-1.5"}
"""What is a fine sample of rewards, of one or two."""


class Target:
    """A public name: how to call it, with good arguments, and what else each may be."""

    def __init__(
        self, name: str, call: Callable[..., Any], good: dict[str, Any], **allowed: set[str]
    ) -> None:
        self.name, self.call, self.good = name, call, good
        self.allowed = {argument: allowed.get(argument, _NOTHING) for argument in good} | allowed

    def attacks(self) -> Iterator[tuple[str, str, str]]:
        for argument in self.allowed:
            for value in VALUES:
                if value not in self.allowed[argument]:
                    yield self.name, argument, value
        yield self.name, "", "an argument too many"


@cache
def targets() -> dict[str, Target]:
    """All of them by name, made once."""
    return {target.name: target for target in _targets()}


def _targets() -> Iterator[Target]:
    yield from _of_risk()
    yield from _of_tables()
    yield from _of_environments()
    yield from _of_agents()
    yield from _of_data()
    yield from _of_experiments()


def _of_risk() -> Iterator[Target]:
    import mvpi

    risk = {"risk_aversion": 1.0}
    yield Target("MeanVariance", mvpi.MeanVariance, risk)
    yield Target("Entropic", mvpi.Entropic, risk)
    yield Target("CVaR", mvpi.CVaR, {"level": 0.5, "weight": 1.0})
    yield Target("VarianceBudget", mvpi.VarianceBudget, {"limit": 1.0, "risk_aversion": 0.0})
    sample = {"rewards": [1.0, 2.0]}
    weighted = sample | {"weights": [1.0, 2.0]}
    weights = _OPTIONAL | {"array of 1e308"}
    large = _SAMPLE | {"array of 1e308"}
    for measure in (mvpi.MeanVariance(1.0), mvpi.CVaR(0.5), mvpi.Entropic(1.0)):
        name = type(measure).__name__
        yield Target(f"{name}.dual", measure.dual, weighted, rewards=large, weights=weights)
        yield Target(f"{name}.value", measure.value, weighted, rewards=large, weights=weights)
        yield Target(
            f"{name}.augment",
            measure.augment,
            sample | {"y": 1.0},
            rewards=large | {"empty array", "empty list", "5 dimensions"},
            y=_NUMBERS,
        )
        yield Target(
            f"{name}.utility",
            measure.utility,
            {"t": 1.0},
            t=large
            | {
                "empty array",
                "empty list",
                "5 dimensions",
                "nan",
                "numpy nan",
                "inf",
                "-inf",
                "array of nan",
                "array of inf",
            },
        )
    yield Target(
        "augment",
        mvpi.augment,
        sample | {"risk": 1.0, "y": None},
        rewards=_SAMPLE | {"5 dimensions"},
        y=_NUMBERS | _OPTIONAL,
    )
    augmenter = {"risk": 1.0, "window": 10, "budget_every": 10, "budget_rate": 0.1}
    yield Target("Augmenter", mvpi.Augmenter, augmenter)
    shapes = {"empty array", "empty list", "5 dimensions"}
    yield Target(
        "Augmenter.observe",
        lambda **given: _augmenter().observe(**given),
        sample,
        rewards=large | shapes,
    )
    yield Target(
        "Augmenter.augment",
        lambda **given: _augmenter().augment(**given),
        sample,
        rewards=_SAMPLE | shapes,
    )
    yield Target("Augmenter.resize", lambda **given: _augmenter().resize(**given), {"window": 5})
    values = {"values": [1.0, 2.0], "weights": [1.0, 2.0]}
    for name in ("mean", "variance", "sharpe"):
        yield Target(
            f"stats.{name}",
            getattr(mvpi.stats, name),
            values,
            values=large | {"5 dimensions"},
            weights=weights,
        )
    for name in ("quantile", "cvar"):
        yield Target(
            f"stats.{name}",
            getattr(mvpi.stats, name),
            values | {"level": 0.5},
            values=large,
            weights=weights,
        )


def _augmenter() -> Any:
    import mvpi

    made = mvpi.Augmenter(1.0, window=10)
    made.observe([1.0, 2.0])
    return made


def _of_tables() -> Iterator[Target]:
    import numpy as np

    import mvpi

    model = mvpi.examples.four_state()
    transitions = np.full((2, 2, 2), 0.5)
    table = {"transitions": transitions, "rewards": np.eye(2), "discount": 0.9, "start": None}
    yield Target("MDP", mvpi.MDP, table, start=_OPTIONAL)
    rows = table | {"transitions": transitions.reshape(4, 2)}
    yield Target("MDP.from_rows", mvpi.MDP.from_rows, rows, start=_OPTIONAL)
    frozen = {"env": "FrozenLake-v1", "discount": 0.9}
    yield Target("MDP.from_gymnasium", mvpi.MDP.from_gymnasium, frozen)
    yield Target("MDP.load", mvpi.MDP.load, {}, path=_NOTHING)
    yield Target("MDP.save", model.save, {}, path=_NAMES)
    policy = {"policy": [0, 0, 0, 0]}
    yield Target("MDP.occupancy", model.occupancy, policy)
    yield Target("MDP.chain", model.chain, policy)
    yield Target("MDP.policy_matrix", model.policy_matrix, policy)
    yield Target("MDP.checked_policy", model.checked_policy, policy)
    occupancy = {"occupancy": np.full((4, 2), 0.125)}
    yield Target("MDP.reward_distribution", model.reward_distribution, occupancy)
    asked = {"mdp": model, "risk": 1.0}
    yield Target("policy_iteration", mvpi.policy_iteration, asked | policy, policy=_OPTIONAL)
    how = {"tolerance": 1e-9, "progress": None}
    functions = _OPTIONAL | {"function"}
    yield Target("optimize", mvpi.optimize, asked | how, progress=functions)
    yield Target("frontier", mvpi.frontier, {"mdp": model} | how, progress=functions)
    loop = {"evaluate": lambda _: [1.0, 2.0], "improve": lambda p, _: p, "policy": 0, "risk": 1.0}
    yield Target(
        "iterate",
        mvpi.iterate,
        loop | {"iterations": 3, "tolerance": 0.0},
        evaluate={"function"},
        improve={"function"},
        policy=_ANYTHING,
        tolerance=_NUMBERS | {"-inf"},
    )
    found = mvpi.frontier(model)
    yield Target("Frontier.best", found.best, {"risk_aversion": 1.0})
    yield Target("Frontier.with_variance_at_most", found.with_variance_at_most, {"limit": 1.0})
    yield Target(
        "Frontier.with_mean_at_least", found.with_mean_at_least, {"target": -0.3}, target=_NUMBERS
    )
    yield Target("Frontier.curve", found.curve, {"points_per_edge": 3})
    yield Target(
        "Frontier.plot",
        found.plot,
        {"path": None, "spread": "variance", "axes": None},
        path=_OPTIONAL,
        axes=_OPTIONAL,
    )
    discount = {"discount": 0.9}
    yield Target("examples.four_state", mvpi.examples.four_state, discount)
    sizes = {"states": 4, "actions": 2, "successors": 2, "seed": 0}
    yield Target("examples.random_sparse", mvpi.examples.random_sparse, sizes | discount)
    grid = {"side": 3, "slip": 0.2, "seed": None}
    yield Target("examples.grid_world", mvpi.examples.grid_world, grid | discount, seed=_OPTIONAL)
    yield Target("examples.inventory", mvpi.examples.inventory, {"capacity": 5} | discount)
    yield Target("examples.maintenance", mvpi.examples.maintenance, {"days": 5} | discount)


def _of_environments() -> Iterator[Target]:
    import gymnasium as gym

    import mvpi
    from mvpi import envs

    portfolio = envs.Markowitz()
    yield Target("NoisyActions", mvpi.NoisyActions, {"env": portfolio, "std": 0.1})
    yield Target(
        "envs.AugmentedReward", envs.AugmentedReward, {"env": portfolio, "risk": 1.0, "window": 10}
    )
    yield Target("envs.FourState", envs.FourState, {"horizon": 10})
    market = {"mean": (0.2, 0.1), "covariance": ((0.2, 0.05), (0.05, 0.1))}
    yield Target(
        "envs.Markowitz",
        envs.Markowitz,
        market | {"bound": 1.0, "horizon": 10},
        mean={"array of 1e308"},
    )
    yield Target("Markowitz.value", portfolio.value, {"action": (0.1, 0.1), "risk": 1.0})
    yield Target("Markowitz.best_action", portfolio.best_action, {"risk": 1.0})
    saver = {"maturity": 4, "share": 0.2, "liquid_factor": 1.001, "factors": (1.1, 2.0)}
    yield Target(
        "envs.Liquidity",
        envs.Liquidity,
        saver | {"switch": 0.1, "default": 0.05, "horizon": 5},
        factors={"array of 1e308"},
    )
    yield Target(
        "envs.Task",
        lambda **given: envs.Task(**given)(),
        {"id": "mvpi/Markowitz-v0", "action_noise": 0.1},
    )
    pendulum = gym.make("InvertedPendulum-v5", disable_env_checker=True)
    zone = {"env": pendulum, "threshold": 0.1, "std": 1.0, "bonus": 0.0, "below": False}
    yield Target(
        "envs.RiskyZone", envs.RiskyZone, zone, threshold=_NUMBERS, bonus=_NUMBERS, below=_FLAG
    )
    yield Target("envs.EitherWay", envs.EitherWay, {"env": pendulum})
    gamble = {"env": pendulum, "steps": 100, "toss": 60, "threshold": 0.05, "stake": 0.9}
    yield Target("envs.LateGamble", envs.LateGamble, gamble | {"right": 0.6}, right=_NUMBERS)


def _of_agents() -> Iterator[Target]:
    from dataclasses import fields

    import numpy as np

    import mvpi
    from mvpi.agents.registry import AGENTS

    for name, entry in AGENTS.items():
        risk = mvpi.CVaR(0.4) if name == "cvar-pg" else 1.0
        made = {"env": "mvpi/Markowitz-v0", "risk": risk, "seed": 0}
        kind, settings = getattr(mvpi, entry.class_name), entry.settings
        allowed = {field.name: _NOTHING for field in fields(settings)}
        for optional in ("max_grad_norm", "target_kl"):
            if optional in allowed:
                allowed[optional] = _OPTIONAL
        for flag in ("normalize_advantage", "normalize_observations"):
            if flag in allowed:
                allowed[flag] = _FLAG
        if "gradient_steps" in allowed:
            allowed["gradient_steps"] = {"-1"}
        if "hidden" in allowed and settings._fewest_layers == 0:
            allowed["hidden"] = {"empty array", "empty list"}
        yield _AgentTarget(name, kind, made, env={"function"}, **allowed)
    small = {"hidden": (4,), "learning_starts": 10, "batch_size": 4, "buffer_size": 100}
    agent = mvpi.TD3("mvpi/Markowitz-v0", evaluation_episodes=1, **small)
    yield Target(
        "TD3.learn",
        agent.learn,
        {"steps": 1, "out": None, "on_row": None},
        out=_OPTIONAL | _NAMES | {"missing file", "directory"},
        on_row=_OPTIONAL | {"function"},
    )
    yield Target("TD3.predict", agent.predict, {"observation": [1.0]})
    yield Target("TD3.save", agent.save, {}, path=_NAMES)
    yield Target("load", mvpi.load, {"path": "/nonexistent", "risk": None}, risk=_ANYTHING)
    yield Target(
        "evaluate",
        mvpi.evaluate,
        {"agent": agent, "env": "mvpi/Markowitz-v0", "episodes": 1, "seed": 0},
        env=_OPTIONAL | {"function"},
    )
    seen = mvpi.Evaluation(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([1, 1]))
    yield Target("Evaluation.cvar", seen.cvar, {"level": 0.5})
    yield Target("Evaluation.value", seen.value, {"risk": 1.0})
    yield Target("Evaluation.reward_value", seen.reward_value, {"risk": 1.0})
    interval = {"statistic": mvpi.stats.mean, "confidence": 0.9, "seed": 0}
    yield Target("Evaluation.interval", seen.interval, interval, statistic={"function"})
    yield Target(
        "Evaluation.reward_interval", seen.reward_interval, interval, statistic={"function"}
    )
    yield from _of_sb3()


class _AgentTarget(Target):
    """An agent has an argument for every setting; an unknown one is an `InputError`."""

    def attacks(self) -> Iterator[tuple[str, str, str]]:
        return (attack for attack in super().attacks() if attack[1])


def _of_sb3() -> Iterator[Target]:
    from stable_baselines3 import SAC

    from mvpi.sb3 import augmenter_of, risk_averse

    model = {"algorithm": SAC, "policy": "MlpPolicy", "env": "mvpi/Markowitz-v0", "risk": 1.0}
    small = {"buffer_size": 10, "policy_kwargs": {"net_arch": [4]}}

    def made(*, algorithm: Any, policy: Any, env: Any, risk: Any, window: Any) -> Any:
        return risk_averse(algorithm, policy, env, risk=risk, window=window, **small)

    # The policy and the environment are checked by SB3, with exceptions of its own.
    yield Target(
        "sb3.risk_averse",
        made,
        model | {"window": 10},
        window=_OPTIONAL,
        policy=_ANYTHING,
        env=_ANYTHING,
    )
    yield Target("sb3.augmenter_of", augmenter_of, {}, model=_NOTHING)


def _of_data() -> Iterator[Target]:
    import numpy as np

    from mvpi import offline

    rows = {
        "observations": np.array([0, 0, 1]),
        "actions": np.array([0, 1, 0]),
        "rewards": np.array([0.0, 0.0, 1.0]),
        "next_observations": np.array([0, 1, 0]),
        "terminations": np.zeros(3, bool),
        "starts": np.array([0]),
    }
    counts = {"n_states": None, "n_actions": None, "first_state": 0, "first_action": 0}
    facts = counts | {"low": None, "high": None}
    yield Target(
        "offline.Dataset",
        offline.Dataset,
        rows | facts,
        n_states=_OPTIONAL,
        n_actions=_OPTIONAL,
        low=_OPTIONAL,
        high=_OPTIONAL,
        first_state={"-1"},
        first_action={"-1"},
    )
    finite = offline.Dataset(**rows)
    rng = np.random.default_rng(0)
    s, a = rng.normal(size=(40, 1)), rng.uniform(-1, 1, (40, 1))
    vectors = offline.Dataset(s, a, a[:, 0], s, terminations=np.ones(40, bool), starts=s)
    bounds = {"low": None, "high": None}
    columns = {name: getattr(vectors, name) for name in rows}
    yield Target(
        "offline.Dataset of vectors",
        offline.Dataset,
        columns | bounds,
        low=_OPTIONAL | _NUMBERS,
        high=_OPTIONAL | _NUMBERS,
    )
    for reader in ("from_minari", "from_run", "load"):
        argument = {"from_minari": "dataset", "from_run": "directory", "load": "path"}[reader]
        yield Target(
            f"Dataset.{reader}", getattr(offline.Dataset, reader), {}, **{argument: _NOTHING}
        )
    yield Target("Dataset.save", finite.save, {}, path=_NAMES)
    yield Target("Dataset.batch", finite.batch, {"indices": [0, 1]})
    yield Target("Dataset.sample", finite.sample, {"rng": np.random.default_rng(0), "size": 2})
    asked = {"data": finite, "policy": [1, 0], "discount": 0.5}
    exact = {"method": "exact", "steps": None, "seed": 0}
    yield Target("offline.density_ratio", offline.density_ratio, asked | exact, steps=_OPTIONAL)
    ratio = {
        "data": finite,
        "discount": 0.5,
        "method": "gradient-dice",
        "optimizer": None,
        "learning_rate": None,
        "batch_size": None,
        "hidden": (4,),
        "penalty": 1.0,
        "seed": 0,
        "features": None,
    }
    yield Target(
        "offline.DensityRatio",
        offline.DensityRatio,
        ratio,
        optimizer=_OPTIONAL,
        learning_rate=_OPTIONAL,
        batch_size=_OPTIONAL,
        features=_OPTIONAL,
        hidden={"empty array", "empty list"},
    )
    yield Target(
        "offline.weighted_dual",
        offline.weighted_dual,
        {"data": finite, "ratio": [1.0, 1.0, 1.0], "risk": 1.0},
    )
    yield Target(
        "offline.effective_size",
        offline.effective_size,
        {"ratio": [1.0, 2.0]},
        ratio={"5 dimensions", "array of 1e308"},
    )
    judged = asked | {"method": "exact", "confidence": 0.9, "resamples": 2, "seed": 0}
    yield Target("offline.evaluate", offline.evaluate, judged)
    found = offline.evaluate(**judged)
    yield Target("OfflineEvaluation.cvar", found.cvar, {"level": 0.5})
    yield Target("OfflineEvaluation.cvar_interval", found.cvar_interval, {"level": 0.5})
    yield Target("OfflineEvaluation.value", found.value, {"risk": 1.0})
    yield Target("OfflineEvaluation.value_interval", found.value_interval, {"risk": 1.0})
    fitted = asked | {"features": None, "hidden": (4,), "steps": None, "seed": 0}
    layers = {"empty array", "empty list"}
    yield Target(
        "offline.fitted_q_mean",
        offline.fitted_q_mean,
        fitted,
        features=_OPTIONAL,
        hidden=layers,
        steps=_OPTIONAL,
    )
    learned = {"data": finite, "risk": 1.0, "discount": 0.5}
    limits = {"iterations": 100, "tolerance": 1e-9, "on_iteration": None}
    for name in ("learn", "learn_finite"):
        yield Target(
            f"offline.{name}",
            getattr(offline, name),
            learned | limits,
            on_iteration=_OPTIONAL | {"function"},
        )
    networks = {"updates": 2, "hidden": (4,), "ratio_steps": 1, "ratio_every": 2, "batch_size": 4}
    more = {"alpha": 2.5, "ratio_method": "gen-dice", "seed": 0, "low": None, "high": None}
    yield _AgentTarget(
        "offline.learn of vectors",
        offline.learn,
        learned | {"data": vectors} | networks | more,
        low=_OPTIONAL | _NUMBERS,
        high=_OPTIONAL,
    )
    relabelled = {"dataset": "no/such-v0", "new_id": "new-v0", "risk": 1.0, "y": None}
    yield Target("offline.relabel", offline.relabel, relabelled, new_id=_ANYTHING, y=_ANYTHING)


def _of_experiments() -> Iterator[Target]:
    from mvpi.experiments import Experiment, LocalRunner, Outcome, RayRunner

    one = {"algorithm": "td3", "environment": "mvpi/Markowitz-v0", "risk": 1.0, "seed": 0}
    more = {"steps": 10, "action_noise": 0.1, "episodes": 2, "settings": {}}
    texts = {"text", "number in text", "numpy text", "lines", "long text"}
    yield Target(
        "experiments.Experiment",
        Experiment,
        one | more,
        environment=texts | {"NUL", "surrogate", "empty text"},
        risk={"number in text", "numpy text"},
    )
    yield Target("experiments.LocalRunner", LocalRunner, {"workers": 1}, workers=_OPTIONAL)
    yield Target(
        "experiments.RayRunner",
        RayRunner,
        {"address": "auto"},
        address=texts | {"NUL", "surrogate", "empty text"},
    )
    yield Target(
        "Outcome.read", Outcome.read, {}, directory=texts | {"missing file", "directory", "pipe"}
    )
