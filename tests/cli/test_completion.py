"""`mvpi completion`: the scripts complete commands and options in the shells they are for."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from helpers.commands import in_a_shell, mistaken

_COMPLETED = """
{script}
COMP_WORDS=({words}); COMP_CWORD=$(({count} - 1)); COMP_LINE="{words}"; COMP_POINT=${{#COMP_LINE}}
eval "$(complete -p mvpi | sed -E 's/.*-F ([^ ]+).*/\\1/')" mvpi "{last}" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def bash_script() -> str:
    return script("bash")


def script(shell: str) -> str:
    done = in_a_shell("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def completed(script: str, line: str) -> list[str]:
    """What bash offers for a line that was typed so far."""
    words = line.split() + ([""] if line.endswith(" ") else [])
    program = _COMPLETED.format(
        script=script,
        words=" ".join(word or '""' for word in words).replace('"', "'"),
        count=len(words),
        last=words[-1],
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


def test_bash_completes_commands(bash_script: str) -> None:
    assert completed(bash_script, "mvpi doc") == ["doctor"]
    assert set(completed(bash_script, "mvpi train ")) >= {"td3", "ppo", "mvp"}


def test_bash_completes_options(bash_script: str) -> None:
    assert completed(bash_script, "mvpi train td3 --buf") == ["--buffer-size"]
    assert completed(bash_script, "mvpi solve FrozenLake-v1 --ris") == ["--risk"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell: str, tmp_path) -> None:
    text = script(shell)
    for word in ("doctor", "--buffer-size", "prashanth"):
        assert word in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "script"
    file.write_text(text)
    subprocess.run([shell, "-n", str(file)], check=True, timeout=60)


def test_a_shell_that_is_not_known(capsys) -> None:
    assert mistaken(capsys, "completion", "powershell").endswith(
        "Expected one of ('bash', 'zsh', 'fish'); see mvpi completion --help"
    )
