"""User-defined objectives, samplers and toys by their import path, `package.module:Name`.

A configuration names a class of the library by its bare name, and any other by its import path. Reading a file never
imports code: a path read from a run folder is looked up among the modules that are loaded already, and only what a
person types (`--objective package.module:Name`, `--import package.module`) is imported.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from pscd.errors import UserError

OWN = __name__.partition(".")[0]


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
    return kind.__name__ if kind.__module__.split(".")[0] == OWN else f"{kind.__module__}:{kind.__qualname__}"


def loaded(path: str) -> Any:
    """What an import path names, if its module is loaded already; nothing is imported."""
    module, _, attribute = path.partition(":")
    if module not in sys.modules:
        raise UserError(f"{path} is not loaded; import {module} first, on the command line with --import {module}")
    found: Any = sys.modules[module]
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UserError(f"{path}: there is no {part} in {module}")
        found = getattr(found, part)
    return found


def load(path: str) -> Any:
    """What an import path names; its module is imported, from the current folder too.

    Only for paths that a person gave: importing runs code.
    """
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
