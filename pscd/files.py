"""Files: written whole or not at all, tensors without pickle, and the messages about files that all rooms share.

A file is written under another name beside its place, flushed to the disk, and renamed: whoever reads it, even after a
kill or a power cut, finds the old file or the new one.
"""

import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from pscd.errors import UserError


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary path to write to, which takes the place of `path` once it is on the disk.

    After an error the temporary file is removed, and whatever was at `path` stays.

    Args:
        path: the file to write.

    Yields:
        A path in the same folder.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text_atomic(path: Path | str, text: str) -> None:
    """Write a text file in UTF-8, atomically.

    Args:
        path: the file to write.
        text: its content.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any, indent: int | None = 1) -> None:
    """Write a JSON file that ends with a newline, atomically.

    Args:
        path: the file.
        value: anything that JSON can hold.
        indent: spaces for each level, or None for one line.
    """
    write_text_atomic(path, json.dumps(value, indent=indent) + "\n")


def read_json(path: Path | str) -> Any:
    """What a JSON file holds.

    Args:
        path: the file.

    Returns:
        Plain values.

    Raises:
        UserError: there is no such file, or it is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UserError(f"{path}: damaged, not JSON ({error})") from None


def write_tensors(path: Path | str, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write one `.safetensors` file, atomically.

    Args:
        path: the file to write.
        tensors: by name, on any device.
        metadata: texts to keep beside them.
    """
    # Not `save_file`: its files are readable by their owner alone, whatever the umask.
    content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, metadata)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def read_tensors(path: Path | str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a `.safetensors` file and its metadata.

    Args:
        path: the file.

    Returns:
        Tensors by name, and the metadata, which may be empty.

    Raises:
        SafetensorError: the file is damaged.
    """
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return tensors, file.metadata() or {}


def read_metadata(path: Path | str) -> dict[str, str]:
    """The metadata of a `.safetensors` file, without its tensors."""
    with safe_open(path, framework="pt") as file:
        return file.metadata()


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix.

    Args:
        tensors: by name.
        prefix: of the names.

    Returns:
        The tensors by the rest of their names.

    >>> under({"energy.a": 1, "b": 2}, "energy.")
    {'a': 1}
    """
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def tensors_digest(tensors: dict[str, Tensor]) -> str:
    """A checksum of names, shapes, types and values: equal for equal tensors, in whatever order they come.

    Returns:
        The first 16 hexadecimal digits of a SHA-256.
    """
    found = hashlib.sha256()
    for name, t in sorted(tensors.items()):
        found.update(f"{name} {t.dtype} {tuple(t.shape)} ".encode())
        found.update(save({"": t.detach().cpu().contiguous()}))
    return found.hexdigest()[:16]


@contextmanager
def writing_to(path: Path | str) -> Iterator[None]:
    """Turn an `OSError` inside into a `UserError` that says where nothing can be written.

    Args:
        path: the place, for the message.

    Raises:
        UserError: writing failed.

    >>> with writing_to("/dev/null/x"):
    ...     Path("/dev/null/x").mkdir()
    Traceback (most recent call last):
    ...
    pscd.errors.UserError: cannot write to /dev/null/x: Not a directory
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror or error}") from None


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A table in Markdown, without a newline at its end; bars within cells are escaped.

    Args:
        head: names of the columns.
        rows: texts, one for each column.

    Returns:
        The lines of the table.

    >>> print(markdown_table(["set", "KL(p || q)"], [["moon", "0.1"]]))
    | set | KL(p \|\| q) |
    |---|---|
    | moon | 0.1 |
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def suffix_of(path: Path | str) -> str:
    """The ending of a file's name, without `.gz`.

    Args:
        path: the file.

    Returns:
        The ending in small letters, with its dot.

    >>> suffix_of("a/b.CSV.gz")
    '.csv'
    """
    name = Path(path).name.lower().removesuffix(".gz")
    return Path(name).suffix


def cache_folder() -> Path:
    """The operating system's folder for what can be made or fetched again; on Linux `~/.cache/pscd`."""
    import pooch

    return Path(pooch.os_cache("pscd"))


def needs(module: str, extra: str, what: str = "this") -> ModuleType:
    """Import a module that only an optional extra installs.

    Args:
        module: the name to import.
        extra: the extra of this package that installs it.
        what: what needs it, at the start of the message.

    Returns:
        The module.

    Raises:
        UserError: it is not installed; the message says how to install it.

    >>> needs("no_such_module", "flow", "--noise flow")
    Traceback (most recent call last):
    ...
    pscd.errors.UserError: --noise flow needs no_such_module; from a clone of the repository: pip install '.[flow]'
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{what} needs {module}; from a clone of the repository: pip install '.[{extra}]'") from None
