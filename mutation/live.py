"""Functions in memory take on the code of a changed file, so that nothing has to be imported again.

Only what is inside of functions can be exchanged like this. A change of a default, a class attribute or a constant of a
module takes effect while the file is imported, and so may a change of a function that is called meanwhile.
"""

import gc
import inspect
from types import CodeType, FunctionType


class Live:
    """The functions of a package as they are in memory now.

    Args:
        folder: of the package.
        called: qualified names of what was called while it was imported, as `file::name`.
    """

    def __init__(self, folder: str, called: set[str]) -> None:
        self.called = called
        self.functions: dict[str, list[FunctionType]] = {}
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename.startswith(folder):
                self.functions.setdefault(thing.__code__.co_filename, []).append(thing)

    def exchange(self, file: str, before: str, after: str) -> bool:
        """Give functions the code of another source.

        Args:
            file: that they were imported from.
            before: its source.
            after: the changed source.

        Returns:
            Whether that was possible; if not, the process is of no further use.
        """
        changed = changed_functions(*(compile(text, file, "exec", dont_inherit=True) for text in (before, after)))
        functions = self.functions.get(file, [])
        for name, code in (changed or {}).items():
            made = [f for f in functions if f.__code__.co_qualname.startswith(f"{name}.<locals>.")]
            found = [f for f in functions if f.__code__.co_qualname == name]
            if made or len(found) != 1 or f"{file}::{name}" in self.called:
                return False
            if len(found[0].__code__.co_freevars) != len(code.co_freevars):
                return False
            found[0].__code__ = code
        return changed is not None


def changed_functions(before: CodeType, after: CodeType) -> dict[str, CodeType] | None:
    """Functions whose code differs, by qualified name; None if anything outside of functions differs."""
    ours, theirs = _inner(before), _inner(after)
    if _outline(before) != _outline(after) or len(ours) != len(theirs):
        return None
    found: dict[str, CodeType] = {}
    for a, b in zip(ours, theirs, strict=True):
        if not a.co_flags & inspect.CO_OPTIMIZED:  # the body of a class
            inside = changed_functions(a, b)
            if inside is None:
                return None
            found |= inside
        elif not _same(a, b):
            if a.co_name.startswith("<") or a.co_qualname in found:  # a comprehension has run already
                return None
            found[a.co_qualname] = b
    return found


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _outline(code: CodeType) -> tuple[object, ...]:
    """Everything but lines and inner code; 1, 1.0 and True are different constants."""
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, constants, names, code.co_flags, code.co_exceptiontable


def _same(a: CodeType, b: CodeType) -> bool:
    ours, theirs = _inner(a), _inner(b)
    return _outline(a) == _outline(b) and len(ours) == len(theirs) and all(map(_same, ours, theirs))
