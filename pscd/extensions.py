"""User-defined objectives, samplers and toys by their import path, `package.module:Name`.

A configuration names a class of the library by its bare name and a user's class by its import path. Reading a file
never imports code: an import path in a run folder must belong to a module that is already loaded. Only paths that the
user types are imported.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from pscd.errors import UserError


class NotImported(UserError):
    """An import path in a file names a module that is not loaded, `module`."""

    def __init__(self, path: str, module: str) -> None:
        super().__init__(f"{path} is not loaded; import {module} first")
        self.module = module


def is_path(name: str) -> bool:
    """Whether a name is an import path.

    >>> is_path("package.module:Name"), is_path("ps-cd"), is_path("C:/data/my.csv")
    (True, False, False)
    """
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def path_of(kind: type) -> str:
    """The name by which a configuration refers to a class.

    >>> from pathlib import PurePath
    >>> path_of(PurePath)
    'pathlib:PurePath'
    """
    return kind.__name__ if kind.__module__.split(".")[0] == "pscd" else f"{kind.__module__}:{kind.__qualname__}"


def loaded(path: str) -> Any:
    """What an import path names, if its module is loaded already; nothing is imported."""
    module, _, attribute = path.partition(":")
    if module not in sys.modules:
        raise NotImported(path, module)
    value: Any = sys.modules[module]
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise UserError(f"{path}: there is no {part} in {module}")
        value = getattr(value, part)
    return value


def load(path: str) -> Any:
    """What an import path names; imports its module, which runs code, so it is only for paths that the user typed."""
    import_module(path.partition(":")[0])
    return loaded(path)


def import_module(name: str) -> None:
    """Import a module by name, from the current folder too."""
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"cannot import {name}: {error}") from None
    finally:
        sys.path.remove(here)
