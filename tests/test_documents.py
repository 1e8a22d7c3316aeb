"""The Python blocks of every document run, those of a page in one namespace; and the site."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest

import mvpi
from mvpi.agents.registry import AGENTS
from mvpi.cli.app import _command
from mvpi.cli.usage import _drawn

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SLOW: set[str] = set()
"""Pages whose blocks take more than a few seconds."""


def blocks(page: Path) -> list[tuple[int, str]]:
    """Line and text of the Python blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start()) + 1, match[1]) for match in found]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages() -> list:
    return [
        pytest.param(page, id=name(page), marks=[pytest.mark.slow] if name(page) in SLOW else [])
        for page in PAGES
        if blocks(page)
    ]


@pytest.mark.parametrize("page", pages())
def test_code_runs(tmp_path: Path, monkeypatch, page: Path) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for line, code in blocks(page):
            # As many empty lines before it as on the page: a traceback names the right one.
            exec(compile("\n" * line + code, str(page), "exec"), namespace)


def test_the_reference_has_an_example_of_every_public_name() -> None:
    shown = "".join(
        code for page in PAGES if "/reference/" in str(page) for _, code in blocks(page)
    )
    used = set(re.findall(r"\bmvpi\.(\w+)", shown))
    assert set(mvpi.__all__) - {"__version__"} <= used


@pytest.mark.parametrize("module", ["sb3", "rllib", "offline", "envs"])
def test_the_reference_has_every_name_of_a_module(module: str) -> None:
    names = set(import_module(f"mvpi.{module}").__all__)
    pages = [page.read_text(encoding="utf-8") for page in PAGES if "/reference/" in str(page)]
    described = set(
        re.findall(rf"^::: mvpi\.{module}(?:\.\w+)?\.(\w+)$", "\n".join(pages), re.MULTILINE)
    )
    assert names <= described
    also = {"offline": {"learn_continuous"}}  # needs JAX, so it is not at the top of its module
    assert described - names == also.get(module, set())
    # Before the descriptions there are examples, in which a result may be named in a comment.
    shown = "\n".join(text.partition("\n:::")[0] for text in pages)
    assert {name for name in names if not re.search(rf"\b{name}\b", shown)} == set()


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_links_of_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / target).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    docs = ROOT / "docs"
    written = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    assert written == set(re.findall(r"([\w/.-]+\.md)$", navigation, re.MULTILINE)) - {
        "results/README.md"
    }


def test_every_command_is_on_its_page() -> None:
    page = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    for command in AGENTS:
        assert f"<!-- help: train {command} -->" in page
    listed = _drawn(_command, ["--help"])
    for command in re.findall(r"• (\w+)", listed):
        assert f"<!-- help: {command} -->" in page


def test_a_warning_stops_the_site() -> None:
    """mkdocs counts no warnings when it is quiet: then `--strict` lets a broken link pass."""
    commands = re.findall(r"mkdocs build.*", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert commands
    for command in commands:
        assert "--strict" in command
        assert "-q" not in command.split()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: any warning fails, such as a broken link (not with -q)."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?:[^\"> ]+)", text)
        assert loaded == [], page


@pytest.mark.slow
def test_the_site_can_be_searched_and_has_the_reference(site: Path) -> None:
    index = (site / "search/search_index.json").read_text(encoding="utf-8")
    for word in ("saturation", "risk_averse", "buffer-size", "MonotoneMeanVariance"):
        assert word in index
    text = (site / "reference/command-line.html").read_text(encoding="utf-8")
    assert "--buffer-size INT" in text
    assert "help:" not in text
    shown = re.sub(r"<[^>]+>", "", "".join(re.findall(r"<pre>.*?</pre>", text, re.DOTALL)))
    assert max(len(html.unescape(line)) for line in shown.splitlines()) <= 80


@pytest.mark.slow
def test_examples_of_docstrings_are_code_on_the_site(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        assert "<blockquote" not in page.read_text(encoding="utf-8"), page
    assert '<span class="gp">' in (site / "reference/agents.html").read_text(encoding="utf-8")
