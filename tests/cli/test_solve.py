"""`mvpi solve` and `mvpi frontier`: the answers of the library, and what goes wrong."""

from __future__ import annotations

import json
import pickle
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import in_a_shell

import mvpi
from mvpi import cli
from mvpi.cli import solve
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


@pytest.mark.parametrize("risk", ["cvar:0.1", "entropic:1", "budget:0.5", "monotone:1", "var:0.3"])
def test_solve_prints_other_risks(capsys, model: Path, risk: str) -> None:
    assert "optimum" in answer(capsys, "solve", str(model), "--risk", risk)


@pytest.mark.parametrize("inner", ["0.5", "cvar:0.1", "budget:0.5"])
def test_solve_for_the_return_of_an_episode(capsys, model: Path, inner: str) -> None:
    command = ("solve", str(model), "--risk", f"return:{inner}", "--horizon", "3")
    expected = optimize(two_machines(), mvpi.risk.parse_risk(f"return:{inner}"), horizon=3)
    facts = json.loads(answer(capsys, *command, "--json"))
    assert (facts["value"], facts["mean"]) == (expected.value, expected.mean)
    assert len(facts["policy"]) == len(expected.policy)
    assert set(facts["policy"][0]) == {"time", "state", "return_so_far", "action"}
    text = answer(capsys, *command)
    assert "of the return" in text
    assert "ReturnPolicy(" in text


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--risk", "return:0.5"], "--horizon 20"),
        (["--risk", "0.5", "--horizon", "3"], "--risk return:0.5"),
        (["--risk", "return:0.5", "--horizon", "0"], "horizon"),
        (["--risk", "return:0.5", "--horizon", "3", "--local"], "--horizon"),
        (["--risk", "return:0.5", "--return-step", "0.1", "--local"], "--return-step"),
        (["--risk", "return:0.5", "--local"], "--risk return:0.5"),
        (["--risk", "return:0.5", "--horizon", "3", "--return-step", "0"], "return_step"),
        (["--risk", "cvar:0.1", "--return-step", "0.1"], "--risk return:cvar:0.1,"),
        (["--risk", "range:0:1"], "mvpi frontier"),
        (["--risk", "return:range:0:1", "--horizon", "3"], "mvpi frontier"),
    ],
)
def test_solve_refuses_in_one_line(capsys, model: Path, extra: list[str], words: str) -> None:
    with pytest.raises(SystemExit):
        cli.main(["solve", str(model), *extra])
    lines = capsys.readouterr().err.strip().splitlines()
    assert words in " ".join(lines)
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize("command", ["solve", "frontier"])
@pytest.mark.parametrize("suffix", [".xlsx", ".ods"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_workbook_is_to_be_saved_as_csv(
    capsys, tmp_path: Path, command: str, suffix: str, exists: bool
) -> None:
    book = tmp_path / f"machine{suffix}"
    if exists:
        book.write_bytes(b"PK")
    with pytest.raises(SystemExit):
        cli.main([command, str(book)])
    assert capsys.readouterr().err.strip().endswith("save the sheet as CSV")


def test_solve_with_rounded_rewards(capsys, model: Path) -> None:
    command = ("solve", str(model), "--risk", "return:0.5", "--horizon", "3", "--json")
    facts = json.loads(answer(capsys, *command, "--return-step", "0.3"))
    risk = mvpi.OfReturn(0.5)
    expected = optimize(two_machines(), risk, horizon=3, return_step=0.3)
    assert (facts["value"], facts["upper_bound"]) == (expected.value, expected.upper_bound)
    assert facts["upper_bound"] >= optimize(two_machines(), risk, horizon=3).value


def test_frontier_of_the_return_of_an_episode(capsys, model: Path) -> None:
    expected = mvpi.frontier(two_machines(), horizon=3)
    facts = json.loads(answer(capsys, "frontier", str(model), "--horizon", "3", "--json"))
    assert facts["means"] == expected.means.tolist()
    assert facts["variances"] == expected.variances.tolist()
    assert facts["converged"] is True
    assert [len(policy) for policy in facts["policies"]] == [len(p) for p in expected.policies]
    assert set(facts["policies"][0][0]) == {"time", "state", "return_so_far", "action"}
    assert "efficient policies" in answer(capsys, "frontier", str(model), "--horizon", "3")
    with pytest.raises(SystemExit):
        cli.main(["frontier", str(model), "--horizon", "0"])
    assert capsys.readouterr().err.count("\n") == 1


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
    "risk kind": (untouched, ["solve", "MODEL", "--risk", "vare:0.1"], "risk"),
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


@pytest.mark.parametrize(("risk", "value"), [("cvar:0.8", "0.9375"), ("1", "-0.3125")])
def test_the_risk_neutral_policy_has_a_value_too(capsys, model: Path, risk, value) -> None:
    """0 or 2.5 by a fair coin: the worst 80% have the mean 0.3 * 2.5 / 0.8."""
    text = answer(capsys, "solve", str(model), "--risk", risk)
    assert re.search(rf"risk-neutral +1.25 +1.5625 +1.25 +{value} *$", text, re.MULTILINE)


@pytest.fixture
def four_state(tmp_path: Path) -> str:
    path = tmp_path / "four_state.npz"
    mvpi.examples.four_state().save(path)
    return str(path)


@pytest.mark.parametrize("options", [["--risk", "1", "--local"], ["--risk", "cvar:1"]])
def test_rounding_makes_no_other_policy(capsys, four_state: str, options: list[str]) -> None:
    """The mean of the gamble is 0, of which rounding noise is any percentage."""
    same = "The risk-neutral policy is also the best at this risk aversion."
    assert same in answer(capsys, "solve", four_state, *options)


def test_another_policy_is_compared_in_percent(capsys, four_state: str) -> None:
    text = answer(capsys, "solve", four_state, "--risk", "4")
    assert "Against the risk-neutral policy: variance -41%, mean -0.412." in text


def test_the_progress_line_is_gone_when_it_starts_late(monkeypatch) -> None:
    """The timer fires while the display ends: nothing may be left running."""
    before = set(threading.enumerate())
    monkeypatch.setattr(solve, "_SHOWN_AFTER", 0.0)
    for _ in range(20):
        with solve.progress_display("working") as progress:
            progress(1, 0.0, 1.0)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60.0)
        assert not thread.is_alive()


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
    done = in_a_shell("solve", model.name, "--json", cwd=model.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["value"] == optimize(two_machines(), 1.0).value


def test_shell_frontier(model: Path) -> None:
    done = in_a_shell("frontier", "FrozenLake-v1", "--out", "lake.png", cwd=model.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert model.with_name("lake.png").exists()


@pytest.mark.parametrize("arguments", [["solve", "nothing.npz"], ["solve", "CartPole-v1"]])
def test_shell_mistake(tmp_path: Path, arguments: list[str]) -> None:
    done = in_a_shell(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


COUNTS = """\
state,action,probability,reward,next_state
new,run,199,1,used
new,run,1,-10,new
used,run,9,1,used
used,run,1,-10,scrap
used,service,1,0,new
"""


def test_a_csv_file_is_read_as_its_options_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.csv"
    path.write_text(COUNTS)
    mdp = mvpi.MDP.from_outcomes(path, start=["new"], normalise=True, absorbing=True)
    options = ["--start", "new", "--normalise", "--absorbing", "--json"]
    solved = json.loads(answer(capsys, "solve", str(path), "--risk", "0.1", *options))
    assert solved["value"] == optimize(mdp, 0.1).value
    assert solved["state_labels"] == ["new", "scrap", "used"]
    explored = json.loads(answer(capsys, "frontier", str(path), *options))
    assert explored["means"] == mvpi.frontier(mdp).means.tolist()


@pytest.mark.parametrize("option", [["--start", "0"], ["--normalise"], ["--absorbing"]])
@pytest.mark.parametrize("command", ["solve", "frontier"])
def test_options_of_csv_files_are_refused_for_other_models(
    model: Path, command: str, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, str(model), *option])
    told = capsys.readouterr().err
    assert told == f"mvpi: {option[0]} is for .csv files of outcomes, not for {model}\n"
