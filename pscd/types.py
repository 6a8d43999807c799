"""What every room shares: the type of an energy, and a dataclass field that carries its own help."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

from torch import Tensor

Energy = Callable[[Tensor], Tensor]  # `(B, *shape)` to `(B,)`; low energy is likely


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A field with a default and the line that `--help` shows for it."""
    return field(default=default, metadata={"help": help, **metadata})
