"""A dataclass field that carries its own help, so that a setting is described in one place."""

from dataclasses import field
from typing import Any


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A field with a default and the line that `--help` shows for it."""
    return field(default=default, metadata={"help": help, **metadata})
