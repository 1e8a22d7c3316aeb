"""The command line. What goes wrong is one line on standard error.

The exit status is 2 for a mistake of the user, 1 for a solve or an environment that failed, and
130 after Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro
from rich.console import Console

from mvpi.commands.evaluate import Evaluate
from mvpi.commands.solve import FrontierCommand, Solve
from mvpi.commands.train import Train
from mvpi.errors import EnvironmentFailure, InputError, NoConvergence

Command = (
    Annotated[Solve, tyro.conf.subcommand("solve")]
    | Annotated[FrontierCommand, tyro.conf.subcommand("frontier")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `mvpi` command."""
    console = Console(highlight=False)
    try:
        command: Solve | FrontierCommand | Train | Evaluate = tyro.cli(
            Command,
            prog="mvpi",
            description="Risk-averse reinforcement learning by mean-variance policy iteration.",
            args=arguments,
        )
        command.run(console)
    except (InputError, OSError, MemoryError) as error:
        sys.exit(_failed(str(error) or type(error).__name__))
    except (EnvironmentFailure, NoConvergence) as error:
        sys.exit(_failed(str(error), status=1))
    except KeyboardInterrupt as interrupt:
        sys.exit(_failed(str(interrupt) or "interrupted", status=130))


def _failed(message: str, status: int = 2) -> int:
    print(f"mvpi: {' '.join(message.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
