"""The command line, `pscd`: a file for each group of commands; `flags` turns dataclass fields into flags.

Importing it is light: torch and what builds on it are imported by the command that runs, not before.
"""

from pscd.cli.main import main

__all__ = ["main"]
