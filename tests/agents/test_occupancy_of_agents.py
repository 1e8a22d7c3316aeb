"""Tasks that end and cost something per step: what agents measure and learn, and presets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.victims import Case, survive

import mvpi
from mvpi import stats
from mvpi.agents.settings import PPOSettings, TD3Settings
from mvpi.cli.app import _command
from mvpi.envs import Markowitz
from mvpi.errors import InputError, RiskWarning

LIMIT = 50


class Door(gym.Env[Any, Any]):
    """Every step costs 1; through the door, action 1 or above 0, and it is over."""

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space: gym.Space[Any] = (
            gym.spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else gym.spaces.Discrete(2)
        )
        self._continuous = continuous
        self.log: list[tuple[float, int, bool]] = []

    def reset(self, **seed: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**seed)
        self._time = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        through = bool(action[0] > 0) if self._continuous else bool(action == 1)
        self.log.append((-1.0, self._time, through))
        self._time += 1
        return np.ones(1, np.float32), -1.0, through, self._time >= LIMIT, {}


def continuous_door() -> Door:
    return Door(continuous=True)


PPO_SETTINGS: dict[str, Any] = {
    "n_steps": 512,
    "hidden": (8,),
    "learning_rate": 3e-3,
    "evaluation_episodes": 2,
}
TD3_SETTINGS: dict[str, Any] = {
    "hidden": (16,),
    "learning_starts": 1_000,
    "batch_size": 32,
    "evaluation_episodes": 2,
}


def steps_to_the_door(agent: Any, env: Any) -> float:
    return float(mvpi.evaluate(agent, env, episodes=10).lengths.mean())


def test_ppo_walks_on_where_live_steps_count_alike_and_is_warned() -> None:
    agent = mvpi.PPO(Door, risk=2.0, **PPO_SETTINGS)
    with pytest.warns(
        RiskWarning, match=r"y = -1 .*counts as 1 .*occupancy=\"discounted\""
    ) as told:
        agent.learn(6_144)
    assert len(told) == 1
    assert steps_to_the_door(agent, Door) > 20


def test_ppo_leaves_by_the_door_in_the_discounted_occupancy() -> None:
    agent = mvpi.PPO(Door, risk=2.0, occupancy="discounted", **PPO_SETTINGS)
    rows: list[dict[str, Any]] = []
    agent.learn(6_144, on_row=rows.append)
    assert steps_to_the_door(agent, Door) < 1.5
    # A single step: (1 - gamma) at -1, the rest at 0.
    assert rows[-1]["y"] == pytest.approx(-0.01, abs=0.003)
    assert rows[-1]["reward_mean"] == pytest.approx(-0.01, abs=0.003)
    assert rows[-1]["reward_variance"] == pytest.approx(0.01 * 0.99, abs=0.003)


def test_td3_walks_on_or_leaves() -> None:
    with pytest.warns(RiskWarning, match="y = -1"):
        before = mvpi.TD3(continuous_door, risk=2.0, **TD3_SETTINGS).learn(2_500)
    after = mvpi.TD3(continuous_door, risk=2.0, occupancy="discounted", **TD3_SETTINGS)
    after.learn(2_500)
    assert steps_to_the_door(before, continuous_door) == LIMIT
    assert steps_to_the_door(after, continuous_door) == 1


@pytest.mark.parametrize("kind", [mvpi.TD3, mvpi.PPO])
def test_y_is_that_of_the_steps_the_environment_made(kind: Any) -> None:
    """The other route: the log of the environment, and the definition step by step."""
    env = continuous_door()
    settings = {mvpi.TD3: {"learning_starts": 50, "hidden": (8,), "batch_size": 8, "window": 256}}
    own = settings.get(kind, {"n_steps": 256, "hidden": (8,)})
    agent = kind(env, risk=1.0, occupancy="discounted", gamma=0.9, evaluation_episodes=1, **own)
    rows: list[dict[str, Any]] = []
    env.log.clear()
    agent.learn(1_024, on_row=rows.append)
    last = env.log[1_024 - (1_024 % 10 if kind is mvpi.TD3 else 0) - 256 :][:256]
    at_risk, ended = np.zeros(LIMIT + 1), np.zeros(LIMIT + 1)
    for _, t, through in last:
        at_risk[t] += 1
        ended[t] += through
    longest = max(t for _, t, _ in last)
    assert at_risk[: longest + 1].all()
    alive, y = 1.0, 0.0
    for t in range(longest + 1):
        y -= 0.1 * 0.9**t * alive
        alive *= 1 - ended[t] / at_risk[t]
    usual = ended.sum() / 256
    y -= 0.9 ** (longest + 1) * alive * 0.1 / (1 - 0.9 * (1 - usual))
    assert rows[-1]["y"] == pytest.approx(y, rel=1e-9)


@pytest.mark.parametrize(
    "case",
    [
        Case(["Walk"], settings={"occupancy": "discounted", "window": 130}),
        Case(["Walk"], steps=333, settings={"occupancy": "discounted"}, algorithm="ppo"),
        Case(
            ["Walk"],
            risk="budget:0.05",
            steps=400,
            settings={"occupancy": "discounted", "budget_every": 50},
        ),
    ],
    ids=["td3", "ppo", "budget"],
)
def test_killed_again_and_again(tmp_path: Path, case: Case) -> None:
    assert survive(case, seed=1, kills=6, tmp_path=tmp_path) > 2


def test_it_is_recorded_only_where_it_differs_from_earlier_versions() -> None:
    for kind in (TD3Settings, PPOSettings):
        assert "occupancy" not in kind().record()
        changed = kind(occupancy="discounted")
        assert changed.record()["occupancy"] == "discounted"
        assert kind.of_record(changed.record()) == changed
        with pytest.raises(InputError, match="undiscounted, discounted, got 'recent'"):
            kind(occupancy="recent")  # type: ignore[arg-type]


def test_risk_0_does_not_depend_on_it() -> None:
    agents = [
        kind(env, 0.0, occupancy=occupancy, **settings).learn(1_200)
        for occupancy in ("undiscounted", "discounted")
        for kind, env, settings in (
            (mvpi.TD3, continuous_door, TD3_SETTINGS),
            (mvpi.PPO, Door, PPO_SETTINGS),
        )
    ]
    for one, other in zip(agents[:2], agents[2:], strict=True):
        pairs = zip(one.policy.parameters, other.policy.parameters, strict=True)
        assert all(a.tobytes() == b.tobytes() for a, b in pairs)


def test_an_evaluation_knows_its_discounted_occupancy() -> None:
    class Leaves:
        def predict(self, observation: Any) -> int:
            return int(observation[0] > 0.5)

    seen = mvpi.evaluate(Leaves(), Door, episodes=3)
    values, weights = seen.occupancy(0.9)
    assert stats.mean(values, weights) == pytest.approx(-0.1)
    assert stats.variance(values, weights) == pytest.approx(0.09)
    bare = mvpi.Evaluation(seen.returns, seen.rewards, seen.lengths)
    with pytest.raises(InputError, match="needs terminated"):
        bare.occupancy(0.9)


# Presets.


def test_a_preset_is_expanded_and_explicit_settings_go_before_it(tmp_path: Path) -> None:
    small: dict[str, Any] = {"hidden": (8,), "learning_starts": 50, "batch_size": 16}
    env = "mvpi/Markowitz-v0"
    agent = mvpi.TD3(env, preset="noisy-rewards", **small).learn(200, tmp_path)
    expected = TD3Settings(**{**TD3Settings.presets["noisy-rewards"], **small})
    assert agent.settings == expected
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["settings"]["averaging"] == 100
    assert config["settings"]["batch_size"] == 16
    assert "preset" not in config["settings"]
    expanded = {**TD3Settings.presets["noisy-rewards"], **small}
    assert mvpi.TD3(env, **expanded).learn(200, tmp_path).steps == 200  # the same run
    assert mvpi.load(tmp_path).settings == expected


def test_unknown_presets() -> None:
    with pytest.raises(InputError, match="unknown preset 'calm'; known are noisy-rewards"):
        mvpi.TD3("mvpi/Markowitz-v0", preset="calm")
    with pytest.raises(InputError, match="this algorithm has no presets"):
        mvpi.PPO("mvpi/Markowitz-v0", preset="noisy-rewards")
    with pytest.raises(InputError, match="unknown preset 'calm'"):
        _command(["train", "td3", "--env", "X", "--preset", "calm"])


def test_options_go_before_the_preset_even_at_their_usual_value() -> None:
    command = ["train", "td3", "--env", "X", "--preset", "noisy-rewards", "--risk", "2"]
    options = _command([*command, "--exploration-noise", "0.1"]).options
    preset = TD3Settings.presets["noisy-rewards"]
    assert options.settings == TD3Settings(**{**preset, "exploration_noise": 0.1})
    assert (options.env, options.risk) == ("X", "2")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_noisy_rewards_of_three_assets(seed: int) -> None:
    def env() -> Markowitz:
        covariance = ((0.3, 0.06, 0.02), (0.06, 0.2, -0.03), (0.02, -0.03, 0.25))
        return Markowitz((0.25, 0.1, -0.15), covariance)

    agent = mvpi.TD3(env, 1.5, seed, preset="noisy-rewards", learning_starts=1_000)
    action = agent.learn(15_000).predict(np.ones(1))
    assert env().value(action, 1.5) > 0.97 * env().value(env().best_action(1.5), 1.5)
