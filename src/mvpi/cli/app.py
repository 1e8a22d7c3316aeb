"""The command line: reads the arguments, runs the command. An error is one line on standard error.

The exit status is 2 for a mistake of the user, 1 for a solve, a training or an environment that
failed, and 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

from mvpi._text import one_line
from mvpi._version import __version__
from mvpi.errors import Divergence, EnvironmentFailure, InputError, NoConvergence, missing_extra

_CLOSED_PIPE = 141
"""The status of a program that a closed pipe ends, as shells count it: 128 + SIGPIPE."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `mvpi` command."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given == ["--version"]:
            print(f"mvpi {__version__}")
            return
        from rich.console import Console

        from mvpi.cli.usage import parsed

        with warnings.catch_warnings():
            warnings.showwarning = _warned
            parsed(_command, given).run(Console(highlight=False))
    except BrokenPipeError:  # the reader of the output, such as head, has enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - flushed once more at the end
        sys.exit(_CLOSED_PIPE)
    except (InputError, OSError, MemoryError) as error:
        sys.exit(_failed(str(error) or type(error).__name__))
    except (EnvironmentFailure, Divergence, NoConvergence) as error:
        sys.exit(_failed(str(error), status=1))
    except ModuleNotFoundError as error:
        extra = missing_extra(error)
        if extra is None:
            raise
        sys.exit(_failed(str(extra)))
    except KeyboardInterrupt as interrupt:
        sys.exit(_failed(str(interrupt) or "interrupted", status=130))


def _command(arguments: Sequence[str]) -> Any:
    """The command that was asked for, its options filled in."""
    from typing import Annotated

    import tyro

    from mvpi.cli.agent_options import AgentCommand
    from mvpi.cli.completion import Completion
    from mvpi.cli.doctor import Doctor
    from mvpi.cli.evaluate import Evaluate
    from mvpi.cli.frontier import FrontierCommand
    from mvpi.cli.offline import Offline
    from mvpi.cli.paper import Paper
    from mvpi.cli.report import Report
    from mvpi.cli.solve import Solve
    from mvpi.cli.train import Train
    from mvpi.cli.tune import Tune
    from mvpi.cli.zoo import Zoo

    commands: Any = (
        Annotated[Solve, tyro.conf.subcommand("solve")]
        | Annotated[FrontierCommand, tyro.conf.subcommand("frontier")]
        | Annotated[Train, tyro.conf.subcommand("train")]
        | Annotated[Tune, tyro.conf.subcommand("tune")]
        | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
        | Annotated[Zoo, tyro.conf.subcommand("zoo")]
        | Annotated[Report, tyro.conf.subcommand("report")]
        | Annotated[Offline, tyro.conf.subcommand("offline")]
        | Annotated[Paper, tyro.conf.subcommand("paper")]
        | Annotated[Doctor, tyro.conf.subcommand("doctor")]
        | Annotated[Completion, tyro.conf.subcommand("completion")]
    )
    read = partial(
        tyro.cli,
        commands,
        prog="mvpi",
        description="Risk-averse reinforcement learning by mean-variance policy iteration. "
        "`mvpi --version` prints the version.",
    )
    command = read(args=arguments)
    if isinstance(command, Completion):
        read(args=command.arguments())  # prints the script and exits
    preset = command.with_defaults() if isinstance(command, AgentCommand) else None
    return command if preset is None else read(args=arguments, default=preset)


def _warned(message: Warning | str, *_: Any, **__: Any) -> None:
    """Warnings are one line too, without the place in the code and without colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(message))
    print(f"mvpi: warning: {one_line(text)}", file=sys.stderr)


def _failed(message: str, status: int = 2) -> int:
    print(f"mvpi: {one_line(message)}", file=sys.stderr)
    return status
