"""Warnings of a risk aversion that does not fit the rewards: when, once, and when not."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import mvpi
from mvpi.augmenter import Augmenter
from mvpi.augmenter.risk_warnings import Advice, cost_advice, huber_advice, unit_advice
from mvpi.envs import Task
from mvpi.errors import RiskWarning
from mvpi.risk import CVaR, Entropic, MeanVariance, VarianceBudget

NORMAL = np.random.default_rng(0).normal(0.3, 1.0, 2_000)


def rewards_of(env_id: str, steps: int = 1_000) -> tuple[list[float], bool]:
    """Of uniformly random actions, and whether an episode terminated."""
    env = Task(env_id, 0.1)()
    env.action_space.seed(0)
    env.reset(seed=0)
    rewards, ended = [], False
    for _ in range(steps):
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        rewards.append(float(reward))
        ended |= terminated
        if terminated or truncated:
            env.reset()
    env.close()
    return rewards, ended


@pytest.mark.parametrize(
    "task",
    ["HalfCheetah", "Hopper", "InvertedDoublePendulum", "InvertedPendulum", "Reacher", "Ant"],
)
def test_the_tasks_of_the_paper_give_no_reason_to_warn(task: str) -> None:
    rewards, ended = rewards_of(f"{task}-v4")
    for lam in (0.5, 1.0, 2.0):
        for risk in (MeanVariance(lam), Entropic(lam)):
            augmenter = Augmenter(risk)
            augmenter.observe(rewards, np.zeros(1_000, int), [ended] * 1_000)


@pytest.mark.parametrize("deviation", [0.8, 2.2])
def test_a_trained_half_cheetah_gives_no_reason_to_warn(deviation: float) -> None:
    """Per-step variances of DESIGN: 0.63 at risk 1 and 4.71 at risk 0."""
    for lam in (0.5, 1.0, 2.0):
        assert unit_advice(MeanVariance(lam), 9.0, 9.0 + deviation * (NORMAL - 0.3)) is None


@pytest.mark.parametrize("kind", [MeanVariance, Entropic])
@pytest.mark.parametrize(
    ("scale", "what"), [(1e-4, "does nothing"), (1e-3, "does nothing"), (1e4, "is large")]
)
def test_rewards_in_an_odd_unit(kind: Any, scale: float, what: str) -> None:
    values = scale * NORMAL
    risk = kind(1.0)
    message = unit_advice(risk, risk.dual(values), values)
    assert message is not None
    assert message.startswith(f"risk aversion 1 {what}")
    assert "\n" not in message
    suggested = re.search(r"try ([-+.e\d]+),", message)
    assert suggested is not None
    better = kind(float(suggested[1]))
    assert unit_advice(better, better.dual(values), values) is None
    assert 0.02 < better.risk_aversion * values.std() < 1.0


def test_rare_good_rewards_that_are_punished() -> None:
    """As on FrozenLake: reaching the goal counts 1 - lam."""
    values = np.zeros(1_000)
    values[::250] = 1.0
    assert unit_advice(MeanVariance(0.9), values.mean(), values) is None
    message = unit_advice(MeanVariance(2.0), values.mean(), values)
    assert message is not None
    assert "good rewards are punished" in message
    assert "try 0.5" in message


def test_the_share_that_is_said_to_be_changed_is_that_of_the_formula() -> None:
    values = np.linspace(-1.0, 1.0, 101)
    for lam, warns in ((0.019, True), (0.021, False)):
        changed = np.abs(MeanVariance(lam).augment(values, 0.0) - values).max()
        assert changed == pytest.approx(lam)
        assert (unit_advice(MeanVariance(lam), 0.0, values) is not None) == warns


def test_what_has_no_unit_is_not_judged() -> None:
    for risk in (MeanVariance(0.0), CVaR(0.1), VarianceBudget(1e-9, 1e9)):
        assert unit_advice(risk, 0.0, 1e4 * NORMAL) is None
        assert unit_advice(risk, 0.0, 1e-4 * NORMAL) is None


@pytest.mark.parametrize(
    ("risk", "y", "warns"),
    [
        (MeanVariance(2.0), -1.0, True),
        (MeanVariance(1.0), -1.0, True),
        (MeanVariance(0.5), -1.0, False),
        (MeanVariance(2.0), 1.0, False),
        (MeanVariance(0.0), -1.0, False),
        (VarianceBudget(1.0, 2.0), -1.0, True),
        (CVaR(0.1), -1.0, True),
        (CVaR(0.1, 0.5), -1.0, False),
        (Entropic(0.5), -1.0, False),
    ],
    ids=str,
)
def test_costs_that_hardly_count(risk: mvpi.Risk, y: float, warns: bool) -> None:
    message = cost_advice(risk, y)
    assert (message is not None) == warns
    if message is not None:
        assert "\n" not in message
        assert "y = -1" in message
        assert 'occupancy="discounted"' in message
        assert f"counts as {float(risk.augment(y, y)):.2g}" in message


def test_each_is_told_once() -> None:
    augmenter = Augmenter(2.0)
    costs = np.full(1_000, -1.0), np.zeros(1_000, int), np.ones(1_000, bool)
    with pytest.warns(RiskWarning, match="y = -1") as told:
        augmenter.observe(*costs)
    for _ in range(30):
        augmenter.observe(*costs)
    assert len(told) == 1
    assert told[0].filename == __file__


def test_nothing_is_told_before_there_are_rewards_enough() -> None:
    augmenter = Augmenter(2.0)
    augmenter.observe(np.full(999, -1.0), np.zeros(999, int), np.ones(999, bool))
    with pytest.warns(RiskWarning):
        augmenter.observe(-1.0)


def test_the_definition_and_tasks_without_an_end_are_not_warned_of() -> None:
    steps = np.full(5_000, -1.0), np.zeros(5_000, int)
    Augmenter(2.0).observe(*steps, np.zeros(5_000, bool))
    Augmenter(2.0, occupancy="discounted", gamma=0.9).observe(*steps, np.ones(5_000, bool))


def test_a_look_is_due_at_1000_and_then_at_every_10000() -> None:
    advice, checks = Advice("undiscounted"), []
    for count in range(0, 40_000, 500):
        if count >= advice.due:
            advice.give(count, MeanVariance(1.0), 0.0, np.linspace(-1.0, 1.0, 200))
            checks.append(count)
    assert checks == [1_000, 11_000, 21_000, 31_000]


def test_the_command_line_says_it_in_one_line(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from mvpi import cli

    what = ["--env", "mvpi/Markowitz-v0", "--risk", "1e-4", "--steps", "1024"]
    small = ["--n-steps", "512", "--evaluation-episodes", "1", "--hidden", "8"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        cli.main(["train", "ppo", *what, *small, "--out", str(tmp_path)])
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(lines) == 1
    assert "risk aversion 0.0001 does nothing" in lines[0]


@pytest.mark.parametrize(
    ("risk", "scale", "remedy"),
    [
        (MeanVariance(0.1), 1.0, None),
        (MeanVariance(0.0), 100.0, None),
        (CVaR(0.5), 1.0, None),
        (CVaR(0.5), 10.0, r"divide rewards by \d+$"),
        (
            MeanVariance(1e-3),
            10.0,
            r"divide rewards by (\d+) and multiply the risk aversion by \1$",
        ),
        (VarianceBudget(1e4), 10.0, r"divide rewards by \d+ and the variance limit by [\d.e+]+$"),
    ],
    ids=str,
)
def test_rewards_beyond_a_huber_loss(risk: Any, scale: float, remedy: str | None) -> None:
    said = huber_advice(risk.learnable(), 0.0, scale * NORMAL)
    assert said is None if remedy is None else re.search(remedy, said or "")


def test_in_the_unit_of_the_remedy_augmented_rewards_deviate_by_a_third() -> None:
    augmented = MeanVariance(1e-3).augment(10.0 * NORMAL, 0.0)
    said = huber_advice(MeanVariance(1e-3), 0.0, 10.0 * NORMAL) or ""
    unit = float(re.findall(r"divide rewards by (\d+)", said)[0])
    scaled = MeanVariance(1e-3 * unit).augment(10.0 / unit * NORMAL, 0.0)
    assert np.allclose(scaled, augmented / unit)
    assert scaled.std() == pytest.approx(1.0 / 3.0, rel=0.03)


def test_a_huber_loss_is_warned_of_once_and_only_where_there_is_one() -> None:
    Augmenter(0.001).observe(100.0 * NORMAL)
    augmenter = Augmenter(0.001)
    augmenter._advice.huber_loss = True
    with pytest.warns(RiskWarning, match="Huber"):
        augmenter.observe(100.0 * NORMAL)
    for _ in range(6):
        augmenter.observe(100.0 * NORMAL)
