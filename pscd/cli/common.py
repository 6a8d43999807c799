"""What the commands share: one-line errors, folders to read, files to write."""

import argparse
import csv
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pscd.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import torch

    from pscd.model import Model


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line.

    Attributes:
        words: what follows the command's name on the command line, for flags that depend on other flags.
    """

    words: Sequence[str] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # argparse takes -999 for a value, but -999,-99 for a flag; flags begin with a letter, and this decides.
        self._negative_number_matcher = re.compile(r"-[^A-Za-z-]")

    def error(self, message: str) -> NoReturn:
        """Print the message in one line and exit with code 2.

        Args:
            message: what is wrong.
        """
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


class AddUp(argparse.Action):
    """A flag that may be repeated: its tuples or dictionaries are put together."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Add the values to those of the flag before.

        Args:
            parser: not needed.
            namespace: gets the values.
            values: of this flag, a tuple or a dictionary.
            option_string: not needed.
        """
        before = getattr(namespace, self.dest) or type(values)()
        setattr(namespace, self.dest, before | values if isinstance(values, dict) else (*before, *values))


@dataclass(frozen=True)
class Command:
    """A command: its line in the list of commands, its flags, and what it does.

    Args:
        help: one line, shown by `pscd --help` and at the top of the command's own help.
        add: adds the flags to the command's parser; called only when this command was given.
        run: does the work.
        examples: lines that end the command's own help.
        about: sentences that follow the first line of the command's own help.
    """

    help: str
    add: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]
    examples: str = ""
    about: str = ""


def add_command(commands: Any, name: str, command: Command) -> Parser:
    """Add a command to a parser; its flags come later.

    Args:
        commands: what `add_subparsers` returned.
        name: the command's name.
        command: its help and what it does.

    Returns:
        The command's parser.
    """
    parser: Parser = commands.add_parser(
        name,
        help=command.help,
        description=f"{command.help[0].upper()}{command.help[1:]}.{command.about}",
        epilog=f"examples:\n{command.examples}" if command.examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command.run)
    return parser


def add_run(parser: Parser, writers: str = "train or detect") -> None:
    """Add the flags of every command that reads a run folder.

    Args:
        parser: the command's parser.
        writers: the commands whose folders it takes.
    """
    parser.add_argument("run", type=Path, help=f"run folder that {writers} wrote")
    add_device(parser)
    parser.add_argument("--threads", type=int, help="processor threads (default: what torch chooses)")
    add_import(parser)


def add_device(parser: Any) -> None:
    """Add `--device`.

    Args:
        parser: a parser, or a group of flags.
    """
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ... (default: cpu)")


def add_import(parser: Any, *, help: str | None = None) -> None:
    """Add `--import`.

    Args:
        parser: a parser, or a group of flags.
        help: its help text, if not the usual one.
    """
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help=help or "module to import first, for runs with an objective, sampler or toy of your own; repeatable",
    )


def add_out(parser: Parser, help: str) -> None:
    """Add `--out` and `--force`.

    Args:
        parser: the command's parser.
        help: what the file will hold.
    """
    parser.add_argument("--out", type=Path, required=True, help=help)
    add_force(parser)


def add_force(parser: Parser, help: str = "replace the file if it exists") -> None:
    """Add `--force`.

    Args:
        parser: the command's parser.
        help: what is replaced.
    """
    parser.add_argument("--force", action="store_true", help=help)


def whole(least: int) -> Callable[[str], int]:
    """The type of a flag that takes whole numbers.

    Args:
        least: the smallest that is allowed.

    Returns:
        A function for `add_argument(type=...)`.
    """

    def integer(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
        return int(text)

    return integer


def write(path: Path, array: "np.ndarray", columns: dict[str, Any]) -> None:
    """Write an array as `.npy`, or columns as `.csv` or `.parquet`, whichever the name asks for.

    Args:
        path: the file.
        array: what a `.npy` file gets.
        columns: what other files get, values by name of the column.

    Raises:
        UserError: the file cannot be written.
    """
    from pscd.files import needs, replacing

    if path.suffix == ".parquet":
        needs("pyarrow", "parquet", f"{path}: writing parquet")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            if path.suffix == ".npy":
                import numpy as np

                np.save(file, array)
            else:
                import pandas as pd

                frame = pd.DataFrame(columns)
                if path.suffix == ".parquet":
                    frame.to_parquet(file, index=False)
                else:
                    frame.to_csv(file, index=False, float_format="%.9g")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def check_out(path: Path, force: bool, endings: Sequence[str] = (".npy", ".csv")) -> None:
    """Find out that a file must not be written before any work is done for it.

    Args:
        path: the file to be written.
        force: whether it may be replaced.
        endings: the endings that its name may have; with "" among them it may have none, and is a folder.

    Raises:
        UserError: the name has another ending, or the file exists.
    """
    if path.suffix not in endings:
        raise UserError(f"{path}: the name must end in {' or '.join(filter(None, endings))}")
    if path.is_dir() and not path.suffix:
        raise UserError(f"{path} is a folder that exists; choose another --out, folders are not replaced")
    if path.exists() and not force:
        raise UserError(f"{path} exists; choose another --out, or add --force to replace it")


def check_run_folder(path: Path) -> None:
    """Find out that a run folder cannot be written to before any work is done for it; nothing is left behind.

    Args:
        path: the folder, which may not be there yet.

    Raises:
        UserError: nothing can be written there.
    """
    from pscd.files import writing_to

    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    with writing_to(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        finally:
            for folder in made:
                with suppress(OSError):  # it was not made after all, or somebody else uses it by now
                    folder.rmdir()


def parse_names(text: str) -> tuple[str, ...]:
    """Names from the text of a flag.

    Args:
        text: names with commas between them; a name that has a comma itself stands in double quotes.

    Returns:
        The names.

    Raises:
        ArgumentTypeError: a quote is not closed.

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
    """Names as the text of a flag, which `parse_names` reads.

    Args:
        names: any names.

    Returns:
        The names with commas between them, in double quotes where they need them.

    >>> join_names(["Income, CHF", "age"])
    '"Income, CHF",age'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def in_words(shape: Sequence[int]) -> str:
    """The shape of a row in words.

    Args:
        shape: without the number of rows.

    Returns:
        For example `3 numbers`, or `1 x 28 x 28`.

    >>> in_words([3]), in_words([1, 28, 28])
    ('3 numbers', '1 x 28 x 28')
    """
    if len(shape) == 1:
        return "1 number" if shape[0] == 1 else f"{shape[0]} numbers"
    return " x ".join(map(str, shape))


def device(name: str) -> "torch.device":
    """The device of that name.

    Args:
        name: as torch calls it: cpu, cuda, cuda:1 ...

    Returns:
        The device, after a first number was computed on it.

    Raises:
        UserError: it cannot be used here.
    """
    import torch

    try:
        found = torch.device(name)
        torch.empty(1, device=found).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(f"device {name!r} is not available here; cpu always is") from None
    return found


def load_model(run: Path, where: str) -> "Model":
    """The model of a run folder. What there is to say about it, such as that training was stopped, is printed.

    Args:
        run: the folder.
        where: name of the device.

    Returns:
        The model.

    Raises:
        UserError: there is no model, or no such device.
    """
    from pscd.runs import load

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        model = load(run, device=device(where))
    for warning in told:
        print(f"note: {warning.message}")
    return model


def is_first_process() -> bool:
    """Whether this is the process that prints and writes, when `torchrun` has started several.

    Returns:
        True in a process of its own.
    """
    return os.environ.get("RANK", "0") == "0"


def first_use() -> str:
    """What compiling the C++ took, if it was this process that did it.

    Returns:
        The end of a sentence, or nothing.
    """
    from pscd import fast

    seconds = fast.compiled_in()
    return "" if seconds is None else f" compiled just now in {seconds:.1f} s, and kept for later"
