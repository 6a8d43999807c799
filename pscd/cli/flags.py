"""What commands share to read their flags: a parser with one-line errors, types of values, settings of dataclasses."""

import argparse
import csv
import io
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

from pscd.cli.output import say


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(
            *args, **{"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **options}
        )
        # argparse reads -999 as a value, but -999,-99 as a flag; flags begin with a letter.
        self._negative_number_matcher = re.compile(r"-[^A-Za-z-]")

    def error(self, message: str) -> NoReturn:
        """Print the message in one line and exit with code 2."""
        say(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


class Extend(argparse.Action):
    """A flag that may be repeated: its tuples or dictionaries are joined."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Add the values to those of the same flag before it."""
        before = getattr(namespace, self.dest) or type(values)()
        setattr(namespace, self.dest, before | values if isinstance(values, dict) else (*before, *values))


def at_least(least: int) -> Callable[[str], int]:
    """The type of a flag for integers from `least` on."""

    def integer(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
        return int(text)

    return integer


def number_or_auto(text: str) -> float | str:
    """The type of a flag for "auto" or a number from 0 on."""
    try:
        number = 0.0 if text == "auto" else float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"must be auto or at least 0, got {text}")
    return "auto" if text == "auto" else number


def share(text: str) -> float:
    """The type of a flag for a number strictly between 0 and 1."""
    if not 0 < float(text) < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return float(text)


def parse_names(text: str) -> tuple[str, ...]:
    """Names with commas between them; a name with a comma stands in double quotes.

    >>> parse_names("a, b,c"), parse_names('"Income, CHF",a=b')
    (('a', 'b', 'c'), ('Income, CHF', 'a=b'))
    """
    try:
        (names,) = csv.reader([text], skipinitialspace=True, strict=True)
    except csv.Error:
        raise argparse.ArgumentTypeError(
            f"a double quote is not closed, or does not stand around a whole name: {text}"
        ) from None
    return tuple(name.strip() for name in names) or ("",)


def join_names(names: Iterable[str]) -> str:
    """The inverse of `parse_names`.

    >>> join_names(["Income, CHF", "age"])
    '"Income, CHF",age'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def parse_kinds(text: str) -> dict[str, str]:
    """Kinds by column.

    >>> parse_kinds("age=number, zip=category")
    {'age': 'number', 'zip': 'category'}
    """
    pairs = [part.rpartition("=") for part in parse_names(text)]
    if not all(name and kind for name, _, kind in pairs):
        raise argparse.ArgumentTypeError(f"write COLUMN=KIND, such as age=number,zip=category; got {text!r}")
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def parse_setting(text: str) -> dict[str, str]:
    """The text of a setting by its name, with dots.

    >>> parse_setting("sampler.noise_scale=none")
    {'sampler.noise_scale': 'none'}
    """
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"write NAME=VALUE, such as sampler.n_steps=10; got {text!r}")
    return {name.strip(): value.strip()}


def parse_value(text: str) -> Any:
    """A number, true, false or none; anything else stays a word.

    >>> [parse_value(text) for text in ("3", "1e-3", "true", "none", "auto")]
    [3, 0.001, True, None, 'auto']
    """
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def settings_of(instance: Any, prefix: str = "") -> Iterator[tuple[str, Field[Any], Any, Any]]:
    """Name with dots, field, value and type of every option of a dataclass, those of dataclasses inside included."""
    hints = typing.get_type_hints(type(instance))
    for f in fields(instance):
        value = getattr(instance, f.name)
        if "help" not in f.metadata:
            continue
        if is_dataclass(value):
            yield from settings_of(value, f"{prefix}{f.name}.")
        else:
            yield f"{prefix}{f.name}", f, value, hints[f.name]


def read_settings(config: Any, texts: Mapping[str, str]) -> dict[str, Any]:
    """The values of settings of a configuration, for its method `changed`.

    >>> from pscd import TrainConfig
    >>> read_settings(TrainConfig(), {"seed": "3", "chains.start": "data", "optimizer.clip": "none"})
    {'seed': 3, 'chains.start': 'data', 'optimizer.clip': None}
    >>> read_settings(TrainConfig(), {"optimizer.betas": "0,0.99"})
    {'optimizer.betas': (0.0, 0.99)}
    """
    hints = {name: str(hint) for name, _, _, hint in settings_of(config)}  # of a Literal its words are in quotes

    def read(text: str, hint: str) -> Any:
        if hint.startswith("tuple"):
            values = tuple(parse_value(part) for part in parse_names(text))
            # Adam wants floats, and type(0) is int.
            return tuple(float(v) if type(v) is int and "float" in hint else v for v in values)
        return text if f"'{text}'" in hint else parse_value(text)

    return {name: read(text, hints.get(name, "")) for name, text in texts.items()}


def settings_help(config: Any) -> str:
    """A line for every setting of a configuration: its name, its value and what it means."""

    def text(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()

    lines = [f"{name}={text(value)}\n        {f.metadata['help']}" for name, f, value, _ in settings_of(config)]
    return "\n".join(f"    {line}" for line in lines)


def add_settings(group: Any, kind: type, flags: dict[str, str]) -> None:
    """A flag for some settings of a dataclass, with the help text of its field."""
    # A flag that was not given leaves nothing in the namespace; the others are found under the name of the setting.
    found = {name: f for name, f, _, _ in settings_of(kind())}
    for flag, name in flags.items():
        text = found[name].metadata["help"].replace("%", "%%")
        group.add_argument(flag, dest=name, default=argparse.SUPPRESS, metavar="VALUE", help=text)


def add_run(parser: Parser, writers: str = "train or detect") -> None:
    """The flags of every command that reads a run folder."""
    parser.add_argument("run", type=Path, metavar="RUN", help=f"run folder that pscd {writers} wrote")


def add_machine(parser: Parser) -> Any:
    """The flags that say where to compute; returns their group."""
    group = parser.add_argument_group("machine")
    group.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ... (default: cpu)")
    group.add_argument("--threads", type=at_least(1), help="processor threads (default: what torch chooses)")
    group.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="module to import first, for an objective, sampler or toy of your own; repeatable",
    )
    return group


def add_out(parser: Any, help: str, *, required: bool = True) -> None:
    """The flags `--out` and `--force`."""
    parser.add_argument("--out", type=Path, required=required, help=help)
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


def add_ids(parser: Any) -> None:
    """The flag `--id`."""
    parser.add_argument(
        "--id",
        dest="ids",
        type=parse_names,
        action=Extend,
        default=(),
        metavar="A,B,...",
        help="columns that name a row: the model does not see them, the output keeps them",
    )


def add_columns(parser: Any) -> None:
    """The flag `--columns`."""
    parser.add_argument(
        "--columns",
        type=parse_names,
        action=Extend,
        metavar="A,B,...",
        help="columns to model (a name with a comma in double quotes; default: all that are not ids)",
    )
