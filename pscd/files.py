"""Atomic writes, tensors without pickle, locks, and error messages about files.

A file is written under a temporary name in the same folder, flushed to the disk, and renamed: after a kill or a power
cut a reader sees either the old file or the new one. Each file holds a checksum of its content, so that a damaged file
is reported instead of used.
"""

import hashlib
import importlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pscd.errors import InUse, UserError

try:
    import fcntl
except ImportError:  # Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

_held: set[tuple[Path, int]] = set()  # locks of this process, and of which thread


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary path to write to; it replaces `path` once its content is on the disk.

    After an error the temporary file is removed, and `path` is unchanged.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # writing would follow a link, and the folder may be from an untrusted source
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_temporary(folder: Path) -> None:
    """Remove the temporary files of killed writers from a folder whose lock the caller holds."""
    for path in folder.glob("*.*.tmp"):
        if path.suffixes[-2][1:].isdecimal() and not path.is_dir():
            path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes and threads from writing to the folder of `path`, the lock file; `InUse` if one does.

    A thread may take its lock again. The lock is the kernel's (`flock`), so it ends with its process. Where the file
    system has no locks, or the folder is read-only, nothing is locked.
    """
    key = (path.resolve(), threading.get_ident())
    if fcntl is None or key in _held:
        yield
        return
    descriptor = _lock(path)
    _held.add(key)
    try:
        yield
    finally:
        _held.discard(key)
        if descriptor is not None:
            with suppress(OSError):
                path.unlink()  # while it is locked: `_lock` notices
            os.close(descriptor)


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock; None where locks are unavailable."""
    while True:
        try:
            with writing_to(path.parent):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except UserError:
            if not os.access(path.parent, os.W_OK):
                return None
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InUse(f"{path.parent} is in use by another run; wait for it, or choose another folder") from None
        except OSError:
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # its owner removed the file after we had opened it


def write_text_atomic(path: Path | str, text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_text(path: Path, text: str) -> None:
    """Append to a text file, or create it; a symbolic link in its place raises `OSError`."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags, 0o666), "a", encoding="utf-8") as file:
        file.write(text)


def write_json(path: Path | str, value: Any, indent: int | None = 1) -> None:
    """Write a JSON file that ends with a newline, atomically."""
    write_text_atomic(path, json.dumps(value, indent=indent) + "\n")


def read_json(path: Path | str) -> Any:
    """The content of a JSON file; a `UserError` if it is missing or damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged, not JSON ({error})") from None


def sealed(values: dict[str, Any]) -> dict[str, Any]:
    """Plain values with a checksum of them all, to be written as JSON.

    >>> sealed({"steps": 10})
    {'steps': 10, 'checksum': '46eaf3629d47ba73'}
    """
    return {**values, "checksum": _digest(json.dumps(values, sort_keys=True))}


def unsealed(values: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `sealed`; a `ValueError` if the checksum is wrong or missing.

    >>> unsealed({**sealed({"steps": 10}), "steps": 11})
    Traceback (most recent call last):
    ...
    ValueError: its checksum is wrong
    """
    rest = {name: value for name, value in values.items() if name != "checksum"}
    if values != sealed(rest):
        raise ValueError("its checksum is wrong")
    return rest


def write_tensors(path: Path | str, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write one `.safetensors` file, atomically."""
    tensors = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    # Not `save_file`: its files are readable by their owner alone, whatever the umask.
    content = save(tensors, {**metadata, "checksum": _checksum(tensors, metadata)})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def read_tensors(path: Path | str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file that `write_tensors` wrote, and its metadata; a `SafetensorError` if it is damaged."""
    with safe_open(path, framework="pt") as file:
        # Copies, because memory-mapped tensors of a model in use would change with the file.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
        metadata = file.metadata() or {}
    if metadata.pop("checksum", None) != _checksum(tensors, metadata):
        raise SafetensorError("its checksum is wrong")
    return tensors, metadata


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix.

    >>> under({"energy.a": 1, "b": 2}, "energy.")
    {'a': 1}
    """
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def tensors_digest(tensors: dict[str, Tensor]) -> str:
    """A checksum of names, shapes, types and values, independent of their order: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for name, t in sorted(tensors.items()):
        digest.update(f"{name} {t.dtype} {tuple(t.shape)} ".encode())
        digest.update(save({"": t.detach().cpu().contiguous()}))
    return digest.hexdigest()[:16]


def _checksum(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    return _digest(tensors_digest(tensors) + json.dumps(metadata, sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def reading(path: Path | str, what: str) -> Iterator[None]:
    """Re-raise any error in the block as a one-line `UserError` that names the file and what is wrong with it.

    Libraries raise dozens of kinds of errors for damaged or malicious files.

    >>> with reading("a.json", "damaged"):
    ...     json.loads("{")
    Traceback (most recent call last):
    ...
    pscd.errors.UserError: a.json: damaged (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))
    """
    try:
        yield
    except MemoryError:
        raise UserError(f"{path}: needs more memory than is available") from None
    except UserError as error:
        raise UserError(str(error) if str(error).startswith(f"{path}: ") else f"{path}: {what} ({error})") from None
    except Exception as error:
        raise UserError(f"{path}: {what} ({one_line(error)})") from None


def one_line(error: BaseException) -> str:
    r"""The first line of an error's message that is not blank, or the name of its class.

    >>> one_line(ValueError(" \n no rows \n at all")), one_line(EOFError())
    ('no rows', 'EOFError')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def check_fits(path: Path | str, n_bytes: int) -> None:
    """Refuse a file whose header declares more bytes than this machine has, before memory is allocated.

    >>> check_fits("a.npz", 10**15)
    Traceback (most recent call last):
    ...
    pscd.errors.UserError: a.npz: unpacks to 1000000.0 GB, more than the memory
    """
    if n_bytes > _memory():
        raise UserError(f"{path}: unpacks to {n_bytes / 1e9:.1f} GB, more than the memory")


def _memory() -> int:
    """Bytes of memory that this process can have at most."""
    try:
        import resource

        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, ValueError, OSError):  # not on Windows
        return 2**40
    return installed if allowed == resource.RLIM_INFINITY else min(installed, allowed)


def file_digest(path: Path | str) -> str:
    """A checksum of a file's bytes: 16 hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@contextmanager
def writing_to(path: Path | str) -> Iterator[None]:
    """Re-raise an `OSError` in the block as a `UserError` that names the place.

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


def suffix_of(path: Path | str) -> str:
    """The ending of a file's name, without `.gz`.

    >>> suffix_of("a/b.CSV.gz")
    '.csv'
    """
    name = Path(path).name.lower().removesuffix(".gz")
    return Path(name).suffix


def cache_folder() -> Path:
    """The operating system's folder for cached files; on Linux `~/.cache/pscd`."""
    import pooch

    return Path(pooch.os_cache("pscd"))


def needs(module: str, extra: str, what: str = "this") -> ModuleType:
    """Import a module that only an optional extra installs.

    >>> needs("no_such_module", "flow", "noise flow")
    Traceback (most recent call last):
    ...
    pscd.errors.UserError: noise flow needs no_such_module; from a clone of the repository: pip install '.[flow]'
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{what} needs {module}; from a clone of the repository: pip install '.[{extra}]'") from None


def parquet_files(folder: Path) -> list[Path]:
    """The `.parquet` files of a folder and of folders in it, in the order of their names.

    Names that start with `.` or `_` are left out, because programs that write such folders use them for metadata.
    """

    def is_hidden(path: Path) -> bool:
        return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)

    return sorted(path for path in folder.rglob("*.parquet") if path.is_file() and not is_hidden(path))
