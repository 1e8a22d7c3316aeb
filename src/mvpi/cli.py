"""The command line. What goes wrong is one line on standard error.

The exit status is 2 for a mistake of the user, 1 for a solve, a training or an environment that
failed, and 130 after Ctrl-C.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import mvpi
from mvpi.errors import Divergence, EnvironmentFailure, InputError, NoConvergence


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `mvpi` command."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given == ["--version"]:
            print(f"mvpi {mvpi.__version__}")
            return
        from rich.console import Console

        from mvpi.commands.usage import parsed

        with warnings.catch_warnings():
            warnings.showwarning = _warned
            parsed(_command, given).run(Console(highlight=False))
    except (InputError, OSError, MemoryError) as error:
        sys.exit(_failed(str(error) or type(error).__name__))
    except (EnvironmentFailure, Divergence, NoConvergence) as error:
        sys.exit(_failed(str(error), status=1))
    except KeyboardInterrupt as interrupt:
        sys.exit(_failed(str(interrupt) or "interrupted", status=130))


def _command(arguments: Sequence[str]) -> Any:
    """The command that was asked for, its options filled in."""
    from typing import Annotated

    import tyro

    from mvpi.commands.evaluate import Evaluate
    from mvpi.commands.offline import Offline
    from mvpi.commands.paper import Paper
    from mvpi.commands.report import Report
    from mvpi.commands.solve import FrontierCommand, Solve
    from mvpi.commands.train import Train

    return tyro.cli(
        Annotated[Solve, tyro.conf.subcommand("solve")]
        | Annotated[FrontierCommand, tyro.conf.subcommand("frontier")]
        | Annotated[Train, tyro.conf.subcommand("train")]
        | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
        | Annotated[Report, tyro.conf.subcommand("report")]
        | Annotated[Offline, tyro.conf.subcommand("offline")]
        | Annotated[Paper, tyro.conf.subcommand("paper")],
        prog="mvpi",
        description="Risk-averse reinforcement learning by mean-variance policy iteration. "
        "`mvpi --version` prints the version.",
        args=arguments,
    )


def _warned(message: Warning | str, *_: Any, **__: Any) -> None:
    """Warnings are one line too, without the place in the code and without colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(message))
    print(f"mvpi: warning: {' '.join(text.split())}", file=sys.stderr)


def _failed(message: str, status: int = 2) -> int:
    print(f"mvpi: {' '.join(message.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
