"""The command line: one file a command."""

from mvpi.cli.app import main

__all__ = ["main"]
