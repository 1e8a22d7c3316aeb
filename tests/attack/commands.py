"""Malformed command lines: each must end with a status that is not 0 and one line on standard
error, and leave nothing behind.

A command line is a good one but for one option, which has a value that its kind never has, is
unknown, or has no value at all; or it names a command that there is not. All of them go to
`mvpi.cli.main` in one process: to start one each takes a second.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

from process import serve, survived  # noqa: E402 - the path comes first
from tally import Tally  # noqa: E402

COUNT = 300

HUGE = "1" + "0" * 400
_NAMES = ("", "no-such", "a\0b", "\ud800", "[bold]x[/]", "x" * 5000, "a\nb", "🙂", "no/such", "*")
_RISKS = (
    "cvar",
    "cvar:",
    "cvar:0",
    "cvar:2",
    "cvar:.1:.2:.3",
    "budget:-1",
    "entropic:x",
    ":",
    "1:2",
)
BAD = {
    "count": ("", "abc", "1.5", "-1", "0", HUGE, f"-{HUGE}", "1e3", "nan", "[1]", "1,000", "🙂"),
    "seed": ("", "abc", "1.5", "-1", HUGE, "nan", "None", "[0]", "\0"),
    "number": ("", "abc", "nan", "inf", "-inf", "1e400", "-1", "1+0j", "[red]", "1,5", HUGE),
    "share": ("", "abc", "nan", "inf", "-0.1", "1.5", "1e400", "(1)", "🙂"),
    "risk": (*_RISKS, "", "abc", "-1", "nan", "inf", "[0]", "1e400", HUGE, "a\nb", "x" * 5000),
    "model": (*_NAMES, "text.npz", "empty.npz", ".", "pipe", "CartPole-v1", "None"),
    "run": (*_NAMES, "text.npz", ".", "pipe", "half-run"),
    "data": (*_NAMES, "text.npz", "empty.npz", ".", "pipe", "half-run"),
    "env": (*_NAMES, "a:b", "mvpi/Markowitz-v99", "mvpi/"),
    "picture": ("", "x.txt", "x", "missing/x.png", ".", "pipe", "a\0b.png", "x" * 5000 + ".png"),
    "layers": ("", "abc", "0", "-1", "1.5", HUGE, "(4,4)"),
    "choice": ("", "abc", "None", "[x]", "🙂"),
    "numbers": ("", "abc", "nan", "-1", "1,2", HUGE),
    "flag": ("yes", "0", ""),
    "directory": ("", "a\0b", "\ud800", "x" * 5000, "pipe", "text.npz", "pipe/run"),
}
"""Values that an option of a kind never has."""

SMALL = ("--steps", "1", "--hidden", "4")
TRAIN = {
    "--env": "env",
    "--risk": "risk",
    "--action-noise": "number",
    "--steps": "count",
    "--seed": "seed",
    "--gamma": "share",
    "--hidden": "layers",
    "--learning-rate": "number",
    "--evaluation-every": "count",
    "--evaluation-episodes": "count",
    "--checkpoint-every": "count",
    "--json": "flag",
    "--out": "directory",
}
STUDY = {
    "--risk-aversions": "numbers",
    "--seeds": "count",
    "--steps": "count",
    "--action-noise": "number",
    "--evaluation-every": "count",
    "--evaluation-episodes": "count",
    "--workers": "count",
    "--tasks": "env",
    "--methods": "choice",
    "--out": "directory",
}
COMMANDS: dict[tuple[str, ...], dict[str, str]] = {
    ("solve", "FrozenLake-v1"): {"": "model", "--risk": "risk", "--discount": "share"},
    ("frontier", "FrozenLake-v1"): {
        "": "model",
        "--discount": "share",
        "--out": "picture",
        "--spread": "choice",
    },
    ("train", "td3", "--env", "mvpi/Markowitz-v0", *SMALL): TRAIN
    | {"--tau": "share", "--batch-size": "count", "--engine": "choice", "--window": "count"},
    ("train", "ppo", "--env", "mvpi/Markowitz-v0", *SMALL): TRAIN
    | {"--n-steps": "count", "--clip-range": "number", "--gae-lambda": "share"},
    ("train", "mvp", "--env", "mvpi/Markowitz-v0", "--risk", "1", *SMALL): TRAIN
    | {"--n-envs": "count", "--optimizer": "choice"},
    ("train", "tamar", "--env", "mvpi/Markowitz-v0", *SMALL): TRAIN
    | {"--variance-limit": "number"},
    ("train", "prashanth", "--env", "mvpi/Markowitz-v0", *SMALL): TRAIN
    | {"--scheme": "choice", "--perturbation": "number"},
    ("train", "mean-gini", "--env", "mvpi/Markowitz-v0", *SMALL): TRAIN
    | {"--batch-episodes": "count", "--n-epochs": "count"},
    ("train", "cvar-pg", "--env", "mvpi/Markowitz-v0", "--risk", "cvar:0.3", *SMALL): TRAIN
    | {"--batch-episodes": "count", "--clip-range": "number"},
    ("evaluate", "half-run"): {"": "run", "--episodes": "count", "--seed": "seed"},
    ("report", "half-run"): {"": "run", "--episodes": "count", "--out": "run"},
    ("offline", "learn", "data.npz", "--out", "learned"): {
        "": "data",
        "--risk": "risk",
        "--discount": "share",
        "--updates": "count",
        "--low": "numbers",
        "--out": "directory",
    },
    ("offline", "evaluate", "data.npz", "half-run"): {
        "": "data",
        "--discount": "share",
        "--confidence": "share",
        "--level": "share",
        "--seed": "seed",
        "--method": "choice",
    },
    ("offline", "relabel", "no-such-v0", "new-v0"): {"": "data", "--risk": "risk", "--y": "number"},
    ("paper", "table", "--tasks", "mvpi/Markowitz-v0"): STUDY,
    ("paper", "curves", "--tasks", "mvpi/Markowitz-v0"): STUDY,
    ("paper", "risky"): STUDY,
    ("paper", "offline"): {
        "--risk-aversions": "numbers",
        "--runs": "count",
        "--iterations": "count",
        "--seed": "seed",
        "--out": "directory",
    },
}
"""Good command lines, or nearly so, and the kinds of their options; "" is the first argument."""
UNKNOWN = ("trian", "", "--nope", "[/]", "-", "1", "🙂", "a\0b", "x" * 5000, "-5", "\n", "solve\n")
_FINE = {("--action-noise", "0"), ("--json", "")}
"""0 is a number of most kinds, but not of counts; what is fine for one option is left out."""


def lines() -> Iterator[list[str]]:
    """All malformed command lines."""
    for word in UNKNOWN:
        yield [word]
        yield [word, "--help-me"]
    for command, options in COMMANDS.items():
        yield [*command, "--no-such-option"]
        yield [*command, "--no-such-option", "1"]
        yield [*command, "one", "argument", "too", "many"]
        for option, kind in options.items():
            if option and kind not in ("flag", "layers"):  # no layers: linear
                yield [*command, option]
            for value in BAD[kind]:
                if (option, value) in _FINE:
                    continue
                if not option:
                    place = 2 if command[0] == "offline" else 1
                    yield [*command[:place], value, *command[place + 1 :]]
                elif kind == "flag":
                    yield [*command, f"{option}={value}"]
                else:
                    yield [*command, option, value]


def run(count: int, seed: int) -> Tally:
    """`count` malformed command lines, in an order set by `seed`."""
    tally = Tally("malformed command lines")
    for line, (outcome, what) in survived(__file__, count, seed):
        if outcome == "refused":
            tally.add(outcome)
        else:
            tally.fail(outcome, f"{line[:300]}: {what}")
    return tally


def attacks(count: int, seed: int) -> list[str]:
    """`count` command lines as JSON."""
    every = [json.dumps(line) for line in lines()]
    random.Random(seed).shuffle(every)
    return [every[i % len(every)] for i in range(count)]


def attack(line: str) -> tuple[str, str]:
    """What a malformed command line led to, in a word, and what it said."""
    import traceback

    from mvpi.cli import main

    _prepare()
    before = _there()
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(json.loads(line))
    except SystemExit as end:
        status = end.code
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{error!r} at {place.name} in {Path(place.filename).name}"
    said = err.getvalue()
    if status in (0, None):
        return "accepted", out.getvalue() + said
    if _there() != before:
        return "left something", f"{sorted(_there() ^ before)[:3]} {said}"
    told = [text for text in said.splitlines() if not text.startswith("mvpi: warning: ")]
    if len(told) != 1 or not told[0].startswith("mvpi: ") or out.getvalue():
        return "not one line", f"{out.getvalue()!r:.200} {said!r:.400}"
    return "refused", said


def _prepare() -> None:
    """Files that are nearly what commands want."""
    import numpy as np

    Path("text.npz").write_text("no archive")
    if not Path("empty.npz").exists():
        np.savez("empty.npz")
        zeros, ends = np.zeros(3, int), np.zeros(3, bool)
        columns = {"observations": zeros, "actions": zeros, "rewards": np.arange(3.0)}
        rest = {"next_observations": zeros, "terminations": ends, "starts": zeros}
        np.savez("data.npz", **columns, **rest)
        Path("half-run").mkdir()
        Path("half-run/config.json").write_text("{}")
        os.mkfifo("pipe")


def _there() -> set[str]:
    """All files of the scratch directory but those of caches."""
    return {str(path) for path in Path().rglob("*") if ".cache" not in str(path)}


if __name__ == "__main__":
    serve(attacks, attack)
