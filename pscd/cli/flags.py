"""Flags from dataclasses: every field made by `option(...)` is a flag, with its help text and its default."""

import argparse
import types
import typing
from collections.abc import Callable, Container, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from pscd.cli.common import parse_names

METAVARS = {int: "INTEGER", float: "NUMBER", bool: "TRUE|FALSE", str: "NAME"}


def options(instance: Any) -> Iterator[Field[Any]]:
    """The fields of a dataclass that are flags.

    Args:
        instance: the dataclass, or an instance of it.

    Yields:
        The fields with a help text, but for those that are dataclasses themselves.
    """
    yield from (f for f in fields(instance) if "help" in f.metadata and f.default_factory is MISSING)


def flag_name(field: Field[Any], prefix: str = "") -> str:
    """The flag of a field: `batch_size` is `--batch-size`, unless its option names another.

    Args:
        field: the field.
        prefix: what stands before the name, such as `sampler-`.

    Returns:
        The flag, with its dashes.
    """
    return "--" + prefix + field.metadata.get("flag", field.name).replace("_", "-")


def add_fields(
    group: Any,
    instance: Any,
    role: str,
    *,
    prefix: str = "",
    only: Container[str] | None = None,
    shown: Container[str] | None = None,
) -> None:
    """Add a flag for every option of a dataclass, with the instance's value as the default.

    A flag that was not given leaves nothing in the namespace; one that was is found under `role.field`. A name that
    another part of the configuration has taken gets the role in front: `--objective-steps`.

    Args:
        group: a parser, or a group of flags.
        instance: the dataclass with its defaults.
        role: what the dataclass is in the configuration.
        prefix: what stands before every name.
        only: the fields to add; None: all.
        shown: the fields that the help shows; None: all. The others work all the same.
    """
    hints = typing.get_type_hints(type(instance))
    taken = group._option_string_actions  # argparse has no public way to ask
    for f in options(instance):
        if only is not None and f.name not in only:
            continue
        default = getattr(instance, f.name)
        text = f"{f.metadata['help']} (default: {'none' if default is None else default})".replace("%", "%%")
        flag = flag_name(f, prefix)
        group.add_argument(
            flag_name(f, f"{role}-") if flag in taken else flag,
            dest=f"{role}.{f.name}",
            default=argparse.SUPPRESS,
            help=text if shown is None or f.name in shown else argparse.SUPPRESS,
            **value_of(hints[f.name]),
        )


def value_of(hint: Any) -> dict[str, Any]:
    """How argparse is to read the value of a field with this type.

    Args:
        hint: `int`, `float`, `bool`, `str`, a `Literal`, `tuple[T, ...]`, or one of these or None; a number or a word.

    Returns:
        The arguments `type`, `metavar` and, of a `Literal`, `choices` for `add_argument`.
    """
    kind, may_be_none = _without_none(hint)
    words = () if typing.get_origin(kind) is typing.Literal else _words_beside(hint)
    if words:
        read, metavar = _reader(kind), f"{_metavar(kind)}|{'|'.join(words)}"
        return {"type": _named(lambda text: text if text in words else read(text), metavar.lower()), "metavar": metavar}
    if typing.get_origin(kind) is typing.Literal:
        choices = {str(value): value for value in typing.get_args(kind)} | ({"none": None} if may_be_none else {})
        return {
            "type": _named(lambda text: choices.get(text, text), "choice"),
            "choices": tuple(choices.values()),
            "metavar": "|".join(choices),
        }
    read, metavar = _reader(kind), _metavar(kind)
    if may_be_none:
        return {"type": _named(_or_none(read), metavar.lower()), "metavar": metavar}
    return {"type": _named(read, metavar.lower()), "metavar": metavar}


def _without_none(hint: Any) -> tuple[Any, bool]:
    """A type without its `| None`, and whether it had one."""
    if not isinstance(hint, types.UnionType) and typing.get_origin(hint) is not typing.Union:
        return hint, False
    parts = typing.get_args(hint)
    return next(part for part in parts if part is not type(None)), type(None) in parts


def _words_beside(hint: Any) -> tuple[str, ...]:
    """The words of a `Literal` that may stand in place of a number, as in `float | Literal["auto"]`."""
    if not isinstance(hint, types.UnionType) and typing.get_origin(hint) is not typing.Union:
        return ()
    return tuple(
        w for part in typing.get_args(hint) if typing.get_origin(part) is typing.Literal for w in typing.get_args(part)
    )


def _reader(kind: Any) -> Callable[[str], Any]:
    if kind is bool:
        return _truth
    if typing.get_origin(kind) is tuple:
        each = _reader(typing.get_args(kind)[0])
        return lambda text: tuple(each(part) for part in parse_names(text))
    return kind


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text.lower() == "none" else read(text)


def _metavar(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return "LIST"
    return METAVARS.get(kind, getattr(kind, "__name__", "VALUE").upper())


def _named(read: Callable[[str], Any], name: str) -> Callable[[str], Any]:
    """The function under a name that argparse can put into its message: "invalid number value"."""

    def parse(text: str) -> Any:
        return read(text)

    parse.__name__ = name
    return parse
