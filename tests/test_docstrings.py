"""Every public function and class has a docstring; exported functions describe their arguments and have an example."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import pytest

import pscd

MANY = 3  # parameters from which each has to be described


def public_modules() -> list[str]:
    found = pkgutil.walk_packages(pscd.__path__, "pscd.")
    return ["pscd", *(m.name for m in found if not any(part.startswith("_") for part in m.name.split(".")))]


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Functions and classes defined in the module, and the public methods and properties of its classes."""
    for name, found in vars(module).items():
        if name.startswith("_") or getattr(found, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(found):
            yield name, found
            settings = {f.name for f in fields(found)} if is_dataclass(found) else set()
            for method, value in vars(found).items():
                function = function_of(value)
                if not method.startswith("_") and method not in settings and function is not None:
                    yield f"{name}.{method}", function
        elif (function := function_of(found)) is not None:
            yield name, function


def function_of(value: Any) -> Any:
    """The function behind a method, a property, a cache or a decorator; None for anything else."""
    for wrapper in ("__func__", "fget", "func"):
        value = getattr(value, wrapper, value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if inspect.isfunction(value) else None


def parameters(found: Any) -> list[str]:
    """Names of the parameters of a function, or of a class's constructor if the class has one of its own."""
    if inspect.isclass(found):
        if is_dataclass(found):
            return [f.name for f in fields(found) if f.init]
        if "__init__" not in vars(found) or getattr(found, "_is_protocol", False):
            return []
        found = found.__init__
    names = inspect.signature(found).parameters
    return [name for name in names if name not in ("self", "cls")]


def described(docstring: str) -> set[str]:
    """Names in the `Args` section of a docstring."""
    _, _, rest = docstring.partition("Args:\n")
    lines = rest.splitlines()
    end = next((i for i, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    matches = (re.match(r"    \*{0,2}(\w+)(?: \(.*?\))?:", line) for line in lines[:end])
    return {match[1] for match in matches if match}


def complaints(name: str, found: Any) -> list[str]:
    docstring = inspect.cleandoc(vars(found).get("__doc__") or "") if inspect.isclass(found) else inspect.getdoc(found)
    # A dataclass or a named tuple without a docstring is given its signature as one.
    if not docstring or (inspect.isclass(found) and docstring.startswith(f"{found.__name__}(")):
        return [f"{name} has no docstring"]
    names = parameters(found)
    missing = [p for p in names if p not in described(docstring)] if len(names) >= MANY else []
    return [f"{name} does not describe {', '.join(missing)}"] if missing else []


@pytest.mark.parametrize("name", public_modules())
def test_public_names_have_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    missing = [public for public, value in public_names(module) if not inspect.getdoc(value)]
    assert not missing, f"{name}: no docstring: {', '.join(missing)}"


@pytest.mark.parametrize("name", [n for n in pscd.__all__ if inspect.isfunction(getattr(pscd, n))])
def test_exported_functions_describe_their_arguments(name: str) -> None:
    assert not complaints(name, getattr(pscd, name))


@pytest.mark.parametrize("name", [n for n in pscd.__all__ if callable(getattr(pscd, n))])
def test_exported_names_have_an_example(name: str) -> None:
    has_example = ">>>" in (inspect.getdoc(getattr(pscd, name)) or "")
    assert has_example, f"pscd.{name} has no example"


def test_a_missing_description_is_noticed() -> None:
    def one(a: int, b: int, c: int) -> None:
        """Nothing.

        Args:
            a: first.
            b: second,
                c: which is no argument.
        """

    class Two:
        pass

    class Three:
        """A class whose constructor takes much."""

        def __init__(self, a: int, b: int, c: int) -> None: ...

    assert complaints("one", one) == ["one does not describe c"]
    assert complaints("Two", Two) == ["Two has no docstring"]
    assert complaints("Three", Three) == ["Three does not describe a, b, c"]
