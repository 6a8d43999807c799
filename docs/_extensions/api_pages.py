"""The API pages, written from the package itself before each build, so that no public name can be forgotten.

Every public function, class and method is documented once, at its shortest public path: `pscd.fit`, and not
`pscd.training.loop.fit`. What `pscd` exports has a page for each name, with the gallery's examples that use it; each
package has a page with everything else. At the end of the build, names without an entry are warnings, and
warnings are errors.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import pscd

LOGGER = logging.getLogger(__name__)
# The exported names, in the order in which one meets them; one that is missing here is a warning.
GROUPS = {
    "Tables": ["EnergyDetector", "read_table"],
    "Training": ["fit", "train", "load", "evaluate", "TrainConfig", "Model"],
    "Settings": ["ChainSettings", "OptimizerSettings", "GuardSettings", "RowSettings", "ComputeSettings"],
    "Objectives": [
        "PseudoSpherical",
        "DensityPower",
        "Trimmed",
        "WeightedNegatives",
        "FEBM",
        "NoiseContrastive",
        "ScoreMatching",
        "DenoisingScoreMatching",
        "SlicedScoreMatching",
    ],
    "Energies": ["MLP", "Quadratic", "Architecture"],
    "Samplers": ["Mala", "mala", "Langevin", "langevin", "Jumps", "jumps"],
    "Losses": ["pseudo_spherical", "contrastive_divergence", "importance_weights", "effective_sample_fraction"],
    "Data and measures": ["load_dataset", "contaminate", "Toy", "TOYS", "mmd"],
    "Errors": ["UserError", "Diverged"],
}
LINK_BACK = re.compile(
    r'(?P<before><div class="viewcode-block" id="(?P<name>[\w.]+)">\s*)'
    r'<a class="viewcode-back" href="[^"]*">\[docs\]</a>'
)
EMPHASIS = re.compile(r"(?<!\\)([|*])")


def public_modules() -> list[str]:
    """All modules of the package whose path has no underscore at the start of a part."""
    found = pkgutil.walk_packages(pscd.__path__, "pscd.")
    return [m.name for m in found if not any(part.startswith("_") for part in m.name.split("."))]


def defined_in(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Public functions and classes that a module defines."""
    for name, value in vars(module).items():
        here = getattr(value, "__module__", None) == module.__name__
        if here and not name.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value)):
            yield name, value


def methods_of(value: object) -> list[str]:
    """Public methods and properties that a class defines; the fields of a dataclass are described by its docstring."""
    if not inspect.isclass(value):
        return []
    fields = getattr(value, "__dataclass_fields__", {})
    kinds = (property, cached_property, staticmethod, classmethod)
    found = [name for name, f in vars(value).items() if inspect.isroutine(f) or isinstance(f, kinds)]
    return [name for name in found if not name.startswith("_") and name not in fields]


def home(module: str, name: str) -> str:
    """The module under which a name is documented: the outermost that exports it.

    Returns:
        Its path.

    >>> home("pscd.training.loop", "fit"), home("pscd.fast.gradients", "evaluating"), home("pscd.exact", "kl")
    ('pscd', 'pscd.fast', 'pscd.exact')
    """
    parts = module.split(".")
    for i in range(1, len(parts)):
        outer = importlib.import_module(".".join(parts[:i]))
        # Where a module has that path as well, as pscd.cli.main does, the name stays inside it.
        if name in getattr(outer, "__all__", ()) and f"{outer.__name__}.{name}" != module:
            return outer.__name__
    return module


def entry(path: str, value: object) -> str:
    """The directive that documents a name."""
    if inspect.isclass(value):
        return f".. autoclass:: {path}\n   :members:\n   :show-inheritance:\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {path}\n"
    keys = f"\n   Keys: {', '.join(f'``{key}``' for key in value)}.\n" if isinstance(value, dict) else ""
    return f".. autodata:: {path}\n   :no-value:\n{keys}"


def name_page(name: str) -> str:
    """The page of an exported name, with examples from the gallery."""
    path = f"pscd.{name}"
    gallery = f".. minigallery:: {path}\n   :add-heading: In the gallery\n   :heading-level: -\n"
    return f"{path}\n{'=' * len(path)}\n\n{entry(path, getattr(pscd, name))}\n{gallery}"


def package_page(package: str, modules: list[str]) -> str:
    """The page of a package: each of its modules, with what is documented there."""
    parts = []
    for path in modules:
        module = importlib.import_module(path)
        title = f"``{path}``"
        parts += [title, ("=" if path == package else "-") * len(title), "", f".. automodule:: {path}", ""]
        elsewhere = []
        for name, value in defined_in(module):
            at = home(path, name)
            if at == path:
                parts += [entry(f"{path}.{name}", value)]
            else:
                elsewhere.append(f":py:obj:`{at}.{name}`")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if name in pscd.__all__:
                elsewhere.append(f":py:obj:`pscd.{name}`")
            elif getattr(value, "__module__", None) != path and f"{path}.{name}" not in modules:
                parts += [entry(f"{path}.{name}", value)]
        if elsewhere:
            parts += [f"Documented elsewhere: {', '.join(dict.fromkeys(elsewhere))}.", ""]
    return "\n".join(parts)


def write(path: Path, text: str) -> None:
    """Write a page only if it has changed, so that a second build reads only what is new."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_pages(app: Sphinx) -> None:
    """Write all API pages to docs/api/generated."""
    folder = app.srcdir / "api" / "generated"
    packages: dict[str, list[str]] = {}
    for module in public_modules():
        packages.setdefault(".".join(module.split(".")[:2]), []).append(module)
    pages = {f"pscd.{name}.rst": name_page(name) for names in GROUPS.values() for name in names}
    pages |= {f"package.{package}.rst": package_page(package, modules) for package, modules in packages.items()}
    for old in set(folder.glob("*.rst")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        write(folder / name, text)
    lines = []
    for title, names in GROUPS.items():
        lines += [title, "-" * len(title), "", *_table({f"pscd.{name}": _first_line(name) for name in names})]
        lines += [".. toctree::", "   :hidden:", "", *(f"   generated/pscd.{name}" for name in names), ""]
    write(folder / "names.inc", "\n".join(lines))
    lines = _table({package: _summary(importlib.import_module(package)) for package in packages}, role="mod")
    lines += [
        ".. toctree::",
        "   :hidden:",
        "",
        *(f"   {package} <generated/package.{package}>" for package in packages),
        "",
    ]
    write(folder / "packages.inc", "\n".join(lines))


def _table(rows: dict[str, str], role: str = "obj") -> list[str]:
    lines = [".. list-table::", "   :widths: 30 70", ""]
    for path, text in rows.items():
        lines += [f"   * - :py:{role}:`{path}`", f"     - {text}"]
    return [*lines, ""]


def _first_line(name: str) -> str:
    value = getattr(pscd, name)
    return _summary(value) if callable(value) else "The toys by name, to draw from and to add to."


def _summary(value: object) -> str:
    return escaped((inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " "))


def escaped(text: str) -> str:
    r"""Docstring text in which bars and stars mean themselves, as in |x|^2 and p * q; code stays as it is.

    Returns:
        The text.

    >>> escaped("|x|^2 of `(B, *shape)`")
    '\\|x\\|^2 of `(B, *shape)`'
    """
    parts = re.split(r"(`+[^`]+`+)", text)
    return "".join(part if i % 2 else EMPHASIS.sub(r"\\\1", part) for i, part in enumerate(parts))


def read_docstring(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """A docstring as reStructuredText: formulas escaped, and what is returned as a field.

    Napoleon would take the words before a colon for the type of what is returned; that is known from the annotation.
    """
    if what == "data" and lines[:1] == (inspect.getdoc(type(value)) or "").splitlines()[:1]:
        lines.clear()  # that of dict or tuple, not of this one
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else escaped(line) for line in lines]
    if "Returns:" in lines:
        at = lines.index("Returns:")
        lines[at : at + 2] = [f":returns: {lines[at + 1].strip()}"]


def check_complete(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each public name that no page documents."""
    documented = env.domains["py"].objects
    for name in sorted(set(pscd.__all__) - {"__version__"} - {name for names in GROUPS.values() for name in names}):
        LOGGER.warning("pscd.%s is exported, and has no place in GROUPS of docs/_extensions/api_pages.py", name)
    for path in public_modules():
        if path not in documented:
            LOGGER.warning("the module %s is not documented", path)
        for name, value in defined_in(importlib.import_module(path)):
            at = f"{home(path, name)}.{name}"
            for found in [at, *(f"{at}.{method}" for method in methods_of(value))]:
                if found not in documented:
                    LOGGER.warning("%s is public, and no page documents it", found)


def mend_links_back(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """On pages of source code, lead from each name to where it is documented.

    viewcode knows one path for each module, and here the names of a module may be documented under several.
    """
    if not page.startswith("_modules/pscd"):
        return
    module = page.removeprefix("_modules/").replace("/", ".")
    objects = app.env.domains["py"].objects

    def link(match: re.Match[str]) -> str:
        first, dot, rest = match["name"].partition(".")
        found = objects.get(f"{home(module, first)}.{first}{dot}{rest}")
        if found is None:
            return match["before"]
        address = app.builder.get_relative_uri(page, found.docname)
        return f'{match["before"]}<a class="viewcode-back" href="{address}#{found.node_id}">[docs]</a>'

    context["body"] = LINK_BACK.sub(link, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the build, and check them in it."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", read_docstring, priority=400)  # before napoleon adds its own markup
    app.connect("env-check-consistency", check_complete)
    app.connect("html-page-context", mend_links_back)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
