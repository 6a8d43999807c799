"""What every room shares: the type of an energy, and dataclass fields that carry their own help."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from torch import Tensor

from pscd.errors import UserError

Energy = Callable[[Tensor], Tensor]  # `(B, *shape)` to `(B,)`; low energy is likely
C = TypeVar("C", bound=type)


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A dataclass field with a default and the line that `--help` and `help()` show for it.

    Args:
        default: its value; a function without arguments that makes one, for what is not to be shared.
        help: what it means, in one line.
        metadata: `flag` for a name on the command line other than the field's, `group` for the heading it stands under.

    Returns:
        The field.
    """
    text = {"help": help, **metadata}
    return field(default_factory=default, metadata=text) if callable(default) else field(default=default, metadata=text)


def documented(kind: C) -> C:
    """Complete a dataclass's docstring with an `Args` section made from its options.

    Args:
        kind: the dataclass.

    Returns:
        The same class.

    >>> from dataclasses import dataclass
    >>> @documented
    ... @dataclass
    ... class Settings:
    ...     '''How to go about it.'''
    ...     steps: int = option(10, "how many")
    >>> print(Settings.__doc__)
    How to go about it.
    <BLANKLINE>
    Args:
        steps: how many (default: 10)
    """
    lines = []
    for f in fields(kind):
        if "help" in f.metadata:
            default = (
                f.default if f.default is not MISSING else f.default_factory() if callable(f.default_factory) else ""
            )
            lines.append(f"    {f.name}: {f.metadata['help']} (default: {default!r})")
    kind.__doc__ = "\n".join([inspect.cleandoc(kind.__doc__ or ""), "", "Args:", *lines])
    return kind


def check_choices(instance: Any) -> None:
    """Refuse values that are not among the words of their field's `Literal` type.

    Args:
        instance: a dataclass.

    Raises:
        UserError: with the field, the words and the value.
    """
    hints = get_type_hints(type(instance))
    for f in fields(instance):
        words, value = get_args(hints[f.name]), getattr(instance, f.name)
        if get_origin(hints[f.name]) is Literal and value not in words:
            raise UserError(f"{f.name} must be one of {', '.join(words)}, got {value!r}")
