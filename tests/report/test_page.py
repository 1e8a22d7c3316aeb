"""The report: its numbers are those of `mvpi.stats`, and no file can break or subvert the page."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import AGENTS, TASKS, write_run, write_study

import mvpi
from mvpi import stats
from mvpi._storage import files
from mvpi._storage.arrays import read_arrays, write_arrays
from mvpi.cli import main
from mvpi.errors import InputError, missing
from mvpi.experiments.outcome import Outcome
from mvpi.report import words
from mvpi.report.comparison import COLUMNS, OF_ROWS, Comparison, efficient, estimates
from mvpi.report.groups import agent_name, sections
from mvpi.report.page import render
from mvpi.report.plots import styles
from mvpi.report.runs import read_runs


class Page(HTMLParser):
    """Tags, attributes and visible text, read by a parser that knows nothing of the template."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def attributes(self, *names: str) -> list[str]:
        return [a[name] for _, a in self.tags for name in names if name in a]


def page_of(*directories: Path) -> str:
    runs, notes = read_runs(directories)
    return render(runs, notes, ["runs"])


def only_section(*directories: Path) -> Comparison:
    (section,) = sections(read_runs(directories)[0])
    return Comparison.of(section)


def failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "Traceback" not in message
    return message


# Numbers


STATISTICS: dict[str, Callable[[Any], float]] = {
    "mean": stats.mean,
    "deviation": lambda x: math.sqrt(stats.variance(x)),
    "sharpe": stats.sharpe,
    "cvar": lambda x: stats.cvar(x, 0.1),
}


def test_numbers_are_means_over_seeds_of_the_statistics_of_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    returns = [rng.normal(100 * s, 10, size=25) for s in range(3)]
    rewards = [rng.normal(s, 1, size=999) for s in range(3)]
    for s in range(3):
        write_run(tmp_path / str(s), seed=s, returns=returns[s].tolist(), rewards=rewards[s])
    (found,) = only_section(tmp_path).estimates.values()
    for name, statistic in STATISTICS.items():
        assert found[name].value == pytest.approx(np.mean([statistic(x) for x in returns]))
    assert found["worst"].value == np.concatenate(returns).min()
    assert found["reward_mean"].value == pytest.approx(np.mean([x.mean() for x in rewards]))
    assert found["reward_variance"].value == pytest.approx(np.mean([x.var() for x in rewards]))
    shown = Page(page_of(tmp_path)).text
    for column in COLUMNS:
        assert words.number(found[column.name].value) in shown


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_many_samples_are_those_of_each(name: str) -> None:
    rng = np.random.default_rng(5)
    for size in range(2, 42):
        samples = np.concatenate([rng.normal(3, 1, size=(4, size)), np.ones((1, size))])
        each = [STATISTICS[name](sample) for sample in samples]
        assert OF_ROWS[name](samples).tolist() == pytest.approx(each)


def slow_interval(
    returns: list[np.ndarray], statistic: Callable[[Any], float], rng: np.random.Generator
) -> tuple[float, float]:
    """The hierarchical bootstrap as one would write it down."""
    values = []
    for _ in range(1000):
        runs = [returns[i] for i in rng.integers(len(returns), size=len(returns))]
        drawn = [x[rng.integers(len(x), size=len(x))] for x in runs]
        values.append(np.mean([statistic(x) for x in drawn]))
    return tuple(np.quantile(values, [0.025, 0.975]).tolist())


@pytest.mark.parametrize("name", STATISTICS)
def test_intervals_are_those_of_a_plain_bootstrap(name: str) -> None:
    rng = np.random.default_rng(2)
    returns = [rng.gamma(3, 10 + s, size=size) for s, size in enumerate((25, 33, 40))]
    outcomes = [Outcome(1, tuple(x.tolist()), 0.0, 0.0, (0.0, 1.0)) for x in returns]
    ours = estimates(outcomes)[name]
    low, high = slow_interval(returns, STATISTICS[name], rng)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.1 * (high - low))
    assert ours.low < ours.value < ours.high


def test_the_interval_of_a_mean_is_the_textbooks() -> None:
    returns = np.random.default_rng(3).normal(5, 2, size=400)
    ours = estimates([Outcome(1, tuple(returns.tolist()), 0.0, 0.0, (0.0, 1.0))])
    half = 1.96 * returns.std() / math.sqrt(400)
    assert ours["mean"].high - ours["mean"].low == pytest.approx(2 * half, rel=0.1)
    assert math.isnan(ours["worst"].low)
    assert math.isnan(ours["reward_mean"].low)  # one seed


def test_seeds_that_disagree_widen_the_interval() -> None:
    def outcome(centre: float) -> Outcome:
        return Outcome(1, (centre - 1, centre + 1) * 50, centre, 1.0, (0.0, 1.0))

    alike, apart = (
        estimates([outcome(x) for x in c])["mean"] for c in ((0, 0, 0, 0), (-9, -3, 3, 9))
    )
    assert apart.high - apart.low > 10 * (alike.high - alike.low)


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([(1, 1)], [0]),
        ([(1, 1), (2, 2), (3, 3)], [0, 1, 2]),
        ([(3, 3), (2, 4), (1, 1)], [2, 1]),
        ([(1, 5), (2, 5), (1, 4)], [0]),  # ties in one of the two
        ([(1, 5), (1, 5)], [0, 1]),  # the same point twice
        ([(0, -1), (0, 0), (5, 0)], [1]),
    ],
)
def test_the_frontier_on_points_made_by_hand(
    points: list[tuple[float, float]], kept: list[int]
) -> None:
    assert efficient(points) == kept


def test_the_frontier_is_that_of_a_sweep() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        points = [(float(d), float(m)) for d, m in rng.integers(0, 6, size=(8, 2))]
        best, swept = -math.inf, set()
        for d, m in sorted(set(points), key=lambda p: (p[0], -p[1])):
            if m > best:
                swept.add((d, m))
                best = m
        assert {points[i] for i in efficient(points)} == swept
        assert sorted(points[i] for i in efficient(points)) == [
            points[i] for i in efficient(points)
        ]


def test_best_values_and_changes(tmp_path: Path) -> None:
    write_run(tmp_path / "a", returns=[10.0, 30.0])
    write_run(tmp_path / "b", risk="1.0", returns=[14.0, 16.0])
    found = only_section(tmp_path)
    neutral, averse = (agent.key for agent in found.section.agents)
    assert [found.best(column) for column in COLUMNS[:2]] == [{neutral}, {averse}]
    text = Page(page_of(tmp_path)).text
    assert "\N{MINUS SIGN}25%" in text  # the mean, from 20 to 15
    assert "\N{MINUS SIGN}90%" in text  # the deviation, from 10 to 1
    assert "lowered the standard deviation of the return by 90% (from 10.00 to 1.000)" in text
    assert "With one seed" in text


def test_the_share_in_the_noisy_zone_is_shown_where_there_is_one(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "0", in_zone=0.25)
    write_run(tmp_path / "a" / "1", seed=1, in_zone=0.5)
    text = Page(page_of(tmp_path / "a")).text
    assert "in noisy zone" in text
    assert "37.5%" in text
    assert "25.0% to 50.0%" in text
    write_run(tmp_path / "b")
    assert "in noisy zone" not in Page(page_of(tmp_path / "b")).text


def test_rewards_and_returns_that_never_change(tmp_path: Path) -> None:
    for risk in ("0.0", "1.0"):
        write_run(tmp_path / risk, risk=risk, returns=[1000.0] * 9, rewards=[1.0, 1.0])
    text = Page(page_of(tmp_path)).text
    assert "∞" in text
    assert "left the standard deviation of the return unchanged (0)" in text
    assert "do not tell the two apart" in text


def test_a_change_too_small_to_show_is_none(tmp_path: Path) -> None:
    write_run(tmp_path / "a", returns=[9_000.0, 11_000.0])
    write_run(tmp_path / "b", risk="1.0", returns=[8_999.0, 11_000.0])
    text = Page(page_of(tmp_path)).text
    assert "left its mean unchanged (10,000)" in text
    assert "0.0%" not in text


def test_runs_may_differ_in_the_number_of_their_episodes(tmp_path: Path) -> None:
    write_run(tmp_path / "a", returns=[0.0, 2.0])
    write_run(tmp_path / "b", seed=1, returns=[3.0, 6.0, 9.0])
    (found,) = only_section(tmp_path).estimates.values()
    assert found["mean"].value == (1.0 + 6.0) / 2
    assert found["deviation"].value == pytest.approx((1.0 + math.sqrt(6.0)) / 2)
    assert "judged by 2 to 3 final episodes per seed" in Page(page_of(tmp_path)).text


# Groups


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
    ant, hopper = sections(read_runs([tmp_path])[0])
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
    assert [section.title for section in sections(read_runs([tmp_path])[0])] == [
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
    text = words.summary(only_section(tmp_path))
    assert "a risk-neutral agent to compare with, 1 of them one of other settings or steps." in text


def test_several_baselines_none_of_which_fits_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "a", tau=0.1)
    write_run(tmp_path / "b", tau=0.2)
    write_run(tmp_path / "c", risk="1.0", tau=0.3)
    why = "there are several risk-neutral agents of the same algorithm, all with other settings"
    told = f"Not compared: MVPI-TD3, λ = 1; {why} or steps."
    assert told in words.summary(only_section(tmp_path))
    write_run(tmp_path / "d", risk="2.0", tau=0.2)
    text = words.summary(only_section(tmp_path))
    assert told in text
    assert "Against TD3 (tau = 0.2), MVPI-TD3, λ = 2 " in text


def test_no_baseline_and_nothing_to_compare_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "mvp", "1.0")
    nothing = "There is no risk-neutral agent of the same algorithm to compare with."
    assert nothing in words.summary(only_section(tmp_path / "a"))
    write_run(tmp_path / "b")
    assert nothing in words.summary(only_section(tmp_path))
    assert "There is no risk-averse agent" in words.summary(only_section(tmp_path / "b"))


def test_seeds_are_repetitions_and_copies_are_not(tmp_path: Path) -> None:
    for seed in (2, 0, 1):
        write_run(tmp_path / "runs" / str(seed), seed=seed)
    shutil.copytree(tmp_path / "runs" / "1", tmp_path / "runs" / "copy")
    runs, notes = read_runs([tmp_path, tmp_path / "runs"])
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


# The page


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study"), TASKS[5:7], AGENTS[:3], seeds=2)


@pytest.fixture(scope="module")
def study_page(study: Path) -> str:
    return page_of(study)


def test_the_same_runs_make_the_same_bytes(
    study: Path, study_page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "report.html"
    main(["report", str(study), "--out", str(out)])
    captured = capsys.readouterr()
    assert captured.out == f"Wrote {out}: 12 runs.\n"
    assert captured.err == ""
    command = f"<code>mvpi report {study} --out {out}</code>"
    assert out.read_text() == study_page.replace("<code>mvpi report runs</code>", command)
    assert not list(out.parent.glob(".*"))


def test_nothing_is_fetched_and_no_script_runs(study_page: str) -> None:
    page = Page(study_page)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "base", "image"}
    for target in page.attributes("href", "xlink:href", "src", "action", "data"):
        assert target.startswith(("#", "data:,"))
    assert not re.search(r"url\((?!#)", study_page)
    assert "@import" not in study_page
    assert not [name for _, a in page.tags for name in a if name.startswith("on")]
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", study_page)
    assert "://" not in without_namespaces


def test_ids_are_unique_and_references_arrive(study_page: str) -> None:
    page = Page(study_page)
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'(?:url\(#|href="#)([^")]+)', study_page))
    assert len(wanted) > 20
    assert wanted <= set(ids)


def test_every_figure_can_be_read_aloud(study_page: str) -> None:
    figures = [a for tag, a in Page(study_page).tags if tag == "svg" and a.get("role") == "img"]
    assert len(figures) == 8
    for figure in figures:
        assert re.fullmatch(
            r".+ on \w+-v4, action noise 0\.1: TD3; .+ and PPO\.", figure["aria-label"]
        )


def test_it_says_how_it_was_made_but_not_when(study_page: str) -> None:
    page = Page(study_page)
    assert f"Made by mvpi {mvpi.__version__} with mvpi report runs" in page.text
    assert not re.search(r"20\d\d-\d\d", page.text)


NASTY = """"><script>alert(1)</script><img src=x onerror='alert(1)'>{{ 7 * 7 }}</style>"""


def test_text_of_files_is_only_text(tmp_path: Path) -> None:
    where = tmp_path / "<b onclick=evil()>"
    for seed, risk in enumerate(("0.0", NASTY)):
        run = write_run(where / str(seed), risk=risk, seed=seed, environment=NASTY)
        config = json.loads((run / "config.json").read_text())
        config["settings"][NASTY] = f"{NASTY}{seed}"
        outcome = Outcome.read(run)
        (run / "config.json").write_text(json.dumps(config))
        outcome.write(run)  # of this configuration
    (write_run(where / "damaged") / "metrics.csv").write_text(f"steps,{NASTY}\n1,2\n")
    text = page_of(where)
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "img", "b"}
    assert not [name for _, a in page.tags for name in a if name.startswith("on")]
    assert page.text.count("<script>alert(1)</script>") >= 4
    assert "{{ 7 * 7 }}" in page.text
    assert text.count("</style>") == 1


# Files that are not as they should be


def usable(directory: Path) -> bool:
    """Whether the runs are shown; if not, the reason is one line."""
    reason = ""
    try:
        for section in sections(read_runs([directory])[0]):
            words.summary(Comparison.of(section))
    except InputError as error:
        reason = str(error)
    assert "\n" not in reason
    assert not reason or str(directory) in reason
    return not reason


def hostile(good: bytes) -> list[bytes]:
    rng = random.Random(0)
    cut = [good[: rng.randrange(len(good))] for _ in range(25)]
    noise = [rng.randbytes(rng.randrange(200)) for _ in range(10)]
    changed = []
    for _ in range(40):
        data = bytearray(good)
        for _ in range(rng.choice((1, 3, 20))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        changed.append(bytes(data))
    return [b"", b"\0", b"[]", b"null", b"[" * 5000, *cut, *noise, *changed]


@pytest.mark.parametrize("name", ["config.json", "metrics.csv", "evaluation.json"])
def test_damaged_files_are_told_in_one_line(name: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    good = (run / name).read_bytes()
    verdicts = []
    for data in hostile(good):
        (run / name).write_bytes(data)
        verdicts.append(usable(run))
    assert verdicts.count(False) > 25
    (run / name).write_bytes(good)
    assert usable(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("returns", []),
        ("returns", [1.0]),
        ("returns", [1.0, math.nan]),
        ("returns", [1.0, math.inf]),
        ("returns", [1.0, 1e200]),
        ("returns", [1, 10**400]),
        ("returns", [[1.0, 2.0], [3.0, 4.0]]),
        ("returns", 5.0),
        ("returns", "12"),
        ("returns", {"0": 1}),
        ("reward_quantiles", [2.0, 1.0]),
        ("reward_quantiles", [None, 1.0]),
        ("reward_mean", "1"),
        ("reward_mean", None),
        ("reward_variance", -1.0),
        ("steps", 1.5),
        ("steps", -1),
        ("steps", True),
        ("format", 3),
        ("format", "1"),
        ("more", 1),
    ],
)
def test_evaluations_nobody_would_write(name: str, value: object, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    assert not usable(run)


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "dqn"},
        {"algorithm": ["td3"]},
        {"environment": {}},
        {"environment": None},
        {"environment": ["id"]},
        {"environment": {"id": "a\nb"}},
        {"environment": {"id": "\ud800"}},
        {"environment": {"id": "Hopper-v4", "action_noise": -1}},
        {"environment": {"id": "Hopper-v4", "action_noise": 10**400}},
        {"risk": 1.0},
        {"risk": None},
        {"seed": -1},
        {"seed": "0"},
        {"seed": 10**40},
        {"settings": None},
        {"settings": [1]},
        {"format": 99},
    ],
)
def test_configurations_nobody_would_write(change: dict[str, Any], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert not usable(run)


@pytest.mark.parametrize(
    ("rows", "good"),
    [
        ("10,1,5.0,0\n20,2,6.0,0\n", True),
        ("10,1,5.0,0\n20,2,6", True),  # being written now
        ("", True),
        ("10,1,nan,0\n", False),
        ("20,1,5.0,0\n10,1,5.0,0\n", False),
        ("x,1,5.0,0\n", False),
        ("10,1\n", False),
        ('"10,1,5.0,0\n', False),
    ],
)
def test_rows_of_metrics(rows: str, good: bool, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", curve=())
    with (run / "metrics.csv").open("a") as file:
        file.write(rows)
    assert usable(run) == good


def test_one_damaged_run_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad", seed=1) / "evaluation.json"
    bad.write_bytes(bad.read_bytes()[:50])
    out = tmp_path / "report.html"
    main(["report", str(tmp_path), "--out", str(out)])
    assert capsys.readouterr().out == f"Wrote {out}: 1 run, 1 note at its end.\n"
    assert f"{bad} is damaged" in Page(out.read_text()).text


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = write_run(tmp_path / "good"), write_run(tmp_path / "bad", seed=1)
    open_file = files.open_file

    def refuse(path: Path, mode: Any) -> Any:
        if path.parent == bad:
            raise PermissionError(13, "Permission denied", str(path))
        return open_file(path, mode)

    monkeypatch.setattr(files, "open_file", refuse)
    ((run,), (note,)) = read_runs([tmp_path])
    assert run.directory == good
    assert note == f"{bad} cannot be read: Permission denied"
    with pytest.raises(InputError, match="bad cannot be read: Permission denied"):
        read_runs([bad])


def test_a_directory_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "good")
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    runs, notes = read_runs([tmp_path])
    assert len(runs) == 1
    assert notes == [f"{tmp_path / 'locked'} cannot be read: Permission denied"]
    with pytest.raises(InputError, match="locked cannot be read: Permission denied"):
        read_runs([tmp_path / "locked"])


def test_links_to_runs_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "store" / str(seed), seed=seed)
    links = tmp_path / "links"
    links.mkdir()
    for name, target in (("a", "0"), ("b", "1"), ("again", "1")):
        (links / name).symlink_to(tmp_path / "store" / target)
    for name in ("round", "and-round"):  # without an end if one went in
        (links / name).symlink_to(links)
    (links / "nowhere").symlink_to(tmp_path / "missing")
    runs, notes = read_runs([links])
    assert [run.directory for run in runs] == [links / "a", links / "again"]
    assert notes == []
    assert len(read_runs([tmp_path])[0]) == 2


def test_mistakes_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    assert "at least one run directory" in failed(capsys, "report")
    assert "does not exist" in failed(capsys, "report", tmp_path / "nowhere")
    assert "no config.json" in failed(capsys, "report", run, tmp_path / "empty")
    assert "is not a directory" in failed(capsys, "report", run / "config.json")
    assert "episodes must be" in failed(capsys, "report", run, "--episodes", "1")
    (tmp_path / "off-line").mkdir()
    (tmp_path / "off-line" / "config.json").write_text('{"format": 1, "algorithm": "td3-bc"}')
    assert "mvpi offline evaluate" in failed(capsys, "report", tmp_path / "off-line")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert missing("the report", "jinja2", "report") in failed(capsys, "report", run)
    assert not (Path.cwd() / "report.html").exists()


# A run that was really trained


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    sizes = {"n_steps": 32, "batch_size": 16, "hidden": (4,), "evaluation_episodes": 2}
    mvpi.PPO("mvpi/FourState-v0", risk=0.1, evaluation_every=32, **sizes).learn(64, out)
    return out


@pytest.fixture
def fresh(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_trained_run_is_evaluated_once(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = fresh.parent / "report.html"
    main(["report", str(fresh), "--out", str(out), "--episodes", "3"])
    captured = capsys.readouterr()
    assert captured.out == f"Wrote {out}: 1 run.\n"
    assert "evaluating" in captured.err
    kept = Outcome.read(fresh)
    assert kept is not None
    seen = mvpi.evaluate(mvpi.load(fresh), episodes=3)
    assert kept.returns == tuple(seen.returns.tolist())
    text = Page(out.read_text()).text
    assert "TRVO (MVPI-PPO), λ = 0.1" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert words.number(seen.mean) in text
    ((again,), _) = read_runs([fresh], track=lambda due: pytest.fail(f"evaluated again: {due}"))
    assert again.outcome == kept


def test_an_evaluation_of_an_older_policy_is_repeated(fresh: Path) -> None:
    read_runs([fresh], episodes=2)
    kept = Outcome.read(fresh)
    assert kept is not None
    replace(kept, steps=32, returns=(1e6, 1e6)).write(fresh)
    ((run,), notes) = read_runs([fresh], episodes=2)
    assert run.outcome == kept == Outcome.read(fresh)
    assert not notes


def test_an_evaluation_that_cannot_be_written_is_used_all_the_same(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ((run,), (note,)) = read_runs([fresh], episodes=2)
    assert run.outcome is not None
    assert run.outcome.returns == tuple(mvpi.evaluate(mvpi.load(fresh), episodes=2).returns)
    assert note.startswith(f"the evaluation of {fresh} is not kept: ")
    assert not (fresh / "evaluation.json").exists()


def test_a_run_of_an_experiment_is_left_to_it(fresh: Path) -> None:
    # An evaluation.json would tell the experiment that its training is over.
    (fresh / ".experiment").touch()
    ((run,), (note,)) = read_runs([fresh], episodes=2)
    assert run.outcome is None
    assert "still in training" in note
    assert not (fresh / "evaluation.json").exists()


def test_policies_that_cannot_be_evaluated(fresh: Path) -> None:
    policy = fresh / "policy.safetensors"
    data = policy.read_bytes()
    arrays, record = read_arrays(policy, "policy")
    record["environment"]["id"] = "mvpi/NoSuchOne-v0"
    write_arrays(policy, "policy", arrays, record)
    ((run,), (note,)) = read_runs([fresh], episodes=2)
    assert run.outcome is None
    assert "cannot be evaluated" in note
    policy.write_bytes(data[:-7])
    with pytest.raises(InputError, match=r"policy\.safetensors is damaged"):
        read_runs([fresh])
