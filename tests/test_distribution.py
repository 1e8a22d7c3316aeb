"""What is published: wheel and source archive, their contents, and an installation from nothing.

Everything here is slow. The installation needs what pip can reach: an index, or its cache.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import mvpi

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def tracked(*folders: str) -> list[str]:
    """Files under version control."""
    done = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")[:-1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built distributions of a copy of the repository."""
    clone = tmp_path_factory.mktemp("clone")
    for name in tracked("src", "tests", "*.md", "*.toml", "*.txt", "*.in", "*.cff", "LICENSE"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", str(clone)],
        capture_output=True,
        check=True,
        timeout=300,
    )
    return clone / "dist"


def wheel(dist: Path) -> Path:
    return dist / f"mvpi-{mvpi.__version__}-py3-none-any.whl"


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(dist: Path) -> None:
    names = set(zipfile.ZipFile(wheel(dist)).namelist())
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == {name.removeprefix("src/") for name in tracked("src")}
    assert {"mvpi/py.typed", "mvpi/report/page.html.jinja"} <= inside


def test_the_metadata_of_the_wheel(dist: Path) -> None:
    archive = zipfile.ZipFile(wheel(dist))
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    head, _, text = archive.read(name).decode().partition("\n\n")
    assert f"\nVersion: {mvpi.__version__}\n" in head
    assert "\nLicense-Expression: MIT\n" in head
    assert text.startswith("# mvpi")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(re.findall(r"^Provides-Extra: (.+)$", head, re.MULTILINE)) == set(extras)


def test_the_source_archive_has_the_package_and_no_tests(dist: Path) -> None:
    root = f"mvpi-{mvpi.__version__}/"
    with tarfile.open(dist / f"{root[:-1]}.tar.gz") as archive:
        names = archive.getnames()
    files = {name.removeprefix(root) for name in names}
    assert set(tracked("src")) <= files
    assert {"README.md", "LICENSE", "pyproject.toml", "CITATION.cff", "constraints.txt"} <= files
    assert not [name for name in files if name.startswith("tests")]


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an empty environment into which the wheel was installed."""
    venv = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    pip = [venv / "bin/pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", wheel(dist)], check=True, timeout=900)
    return venv / "bin/python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in the empty environment, away from this repository."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=python.parents[2],
        env=clean,
    )


def test_the_core_alone_solves_exactly(python: Path) -> None:
    done = run(
        python,
        "-W",
        "error",
        "-c",
        "import mvpi\n"
        "print(mvpi.__file__)\n"
        "print(mvpi.optimize(mvpi.examples.four_state(), 1.0).value)",
    )
    assert done.returncode == 0, done.stderr
    where, value = done.stdout.split()
    assert Path(where).is_relative_to(python.parents[1])
    assert float(value) == pytest.approx(-0.7 / 1.7)


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("agents", "import mvpi; mvpi.TD3"),
        ("agents", "import mvpi; mvpi.load('x')"),
        ("sb3", "import mvpi.sb3"),
        ("rllib", "import mvpi.rllib"),
        ("offline", "from mvpi import offline; offline.Dataset.from_minari('x')"),
        ("report", "from mvpi.cli import main; main(['report', '.'])"),
        (
            "agents",
            "from mvpi.cli import main; main(['train', 'td3', '--env', 'mvpi/Markowitz-v0'])",
        ),
    ],
)
def test_a_missing_extra_is_named_in_one_line(python: Path, extra: str, code: str) -> None:
    done = run(python, "-c", code)
    assert done.returncode != 0
    assert f"pip install -c constraints.txt '.[{extra}]'" in done.stderr.splitlines()[-1]


def test_the_doctor_of_the_core_alone(python: Path) -> None:
    done = run(python, "-m", "mvpi", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "works: a finite MDP was solved as it should be" in done.stdout
    assert "to install" in done.stdout
