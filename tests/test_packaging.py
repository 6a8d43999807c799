"""The wheel works without the repository, and the README's words are true."""

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import pscd

ROOT = Path(__file__).parents[1]


def test_the_wheel_installs_and_runs_without_the_repository(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("pscd-*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    assert (site / "pscd" / "py.typed").exists()
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    where = [sys.executable, "-c", "import pscd, pscd.cli.main, pscd.paper; print(pscd.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == str(site / "pscd" / "__init__.py")
    flags = "train moon --steps 5 --n-data 100 --batch-size 8 --buffer-size 20 --jump-components 1 --sample-steps 2"
    run = [sys.executable, "-m", "pscd", *flags.split(), "--out", "run"]
    subprocess.run(run, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "run" / "plot.png").exists()


def python_blocks(path):
    return re.findall(r"```python\n(.*?)\n *```", path.read_text(), re.DOTALL)


def test_the_readme_example_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, *_ = python_blocks(ROOT / "README.md")
    assert len(first.strip().splitlines()) <= 15
    exec(compile(first, "README.md", "exec"), {})
    share = float(re.search(r"([\d.]+) of the junk", capsys.readouterr().out).group(1))
    assert share > 0.5


def test_every_python_block_of_the_documentation_compiles():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for block in python_blocks(path):
            compile(textwrap.dedent(block), str(path), "exec")


def test_readme_lists_every_objective_and_shows_pictures_that_exist():
    text = (ROOT / "README.md").read_text()
    for name in pscd.objectives.OBJECTIVES:
        assert f"`{name}`" in text
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+\.png)\)", text):
        assert (ROOT / picture).exists()


def test_torch_is_pinned_for_the_two_commands_and_free_for_users():
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert "torch==2.13.0" in pins
    assert not any(pin.startswith("torchvision") for pin in pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all("==" not in requirement for requirement in project["dependencies"])
    assert pscd.__version__ in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {pscd.__version__}" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("name", ["LICENSE", "CITATION.cff", "CHANGELOG.md", "CONTRIBUTING.md", "README.md"])
def test_the_files_a_project_needs(name):
    assert (ROOT / name).stat().st_size > 300
