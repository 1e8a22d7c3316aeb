"""`mvpi doctor`: what it finds here, and what it says where something is missing or broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import mvpi
from mvpi import cli
from mvpi.cli import doctor, installation, machine

_WITHOUT = """
import sys
from importlib import metadata
from importlib.abc import MetaPathFinder

MISSING = set(sys.argv.pop(1).split(","))

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
found = metadata.version

def version(name):
    if name in MISSING:
        raise metadata.PackageNotFoundError(name)
    return found(name)

metadata.version = version
from mvpi.cli import main
main()
"""


def doctor_without(*packages: str) -> subprocess.CompletedProcess[str]:
    """`mvpi doctor` where these packages are not installed."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", _WITHOUT, ",".join(packages), "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def facts(capsys: pytest.CaptureFixture[str]) -> dict:
    cli.main(["doctor", "--json"])
    return json.loads(capsys.readouterr().out)


def test_here_everything_works(capsys) -> None:
    found = facts(capsys)
    assert found["mvpi"] == mvpi.__version__
    assert found["core"] == {"works": True, "problem": None}
    assert found["mujoco"] == {"works": True, "problem": None}
    assert found["install"] is None
    assert {"agents", "sb3", "offline", "ray", "rllib", "report"} <= found["extras"].keys()
    assert set(found["extras"].values()) == {None}
    assert not {"dev", "bench", "docs", "all"} & found["extras"].keys()
    for name in ("numpy", "jax", "stable-baselines3", "mujoco", "minari"):
        assert found["packages"][name] == version(name)


def test_threads_and_processor_are_those_of_this_machine(capsys, monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = facts(capsys)
    assert found["threads"]["cores"] == os.cpu_count()
    assert found["threads"]["usable"] == len(os.sched_getaffinity(0))
    assert found["threads"]["variables"]["OMP_NUM_THREADS"] == "1"
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    instructions = found["processor"]["vector_instructions"]
    assert ("AVX2" in instructions) == ("avx2" in flags)
    assert ("AVX-512" in instructions) == ("avx512f" in flags)


def test_lines_for_people(capsys) -> None:
    cli.main(["doctor"])
    shown = capsys.readouterr().out
    for text in (f"mvpi               {mvpi.__version__}", "core", "MuJoCo", "extra agents"):
        assert text in shown
    assert "to install" not in shown


def test_missing_extras_are_named_with_the_command_and_are_no_failure() -> None:
    done = doctor_without("jax", "stable-baselines3", "stable_baselines3", "jinja2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["core"]["works"]
    assert found["extras"]["agents"] == "jax is missing"
    assert found["extras"]["sb3"] == "stable-baselines3 is missing"
    assert found["extras"]["tensorboard"] is None
    assert found["install"] == (
        "pip install -c constraints.txt '.[agents,sb3,offline,ray,report]' in the clone"
    )


def test_a_missing_package_of_the_core_is_a_failure() -> None:
    done = doctor_without("numba")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["core"] == {"works": False, "problem": "numba is missing"}


def test_a_wrong_answer_of_the_solver_is_a_failure(capsys, monkeypatch) -> None:
    monkeypatch.setattr("mvpi.tabular.examples.FOUR_STATE_DISCOUNT", 0.5)
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor"])
    assert caught.value.code == 1
    assert "does not work: the paper's example has the value" in capsys.readouterr().out


def test_mujoco_that_does_not_work_says_why(monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ImportError("libGL.so.1: cannot open\nshared object file")

    monkeypatch.setattr("gymnasium.make", broken)
    assert machine.mujoco_works() == machine.Works(
        False, "libGL.so.1: cannot open shared object file"
    )


def test_a_version_that_is_too_old(monkeypatch) -> None:
    monkeypatch.setattr(
        installation, "installed_version", lambda name: "1.9" if name == "numpy" else version(name)
    )
    core = installation.groups()[0]
    assert core.name == installation.CORE
    assert core.problem() == "numpy is 1.9, needed is >=2.0"


def test_a_source_tree_that_is_not_installed(capsys, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "groups", list)
    cli.main(["doctor"])
    assert "mvpi itself is not installed as a package" in capsys.readouterr().out


def test_where_numba_keeps_compiled_functions(monkeypatch) -> None:
    found = machine.numba_cache()
    assert found["writable"]
    assert Path(found["directory"]).is_absolute()
    monkeypatch.setattr("mvpi._compiled.cache_directory", lambda: None)
    assert "NUMBA_CACHE_DIR" in machine.numba_cache()["problem"]


@pytest.mark.parametrize(("name", "writable"), [("new/er", True), ("file/below", False)])
def test_where_jax_keeps_compiled_functions(tmp_path, name: str, writable: bool) -> None:
    import jax

    (tmp_path / "file").write_text("")
    before = jax.config.jax_compilation_cache_dir
    directory = str(tmp_path / name)
    jax.config.update("jax_compilation_cache_dir", directory)
    try:
        found = machine.jax_cache()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert found == {"directory": directory, "writable": writable, "problem": None}


def test_jax_without_a_cache(monkeypatch) -> None:
    monkeypatch.setattr("jax.config", object())
    assert "JAX_COMPILATION_CACHE_DIR" in machine.jax_cache()["problem"]
