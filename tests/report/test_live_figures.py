"""Live figures hold the numbers of the table and of metrics.csv, and text of files stays text."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from helpers.page import only_section, page_of
from helpers.run_directories import AGENTS, TASKS, write_run, write_study

from mvpi.report import live_figures
from mvpi.report.agent_statistics import Comparison
from mvpi.report.downloads import downloads
from mvpi.report.svg_figures import Style, styles


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    root = write_study(tmp_path_factory.mktemp("live"), TASKS[5:6], AGENTS[:3], seeds=2)
    return only_section(root)


def look(comparison: Comparison) -> dict[str, Style]:
    return styles(agent.label for agent in comparison.section.agents)


def traces(figure: live_figures.Figure | None, agent: int, **meta: Any) -> list[dict[str, Any]]:
    assert figure is not None
    wanted = {"agent": agent, **meta}
    return [t for t in figure["data"] if wanted.items() <= t["meta"].items()]


def test_plotly_takes_every_figure(study: Comparison) -> None:
    for draw in (
        live_figures.curves,
        live_figures.returns,
        live_figures.plane,
        live_figures.rewards,
    ):
        figure = draw(study, look(study))
        assert figure is not None
        go.Figure(json.loads(json.dumps(figure)))  # it refuses what its schema does not have


def test_the_plane_has_points_and_intervals_of_the_table(study: Comparison) -> None:
    figure = live_figures.plane(study, look(study))
    for i, agent in enumerate(study.section.agents):
        seeds, mean = traces(figure, i)
        found = study.estimates[agent.key]
        assert (mean["x"], mean["y"]) == ([found["deviation"].value], [found["mean"].value])
        bars = mean["error_y"]
        assert mean["y"][0] + bars["array"][0] == pytest.approx(found["mean"].high)
        assert mean["y"][0] - bars["arrayminus"][0] == pytest.approx(found["mean"].low)
        assert seeds["text"] == ["seed 0", "seed 1"]


def test_a_histogram_has_every_episode(study: Comparison) -> None:
    figure = live_figures.returns(study, look(study))
    for i, agent in enumerate(study.section.agents):
        bars, mean = traces(figure, i)
        width, centres, heights = bars["width"], np.array(bars["x"]), np.array(bars["y"])
        every = np.concatenate([o.returns for o in agent.outcomes])
        assert centres[0] - width <= every.min()
        assert centres[-1] + width >= every.max()
        middle = np.sum(centres * heights) / heights.sum()
        assert middle == pytest.approx(mean["x"][0], abs=width)


def test_a_single_evaluation_is_seen(tmp_path: Path) -> None:
    run = write_run(tmp_path / "short", risk="0.5", seed=0)
    rows = "steps,return_mean,return_variance,reward_mean,reward_variance,y\n"
    (run / "metrics.csv").write_text(rows + "10,4.0,2.0,0.4,0.1,0.3\n")
    comparison = only_section(tmp_path)
    for draw in (live_figures.curves, live_figures.inside_training):
        figure = draw(comparison, look(comparison))
        assert figure is not None
        for trace in figure["data"]:
            assert (len(trace["x"]), trace["mode"]) == (1, "markers")
        go.Figure(json.loads(json.dumps(figure)))


def test_objectives_along_training_are_made_of_the_rows(tmp_path: Path) -> None:
    for seed in (0, 1):
        run = write_run(tmp_path / str(seed), risk="0.5", seed=seed)
        rows = "steps,return_mean,return_variance,reward_mean,reward_variance,y\n"
        rows += f"10,{4 + seed},2.0,0.4,0.1,0.3\n20,8.0,4.0,0.6,0.3,0.5\n"
        (run / "metrics.csv").write_text(rows)
    comparison = only_section(tmp_path)
    figure = live_figures.curves(comparison, look(comparison))
    (band, mean) = traces(figure, 0, series="0.5 of returns", seed=False)
    assert mean["y"] == [4.5 - 1.0, 8.0 - 2.0]
    assert band["y"] == [3.5 - 0.5, 6.0, 6.0, 3.5 + 0.5]
    (_, of_step) = traces(figure, 0, series="0.5 of rewards", seed=False)
    assert of_step["y"] == pytest.approx([0.35, 0.45])
    assert [t["y"] for t in traces(figure, 0, series="return_mean", seed=True)] == [[4, 8], [5, 8]]
    assert figure is not None
    shown = [t["meta"] for t in figure["data"] if t["visible"]]
    assert {(m["series"], m["seed"]) for m in shown} == {("return_mean", False)}
    inside = live_figures.inside_training(comparison, look(comparison))
    assert inside is not None
    assert inside["layout"]["meta"] == {"y": "y, the dual variable"}


def test_text_of_files_is_no_tag(tmp_path: Path) -> None:
    nasty = "</script><img src=x onerror=alert(1)>"
    write_run(tmp_path / "a", risk=nasty, environment=nasty)
    page = page_of(tmp_path, live=True)
    assert "<img" not in page.replace(live_script(page), "")
    comparison = only_section(tmp_path)
    text = live_figures.as_json(live_figures.plane(comparison, look(comparison)))
    assert not set("<>&") & set(text)
    assert "<img" not in json.loads(text)["data"][0]["name"]


def live_script(page: str) -> str:
    """Plotly itself."""
    start = page.rindex("<script>", 0, page.index("plotly.js v"))
    return page[start : page.index("</script>", start)]


def test_downloads_hold_the_numbers(study: Comparison) -> None:
    tables = {name: read(link) for name, link in downloads(study)}
    runs = [(a.label, run) for a in study.section.agents for run in a.every_run]
    rows = tables["evaluations-in-training.csv"]
    assert len(rows) == sum(len(run.metrics) for _, run in runs)
    assert rows[0]["agent"] == runs[0][0]
    assert float(rows[0]["return_mean"]) == runs[0][1].metrics[0]["return_mean"]
    returns = tables["final-returns.csv"]
    assert [float(r["return"]) for r in returns if r["agent"] == runs[0][0]] == [
        value for o in study.section.agents[0].outcomes for value in o.returns
    ]
    first = tables["statistics.csv"][0]
    assert float(first["value"]) == study.estimates[study.section.agents[0].key]["mean"].value


def read(link: str) -> list[dict[str, str]]:
    head, _, data = link.partition(",")
    assert head == "data:text/csv;base64"
    return list(csv.DictReader(io.StringIO(base64.b64decode(data).decode())))
