"""The command line itself: wrong usage, empty and huge arguments, the version."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import gymnasium
import pytest
from helpers.commands import in_a_shell, mistaken

import mvpi
from mvpi import cli
from mvpi.agents.registry import AGENTS
from mvpi.cli.app import _command
from mvpi.cli.usage import _drawn


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
        (["train", "td3", "--steps", "1e5", "--env", "x"], "--steps must be a whole number such"),
    ],
)
def test_wrong_usage_names_the_remedy(capsys, arguments: list[str], message: str) -> None:
    assert message in mistaken(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "meant", "read"),
    [
        (["solv", "FrozenLake-v1"], "solve", "mvpi"),
        (["trian", "td3"], "train", "mvpi"),
        (["--verson"], "--version", "mvpi"),
        (["train", "td4"], "td3", "mvpi train"),
        (["paper", "tble"], "table", "mvpi paper"),
        (["sovle", "--help"], "solve", "mvpi"),
        (["train", "td4", "-h"], "td3", "mvpi train"),
        (["solve", "FrozenLake-v1", "--rsk", "1"], "--risk RISK", "mvpi solve"),
        (["solve", "FrozenLake-v1", "--no-jsn"], "--no-json", "mvpi solve"),
        (["solve", "x", "--discuont=0.9"], "--discount {None}|FLOAT", "mvpi solve"),
        (["train", "td3", "--env", "x", "--bufer", "3"], "--buffer-size INT", "mvpi train td3"),
        (["train", "td3", "--env", "x", "--batch_sise", "3"], "--batch-size INT", "mvpi train td3"),
        # What others call it.
        (["solve", "FrozenLake-v1", "--lambda", "1"], "--risk RISK", "mvpi solve"),
        (["train", "td3", "--environment", "Pendulum-v1"], "--env STR", "mvpi train td3"),
        (["help"], "--help", "mvpi"),
        (["version"], "--version", "mvpi"),
        # An option of another command is none of this one.
        (["solve", "FrozenLake-v1", "--buffer-size", "1"], None, "mvpi solve"),
        (["quite", "different"], None, "mvpi"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_may_have_been_meant(capsys, arguments: list[str], meant, read: str) -> None:
    message = mistaken(capsys, *arguments)
    assert message.endswith(f"; see {read} --help")
    if meant is None:
        assert "perhaps" not in message
    else:
        assert f"; perhaps you meant {meant};" in message


def test_a_reader_that_has_enough_is_no_error() -> None:
    program = "import sys; from mvpi.cli import main; main(['completion', 'bash'])"
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | head -1; echo "${PIPESTATUS[0]}"', sys.executable, program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("0", "141")


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


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "runs/\udbff"])
@pytest.mark.parametrize(
    "command",
    [
        ["paper", "table", "--tasks", "mvpi/Markowitz-v0"],
        ["paper", "offline"],
        ["train", "td3", "--env", "mvpi/Markowitz-v0"],
    ],
    ids=" ".join,
)
def test_names_that_no_file_can_have_are_mistakes(capsys, command, name: str) -> None:
    message = mistaken(capsys, *command, "--out", name)
    assert message == f"mvpi: an argument has a character that no file name has: {name!a}"


@pytest.mark.parametrize(
    ("gone", "newest"), [("Taxi-v3", "Taxi-v4"), ("FrozenLake-v0", "FrozenLake-v1")]
)
def test_the_version_to_use_instead_of_one_that_is_gone(capsys, gone: str, newest: str) -> None:
    if gone in gymnasium.registry:
        pytest.skip(f"this Gymnasium has {gone}")
    for arguments in (["solve", gone], ["train", "ppo", "--env", gone]):
        assert mistaken(capsys, *arguments).endswith(f"has no such version; use {newest}")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("Pendulm-v1", "Pendulum-v1"),
        ("frozenlake-v1", "FrozenLake-v1"),
        ("mvpi/FourStates-v0", "mvpi/FourState-v0"),
        ("FourState-v0", "mvpi/FourState-v0"),
    ],
)
def test_the_environment_that_may_have_been_meant(capsys, wrong: str, right: str) -> None:
    for arguments in (["train", "ppo", "--env", wrong], ["tune", "td3", "--env", wrong]):
        assert mistaken(capsys, *arguments).endswith(f"did you mean {right}?")


def test_version(capsys) -> None:
    cli.main(["--version"])
    assert capsys.readouterr() == (f"mvpi {mvpi.__version__}\n", "")


def test_shell_no_arguments_and_help() -> None:
    nothing = in_a_shell()
    assert nothing.returncode == 2
    assert nothing.stderr.strip()
    assert "Traceback" not in nothing.stderr
    shown = in_a_shell("--help")
    assert shown.returncode == 0
    assert "solve" in shown.stdout
    assert "frontier" in shown.stdout


def _risk_help(*command: str) -> str:
    """What `--help` says of `--risk`, as one line."""
    (line,) = (
        line
        for line in _drawn(_command, [*command, "--help"]).splitlines()
        if re.match(r"\W*--risk RISK", line)
    )
    return line


def test_the_help_of_risk_names_what_the_command_takes() -> None:
    assert " var:LEVEL" not in _risk_help("train", "td3")
    assert "range:LOW:HIGH" in _risk_help("train", "td3")
    assert "range:LOW:HIGH" not in _risk_help("solve")
    assert " var:LEVEL" in _risk_help("solve")
    assert "range:LOW:HIGH" not in _risk_help("offline", "relabel")
    for only_numbers in ("mvp", "tamar", "prashanth", "mean-gini"):
        assert "entropic" not in _risk_help("train", only_numbers)


@pytest.mark.parametrize("algorithm", ["mvp", "cvar-pg"])
def test_a_risk_without_a_usable_default_must_be_given(capsys, algorithm: str) -> None:
    message = mistaken(capsys, "train", algorithm, "--env", "CartPole-v1")
    assert message.startswith(f"mvpi: Missing from mvpi train {algorithm}: --risk")


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_descriptions_of_options_are_whole_lines(name: str) -> None:
    """Where the text of an option has lines of its own, terminals break it in mid-sentence."""
    drawn = _drawn(_command, ["train", name, "--help"]).replace("│", " ").splitlines()
    for before, line in pairwise(drawn):
        goes_on = re.match(r" {9} *\w", line)
        assert not (goes_on and re.search(r"\w {2,}\w| {9}\w", before)), line
