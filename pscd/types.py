"""What all packages share: the type of an energy, and dataclass fields that carry their own help."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, is_dataclass
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


def check_types(instance: Any) -> None:
    """Raise a `UserError` for a value of another type than its field's, or not among the words of a `Literal`."""
    _check(type(instance), {f.name: getattr(instance, f.name) for f in fields(instance)})


def checked(kind: Callable[..., D], values: Mapping[str, Any]) -> D:
    """A dataclass of settings from values of any type, as a file may have them; types are checked before ranges.

    >>> from pscd.sampling import Mala
    >>> checked(Mala, {"n_steps": 3.5})
    Traceback (most recent call last):
    ...
    pscd.errors.UserError: n_steps must be int, got 3.5
    """
    _check(kind, values)
    # JSON has lists where settings have tuples.
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _check(kind: Callable[..., Any], values: Mapping[str, Any]) -> None:
    hints = get_type_hints(kind)
    for name, value in values.items():
        if not _is(value, hints.get(name, Any)):
            raise UserError(f"{name} must be {_words(hints[name])}, got {value!r}")


def _words(wanted: Any) -> str:
    """A type as a message names it."""
    kinds = get_args(wanted)
    if get_origin(wanted) is Literal:
        return repr(kinds[0]) if len(kinds) == 1 else f"one of {', '.join(kinds)}"
    if get_origin(wanted) in (Union, UnionType):
        return " or ".join(map(_words, kinds))
    return "None" if wanted is NoneType else str(wanted) if kinds else wanted.__name__


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
    return isinstance(value, wanted) if wanted in (bool, str, NoneType) or is_dataclass(wanted) else True
