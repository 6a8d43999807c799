"""What all packages share: the type of an energy, and dataclass fields that carry their own help."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from pscd.errors import UserError

Energy = Callable[[Tensor], Tensor]  # `(B, *shape)` to `(B,)`; low energy is likely
C = TypeVar("C", bound=type)
D = TypeVar("D")


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A dataclass field with a default and the line that the help of a command and `help()` show for it.

    A default that is a function makes the value. `metadata` may hold `flag`, a name on the command line.
    """
    text = {"help": help, **metadata}
    return field(default_factory=default, metadata=text) if callable(default) else field(default=default, metadata=text)


def documented(kind: C) -> C:
    """Complete a dataclass's docstring with an `Args` section made from its options.

    >>> from dataclasses import dataclass
    >>> @documented
    ... @dataclass
    ... class Settings:
    ...     '''How to sample.'''
    ...     n_steps: int = option(10, "how many steps")
    >>> print(Settings.__doc__)
    How to sample.
    <BLANKLINE>
    Args:
        n_steps: how many steps (default: 10)
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
    """Raise a `UserError` for a value that is not among the words of its field's `Literal` type."""
    hints = get_type_hints(type(instance))
    for f in fields(instance):
        words, value = get_args(hints[f.name]), getattr(instance, f.name)
        if get_origin(hints[f.name]) is Literal and value not in words:
            raise UserError(f"{f.name} must be one of {', '.join(words)}, got {value!r}")


def checked(kind: Callable[..., D], values: Mapping[str, Any]) -> D:
    """A dataclass of settings from values of any type, as a file may have them; types are checked before ranges.

    >>> from pscd.sampling import Mala
    >>> checked(Mala, {"n_steps": 3.5})
    Traceback (most recent call last):
    ...
    pscd.errors.UserError: n_steps must be int, got 3.5
    """
    hints = get_type_hints(kind)
    for name, value in values.items():
        wanted = hints.get(name, Any)
        if not _is(value, wanted):
            raise UserError(f"{name} must be {getattr(wanted, '__name__', wanted)}, got {value!r}")
    # JSON has lists where settings have tuples.
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _is(value: object, wanted: Any) -> bool:
    """Whether a value is of a type that a setting may have; other types are not checked."""
    kinds = get_args(wanted)
    if get_origin(wanted) in (Union, UnionType):
        return any(_is(value, kind) for kind in kinds)
    if get_origin(wanted) is Literal:
        return value in kinds
    if get_origin(wanted) is tuple:
        return isinstance(value, list | tuple) and all(_is(item, kinds[0]) for item in value)
    if wanted in (int, float):
        return isinstance(value, int if wanted is int else int | float) and not isinstance(value, bool)
    return isinstance(value, wanted) if wanted in (bool, str, NoneType) else True
