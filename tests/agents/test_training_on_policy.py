"""Attacks on the agents that draw their actions: kills, broken environments, hostile files.

Their states are saved in the middle of episodes, of up to 16 environments side by side.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers import worlds
from helpers.victims import (
    TINY_OF,
    Case,
    Death,
    Server,
    die_at_every_event_of_files,
    in_time,
    kill_processes,
    refused_in_one_line,
    results,
    risk_of,
    run,
    snapshot,
    survive,
)

import mvpi
from mvpi import InputError
from mvpi._storage.arrays import read_arrays, write_arrays
from mvpi.agents.agent import Agent
from mvpi.agents.loading import agent_type
from mvpi.errors import Divergence, EnvironmentFailure, ResumeWarning
from mvpi.paper.grid import TASKS
from mvpi.risk import parse_risk
from mvpi.rollout.spaces import Choices, States

PARALLEL = ("mvp", "tamar", "prashanth", "mean-gini", "cvar-pg")
ALGORITHMS = ("ppo", *PARALLEL)
SHARING = ("tamar", "prashanth", "cvar-pg")
STEPS = 333

ENVIRONMENTS: dict[str, Any] = {
    "random episodes": ["Walk"],
    "one state": "mvpi/Markowitz-v0",
    "four states": "mvpi/FourState-v0",
    "states and choices that do not begin at 0": ["Hall"],
    "pendulum": "InvertedPendulum-v5",
}

algorithms = pytest.mark.parametrize(
    "algorithm",
    [
        # Tamar and Prashanth share nearly all of this with MVP, CVaRPG with MeanGini.
        pytest.param(name, marks=[pytest.mark.slow] if name in SHARING else [])
        for name in ALGORITHMS
    ],
)
parallel = pytest.mark.parametrize("algorithm", PARALLEL)


def agent(
    algorithm: str, env: Any, risk: mvpi.Risk | float | None = None, **settings: Any
) -> Agent[Any]:
    chosen = parse_risk(risk_of(algorithm)) if risk is None else risk
    return agent_type(algorithm)(env, chosen, 3, **(TINY_OF[algorithm] | settings))


def same_parameters(one: Agent[Any], other: Agent[Any]) -> bool:
    pairs = zip(one.policy.parameters, other.policy.parameters, strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


# ---- kills ----------------------------------------------------------------------------------


@algorithms
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_killed_again_and_again(tmp_path: Path, algorithm: str, name: str) -> None:
    case = Case(ENVIRONMENTS[name], steps=STEPS, algorithm=algorithm)
    assert survive(case, seed=1, kills=5, tmp_path=tmp_path) > 1


def test_a_budget_killed_again_and_again(tmp_path: Path) -> None:
    """The price of variance is a part of the state; in the end it has moved."""
    settings = {"budget_rate": 0.3}
    case = Case(["Walk"], "budget:0.05", STEPS, settings=settings, algorithm="ppo")
    assert survive(case, seed=2, kills=5, tmp_path=tmp_path) > 1
    header, *rows = results(tmp_path / "whole")[1]
    prices = [float(row[header.index("risk_aversion")]) for row in rows]
    assert prices[-1] > prices[0] > 0


OTHERS: dict[str, Case] = {
    "no evaluation but the last": Case(["Walk"], settings={"evaluation_every": 10_000}),
    "a checkpoint whenever possible": Case(["Walk"], settings={"checkpoint_every": 1}),
    "no checkpoint": Case(["Walk"], settings={"checkpoint_every": 10_000}),
    "everything at common steps": Case(
        ["Walk"], steps=480, settings={"evaluation_every": 96, "checkpoint_every": 96}
    ),
    "primes": Case(["Walk"], steps=601, settings={"evaluation_every": 37, "checkpoint_every": 53}),
    "noisy actions": Case("mvpi/Markowitz-v0", action_noise=0.2),
    "no hidden layers": Case(["Hall"], settings={"hidden": []}),
    "first episodes that never end": Case(["Walk", 10_000, 0.0]),
}


@pytest.mark.slow
@algorithms
@pytest.mark.parametrize("name", [*ENVIRONMENTS, *OTHERS])
@pytest.mark.parametrize("seed", range(2))
def test_killed_twenty_times(tmp_path: Path, algorithm: str, name: str, seed: int) -> None:
    case = OTHERS.get(name) or Case(ENVIRONMENTS[name])
    case = Case(**(vars(case) | {"algorithm": algorithm}))
    survive(case, seed=seed + 100, kills=20, tmp_path=tmp_path)


def every_event(algorithm: str, tmp_path: Path) -> None:
    settings = {"evaluation_every": 30, "checkpoint_every": 16, "evaluation_episodes": 1}
    settings |= {"n_steps": 16} if algorithm == "ppo" else {"n_envs": 4}
    case = Case(["Walk"], steps=35, settings=settings, algorithm=algorithm)
    assert die_at_every_event_of_files(case, tmp_path) > 20


@pytest.mark.parametrize("algorithm", ["ppo"])
def test_killed_once_at_every_event_of_files(tmp_path: Path, algorithm: str) -> None:
    every_event(algorithm, tmp_path)


@pytest.mark.slow
@parallel
def test_killed_once_at_every_event_of_files_as_well(tmp_path: Path, algorithm: str) -> None:
    every_event(algorithm, tmp_path)


def test_processes_killed_in_the_middle_of_episodes(tmp_path: Path, server: Server) -> None:
    case = Case(["Walk"], steps=1_000, algorithm="mvp")
    assert kill_processes(case, 3, tmp_path, server, inside=("step",)) == 3


@pytest.mark.slow
@algorithms
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_processes_killed_twenty_times(
    tmp_path: Path, server: Server, algorithm: str, name: str
) -> None:
    settings = {"evaluation_every": 3_000, "checkpoint_every": 110}
    case = Case(ENVIRONMENTS[name], steps=20_000, settings=settings, algorithm=algorithm)
    assert kill_processes(case, 20, tmp_path, server, inside=("step",), within=60) >= 10


@algorithms
@pytest.mark.parametrize("name", ["random episodes", "four states"])
def test_prolonged_is_the_same_as_at_once(tmp_path: Path, algorithm: str, name: str) -> None:
    """Wherever a part ends: at a common step or between, at an evaluation or between."""
    env = ENVIRONMENTS[name]
    for steps in (5, 96, 180, 271, STEPS):
        case = Case(env, steps=steps, algorithm=algorithm)
        run(case, tmp_path / "parts")
        run(case, tmp_path / f"{steps}")
        assert results(tmp_path / "parts") == results(tmp_path / f"{steps}")


@algorithms
def test_prolonging_is_killed_and_resumed(tmp_path: Path, algorithm: str) -> None:
    case = Case(["Walk"], steps=STEPS, algorithm=algorithm)
    run(case, tmp_path / "whole")
    run(Case(["Walk"], steps=250, algorithm=algorithm), tmp_path / "0")
    assert snapshot(case, tmp_path / "0", Death(("step",), 40), tmp_path / "1")
    run(case, tmp_path / "1")
    assert results(tmp_path / "1") == results(tmp_path / "whole")


@algorithms
@pytest.mark.parametrize("env", [["Walk"], ["Hall"]])
@pytest.mark.parametrize("parts", [(100, 101, 260), (96, 192)])
def test_calls_of_learn_in_memory_are_one_longer_call(
    algorithm: str, env: list[str], parts: tuple[int, ...]
) -> None:
    """Also where a part ends between two actors of a common step."""
    whole = agent(algorithm, worlds.make(*env)).learn(STEPS)
    split = agent(algorithm, worlds.make(*env))
    for steps in (*parts, STEPS):
        split.learn(steps)
        assert split.steps == steps
    assert same_parameters(split, whole)


@algorithms
def test_memory_and_a_directory_learn_the_same(tmp_path: Path, algorithm: str) -> None:
    case = Case(["Walk"], steps=STEPS, algorithm=algorithm)
    run(case, tmp_path / "run")
    case.agent().learn(STEPS).save(tmp_path / "memory.safetensors")
    assert (tmp_path / "memory.safetensors").read_bytes() == results(tmp_path / "run")[0]


@parallel
def test_checkpoints_are_written_whenever_evaluations_are(tmp_path: Path, algorithm: str) -> None:
    """With evaluations at the same place of every round, there must still be a time to save."""
    for every in (10, 40):  # Below 16; and 3 common steps, the rounds here, the last not whole.
        out = tmp_path / f"{every}"
        env = worlds.make("Walk")
        settings = {"evaluation_every": every, "evaluation_episodes": 1, "checkpoint_every": 50}
        agent(algorithm, env, **settings).learn(400, out)
        _, record = read_arrays(out / "checkpoint.safetensors", "checkpoint")
        assert record["steps"] >= 300


@parallel
def test_every_actor_acts_however_often_there_are_evaluations(algorithm: str) -> None:
    made: list[worlds.Broken] = []

    def counting() -> gym.Env[Any, Any]:
        made.append(worlds.Broken("nothing", 0))
        return made[-1]

    agent(algorithm, counting, evaluation_every=10, evaluation_episodes=1).learn(320)
    *actors, _ = made  # The last one is for evaluations.
    assert [actor.taken for actor in actors] == [20] * 16


# ---- environments that are passed in, made and closed ------------------------------------------


class Watched(worlds.Walk):
    """Knows whether it was closed, which a copy begins anew."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@algorithms
def test_a_given_environment_is_copied_and_not_closed(tmp_path: Path, algorithm: str) -> None:
    env = Watched()
    agent(algorithm, env).learn(STEPS, tmp_path / "given")
    assert env.closed == 0
    env.reset(seed=0)
    env.step(np.zeros(1))
    agent(algorithm, Watched).learn(STEPS, tmp_path / "made")
    (given, made) = (mvpi.load(tmp_path / name) for name in ("given", "made"))
    assert same_parameters(given, made)
    assert results(tmp_path / "given")[1] == results(tmp_path / "made")[1]


@algorithms
def test_a_given_environment_is_killed_and_resumed(tmp_path: Path, algorithm: str) -> None:
    agent(algorithm, Watched()).learn(STEPS, tmp_path / "whole")
    env = Watched()
    agent(algorithm, env).learn(200, tmp_path / "parts")
    agent(algorithm, env).learn(STEPS, tmp_path / "parts")
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


@parallel
def test_a_given_mujoco_environment_and_its_copies(algorithm: str) -> None:
    env = mvpi.envs.Task("InvertedPendulum-v5", 0.1)()
    given = agent(algorithm, env).learn(100)
    env.step(np.zeros(1, np.float32))
    env.close()
    made = agent(algorithm, mvpi.envs.Task("InvertedPendulum-v5", 0.1)).learn(100)
    assert same_parameters(given, made)


@algorithms
@pytest.mark.parametrize("fails", [False, True])
def test_every_environment_that_was_made_is_closed_once(
    tmp_path: Path, algorithm: str, fails: bool
) -> None:
    made: list[Watched] = []

    def make() -> gym.Env[Any, Any]:
        made.append(Watched())
        if fails and len(made) > 1:
            made[-1].step = worlds.Broken("raise in step", 3).step  # type: ignore[method-assign]
        return made[-1]

    with pytest.raises(EnvironmentFailure) if fails else nullcontext():
        agent(algorithm, make).learn(100, tmp_path)
    assert [env.closed for env in made] == [1] * len(made)


def test_an_environment_that_cannot_be_copied_is_one_line() -> None:
    env = worlds.Walk()
    env.generator = (x for x in ())  # type: ignore[attr-defined]
    for algorithm in PARALLEL:
        with pytest.raises(InputError, match="cannot be copied") as caught:
            agent(algorithm, env).learn(100)
        assert "\n" not in str(caught.value)


# ---- environments that break --------------------------------------------------------------------


def one_of(kind: Callable[[], Any], other: Callable[[], Any], index: int | None) -> Any:
    """A function that makes environments, the one at `index` of another kind."""
    made = itertools.count()

    def environment() -> gym.Env[Any, Any]:
        env: gym.Env[Any, Any] = (other if next(made) == index else kind)()
        return env

    return environment


BROKEN = (
    "raise in step",
    "nan reward",
    "none reward",
    "reward beyond float32",
    "nan observation",
    "longer observation",
    "none observation",
    "none from step",
    *worlds.DEFECTS_OF_RESET,
)
STATES: tuple[Any, ...] = (4, 8, -1, 2**63, 10**30, 6.0, np.nan, None, "6", [6], True, np.zeros(3))


@cache
def undisturbed(algorithm: str, kind: Callable[[], Any]) -> tuple[bytes, list[list[str]]]:
    """The results where no environment breaks."""
    with TemporaryDirectory() as name:
        agent(algorithm, one_of(kind, kind, None)).learn(STEPS, Path(name))
        return results(Path(name))


def breaks(
    algorithm: str, kind: Callable[[], Any], broken: Callable[[], Any], tmp_path: Path
) -> None:
    """One environment breaks after a checkpoint, from which a repaired one goes on."""
    out = tmp_path / "run"
    index = 0 if algorithm == "ppo" else 9
    with pytest.raises(EnvironmentFailure) as caught:
        agent(algorithm, one_of(kind, broken, index)).learn(STEPS, out)
    message = str(caught.value)
    assert "\n" not in message
    steps = int(re.search(r"after (\d+) steps", message)[1])  # type: ignore[index]
    _, record = read_arrays(out / "checkpoint.safetensors", "checkpoint")
    assert 70 <= record["steps"] <= steps
    assert f"the checkpoint at step {record['steps']} in {out} is intact" in message
    assert mvpi.load(out).steps == record["steps"]
    agent(algorithm, one_of(kind, kind, None)).learn(STEPS, out)
    assert results(out) == undisturbed(algorithm, kind)


def when(algorithm: str) -> int:
    """The step of one environment that is about step 180 of all of them."""
    return 180 if algorithm == "ppo" else 11


@pytest.mark.parametrize("what", BROKEN)
def test_one_environment_breaks(tmp_path: Path, what: str) -> None:
    algorithm = ALGORITHMS[BROKEN.index(what) % 4]
    at = when(algorithm)
    breaks(algorithm, walk_of(at + 2), lambda: worlds.Broken(what, at, at + 2, 0.0), tmp_path)


@cache
def walk_of(steps: int) -> Callable[[], Any]:
    """One function for one length, so that what was made with it is found again."""
    return lambda: worlds.Walk(steps, 0.0)


@pytest.mark.parametrize("seen", STATES, ids=repr)
def test_one_environment_returns_what_is_no_state(tmp_path: Path, seen: Any) -> None:
    algorithm = ALGORITHMS[STATES.index(seen) % 4 if not isinstance(seen, np.ndarray) else 0]
    breaks(algorithm, worlds.Hall, lambda: worlds.Ghost(seen, when(algorithm)), tmp_path)


@algorithms
@pytest.mark.parametrize("seen", [8, None])
def test_an_evaluation_returns_what_is_no_state(algorithm: str, seen: Any) -> None:
    index = 1 if algorithm == "ppo" else 16
    env = one_of(worlds.Hall, lambda: worlds.Ghost(seen, 3), index)
    with pytest.raises(EnvironmentFailure, match="in an evaluation") as caught:
        agent(algorithm, env).learn(STEPS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", worlds.DEFECTS_OF_RESET)
@parallel
def test_one_environment_cannot_even_begin(tmp_path: Path, algorithm: str, what: str) -> None:
    env = one_of(worlds.Walk, lambda: worlds.Broken(what, 0), 9)
    with pytest.raises(EnvironmentFailure) as caught:
        agent(algorithm, env).learn(STEPS, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


@algorithms
@pytest.mark.parametrize("env", ["Forgetful", "Unsteady", "Lottery"])
def test_a_state_outside_the_generators_is_warned_of(
    tmp_path: Path, algorithm: str, env: str
) -> None:
    """Also when the repeated episode ends too early, or only its rewards are other ones."""
    # In the middle of a later episode, for most of the actors.
    steps = {"Unsteady": (48, 336)}.get(env, (288, 768))[algorithm != "ppo"]
    settings = {"evaluation_every": 10_000, "checkpoint_every": steps}
    agent(algorithm, worlds.make(env), **settings).learn(steps, tmp_path)
    _, record = read_arrays(tmp_path / "checkpoint.safetensors", "checkpoint")
    assert record["steps"] == steps
    with pytest.warns(ResumeWarning, match="keeps state outside"):
        agent(algorithm, worlds.make(env), **settings).learn(steps + 50, tmp_path)


@algorithms
def test_no_warning_when_the_first_episodes_are_resumed(tmp_path: Path, algorithm: str) -> None:
    """The first reset is the one with a seed: it has to be repeated with it."""
    env = worlds.make("Walk", 350, 0.0)
    agent(algorithm, env).learn(200, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent(algorithm, env).learn(STEPS, tmp_path)


def learns_or_diverges(learning: Agent[Any]) -> None:
    """Without a warning, and without blaming the environment."""
    message = ""
    try:
        learning.learn(400)
    except Divergence as error:
        message = str(error)
    assert "\n" not in message


@algorithms
@pytest.mark.parametrize("scale", [1e15, 1e30, 3e38])
def test_rewards_too_large_are_a_divergence_or_learned_from(algorithm: str, scale: float) -> None:
    """Rewards are allowed up to the largest float32; their squares and fourth powers are not."""

    class Rich(worlds.Walk):
        def step(self, action: Any) -> worlds.Reply:
            observation, reward, *rest = super().step(action)
            return observation, scale * math.tanh(reward), *rest

    learns_or_diverges(agent(algorithm, Rich, evaluation_episodes=1))


@algorithms
@pytest.mark.parametrize("env", ["Walk", "Deaf", "Hall"])
def test_steps_too_large_are_not_blamed_on_the_environment(algorithm: str, env: str) -> None:
    settings: dict[str, Any] = {"learning_rate": 1e30, "max_grad_norm": None}
    if algorithm in ("mvp", "tamar"):
        settings["estimate_rate"] = 1e-31
    if algorithm in ("ppo", "prashanth"):
        settings["critic_learning_rate"] = 1e30
    learns_or_diverges(agent(algorithm, worlds.make(env), evaluation_episodes=1, **settings))


# ---- evaluations --------------------------------------------------------------------------------


@algorithms
@pytest.mark.parametrize("env", ["mvpi/Markowitz-v0", "mvpi/FourState-v0"])
def test_an_evaluation_is_the_same_twice(tmp_path: Path, algorithm: str, env: str) -> None:
    learned = agent(algorithm, env).learn(100, tmp_path)
    loaded = mvpi.load(tmp_path)
    first, again, other = (mvpi.evaluate(loaded, episodes=3, seed=s) for s in (5, 5, 6))
    assert first.rewards.tobytes() == again.rewards.tobytes()
    assert first.rewards.tobytes() != other.rewards.tobytes()
    assert mvpi.evaluate(learned, episodes=3, seed=5).rewards.tobytes() == first.rewards.tobytes()
    one, more = (mvpi.evaluate(loaded, episodes=n, seed=5) for n in (1, 3))
    assert one.rewards.tolist() == more.rewards[: one.lengths[0]].tolist()


@algorithms
def test_how_training_is_watched_does_not_change_it(algorithm: str) -> None:
    env = worlds.make("Hall" if algorithm in ("ppo", "mvp") else "Walk")
    one, five = (agent(algorithm, env, evaluation_episodes=n).learn(200) for n in (1, 5))
    assert same_parameters(one, five)


@algorithms
def test_looking_at_an_agent_in_training_does_not_change_it(algorithm: str) -> None:
    whole = agent(algorithm, worlds.make("Walk")).learn(200)
    watched = agent(algorithm, worlds.make("Walk"))
    observed = np.zeros(2)

    def look(row: Any) -> None:
        mvpi.evaluate(watched, episodes=1)
        watched.predict(observed)
        watched.policy.act(observed, np.random.default_rng(0))

    assert same_parameters(watched.learn(200, on_row=look), whole)
    assert np.array_equal(watched.predict(observed), whole.predict(observed))


# ---- policy files -------------------------------------------------------------------------------

Files = tuple[dict[str, Any], dict[str, Any]]


def gaussian() -> Files:
    """Arrays and record of a policy for a box."""
    rng = np.random.default_rng(0)
    return {
        "low": np.array([-1.0, -0.5], np.float32),
        "high": np.array([1.0, 2.0], np.float32),
        "weight.0": rng.standard_normal((3, 4)).astype(np.float32),
        "bias.0": np.zeros(4, np.float32),
        "weight.1": rng.standard_normal((4, 2)).astype(np.float32),
        "bias.1": np.zeros(2, np.float32),
        "log_std": np.zeros(2, np.float32),
        "mean": np.zeros(3, np.float32),
        "scale": np.ones(3, np.float32),
    }, _facts("gaussian", "ppo", "mvpi/Markowitz-v0")


def categorical() -> Files:
    """Arrays and record of a policy for choices, on states."""
    arrays, _ = gaussian()
    kept = {name: array for name, array in arrays.items() if "." in name}
    facts = _facts("categorical", "mvp", "mvpi/FourState-v0")
    return kept, facts | {"first_choice": 0, "first_state": 0}


def _facts(head: str, algorithm: str, env: str) -> dict[str, Any]:
    return {
        "head": head,
        "sizes": [3, 4, 2],
        "algorithm": algorithm,
        "environment": {"id": env, "action_noise": 0.0},
        "risk": "1.0",
        "seed": 0,
        "settings": {"gamma": 0.9},
        "steps": 10,
    }


LEFT_OUT = object()


def changed(make: Callable[[], Files], **changes: Any) -> Files:
    """With other arrays and facts, or without them."""
    arrays, facts = make()
    for name, value in changes.items():
        place: dict[str, Any] = arrays if isinstance(value, np.ndarray) else facts
        if value is LEFT_OUT:
            arrays.pop(name, None)
            facts.pop(name, None)
        else:
            place[name] = value
    return arrays, facts


def floats(*values: float, dtype: Any = np.float32) -> Any:
    return np.array(values, dtype)


WRONG_HEADS = ("beta", "", "Gaussian", "gaussian\n", "x" * 10_000, None, 1, True, ["gaussian"], {})
NO_STARTS = (0.0, "0", True, [0], {}, "1e3", float(2**53))

REFUSED: dict[str, Files] = {
    **{f"head {head!r:.20}": changed(gaussian, head=head) for head in WRONG_HEADS},
    **{f"head {head!r:.20} of choices": changed(categorical, head=head) for head in WRONG_HEADS},
    "no log_std": changed(gaussian, log_std=LEFT_OUT),
    "short log_std": changed(gaussian, log_std=floats(0.0)),
    "long log_std": changed(gaussian, log_std=floats(0.0, 0.0, 0.0)),
    "log_std of no dimension": changed(gaussian, log_std=np.zeros((), np.float32)),
    "log_std of a row": changed(gaussian, log_std=np.zeros((1, 2), np.float32)),
    "nan log_std": changed(gaussian, log_std=floats(0.0, np.nan)),
    "infinite log_std": changed(gaussian, log_std=floats(0.0, -np.inf)),
    **{
        f"log_std of {np.dtype(t)}": changed(gaussian, log_std=floats(0, 0, dtype=t))
        for t in (np.float16, np.float64, np.int32, np.int64, np.uint32, np.uint64)
    },
    "no scale": changed(gaussian, scale=LEFT_OUT),
    "scale 0": changed(gaussian, scale=floats(1.0, 0.0, 1.0)),
    "scale -0": changed(gaussian, scale=floats(1.0, -0.0, 1.0)),
    "negative scale": changed(gaussian, scale=floats(1.0, -1.0, 1.0)),
    "nan scale": changed(gaussian, scale=floats(1.0, np.nan, 1.0)),
    "infinite scale": changed(gaussian, scale=floats(1.0, np.inf, 1.0)),
    "short scale": changed(gaussian, scale=floats(1.0, 1.0)),
    "scale of one number": changed(gaussian, scale=floats(1.0)),
    "scale of float64": changed(gaussian, scale=np.ones(3)),
    "scale of whole numbers": changed(gaussian, scale=np.ones(3, np.int32)),
    "nan mean": changed(gaussian, mean=floats(np.nan, 0.0, 0.0)),
    "infinite mean": changed(gaussian, mean=floats(np.inf, 0.0, 0.0)),
    "mean of a matrix": changed(gaussian, mean=np.zeros((3, 3), np.float32)),
    "mean of float64": changed(gaussian, mean=np.zeros(3)),
    "scale 0 of choices": changed(
        categorical, mean=np.zeros(3, np.float32), scale=np.zeros(3, np.float32)
    ),
    "choices with a box": changed(gaussian, head="categorical"),
    "a box with choices": changed(gaussian, first_choice=0),
    "a deterministic policy with choices": changed(categorical, head="deterministic"),
    "a Gaussian with choices": changed(categorical, head="gaussian"),
    "a Gaussian with choices and log_std": changed(
        categorical, head="gaussian", log_std=np.zeros(2, np.float32)
    ),
    "a Gaussian without a box": changed(gaussian, low=LEFT_OUT),
    "no first choice": changed(categorical, first_choice=LEFT_OUT),
    "first choice null": changed(categorical, first_choice=None),
    **{f"first choice {x!r}": changed(categorical, first_choice=x) for x in NO_STARTS},
    **{f"first state {x!r}": changed(categorical, first_state=x) for x in NO_STARTS},
    "first choice of 400 digits": changed(categorical, first_choice=10**400),
    "first choice of -400 digits": changed(categorical, first_choice=-(10**400)),
    "last choice beyond 64 bits": changed(categorical, first_choice=2**63 - 1),
    "first choice beyond 64 bits": changed(categorical, first_choice=-(2**63) - 1),
    "first state of 400 digits": changed(categorical, first_state=10**400),
    "last state beyond 64 bits": changed(categorical, first_state=2**63 - 1),
    "first state beyond 64 bits": changed(categorical, first_state=-(2**63) - 1),
}

ACTING: dict[str, Files] = {
    "as it is": gaussian(),
    "choices as they are": categorical(),
    "no scaling": changed(gaussian, mean=LEFT_OUT, scale=LEFT_OUT),
    "states as vectors": changed(categorical, first_state=LEFT_OUT),
    "first state null": changed(categorical, first_state=None),
    "a deterministic policy with leftovers": changed(gaussian, head="deterministic"),
    "choices with a leftover box": changed(categorical, low=floats(0, 0), high=floats(1, 1)),
    "choices with a scaling": changed(
        categorical, mean=np.zeros(3, np.float32), scale=np.ones(3, np.float32)
    ),
    "smallest choices": changed(categorical, first_choice=-(2**63), first_state=-(2**63)),
    "largest choices": changed(categorical, first_choice=2**63 - 2, first_state=2**63 - 3),
    "a box of states": changed(gaussian, first_state=7),
    "vanishing deviation": changed(gaussian, log_std=floats(-3e38, -200.0)),
    "huge deviation": changed(gaussian, log_std=floats(88.0, 3e38)),
    "tiny scale": changed(gaussian, scale=floats(1e-45, 1e-38, 1e-30)),
    "huge scale": changed(gaussian, scale=floats(3e38, 3e38, 3e38)),
    "far mean": changed(gaussian, mean=floats(3e38, -3e38, 3e38)),
}


def write(path: Path, files: Files) -> None:
    write_arrays(path, "policy", *files)


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_policies_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "policy.safetensors"
    write(path, REFUSED[name])
    refused_in_one_line(path)


def observations_of(policy: Any) -> Iterator[Any]:
    seen = policy.spaces.observations
    if isinstance(seen, States):
        yield from (seen.first + i for i in range(seen.size))
    else:
        yield from np.linspace(-2.0, 2.0, 5 * seen.size, dtype=np.float32).reshape(5, -1)


@pytest.mark.parametrize("name", ACTING)
def test_odd_policies_act(tmp_path: Path, name: str) -> None:
    """Inside their box or among their choices, and without a warning."""
    path = tmp_path / "policy.safetensors"
    write(path, ACTING[name])
    policy = in_time(lambda: mvpi.load(path)).policy
    done = policy.spaces.actions
    rng = np.random.default_rng(0)
    for observation in observations_of(policy):
        for action in (policy.predict(observation), policy.act(observation, rng)):
            if isinstance(done, Choices):
                assert done.first <= int(action) < done.first + done.size
            else:
                assert action.shape == (2,)
                assert (done.low <= action).all()
                assert (action <= done.high).all()


@pytest.mark.parametrize("observation", [-1, 3, 2**63, 10**30, 0.0, "0", None, [[0]], True])
def test_what_is_no_state_is_refused_by_a_policy(tmp_path: Path, observation: Any) -> None:
    path = tmp_path / "policy.safetensors"
    write(path, categorical())
    loaded = mvpi.load(path)
    with pytest.raises(InputError, match="observation must") as caught:
        loaded.predict(observation)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint16, np.int64, np.uint64])
@pytest.mark.parametrize("first", [-2, 0, 2, 300, -(2**63)])
def test_states_of_any_whole_type_are_states_or_refused(dtype: Any, first: int) -> None:
    """A number that its type cannot subtract from is still a state, or not one."""
    states = States(5, first)
    for number in (0, 1, 3, 100):
        if 0 <= number - first < 5:
            assert states.vectors(dtype(number)).argmax() == number - first
        else:
            with pytest.raises(ValueError, match="must be a state from"):
                states.vectors(dtype(number))


@algorithms
@pytest.mark.parametrize("name", ["seen", "count", "variance", "actions.0", "actions.15", "worlds"])
def test_a_checkpoint_without_a_part_is_refused(tmp_path: Path, algorithm: str, name: str) -> None:
    agent(algorithm, worlds.make("Walk")).learn(100, tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    arrays, record = read_arrays(path, "checkpoint")
    if name not in arrays and name != "worlds":
        return  # It is a part of other agents' checkpoints.
    arrays.pop(name, None)
    if name == "worlds":
        record["worlds"].append(record["worlds"][0])
    facts = {key: record[key] for key in record if key not in ("checksum", "format", "kind")}
    write_arrays(path, "checkpoint", arrays, facts)
    with pytest.raises(InputError, match=re.escape(str(path))) as caught:
        agent(algorithm, worlds.make("Walk")).learn(200, tmp_path)
    assert "\n" not in str(caught.value)


# ---- the paper's tasks --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", [mvpi.PPO, mvpi.MVP, mvpi.Tamar, mvpi.Prashanth])
@pytest.mark.parametrize("task", TASKS)
def test_the_tasks_of_the_paper_give_no_reason_to_warn(
    tmp_path: Path, task: str, kind: type[Agent[Any]]
) -> None:
    learned = kind(mvpi.envs.Task(task, 0.1), risk=1.0).learn(5_000, out=tmp_path)
    assert learned.steps == mvpi.load(tmp_path).steps == 5_000
    assert len(results(tmp_path)[1]) == 2
