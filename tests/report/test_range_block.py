"""Agents trained with a range on the page: every place in the table, one drawn at a time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.page import Page, page_of
from helpers.run_directories import write_range_run, write_run

import mvpi
from mvpi.cli import main
from mvpi.cli.report import runs_to_show
from mvpi.experiments import range_outcome
from mvpi.experiments.range_outcome import RangeOutcome

PLACES = 5


@pytest.fixture
def page(tmp_path: Path) -> str:
    write_range_run(tmp_path / "runs" / "a")
    return page_of(tmp_path / "runs")


def rows(page: str) -> list[str]:
    return re.findall(r'<tr data-at="\d+".*?</tr>', page, flags=re.DOTALL)


def test_the_table_has_every_place_and_the_knee(page: str) -> None:
    found = rows(page)
    assert len(found) == PLACES
    assert ["knee" in row for row in found] == [False, False, True, False, False]
    assert ['class="on"' in row for row in found] == [False, False, True, False, False]
    # mean - lam variance of rewards: 0.9 - 1 * 0.06^2, and 0.2 - 2 * 0.03^2.
    assert "0.8964" in found[2]
    assert "0.1982" in found[4]
    text = Page(page).text.replace("\N{NO-BREAK SPACE}", " ")
    assert "λ = 1: mean reward of a step 0.9000, standard deviation 0.06000" in text
    assert "Risk aversion 1: standard deviation -70%, mean -10% against risk aversion 0" in text


def test_one_place_is_visible_in_every_figure(page: str) -> None:
    figures = re.findall(r"<svg role.*?</svg>", page, flags=re.DOTALL)[1:]  # without the curves
    assert len(figures) == 4
    for figure in figures:
        parts = re.findall(r'class="at( on)?" data-at="(\d+)"', figure)
        assert {int(place) for _, place in parts} == set(range(PLACES))
        assert {place for on, place in parts if on} == {"2"}


def test_without_ranges_there_is_no_script(tmp_path: Path, page: str) -> None:
    assert page.count("<script>") == 1
    assert "<script" not in page_of(write_run(tmp_path / "plain"))


def test_the_same_runs_make_the_same_bytes(tmp_path: Path, page: str) -> None:
    assert page_of(tmp_path / "runs") == page


def test_seeds_are_averaged_and_have_intervals_of_steps(tmp_path: Path) -> None:
    for seed, more in ((0, 0.0), (1, 10.0)):
        means = [mean + more for mean in (100.0, 98.0, 90.0, 60.0, 20.0)]
        write_range_run(tmp_path / "runs" / str(seed), seed=seed, means=means)
    found = rows(page_of(tmp_path / "runs"))
    assert "95.00" in found[2]  # between 90 and 100
    assert "0.900 to 1.00" in found[2]


def test_a_run_of_other_places_is_left_out(tmp_path: Path) -> None:
    write_range_run(tmp_path / "runs" / "a")
    places = {"lams": (0.0, 2.0), "means": (9e3, 9e3), "deviations": (1.0, 1.0)}
    write_range_run(tmp_path / "runs" / "b", seed=1, **places)
    text = Page(page_of(tmp_path / "runs")).text
    assert "1 seed" in text
    assert "9,000" not in text


def test_of_the_return(tmp_path: Path) -> None:
    write_range_run(tmp_path / "runs" / "a", "return:range:0.0:2.0")
    found = rows(page_of(tmp_path / "runs"))
    assert "54.00" in found[2]  # 90 - 1 * 6^2


def test_beside_agents_of_one_risk_aversion(tmp_path: Path) -> None:
    write_range_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", risk="0.0", returns=(90.0, 110.0))
    page = page_of(tmp_path / "runs")
    assert len(rows(page)) == PLACES
    assert "at every risk aversion: below" in Page(page).text
    assert "Statistics" in Page(page).text


def test_where_nothing_varies(tmp_path: Path) -> None:
    write_range_run(tmp_path / "runs" / "a", means=[5.0] * PLACES, deviations=[0.0] * PLACES)
    page = page_of(tmp_path / "runs")
    assert "No knee" not in page
    assert "largest mean and the least standard deviation" in page


def test_a_trained_run_is_evaluated_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"n_steps": 32, "batch_size": 16, "hidden": (4,), "evaluation_episodes": 2}
    risk = mvpi.RiskRange(0.0, 1.0)
    mvpi.PPO("mvpi/FourState-v0", risk, evaluation_every=32, **small).learn(64, tmp_path / "run")
    out = tmp_path / "report.html"
    main(["report", str(tmp_path), "--out", str(out), "--episodes", "3", "--points", "3"])
    assert capsys.readouterr().out == f"Wrote {out}: 1 run.\n"
    kept = RangeOutcome.read(tmp_path / "run")
    assert kept is not None
    assert kept.risk_aversions == (0.0, 0.5, 1.0)
    assert "--points 3" in Page(out.read_text()).text
    assert len(rows(out.read_text())) == 3
    monkeypatch.setattr(range_outcome, "judge", lambda *_: pytest.fail("evaluated again"))
    ((again,), notes) = runs_to_show([tmp_path], episodes=3)
    assert again.along == kept
    assert notes == []
