"""The package as a whole: cheap to import, and complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mvpi
from mvpi.errors import MissingPackage

ROOT = Path(__file__).parent.parent
HEAVY = ("jax", "torch", "matplotlib", "numba", "scipy", "ray")

_IMPORT = """
import sys, time
start = time.process_time()
import mvpi
print(time.process_time() - start, *sys.modules)
"""


def imported() -> tuple[float, set[str]]:
    """Seconds of a core for `import mvpi` in a fresh interpreter, and the modules it loads."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True, timeout=60
    )
    seconds, *modules = done.stdout.split()
    return float(seconds), set(modules)


def test_import_is_fast() -> None:
    assert min(imported()[0] for _ in range(5)) < 0.3


def test_import_loads_nothing_heavy() -> None:
    _, modules = imported()
    assert "mvpi" in modules
    assert modules.isdisjoint(HEAVY)


def test_names() -> None:
    for name in mvpi.__all__:
        assert getattr(mvpi, name) is not None
        assert name in dir(mvpi)
    assert len(set(mvpi.__all__)) == len(mvpi.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        mvpi.no_such_name  # noqa: B018 - the lookup is what fails


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import mvpi; mvpi.Td3"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Did you mean: 'TD3'?" in done.stderr


def test_star_import_in_a_fresh_interpreter() -> None:
    code = "from mvpi import *; import mvpi; assert set(mvpi.__all__) <= set(globals())"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert mvpi.__version__ == version("mvpi")


def test_messages_about_extras_give_the_remedy_of_the_readme() -> None:
    """One place writes it, in the form README installs from, and the extras exist."""
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    sources = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    asked = [
        (package, extra)
        for text in sources.values()
        for package, extra in re.findall(r'MissingPackage\("[^"]+", "([^"]+)", "([^"]+)"\)', text)
    ]
    assert len(asked) >= 6  # the one in the docstring included
    for package, extra in asked:
        assert any(wanted.startswith(package) for wanted in extras[extra]), package
    assert [path.name for path, text in sources.items() if "pip install" in text] == ["errors.py"]
    remedy = str(MissingPackage("mvpi.sb3", "stable-baselines3", "sb3")).partition(": ")[2]
    assert remedy.removesuffix(" in the clone") in (ROOT / "README.md").read_text()
