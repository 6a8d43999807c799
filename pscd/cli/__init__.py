"""The command line, `pscd`: a file for each command, which imports torch and the library only when it runs."""

from pscd.cli.main import main

__all__ = ["main"]
