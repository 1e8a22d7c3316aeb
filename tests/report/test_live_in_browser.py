"""The live page in a real Chromium: values under the pointer, agents on and off, data to keep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import Opened, needs_browser
from helpers.page import page_of
from helpers.run_directories import AGENTS, TASKS, write_range_run, write_study

pytest.importorskip("playwright.sync_api")

pytestmark = needs_browser
_LINES = "f => f.querySelectorAll('.scatterlayer .trace, .barlayer .trace').length"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("live")
    write_study(root / "runs", TASKS[5:6], AGENTS[:3], seeds=2)
    write_range_run(root / "runs" / "range")
    path = root / "report.html"
    path.write_text(page_of(root / "runs", live=True), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=[1280, 375])
def opened(request: pytest.FixtureRequest, browser: Any, report: Path) -> Iterator[Opened]:
    """The report on a screen of that width."""
    opened = Opened(browser, report, request.param, drawn="figure .main-svg", inside=("data",))
    yield opened
    opened.close()


def figure(page: Any, title: str) -> Any:
    return page.locator("figure").filter(has_text=title).first


def test_values_are_under_the_pointer(page: Any) -> None:
    plot = figure(page, "Learning curves").locator(".chart")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.5)
    told = plot.locator(".hoverlayer .legendtext")
    told.first.wait_for()
    assert told.count() == 3  # agents
    assert "TD3" in told.first.inner_html()


def test_no_button_sends_the_data_away(page: Any) -> None:
    plot = figure(page, "Learning curves").locator(".chart")
    plot.hover()
    buttons = plot.locator(".modebar-btn")
    buttons.first.wait_for(state="attached")
    names = [buttons.nth(i).get_attribute("data-title") for i in range(buttons.count())]
    assert any("Download" in str(name) for name in names)
    assert not [name for name in names if "Share" in str(name) or "Cloud" in str(name)]


def test_an_agent_is_switched_off_everywhere(page: Any) -> None:
    titles = ("Learning curves", "Returns of the final", "Mean against", "Rewards of single")
    before = [figure(page, title).evaluate(_LINES) for title in titles]
    box = page.locator(".legend input").nth(1)
    box.uncheck()
    page.wait_for_timeout(200)
    after = [figure(page, title).evaluate(_LINES) for title in titles]
    assert all(a < b for a, b in zip(after, before, strict=True))
    rows = page.locator("tr[data-agent]")
    assert [rows.nth(i).is_visible() for i in range(3)] == [True, False, True]
    box.check()
    page.wait_for_timeout(200)
    assert [figure(page, title).evaluate(_LINES) for title in titles] == before


def test_seeds_and_other_series_are_shown(page: Any) -> None:
    plot = figure(page, "Learning curves")
    before = plot.evaluate(_LINES)
    page.locator(".seeds input").check()
    page.wait_for_timeout(200)
    assert plot.evaluate(_LINES) == before + 6  # two seeds of three agents
    choice = plot.locator("select")
    titles = choice.locator("option").all_inner_texts()
    assert titles[0] == "mean return"
    assert "mean \N{MINUS SIGN} 1 variance of returns" in titles
    choice.select_option(label=titles[1])
    page.wait_for_timeout(200)
    assert plot.locator(".ytitle").text_content() == titles[1]
    choice.select_option(label=titles[0])
    page.locator(".seeds input").uncheck()
    page.wait_for_timeout(200)
    assert plot.locator(".ytitle").text_content() == titles[0]
    assert plot.evaluate(_LINES) == before


def test_the_data_can_be_kept(page: Any) -> None:
    for name in ("evaluations-in-training.csv", "final-returns.csv", "statistics.csv"):
        with page.expect_download() as found:
            page.get_by_role("link", name=name).first.click()
        assert found.value.suggested_filename == name
        assert Path(found.value.path()).read_text().startswith("agent,")


def test_nothing_is_wider_than_the_screen(page: Any) -> None:
    inner, wide = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert wide <= inner


def test_the_last_tick_of_a_curve_has_its_label(page: Any) -> None:
    """Curves end at the right edge; without room beside it Plotly leaves the last label out."""
    plot = figure(page, "Learning curves").locator(".chart")
    plot.scroll_into_view_if_needed()
    last = plot.evaluate("p => p._fullLayout.xaxis.range[1]")
    shown = plot.locator(".xtick text")
    labels = [shown.nth(i) for i in range(shown.count()) if shown.nth(i).is_visible()]
    ticks = [float(str(label.text_content()).replace(",", "")) for label in labels]
    assert last in ticks


def test_it_prints_pictures(page: Any) -> None:
    page.emulate_media(media="print")
    shown = figure(page, "Learning curves")
    assert not shown.locator(".chart").is_visible()
    assert shown.locator("> svg").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_without_scripts_there_are_pictures_and_links(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("figure > svg").first.is_visible()
    assert not page.locator(".legend input").first.is_visible()
    assert not figure(page, "Inside training").is_visible()
    assert page.get_by_role("link", name="statistics.csv").first.is_visible()
    context.close()
