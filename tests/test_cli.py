"""The command line: its answers are the library's, and mistakes are told in one line."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import mvpi
from mvpi import cli
from mvpi.commands import solve
from mvpi.tabular import optimize, policy_iteration


def two_machines() -> mvpi.MDP:
    """A steady one that pays 1, and one that pays 0 or 2.5 by the toss of a coin."""
    p = np.zeros((3, 2, 3))
    p[:, 0, 0] = 1.0
    p[:, 1, 1] = p[:, 1, 2] = 0.5
    r = np.zeros((3, 2, 3))
    r[:, 0, 0], r[:, 1, 2] = 1.0, 2.5
    return mvpi.MDP(p, r, discount=0.9)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.npz"
    two_machines().save(path)
    return path


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As from a shell, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "mvpi.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
    )


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    cli.main(arguments)
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def as_facts(solution: mvpi.Solution) -> dict[str, Any]:
    return {
        "mean": solution.mean,
        "variance": solution.variance,
        "value": solution.value,
        "dual": solution.dual,
        "upper_bound": solution.upper_bound if np.isfinite(solution.upper_bound) else None,
        "converged": solution.converged,
        "solves": solution.solves,
        "trace": list(solution.trace),
        "policy": solution.policy.tolist(),
    }


@pytest.mark.parametrize(
    ("text", "risk"),
    [
        ("0", 0.0),
        ("1.0", 1.0),
        ("0.2", 0.2),
        ("cvar:0.1", mvpi.CVaR(0.1)),
        ("entropic:1", mvpi.Entropic(1.0)),
        ("budget:0.5", mvpi.VarianceBudget(0.5)),
    ],
)
def test_solve_json_is_the_library_s_answer(capsys, model: Path, text: str, risk: Any) -> None:
    facts = json.loads(answer(capsys, "solve", str(model), "--risk", text, "--json"))
    assert facts.pop("states") == 3
    assert facts.pop("actions") == 2
    assert facts.pop("discount") == 0.9
    assert facts.pop("risk")
    expected = as_facts(optimize(two_machines(), risk))
    assert facts == expected


def test_solve_the_default_risk_aversion_is_1(capsys, model: Path) -> None:
    default = answer(capsys, "solve", str(model), "--json")
    assert default == answer(capsys, "solve", str(model), "--risk", "1.0", "--json")


def test_solve_local(capsys, tmp_path: Path) -> None:
    path = tmp_path / "four.npz"
    mdp = mvpi.examples.four_state()
    mdp.save(path)
    facts = json.loads(answer(capsys, "solve", str(path), "--risk", "4", "--local", "--json"))
    local = policy_iteration(mdp, 4.0)
    assert facts["value"] == local.value
    assert facts["policy"] == local.policy.tolist()
    assert facts["upper_bound"] is None
    assert "local optimum" in answer(capsys, "solve", str(path), "--risk", "4", "--local")


def test_solve_prints_both_policies_and_the_cost(capsys, model: Path) -> None:
    text = answer(capsys, "solve", str(model), "--risk", "1")
    for part in ("risk-neutral", "optimum", "mean - 1 variance", "1.25", "policy:", "variance -"):
        assert part in text
    same = answer(capsys, "solve", str(model), "--risk", "0")
    assert "also the best" in same


@pytest.mark.parametrize("risk", ["cvar:0.1", "entropic:1", "budget:0.5"])
def test_solve_prints_other_risks(capsys, model: Path, risk: str) -> None:
    assert "optimum" in answer(capsys, "solve", str(model), "--risk", risk)


def test_solve_an_environment(capsys) -> None:
    facts = json.loads(answer(capsys, "solve", "FrozenLake-v1", "--risk", "1", "--json"))
    expected = optimize(mvpi.MDP.from_gymnasium("FrozenLake-v1", 0.99), 1.0)
    assert facts["value"] == expected.value
    assert facts["discount"] == 0.99
    assert facts["policy"] == expected.policy.tolist()


@pytest.mark.parametrize("command", ["solve", "frontier"])
def test_discount_overrides(capsys, model: Path, command: str) -> None:
    for name in (str(model), "FrozenLake-v1"):
        facts = json.loads(answer(capsys, command, name, "--discount", "0.5", "--json"))
        assert facts["discount"] == 0.5
    one = json.loads(answer(capsys, command, str(model), "--discount", "1", "--json"))
    assert one["discount"] == 1.0


@pytest.mark.parametrize("name", ["file", "FrozenLake-v1"])
def test_frontier_json_is_the_library_s_answer(capsys, model: Path, name: str) -> None:
    mdp = two_machines() if name == "file" else mvpi.MDP.from_gymnasium(name, 0.99)
    target = str(model) if name == "file" else name
    facts = json.loads(answer(capsys, "frontier", target, "--json"))
    expected = mvpi.frontier(mdp)
    assert facts["means"] == expected.means.tolist()
    assert facts["variances"] == expected.variances.tolist()
    assert facts["policies"] == [policy.tolist() for policy in expected.policies]
    assert facts["solves"] == expected.solves
    assert (facts["states"], facts["actions"]) == (mdp.n_states, mdp.n_actions)
    for printed, span in zip(facts["risk_aversions"], expected.risk_aversions, strict=True):
        assert printed == (span and [x if np.isfinite(x) else None for x in span])


def test_frontier_table(capsys, model: Path) -> None:
    text = answer(capsys, "frontier", str(model))
    assert "efficient policies" in text
    assert "inf" in text


def test_frontier_table_of_cliff_walking(capsys) -> None:
    text = answer(capsys, "frontier", "CliffWalking-v1")
    assert "2 efficient policies" in text
    assert re.findall(r"^ +(-[\d.]+) +([\d.]+) +([\d.]+) +(.+?) *$", text, re.MULTILINE) == [
        ("-1", "0", "0", "8.1647 to inf"),
        ("-0.12248", "0.10748", "0.32784", "0 to 8.1647"),
    ]


@pytest.mark.parametrize("spread", ["variance", "standard deviation"])
@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_frontier_picture(capsys, model: Path, spread: str, suffix: str, magic: bytes) -> None:
    out = model.with_name(f"picture.{suffix}")
    text = answer(capsys, "frontier", str(model), "--out", str(out), "--spread", spread)
    assert "picture" in text
    assert out.read_bytes().startswith(magic)


def test_frontier_picture_and_json(capsys, model: Path) -> None:
    out = model.with_name("picture.png")
    json.loads(answer(capsys, "frontier", str(model), "--out", str(out), "--json"))
    assert out.exists()


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def corrupted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 300] = bytes(300)
    path.write_bytes(bytes(content))


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Trap(path.with_name("trap"))))


def object_array(path: Path) -> None:
    np.savez(path, rewards=np.array([Trap(path.with_name("trap"))], dtype=object))


def untouched(path: Path) -> None:
    pass


MISTAKES: dict[str, tuple[Callable[[Path], Any], list[str], str]] = {
    "risk text": (untouched, ["solve", "MODEL", "--risk", "low"], "risk"),
    "risk kind": (untouched, ["solve", "MODEL", "--risk", "var:0.1"], "risk"),
    "risk level": (untouched, ["solve", "MODEL", "--risk", "cvar:2"], "level"),
    "risk without a number": (untouched, ["solve", "MODEL", "--risk", "cvar:"], "cvar"),
    "negative risk": (untouched, ["solve", "MODEL", "--risk=-1"], "-1"),
    "nan risk": (untouched, ["solve", "MODEL", "--risk", "nan"], "nan"),
    "negative budget": (untouched, ["solve", "MODEL", "--risk", "budget:-1"], "-1"),
    "unreachable budget": (untouched, ["solve", "MODEL", "--risk", "budget:0.0001"], "0.0001"),
    "discount 0": (untouched, ["solve", "MODEL", "--discount", "0"], "discount"),
    "discount 2": (untouched, ["frontier", "MODEL", "--discount", "2"], "discount"),
    "discount nan": (untouched, ["frontier", "MODEL", "--discount", "nan"], "discount"),
    "missing file": (Path.unlink, ["solve", "MODEL"], "does not exist"),
    "directory": (lambda path: (path.unlink(), path.mkdir()), ["solve", "MODEL"], "not a regular"),
    "corrupted file": (corrupted, ["solve", "MODEL"], "model.npz"),
    "pickle": (pickled, ["solve", "MODEL"], "not an .npz"),
    "object array": (object_array, ["frontier", "MODEL"], "model.npz"),
    "text file": (lambda path: path.write_text("a\nb\n"), ["solve", "MODEL"], "not an .npz"),
    "unknown environment": (untouched, ["solve", "NoSuchLake-v1"], "NoSuchLake-v1"),
    "malformed id": (untouched, ["frontier", "no such file"], "no such file"),
    "no table": (untouched, ["solve", "CartPole-v1"], "transition table"),
    "discount 1 on a lake": (untouched, ["solve", "FrozenLake-v1", "--discount", "1"], "discount"),
    "out suffix": (untouched, ["frontier", "MODEL", "--out", "picture.txt"], "picture.txt"),
    "out directory": (untouched, ["frontier", "MODEL", "--out", "/no/such/x.png"], "/no/such"),
}


def coin() -> mvpi.MDP:
    """Every policy has the variance 1."""
    p = np.full((2, 1, 2), 0.5)
    return mvpi.MDP(p, np.array([[1.0], [-1.0]]), 0.9)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line(capsys, tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.npz"
    coin().save(path)
    prepare, arguments, part = MISTAKES[name]
    prepare(path)
    with pytest.raises(SystemExit) as caught:
        cli.main([str(path) if word == "MODEL" else word for word in arguments])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mvpi: ")
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1
    assert part in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["improve", "FrozenLake-v1"],
        ["solve"],
        ["frontier"],
        ["solve", "FrozenLake-v1", "--discount", "abc"],
        ["solve", "FrozenLake-v1", "--risk"],
        ["solve", "FrozenLake-v1", "extra"],
        ["solve", "FrozenLake-v1", "--out", "x.png"],
        ["frontier", "FrozenLake-v1", "--spread", "range"],
        ["frontier", "FrozenLake-v1", "--no-such-option"],
        ["solve", "x" * 300, "y" * 300],
        ["train", "td3", "--env"],
        ["train", "td3", "--steps", "1.5", "--env", "Pendulum-v1"],
        ["train", "td3", "--env", "Pendulum-v1", "--hidden", "3", "x"],
        ["train", "sac", "--env", "Pendulum-v1"],
        ["paper", "table", "--seed", "3"],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_wrong_usage_is_one_line(capsys, arguments: list[str]) -> None:
    message = mistaken(capsys, *arguments)
    assert re.search(r"; see mvpi[\w -]* --help$", message)
    assert not set("│╭╰─") & set(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve"], "Missing from mvpi solve: MODEL"),
        (["solve", "x", "y" * 300], "y" * 300),  # not broken into lines
        (["frontier", "x", "--spread", "range"], "('variance', 'standard deviation')"),
        (["paper", "table", "--seed", "3"], "perhaps you meant --seeds INT; see"),
        (["train", "sac"], "Available subcommands: td3, ppo"),
    ],
)
def test_wrong_usage_names_the_remedy(capsys, arguments: list[str], message: str) -> None:
    assert message in mistaken(capsys, *arguments)


def mistaken(capsys, *arguments: str) -> str:
    """The one line that wrong arguments are told in."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mvpi: ")
    assert captured.err.count("\n") == 1
    return captured.err.strip()


HUGE = "1" + 400 * "0"


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "td3", "--env", "Pendulum-v1", "--steps", HUGE],
        ["train", "td3", "--env", "Pendulum-v1", "--steps", f"-{HUGE}"],
        ["train", "ppo", "--env", "Pendulum-v1", "--seed", HUGE],
        ["train", "td3", "--env", "Pendulum-v1", "--batch-size", HUGE],
        ["train", "td3", "--env", "Pendulum-v1", "--hidden", HUGE, "3"],
        ["report", "RUNS", "--episodes", HUGE],
        ["paper", "table", "--seeds", HUGE],
        ["paper", "table", "--seeds", "1", "--steps", HUGE],
        ["paper", "offline", "--runs", HUGE],
        ["paper", "offline", "--seed", HUGE],
    ],
    ids=lambda arguments: " ".join(arguments)[:50],
)
def test_huge_whole_numbers_are_mistakes(capsys, tmp_path, monkeypatch, arguments) -> None:
    monkeypatch.chdir(tmp_path)
    message = mistaken(capsys, *arguments)
    assert "1.000e+400" in message
    assert len(message) < 120


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["report", "runs", "--out", ""], "--out"),
        (["report", "runs", "--out="], "--out"),
        (["train", "td3", "--env", "Pendulum-v1", "--out", ""], "--out"),
        (["solve", ""], "an argument"),
    ],
)
def test_empty_arguments_are_mistakes(capsys, arguments: list[str], name: str) -> None:
    assert mistaken(capsys, *arguments).startswith(f"mvpi: {name} must not be empty")


def test_the_page_of_a_report_is_no_directory(capsys, tmp_path: Path) -> None:
    message = mistaken(capsys, "report", str(tmp_path), "--out", str(tmp_path))
    assert message.endswith("is a directory")


@pytest.mark.parametrize(
    ("name", "risk", "row"),
    [
        # Its variance is 9.7e-16 and its mean -0.9999999999999991 as computed.
        ("CliffWalkingSlippery-v1", "3", ["-1", "0", "0", "-1", "-1"]),
        ("FrozenLake-v1", "1.5", ["0", "0", "0", "0", "0"]),
        ("Taxi-v4", "10", ["-1", "0", "0", "-1", "-1"]),
    ],
)
def test_rounding_errors_are_shown_as_zeros_but_kept_in_json(capsys, name, risk, row) -> None:
    text = answer(capsys, "solve", name, "--risk", risk)
    (line,) = (line for line in text.splitlines() if line.startswith("  optimum "))
    assert line.split()[1:] == row
    facts = json.loads(answer(capsys, "solve", name, "--risk", risk, "--json"))
    solution = optimize(mvpi.MDP.from_gymnasium(name, 0.99), float(risk))
    assert (facts["mean"], facts["variance"]) == (solution.mean, solution.variance)


def test_small_rewards_are_not_taken_for_rounding_errors(capsys, tmp_path: Path) -> None:
    two = two_machines()
    path = tmp_path / "small.npz"
    mvpi.MDP.from_rows(two.transitions, 1e-12 * two.rewards, two.discount).save(path)
    text = answer(capsys, "solve", str(path), "--risk", "0")
    assert re.search(r"optimum +1.25e-12 +1.5625e-24 +1.25e-12", text)


def test_each_row_has_the_value_that_the_title_states(capsys, model: Path) -> None:
    text = answer(capsys, "solve", str(model), "--risk", "budget:0.5")
    assert "variance is at most 0.5" in text
    assert re.search(r"risk-neutral +1.25 +1.5625 +1.25 +-inf *$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("gone", "newest"), [("Taxi-v3", "Taxi-v4"), ("FrozenLake-v0", "FrozenLake-v1")]
)
def test_the_version_to_use_instead_of_one_that_is_gone(capsys, gone: str, newest: str) -> None:
    if gone in gymnasium.registry:
        pytest.skip(f"this Gymnasium has {gone}")
    for arguments in (["solve", gone], ["train", "ppo", "--env", gone]):
        assert mistaken(capsys, *arguments).endswith(f"has no such version; use {newest}")


def test_version(capsys) -> None:
    assert answer(capsys, "--version") == f"mvpi {mvpi.__version__}\n"


def test_a_full_or_forbidden_disk_is_one_line(capsys, model: Path, monkeypatch) -> None:
    from mvpi.tabular.frontier import Frontier

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Frontier, "plot", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main(["frontier", str(model), "--out", str(model.with_name("x.png"))])
    assert caught.value.code == 2
    assert "No space left" in capsys.readouterr().err


def test_interrupted(capsys, model: Path, monkeypatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(solve, "read_model", interrupt)
    with pytest.raises(SystemExit) as caught:
        cli.main(["solve", str(model)])
    assert caught.value.code == 130
    assert capsys.readouterr().err == "mvpi: interrupted\n"


def test_a_solve_without_end_is_one_line(capsys, model: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["mvpi.tabular.solve"], "_ITERATIONS", 0)
    with pytest.raises(SystemExit) as caught:
        cli.main(["solve", str(model)])
    assert caught.value.code == 1
    assert capsys.readouterr().err == "mvpi: no convergence after 0 policy improvements\n"


def test_shell_solve(model: Path) -> None:
    done = run("solve", model.name, "--json", cwd=model.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["value"] == optimize(two_machines(), 1.0).value


def test_shell_frontier(model: Path) -> None:
    done = run("frontier", "FrozenLake-v1", "--out", "lake.png", cwd=model.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert model.with_name("lake.png").exists()


@pytest.mark.parametrize("arguments", [["solve", "nothing.npz"], ["solve", "CartPole-v1"]])
def test_shell_mistake(tmp_path: Path, arguments: list[str]) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_shell_no_arguments_and_help() -> None:
    nothing = run()
    assert nothing.returncode == 2
    assert nothing.stderr.strip()
    assert "Traceback" not in nothing.stderr
    shown = run("--help")
    assert shown.returncode == 0
    assert "solve" in shown.stdout
    assert "frontier" in shown.stdout
