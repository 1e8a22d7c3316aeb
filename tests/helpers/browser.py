"""Pages in a real Chromium, and what the browser said of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, _NAMES)), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs a browser on PATH: chromium or google-chrome"
)

# What a test may leave behind on a page that others look at too: the pointer, a place scrolled to,
# the medium, opened details.
_AS_OPENED = """() => {
    document.activeElement?.blur();
    document.querySelectorAll('details').forEach(d => d.open = false);
    scrollTo(0, 0);
}"""


@contextmanager
def launched() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without a sandbox, which root may not have: the page is ours.
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A report on a screen of that width, for several tests: each leaves it as it was.

    What the browser complained about, and all that it asked for, is in `heard`.
    """

    def __init__(
        self, browser: Any, report: Path, width: int, *, drawn: str, inside: tuple[str, ...] = ()
    ) -> None:
        """`drawn` is there once all is; `inside` are schemes of addresses within the page."""
        self.page = browser.new_page(viewport={"width": width, "height": 800})
        self.heard: list[str] = []
        self.page.on("console", lambda message: self.heard.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.heard.append(f"error: {error}"))
        self.page.on("request", lambda asked: self.heard.append(f"request: {asked.url}"))
        self.page.on("requestfailed", lambda asked: self.heard.append(f"failed: {asked.url}"))
        self._inside = tuple(
            f"{what}: {name}:" for what in ("request", "failed") for name in inside
        )
        self._expected = [f"request: {report.as_uri()}"]
        self.page.goto(report.as_uri())
        self.page.wait_for_selector(drawn)

    def restore(self) -> None:
        """As it was opened, but for what the tests of that page put back themselves."""
        self.page.mouse.move(0, 0)
        self.page.emulate_media(media="screen")
        self.page.evaluate(_AS_OPENED)

    def check(self) -> None:
        """Nothing but the report and what is inside it was asked for; nobody complained."""
        heard = [h for h in self.heard if not h.startswith(self._inside)]
        assert heard == self._expected

    def close(self) -> None:
        self.page.wait_for_load_state("networkidle")
        self.page.close()
        self.check()
