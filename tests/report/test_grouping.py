"""Runs grouped by environment and agent, the names of agents, and what is said of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.page import Page, only_section, page_of, shown_runs
from helpers.run_directories import write_run

from mvpi.report.grouping import agent_name, sections
from mvpi.report.summary import summary
from mvpi.report.svg_figures import styles


@pytest.mark.parametrize(
    ("algorithm", "risk", "name"),
    [
        ("td3", "0.0", "TD3"),
        ("td3", "1.0", "MVPI-TD3, λ = 1"),
        ("ppo", "0.0", "PPO"),
        ("ppo", "0.5", "TRVO (MVPI-PPO), λ = 0.5"),
        ("mvp", "1.0", "MVP, λ = 1"),
        ("tamar", "2.0", "Tamar, λ = 2"),
        ("prashanth", "1.0", "Prashanth, λ = 1"),
        ("mean-gini", "1.0", "Mean-Gini, λ = 1"),
        ("cvar-pg", "cvar:0.1:1.0", "CVaR-PG, CVaR 0.1"),
        ("td3", "cvar:0.1:1.0", "MVPI-TD3, CVaR 0.1"),
        ("td3", "cvar:0.1:0.5", "MVPI-TD3, CVaR 0.1 of weight 0.5"),
        ("ppo", "entropic:0.5", "TRVO (MVPI-PPO), entropic 0.5"),
        ("td3", "budget:0.5:0.0", "MVPI-TD3, variance ≤ 0.5"),
        ("td3", "Mine(3)", "MVPI-TD3, Mine(3)"),
        ("td3", "1.0000001", "MVPI-TD3, λ = 1.0000001"),
    ],
)
def test_agents_are_called_as_in_the_paper(algorithm: str, risk: str, name: str) -> None:
    assert agent_name(algorithm, risk) == name


def test_names_tell_what_differs_and_nothing_else(tmp_path: Path) -> None:
    write_run(tmp_path / "a", tau=0.005)
    write_run(tmp_path / "b", tau=0.01)
    write_run(tmp_path / "c", tau=0.01, steps=2_000_000)
    write_run(tmp_path / "d", risk="1.0", tau=0.01)
    write_run(tmp_path / "e", environment="Ant-v4", tau=0.5)
    ant, hopper = sections(shown_runs([tmp_path])[0])
    assert [agent.label for agent in ant.agents] == ["TD3"]
    assert [agent.label for agent in hopper.agents] == [
        "TD3 (tau = 0.005, 1,000,000 steps)",
        "TD3 (tau = 0.01, 1,000,000 steps)",
        "TD3 (tau = 0.01, 2,000,000 steps)",
        "MVPI-TD3, λ = 1",
    ]
    base = hopper.baseline(hopper.agents[3])
    assert base is not None
    assert base.label == "TD3 (tau = 0.01, 1,000,000 steps)"


def test_agents_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    """All of these measures are the mean, and the paper has one name for them."""
    means = {"0.0": 10.0, "cvar:1.0:1.0": 20.0, "entropic:0.0": 30.0}
    for risk, mean in means.items():
        write_run(tmp_path / risk, "ppo", risk, returns=[mean - 1, mean + 1])
    write_run(tmp_path / "averse", "ppo", "1.0", returns=[9.0, 10.0])
    found = only_section(tmp_path)
    *neutral, averse = found.section.agents
    assert [agent.label for agent in neutral] == [f"PPO (risk = {risk})" for risk in means]
    assert [found.estimates[agent.key]["mean"].value for agent in neutral] == [10.0, 20.0, 30.0]
    assert found.section.baseline(averse) == neutral[0]
    text = page_of(tmp_path)
    shown = Page(text).text.replace("\N{NO-BREAK SPACE}", " ")
    assert all(shown.count(agent.label) >= 3 for agent in neutral)  # legend, table, settings
    legend = re.search(r'<ul class="legend".*?</ul>', text, flags=re.DOTALL)
    assert legend is not None
    assert len(set(re.findall(r'stroke="(#[0-9a-f]{6})"', legend[0]))) == 4


def test_environments_that_differ_a_little_have_other_titles(tmp_path: Path) -> None:
    write_run(tmp_path / "a", action_noise=0.1)
    write_run(tmp_path / "b", action_noise=0.1 + 1e-9)
    assert [section.title for section in sections(shown_runs([tmp_path])[0])] == [
        "Hopper-v4, action noise 0.1",
        "Hopper-v4, action noise 0.100000001",
    ]


@pytest.mark.parametrize(
    ("averse", "told"),
    [
        ({}, ""),
        ({"steps": 300}, " (200 against 300 steps)"),
        ({"tau": 0.5}, " (other settings)"),
        ({"steps": 300, "tau": 0.5}, " (200 against 300 steps, other settings)"),
    ],
)
def test_a_baseline_that_differs_in_more_than_risk_is_told(
    averse: dict[str, Any], told: str, tmp_path: Path
) -> None:
    write_run(tmp_path / "a", steps=200)
    write_run(tmp_path / "b", risk="1.0", **{"steps": 200} | averse)
    text = Page(page_of(tmp_path)).text.replace("\N{NO-BREAK SPACE}", " ")
    assert f"Against TD3{told}, MVPI-TD3, λ = 1 " in text
    sentence = f"MVPI-TD3, λ = 1 is compared with TD3 although they differ: {told[2:-1]}."
    assert (sentence in text) == bool(told)
    assert ("although they differ" in text) == bool(told)


def test_baselines_that_differ_are_counted_where_there_are_many(tmp_path: Path) -> None:
    write_run(tmp_path / "base")
    for lam in range(1, 5):
        write_run(tmp_path / str(lam), risk=f"{lam}.0", **({"tau": 0.5} if lam == 4 else {}))
    text = summary(only_section(tmp_path))
    assert "a risk-neutral agent to compare with, 1 of them one of other settings or steps." in text


def test_several_baselines_none_of_which_fits_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "a", tau=0.1)
    write_run(tmp_path / "b", tau=0.2)
    write_run(tmp_path / "c", risk="1.0", tau=0.3)
    why = "there are several risk-neutral agents of the same algorithm, all with other settings"
    told = f"Not compared: MVPI-TD3, λ = 1; {why} or steps."
    assert told in summary(only_section(tmp_path))
    write_run(tmp_path / "d", risk="2.0", tau=0.2)
    text = summary(only_section(tmp_path))
    assert told in text
    assert "Against TD3 (tau = 0.2), MVPI-TD3, λ = 2 " in text


def test_no_baseline_and_nothing_to_compare_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "mvp", "1.0")
    nothing = "There is no risk-neutral agent of the same algorithm to compare with."
    assert nothing in summary(only_section(tmp_path / "a"))
    write_run(tmp_path / "b")
    assert nothing in summary(only_section(tmp_path))
    assert "There is no risk-averse agent" in summary(only_section(tmp_path / "b"))


def test_seeds_are_repetitions_and_copies_are_not(tmp_path: Path) -> None:
    for seed in (2, 0, 1):
        write_run(tmp_path / "runs" / str(seed), seed=seed)
    shutil.copytree(tmp_path / "runs" / "1", tmp_path / "runs" / "copy")
    runs, notes = shown_runs([tmp_path, tmp_path / "runs"])
    (section,) = sections(runs)
    (agent,) = section.agents
    assert [run.seed for run in agent.runs] == [0, 1, 2]
    assert len(notes) == 1
    assert "repeats" in notes[0]


def test_a_run_that_has_no_policy_yet_shows_its_curve(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", seed=1, returns=None)
    write_run(tmp_path / "c", algorithm="mvp", risk="1.0", returns=None)
    found = only_section(tmp_path)
    td3, mvp = found.section.agents
    assert (len(td3.runs), len(td3.waiting), len(mvp.waiting)) == (1, 1, 1)
    text = Page(page_of(tmp_path)).text
    assert "not evaluated yet" in text
    assert f"{tmp_path / 'b'} is not evaluated yet: there is no policy.safetensors yet" in text
    alone = page_of(tmp_path / "c")
    assert alone.count("<figure>") == 1
    assert "None of these runs is evaluated yet" in alone


def test_agents_look_different_and_the_same_everywhere() -> None:
    labels = [f"agent {i}" for i in range(40)]
    look = styles(labels + labels)
    assert len(set(look.values())) == 40
    assert styles(labels) == look
