"""The wheel works without the repository, and the README's words are true."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import packaging.utils
import pytest

import pscd
from pscd.cli.main import COMMANDS, parser_for
from studies.registry import studies

ROOT = Path(__file__).parents[1]
# The front page of the site, and frames for files of the root: `make docs` checks them.
OF_THE_SITE = ("index.md", "contributing.md", "studies.md", "changelog.md", "security.md")


AS_A_MODULE = """
import runpy
import pscd
print(pscd.__file__)
runpy.run_module("pscd", run_name="__main__", alter_sys=True)
"""


def files(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_the_wheel_installs_and_runs_without_the_repository(tmp_path):
    source = tmp_path / "source"  # a copy, without what earlier builds have left beside the original
    shutil.copytree(ROOT / "pscd", source / "pscd", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path / "dist"), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("pscd-*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    assert files(site / "pscd") == files(ROOT / "pscd")  # C++, style sheets and all else that is not Python, too
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    flags = "train moon --updates 5 --batch-size 8 --measure 100 --set rows.n_data=100 --set chains.buffer_size=20 "
    flags += "--set chains.jump_components=1 --set chains.sample_steps=2"
    run = [sys.executable, "-c", AS_A_MODULE, *flags.split(), "--out", "run"]
    done = subprocess.run(run, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == str(site / "pscd" / "__init__.py")
    assert (tmp_path / "run" / "plot.png").exists()


def python_blocks(path):
    blocks = re.findall(r"```python\n(.*?)\n *```", path.read_text(), re.DOTALL)
    return [block for block in blocks if not block.startswith(">>>")]  # which `make docs` runs


def pages():
    """Markdown that people write; pages of results are written by commands, but must be found."""
    written = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
    written += [*(ROOT / "docs" / "how-to").glob("*.md"), *(ROOT / "docs" / "explanations").glob("*.md")]
    written += [
        ROOT / "docs" / "results" / "README.md",
        ROOT / "studies" / "README.md",
        *(ROOT / "examples").rglob("*.md"),
    ]
    return sorted(set(written) - {ROOT / "docs" / name for name in OF_THE_SITE})


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def anchors(path):
    """What GitHub makes of headings: lower case, no punctuation, dashes for blanks."""
    headings = re.findall(r"^#+ +(.+)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def distances(example, capsys):
    """What the README's example prints: the distances of CD and of PS-CD to clean data."""
    exec(compile(example, "README.md", "exec"), {})
    return map(float, re.findall(r"clean data (-?[\d.]+)", capsys.readouterr().out))


@pytest.fixture
def example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (found,) = (block for block in python_blocks(ROOT / "README.md") if "import torch" in block)
    return found


def test_the_readme_is_short_and_its_example_runs(example, capsys):
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
    assert len(example.strip().splitlines()) <= 15
    assert (example.count("5000"), example.count("updates=1000")) == (3, 1)
    cd, ps_cd = distances(example.replace("5000", "500").replace("updates=1000", "updates=20"), capsys)
    assert cd != ps_cd


@pytest.mark.slow
def test_the_example_of_the_readme_shows_what_gamma_does(example, capsys):
    """The default suite tells CD and PS-CD apart on junk by a Gaussian, in `objectives/test_objectives.py`."""
    cd, ps_cd = distances(example, capsys)
    # Measured with seeds 0 to 4: CD 17 to 23, PS-CD -2 to 3; with other junk and seed 0 once 19 and 5.
    assert ps_cd < 0.5 * cd


@pytest.mark.parametrize("path", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_python_block_of_the_documentation_compiles(path):
    for block in python_blocks(path):
        compile(textwrap.dedent(block), str(path), "exec")


@pytest.mark.parametrize("path", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            links = re.findall(r"\]\(([^)\s#]+\.md)", without_code(path.read_text()))
            waiting += [(path.parent / link).resolve() for link in links if "://" not in link]
    assert set(pages()) <= seen


@pytest.mark.parametrize("path", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_tables_have_no_gaps_and_rows_of_one_length(path):
    """A blank line would end the table, and what follows would be shown as text."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text)]
    for block in blocks:
        rows = [line.strip() for line in block.splitlines() if line.strip().startswith("|")]
        if rows:
            assert re.fullmatch(r"\|( *:?-+:? *\|)+", rows[1]), f"no table: {rows[0]}"
            widths = {len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) for row in rows}
            assert len(widths) == 1, f"rows of different lengths after {rows[0]}"


def shell_lines(path):
    """Lines of code blocks that call a command, without the comment at their end, and commands within the text."""
    blocks = re.findall(r"```sh\n(.*?)```", path.read_text(), re.DOTALL)
    lines = [line.split("  #")[0] for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return lines + re.findall(r"`((?:pscd|python -m studies) [^`\n]+)`", path.read_text())


@pytest.mark.parametrize("path", sorted(set(pages()) - {ROOT / "CHANGELOG.md"}), ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_flags_and_studies_that_pages_name_exist(path):
    known = set(studies())
    for line in shell_lines(path):
        if (match := re.match(r"(?:.*-m )?pscd (\w+)(.*)", line)) and match[1] != "COMMAND":
            assert match[1] in COMMANDS, line
            actions = parser_for([match[1]])._actions
            flags = {flag for action in actions for flag in action.option_strings}
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", match[2])) <= flags, line
        if match := re.match(r".*python -m studies ([a-z][\w-]*)", line):
            assert match[1] in known | {"mine"}, line


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md", "docs/speed.md", "docs/training.md"])
def test_files_of_the_package_that_pages_name_are_there(name):
    for file in re.findall(r"`(pscd/[\w/.]+)`", (ROOT / name).read_text()):
        assert (ROOT / file).exists(), f"{name} names {file}"


def test_the_documentation_lists_every_objective_and_the_readme_shows_a_picture():
    for name in pscd.objectives.OBJECTIVES:
        assert f"`{name}`" in (ROOT / "docs" / "objectives.md").read_text()
    assert re.search(r"!\[[^\]]*\]\([^)]+\.png\)", (ROOT / "README.md").read_text())


def test_nobody_is_sent_to_a_release_that_does_not_exist():
    for path in pages():
        assert not re.search(r"pip install '?pscd", path.read_text()), path


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


def test_every_constraint_has_checksums():
    """So that `make test` and `make demo` install what was tested, and nothing else."""
    canonical = packaging.utils.canonicalize_name
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonical(name): version for name, _, version in (line.partition("==") for line in lines)}
    text = (ROOT / "requirements.txt").read_text()
    entries = [entry.split() for entry in re.split(r"\n(?=\w)", text) if not entry.startswith("#")]
    hashed = {canonical(name): version for name, _, version in (words[0].partition("==") for words in entries)}
    assert hashed == {name: version for name, version in pinned.items() if name != "torch"}, "run make hashes"
    for words in entries:
        sums = [word for word in words[1:] if word != "\\"]
        assert sums
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for word in sums)
