"""What `pscd` depends on: the page of licences, and a bill of materials of the wheel (CycloneDX 1.5).

    python scripts/dependencies.py licences     # docs/licences.md
    python scripts/dependencies.py sbom         # dist/pscd-VERSION.cdx.json

Both are read off the packages that are installed, which are those of constraints.txt after `make setup`.
"""

import argparse
import json
import sys
import tomllib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
# Words of a licence that lets anybody use and pass on what depends on it, as MIT does.
PERMISSIVE = ("MIT", "BSD", "Apache", "PSF", "Python Software Foundation", "Zlib", "CC0", "BSL-1.0", "HPND", "ISC")
BY_FILE = ("MPL-2.0", "Mozilla Public License 2.0")  # its own files stay under it; what depends on them is free
FORBIDDEN = ("GPL", "GNU", "AGPL", "SSPL", "Commons Clause", "Non-Commercial")
INTRODUCTION = """\
# Licences

`pscd` is under the [MIT licence](../LICENSE). It contains no code of others; pip installs what it depends on. All of
what follows may be used with, and passed on beside, a program under the MIT licence: *permissive* licences ask for
their text to be kept, and under the Mozilla licence (*by file*) changes of a package's own files have to be published.

*Written by `python scripts/dependencies.py licences` from what the packages say of themselves.*
"""


@dataclass(frozen=True)
class Package:
    """A package that is installed.

    Args:
        name: as its author writes it.
        version: without the label of a build, such as `+cpu`.
        licence: in its own words.
        needs: names of the packages that it needs here.
    """

    name: str
    version: str
    licence: str
    needs: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What the licence asks for: `permissive`, `by file`, or `?`, which a person has to look at."""
        if any(word in self.licence for word in FORBIDDEN):
            return "?"
        if any(word in self.licence for word in BY_FILE):
            return "by file"
        return "permissive" if any(word in self.licence for word in PERMISSIVE) else "?"


def closure(name: str, extras: Iterable[str] = ()) -> dict[str, Package]:
    """All packages that one needs, itself included, by canonical name; those that are not installed are left out."""
    found: dict[str, Package] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), extra) for extra in ("", *extras)]
    while waiting:
        key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        try:
            package = distribution(key[0])
        except PackageNotFoundError:
            continue
        needs = _needs(package, key[1])
        waiting += [(canonicalize_name(r.name), extra) for r in needs for extra in ("", *r.extras)]
        names = {canonicalize_name(r.name) for r in needs} - {key[0]}
        before = found[key[0]].needs if key[0] in found else ()
        found[key[0]] = Package(
            package.metadata["Name"],
            Version(package.version).public,
            licence_of(package),
            tuple(sorted({*before, *names})),
        )
    return found


def _needs(package: Distribution, extra: str) -> list[Requirement]:
    if package.metadata["Name"] == "pscd":  # as pyproject.toml has it now; what is installed may be older
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
        return [Requirement(text) for text in texts]
    every = [Requirement(text) for text in package.requires or ()]
    return [r for r in every if r.marker is None or r.marker.evaluate({"extra": extra})]


def licence_of(package: Distribution) -> str:
    """The licence in a few words: the SPDX expression, or else a short text, or else the classifiers."""
    about = package.metadata
    text = about.get("License") or ""
    classifiers = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    if about.get("License-Expression"):
        return about["License-Expression"]
    return text if text and len(text) <= 40 and "\n" not in text else " or ".join(classifiers) or "unknown"


def licences() -> str:
    """The page."""
    runtime = closure("pscd")
    with_dev = closure("pscd", ["dev"])
    parts = [INTRODUCTION]
    for title, names in (
        ("To use it", runtime.keys() - {"pscd"}),
        ("To work on it: the extra `dev`", with_dev.keys() - runtime.keys()),
    ):
        parts.append(f"\n## {title}\n\n| package | version | licence | kind |\n|---|---|---|---|\n")
        parts += [
            f"| {p.name} | {p.version} | {p.licence} | {p.kind} |\n" for p in map(with_dev.get, sorted(names)) if p
        ]
    return "".join(parts)


def sbom() -> dict[str, object]:
    """The bill of materials of the wheel: what `pip install pscd` installs, in the versions it is tested with."""
    packages = closure("pscd")
    reference = {name: f"pkg:pypi/{name}@{package.version}" for name, package in packages.items()}

    def component(name: str) -> dict[str, object]:
        package = packages[name]
        return {
            "type": "library",
            "bom-ref": reference[name],
            "name": package.name,
            "version": package.version,
            "licenses": [{"license": {"name": package.licence}}],
            "purl": reference[name],
        }

    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(sorted(reference.values())))}",
        "version": 1,
        "metadata": {"component": component("pscd")},
        "components": [component(name) for name in sorted(packages) if name != "pscd"],
        "dependencies": [
            {"ref": reference[name], "dependsOn": [reference[n] for n in packages[name].needs if n in reference]}
            for name in sorted(packages)
        ],
    }


def main(argv: list[str] | None = None) -> int:
    """Write one of the two; returns 1 if a licence has to be looked at."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("licences", "sbom"))
    args = parser.parse_args(argv)
    if args.what == "licences":
        PAGE.write_text(licences())
        unclear = [p.name for p in closure("pscd", ["dev"]).values() if p.kind == "?"]
        print(f"{PAGE}{f'; look at: {unclear}' if unclear else ''}")
        return 1 if unclear else 0
    path = ROOT / "dist" / f"pscd-{distribution('pscd').version}.cdx.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(sbom(), indent=1) + "\n")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
