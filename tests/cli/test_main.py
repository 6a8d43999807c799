import os
import subprocess
import sys
from pathlib import Path

import pytest

import pscd
from pscd import __version__
from pscd.cli import main as exported
from pscd.cli.main import COMMANDS, main
from tests.cli.helpers import help_of, refused


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["train", "mooon"], "unknown data 'mooon'"),
        (["train", "missing.csv"], "missing.csv: no such file"),
        (["train", "moon", "--gamma", "-2"], "gamma must be a finite number >= -1"),
        (["train", "moon", "--gamma", "nan"], "gamma must be"),
        (["train", "moon", "--gamma", "much"], "gamma must be"),
        (["train", "moon", "--gamma"], "argument --gamma: expected one argument"),
        (["train", "moon", "--objective", "gan"], "unknown objective 'gan'; there are: ps-cd, cd"),
        (["train", "moon", "--sampler", "gibbs"], "unknown sampler 'gibbs'; there are: mala, langevin"),
        (["train", "moon", "--recipe", "huge"], "unknown recipe 'huge'"),
        (["train", "moon", "--updates", "0"], "updates must be at least 1"),
        (["train", "moon", "--set", "energy.name=huge"], "'huge'"),
        (["train", "moon", "--device", "tpu9"], "device 'tpu9' is not available"),
        (["train", "moon", "--objective", "cd", "--gamma", "1"], "--objective cd is gamma 0"),
        (["train", "moon", "--objective", "f-ebm", "--set", "objective.divergence=tv"], "reverse-kl"),
        (["train", "moon", "--seed", "-1"], "seed must be at least 0"),
        (["train", "moon", "--set", "optimizer.clip=-1"], "clip must be a positive number"),
        (["train", "moon", "--set", "sampler.jump_every=1"], "jump_every must be 0 (never) or at least 2"),
        (["train", "moon", "--device", "meta"], "device 'meta' is not available"),
        (["train", "moon", "--import", "no_such_module_at_all"], "cannot import no_such_module_at_all"),
        (["train", "no_such_module_at_all:toy"], "cannot import no_such_module_at_all"),
        (["train", "moon", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["train", "moon", "--update", "5"], "unrecognized arguments: --update 5"),
        (["train", "--updates", "5"], "give the data to train on"),
        (["sample", "x", "--out", "x.npy", "--threads", "0"], "argument --threads: must be at least 1"),
        (["sample", "x", "--out", "x.npy", "--import", "no_such_module_at_all"], "cannot import no_such_module_at_all"),
        (["report", "x", "--picture", "picture"], "must end in .png"),
        (["sample", "nowhere", "--out", "x.npy"], "nowhere: no such run folder"),
        (["sample", "nowhere", "--out", "x.txt"], "must end in .npy or .csv"),
        (["teach", "moon"], "invalid choice: 'teach'"),
        ([], "required"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in refused(argv, capsys)
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_commands(capsys):
    text = help_of(["--help"], capsys)
    listed = [line.split()[0] for line in text.split("commands:\n")[1].splitlines()]
    assert tuple(listed) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_is_for_and_shows_examples(name, capsys):
    text = help_of([name, "--help"], capsys)
    assert text.count(f"\n  pscd {name} ") == 2
    assert f"pscd {name} [-h]" in text
    reads_a_run = name in ("score", "train", "sample", "report")
    assert ("--import MODULE" in text) == reads_a_run


@pytest.mark.parametrize("words", [["look", "x.csv"], ["--version"], ["--help"], ["look", "--help"]])
def test_a_closed_output_is_no_traceback(words, tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n" + "1,2\n3,4\n" * 20)
    command = " ".join([sys.executable, "-m", "pscd", *words, ">&-"])
    environment = {**os.environ, "PYTHONPATH": str(Path(pscd.__file__).parents[1])}
    how = {"shell": True, "cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, **how)
    assert (done.returncode, done.stderr) == (0, "")


def test_control_characters_never_reach_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "x\x1b[31m\u202e.csv"
    Path(name).write_text("a\x1b[2J,b\n" + "".join(f"{i % 7},{i}\x07\n" for i in range(40)))
    assert main(["look", name]) == 0
    assert main(["look", f"no{name}"]) == 2
    printed = "".join(capsys.readouterr())
    assert all(c.isprintable() or c == "\n" for c in printed)


def test_the_command_line_itself_needs_no_torch():
    """`pscd --version` and `pscd --help` cost what importing the package costs, and nothing on top."""
    code = """
import sys, types
import importlib.util
bare = types.ModuleType("pscd")  # the package without what its __init__ imports
bare.__path__ = importlib.util.find_spec("pscd").submodule_search_locations
sys.modules["pscd"] = bare
from pscd.cli import main
for word in ("--version", "--help"):
    try:
        main([word])
    except SystemExit as stop:
        assert stop.code == 0
print(sorted({"torch", "numpy", "pandas", "sklearn", "PIL", "matplotlib"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[0] == f"pscd {__version__}"
    assert lines[-1] == "[]"


def test_the_package_exports_main():
    assert exported is main


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        ImportError("libx.so: failed to map segment from shared object"),
        SystemError("error return without exception set"),
    ],
)
def test_too_little_memory_is_one_line(error, monkeypatch, capsys):
    def fail(argv):
        raise error

    monkeypatch.setattr(sys.modules[main.__module__], "parser_for", fail)
    assert main(["look", "x.csv"]) == 2
    assert capsys.readouterr().err == "pscd: there is not enough memory; what was written before is kept\n"


def test_a_mistake_of_the_library_s_own_is_raised(monkeypatch):
    def fail(argv):
        raise SystemError("bad argument to internal function")

    monkeypatch.setattr(sys.modules[main.__module__], "parser_for", fail)
    with pytest.raises(SystemError, match="bad argument"):
        main(["look", "x.csv"])
