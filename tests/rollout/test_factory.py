"""Environment factories: what is made when, what is closed, and what is recorded."""

from __future__ import annotations

import gc
from collections import UserList
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
from helpers.victims import TINY

import mvpi
from mvpi import InputError
from mvpi.envs import Markowitz, Task
from mvpi.rollout.factory import FromFunction, FromInstance, as_env_factory


class Counted(Markowitz):
    """Knows how often it was made and closed."""

    made = 0
    closed = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def counted() -> type[Counted]:
    class Fresh(Counted):
        pass

    return Fresh


def test_an_agent_makes_one_environment_and_trains_in_it(counted: type[Counted]) -> None:
    agent = mvpi.TD3(counted, **TINY)
    assert (counted.made, counted.closed) == (1, 0)
    agent.learn(10)
    assert counted.made == 2  # the other one is for evaluations


def test_an_environment_that_is_never_trained_in_is_closed(counted: type[Counted]) -> None:
    agent = mvpi.TD3(counted, **TINY)
    del agent
    gc.collect()
    assert (counted.made, counted.closed) == (1, 1)


def test_all_environments_of_a_run_in_a_directory_are_closed(
    counted: type[Counted], tmp_path: Any
) -> None:
    mvpi.TD3(counted, **TINY).learn(10, tmp_path)
    assert (counted.made, counted.closed) == (2, 2)


def test_an_environment_that_cannot_be_used_is_closed_at_once() -> None:
    class Wrong(Counted):
        action_space = gym.spaces.Discrete(2)

        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Discrete(2)

    with pytest.raises(InputError, match="actions must be a Box"):
        mvpi.TD3(Wrong)
    assert (Wrong.made, Wrong.closed) == (1, 1)


def test_an_environment_of_the_caller_is_never_closed(counted: type[Counted]) -> None:
    env = counted()
    factory = as_env_factory(env)
    assert isinstance(factory, FromInstance)
    assert factory.training() is env
    assert factory.evaluation() is not env
    factory.close(env)
    assert counted.closed == 0


def test_ids_and_functions_make_a_new_environment_at_every_call() -> None:
    for given in ("mvpi/Markowitz-v0", Task("mvpi/Markowitz-v0"), Markowitz):
        factory = as_env_factory(given)
        assert isinstance(factory, FromFunction)
        assert factory.training() is not factory.training()
    with pytest.raises(InputError, match=r"must make a gymnasium\.Env, it made 3"):
        as_env_factory(lambda: 3).training()  # type: ignore[arg-type,return-value]


def in_noise(std: float, **arguments: Any) -> gym.Env[Any, Any]:
    return mvpi.NoisyActions(gym.make("Pendulum-v1", **arguments), std)


@pytest.mark.parametrize(
    ("env", "other"),
    [
        (partial(Markowitz, bound=1.0), partial(Markowitz, bound=2.0)),
        (Markowitz(bound=1.0), Markowitz(bound=2.0)),
        (in_noise(0.1), in_noise(0.2)),
        (in_noise(0.1), in_noise(0.1, g=1.0)),
    ],
)
def test_an_environment_made_with_other_arguments_is_another_one(env: Any, other: Any) -> None:
    def record(env: Any) -> dict[str, Any]:
        found: dict[str, Any] = mvpi.TD3(env, **TINY).config()["environment"]
        return found

    assert record(env) == record(env)
    assert record(env) != record(other)


def test_addresses_are_not_recorded() -> None:
    """They are others in the next process, which would not resume the run."""
    env = partial(Markowitz, mean=WithoutText([0.2, 0.1]))
    config = mvpi.TD3(env, OwnRisk(), **TINY).config()
    assert "WithoutText object>" in config["environment"]["arguments"]
    assert config["risk"].endswith("OwnRisk object>")


class WithoutText(UserList[float]):
    __repr__ = object.__repr__


class OwnRisk(mvpi.Risk):
    def utility(self, t: Any) -> Any:
        return t

    def dual(self, rewards: Any, weights: Any = None) -> float:
        return mvpi.stats.mean(rewards, weights)


def test_a_function_that_hands_out_one_environment() -> None:
    env = Markowitz()
    with pytest.raises(InputError, match="must make a new environment at every call"):
        mvpi.TD3(lambda: env, **TINY).learn(10)


@pytest.mark.parametrize("version", [2, 3])
def test_versions_of_mujoco_that_are_gone_name_the_ones_that_are_there(version: int) -> None:
    with pytest.raises(InputError, match=r"use HalfCheetah-v4, HalfCheetah-v5$"):
        mvpi.TD3(f"HalfCheetah-v{version}")
