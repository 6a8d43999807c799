"""What the project depends on is known, and may be used with it."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("dependencies", ROOT / "scripts" / "dependencies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_licence_is_known_and_compatible(script):
    packages = script.closure("pscd", ["dev"])
    assert {"torch", "numpy", "certifi", "pytest", "tensorboard"} <= packages.keys()
    assert [p.name for p in packages.values() if p.kind == "?"] == []


@pytest.mark.parametrize(
    ("licence", "kind"),
    [
        ("MIT", "permissive"),
        ("MPL-2.0 AND MIT", "by file"),
        ("GNU General Public License v3 (GPLv3)", "?"),
        ("LGPL-2.1 OR MIT", "?"),
        ("unknown", "?"),
    ],
)
def test_a_licence_that_asks_for_more_is_looked_at_by_a_person(script, licence, kind):
    assert script.Package("x", "1", licence).kind == kind


def test_the_page_lists_what_is_pinned():
    listed = {canonicalize_name(name) for name in re.findall(r"^\| ([\w.-]+) \| \d", script_page(), re.MULTILINE)}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if not line.startswith("#")}
    assert pinned <= listed, "run make licences"


def script_page():
    return (ROOT / "docs" / "licences.md").read_text()


def test_the_bill_of_materials_is_that_of_the_wheel(script, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    assert script.main(["sbom"]) == 0
    bill = json.loads(Path(capsys.readouterr().out.strip()).read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["name"] == "pscd"
    names = [part["name"] for part in bill["components"]]
    assert {"torch", "numpy", "safetensors", "Jinja2"} <= set(names)  # Jinja2: of torch
    assert "pytest" not in names
    references = {part["bom-ref"] for part in [*bill["components"], bill["metadata"]["component"]]}
    assert {entry["ref"] for entry in bill["dependencies"]} == references
    assert all(set(entry["dependsOn"]) <= references for entry in bill["dependencies"])
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9.-]+@[\w.]+", part["purl"]) for part in bill["components"])
