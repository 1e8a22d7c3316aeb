"""The slider in a real Chromium, wide and narrow; and the page without its script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import Opened, needs_browser
from helpers.page import page_of
from helpers.run_directories import write_range_run, write_run

pytest.importorskip("playwright.sync_api")

pytestmark = needs_browser
_VISIBLE = """block => [...block.querySelectorAll('figure')].map(figure =>
    [...new Set([...figure.querySelectorAll('svg .at')].filter(
        e => getComputedStyle(e).visibility === 'visible').map(e => e.dataset.at))])"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranges in one environment, and an agent of one risk aversion."""
    root = tmp_path_factory.mktemp("range")
    write_range_run(root / "runs" / "step")
    write_range_run(root / "runs" / "return", "return:range:0.0:2.0")
    write_run(root / "runs" / "plain", risk="0.0")
    path = root / "report.html"
    path.write_text(page_of(root / "runs"), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=[1200, 400])
def opened(request: pytest.FixtureRequest, browser: Any, report: Path) -> Iterator[Opened]:
    """The report on a screen of that width."""
    opened = Opened(browser, report, request.param, drawn="figure > svg")
    yield opened
    opened.close()


def test_the_slider_moves_point_histogram_curves_and_row(page: Any) -> None:
    block, other = (page.locator(".range").nth(i) for i in (0, 1))
    before = other.evaluate(_VISIBLE)
    told = set()
    for place in ("0", "4", "3"):
        block.locator("input").fill(place)
        assert block.evaluate(_VISIBLE) == [[place]] * 4
        assert block.locator("tr.on").get_attribute("data-at") == place
        told.add(block.locator("output").inner_text())
    assert len(told) == 3
    assert other.evaluate(_VISIBLE) == before  # each slider moves its own


def test_keys_move_the_slider(page: Any) -> None:
    block = page.locator(".range").first
    block.locator("input").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert block.evaluate(_VISIBLE) == [["1"]] * 4
    assert "λ" in block.locator("input").get_attribute("aria-valuetext")


def test_the_point_moves_along_the_frontier(page: Any) -> None:
    block = page.locator(".range").first
    where = """block => { const on = block.querySelector('figure svg').querySelectorAll('.at.on');
        const box = on[on.length - 1].getBoundingClientRect(); return [box.left, box.top]; }"""
    block.locator("input").fill("0")
    right, high = block.evaluate(where)
    block.locator("input").fill("4")
    left, low = block.evaluate(where)
    assert left < right  # less deviation
    assert low > high  # less mean


def test_nothing_overflows_and_no_text_overlaps(page: Any) -> None:
    inner, wide = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert wide <= inner
    overlaps = page.evaluate(
        """[...document.querySelectorAll('figure > svg')].flatMap(svg => {
            const boxes = [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect());
            return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
                a.left < b.right - 1 && b.left < a.right - 1 &&
                a.top < b.bottom - 2 && b.top < a.bottom - 2)).map(() => svg.ariaLabel);
        })"""
    )
    assert overlaps == []


def test_it_prints_the_place_that_is_shown(page: Any) -> None:
    block = page.locator(".range").first
    block.locator("input").fill("4")
    page.emulate_media(media="print")
    assert not block.locator(".slider").is_visible()
    note = block.locator(".unscripted")
    assert note.is_visible()
    assert "λ\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2" in note.inner_text()
    assert block.locator("tr[data-at]").count() == 5
    assert page.pdf().startswith(b"%PDF")


def test_without_a_script_the_knee_is_shown_and_the_table_has_all(
    browser: Any, report: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    block = page.locator(".range").first
    assert not block.locator("input").is_visible()
    assert block.locator(".unscripted").is_visible()
    assert block.locator("tr[data-at]").count() == 5
    assert block.locator("tr.on").get_attribute("data-at") == "2"
    shown = block.locator("svg .at.on").first
    assert shown.evaluate("e => getComputedStyle(e).visibility") == "visible"
    context.close()
