"""The report in a real Chromium: nothing is fetched, nothing overflows, everything is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import Opened, needs_browser
from helpers.page import page_of
from helpers.run_directories import AGENTS, TASKS, write_run, write_study

pytest.importorskip("playwright.sync_api")

pytestmark = needs_browser
WIDTHS = (1280, 375)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ordinary environments, one where nothing varies, and one with far too long names."""
    root = tmp_path_factory.mktemp("browser")
    write_study(root / "runs", TASKS[5:7], AGENTS, seeds=2)
    for risk in ("0.0", "1.0"):
        constant: dict[str, Any] = {"returns": [1000.0] * 9, "rewards": [1.0, 1.0]}
        write_run(root / "runs" / f"constant-{risk}", risk=risk, environment="Still-v0", **constant)
        write_run(root / "runs" / f"long-{risk}", risk=risk, environment="VeryLongName" * 6)
    write_run(root / "runs" / "waiting", "mvp", "1.0", environment="Still-v0", returns=None)
    path = root / "report.html"
    path.write_text(page_of(root / "runs"), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=WIDTHS)
def opened(request: pytest.FixtureRequest, browser: Any, report: Path) -> Iterator[Opened]:
    """The report on a screen of that width."""
    opened = Opened(browser, report, request.param, drawn="figure > svg")
    yield opened
    opened.close()


def test_the_page_itself_never_scrolls_sideways(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    inner, wide = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert wide <= inner
    # Wide tables do, inside their own frame.
    outside = page.evaluate(
        """[...document.querySelectorAll('body *')].filter(e =>
            !e.closest('.scroll') && !e.closest('svg') &&
            e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML)"""
    )
    assert outside == []


def test_every_figure_is_drawn(page: Any) -> None:
    figures = page.evaluate(
        """[...document.querySelectorAll('figure > svg')].map(svg => {
            const box = svg.getBoundingClientRect();
            const seen = e => { const b = e.getBoundingClientRect();
                                return (b.width > 0 || b.height > 0) &&
                                       getComputedStyle(e).visibility === 'visible'; };
            const inside = e => { const b = e.getBoundingClientRect();
                                  return b.left >= box.left - 1 && b.right <= box.right + 1 &&
                                         b.top >= box.top - 1 && b.bottom <= box.bottom + 1; };
            const texts = [...svg.querySelectorAll('text')];
            return { width: box.width, height: box.height,
                     paths: [...svg.querySelectorAll('path')].filter(seen).length,
                     texts: texts.length, cut: texts.filter(t => !inside(t)).length };
        })"""
    )
    assert len(figures) == 16
    for figure in figures:
        assert figure["width"] > 300
        assert figure["height"] > 200
        assert figure["paths"] >= 4
        assert figure["texts"] >= 4  # the name of an axis and three of its ticks
        assert figure["cut"] == 0


def test_text_in_figures_is_legible(page: Any) -> None:
    sizes = page.evaluate(
        """[...document.querySelectorAll('figure > svg text')].map(t =>
            parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a ||
            parseFloat(getComputedStyle(t).fontSize) * Math.abs(t.getScreenCTM().b))"""
    )
    assert len(sizes) > 100
    assert min(sizes) >= 9


def test_labels_of_an_axis_do_not_overlap(page: Any) -> None:
    overlaps = page.evaluate(
        """[...document.querySelectorAll('figure > svg')].flatMap(svg => {
            const boxes = [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect());
            return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
                a.left < b.right - 1 && b.left < a.right - 1 &&
                a.top < b.bottom - 2 && b.top < a.bottom - 2)).map(() => svg.ariaLabel);
        })"""
    )
    assert overlaps == []


def test_figures_stand_side_by_side_where_there_is_room(page: Any) -> None:
    first, second = page.evaluate(
        """[...document.querySelectorAll('figure')].slice(0, 2).map(f =>
            f.getBoundingClientRect().left)"""
    )
    assert (first < second) == (page.viewport_size["width"] == 1280)


def test_settings_open_without_a_script(page: Any) -> None:
    settings = page.locator("details").first
    assert not settings.locator("table").is_visible()
    settings.locator("summary").click()
    assert settings.locator("table").is_visible()


def test_it_prints(page: Any) -> None:
    page.emulate_media(media="print")
    assert page.locator(".print").first.is_visible()
    assert not page.locator("details").first.is_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.evaluate(
        "getComputedStyle(document.querySelector('figure')).breakInside"
    ).startswith("avoid")
    data = page.pdf()
    assert data.startswith(b"%PDF")
    assert len(data) > 20_000
