"""The page: the same bytes for the same runs, no script, text that stays text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.page import Page, page_of
from helpers.run_directories import AGENTS, TASKS, write_run, write_study

import mvpi
from mvpi.cli import main
from mvpi.experiments.outcome import Outcome


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
    main(["report", str(study), "--out", str(out), "--static"])
    captured = capsys.readouterr()
    assert captured.out == f"Wrote {out}: 12 runs.\n"
    assert captured.err == ""
    command = f"<code>mvpi report {study} --out {out} --static</code>"
    assert out.read_text() == study_page.replace("<code>mvpi report runs</code>", command)
    assert not list(out.parent.glob(".*"))


def test_nothing_is_fetched_and_no_script_runs(study_page: str) -> None:
    page = Page(study_page)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "base", "image"}
    for target in page.attributes("href", "xlink:href", "src", "action", "data"):
        assert target.startswith(("#", "data:,", "data:text/csv;base64,"))
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
