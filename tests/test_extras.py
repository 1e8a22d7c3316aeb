"""What is said where the packages of an extra are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"jax", "equinox", "optax", "stable_baselines3"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
AGENTS = "an agent needs the package equinox: pip install -c constraints.txt '.[agents]'"


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that has the core alone."""
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", ["TD3", "PPO", "MVP", "load"])
def test_an_agent_names_its_extra(name: str) -> None:
    done = without_extras(f"import mvpi; mvpi.{name}")
    assert f"MissingPackage: {AGENTS}" in done.stderr


def test_the_command_line_names_the_extra_in_one_line() -> None:
    done = without_extras(
        "from mvpi.cli import main\n"
        "sys.argv[1:] = ['train', 'td3', '--env', 'mvpi/Markowitz-v0', '--steps', '10']\nmain()"
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"mvpi: {AGENTS}")
    assert len(done.stderr.splitlines()) == 1


def test_the_plug_names_its_extra() -> None:
    done = without_extras("import mvpi.sb3")
    assert "mvpi.sb3 needs the package stable-baselines3" in done.stderr


def test_finite_mdps_need_no_extra() -> None:
    done = without_extras(
        "import mvpi\n"
        "mdp = mvpi.MDP.from_gymnasium('FrozenLake-v1')\n"
        "assert mvpi.optimize(mdp, 0.5).converged\n"
        "from mvpi.cli import main\n"
        "sys.argv[1:] = ['solve', 'FrozenLake-v1', '--json']\nmain()"
    )
    assert done.returncode == 0, done.stderr
    assert '"upper_bound"' in done.stdout
