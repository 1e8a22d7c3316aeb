"""Files that describe the project say the same as the package."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import mvpi

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == mvpi.__version__
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    assert paper["title"] == "Mean-Variance Policy Iteration for Risk-Averse Reinforcement Learning"
    assert [author["family-names"] for author in paper["authors"]] == ["Zhang", "Liu", "Whiteson"]
    assert paper["year"] == 2021


def test_the_pythons_that_are_named_are_the_ones_that_are_tested() -> None:
    named = {
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if re.match(r"Programming Language :: Python :: 3\.\d", line)
    }
    tested = set()
    for job in read(".github/workflows/ci.yml")["jobs"].values():
        for step in job["steps"]:
            tested |= {str(step.get("with", {}).get("python-version", "")) or None} - {None}
    assert named == tested


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_run_what_developers_run(name: str) -> None:
    workflow = read(f".github/workflows/{name}.yml")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps]
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_only_the_job_that_publishes_may_ask_for_an_identity() -> None:
    workflow = read(".github/workflows/release.yml")
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert {name for name, job in jobs.items() if "permissions" in job} == {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key "on" as true


def test_issue_templates_ask_for_the_doctor() -> None:
    bug = read(".github/ISSUE_TEMPLATE/bug.yml")
    assert "mvpi doctor --json" in str(bug)
    for name in ("bug", "wish"):
        template = read(f".github/ISSUE_TEMPLATE/{name}.yml")
        assert {"name", "description", "body"} <= template.keys()


def test_what_the_extras_ask_for_is_pinned() -> None:
    pinned = {
        re.split("==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    extras = PROJECT["optional-dependencies"].values()
    for line in [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]:
        name = re.split(r"[\[><= ]", line)[0].lower().replace("_", "-")
        assert name in pinned | {"mvpi"}, line


def test_a_browser_that_cannot_be_installed_does_not_end_the_script(tmp_path) -> None:
    """With nothing on PATH but a shell, as on a machine without rights and without network."""
    for name in ("bash", "id", "tail"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True)
        (tmp_path / name).symlink_to(found.stdout.strip())
    (tmp_path / ".venv/bin").mkdir(parents=True)
    script = f"set -euo pipefail; source {ROOT}/.ci/browser; echo goes on"
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
    assert "No browser could be installed" in done.stderr
