import subprocess
import sys

import pytest

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
        (["train", "moon", "--gamma", "much"], "invalid number|auto value: 'much'"),
        (["train", "moon", "--gamma"], "argument --gamma: expected one argument"),
        (["train", "moon", "--objective", "gan"], "unknown objective 'gan'; there are: ps-cd, cd"),
        (["train", "moon", "--sampler", "gibbs"], "unknown sampler 'gibbs'; there are: mala, langevin"),
        (["train", "moon", "--preset", "huge"], "unknown preset 'huge'"),
        (["train", "moon", "--steps", "0"], "steps must be at least 1"),
        (["train", "moon", "--energy", "huge"], "'huge'"),
        (["train", "moon", "--device", "tpu9"], "device 'tpu9' is not available"),
        (["train", "moon", "--objective", "cd", "--gamma", "1"], "--objective cd is gamma 0"),
        (["train", "moon", "--objective", "f-ebm", "--divergence", "tv"], "reverse-kl"),
        (["train", "moon", "--seed", "-1"], "seed must be at least 0"),
        (["train", "moon", "--clip", "-1"], "clip must be a positive number"),
        (["train", "moon", "--sampler-jump-every", "1"], "jump_every must be 0 (never) or at least 2"),
        (["train", "moon", "--device", "meta"], "device 'meta' is not available"),
        (["train", "moon", "--import", "no_such_module_at_all"], "cannot import no_such_module_at_all"),
        (["train", "no_such_module_at_all:toy"], "cannot import no_such_module_at_all"),
        (["train", "moon", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["train", "moon", "--step", "5"], "unrecognized arguments: --step 5"),
        (["train", "--steps", "5"], "required: DATA"),
        (["sample", "x", "--out", "x.npy", "--threads", "0"], "--threads must be at least 1"),
        (["sample", "x", "--out", "x.npy", "--import", "no_such_module_at_all"], "cannot import no_such_module_at_all"),
        (["plot", "x", "--out", "picture"], "must end in .png"),
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


def test_help_lists_the_commands_and_not_their_former_names(capsys):
    text = help_of(["--help"], capsys)
    listed = [line.split()[0] for line in text.split("COMMAND\n")[1].splitlines() if line[4:5].strip()]
    assert listed == list(COMMANDS)
    assert "pscd detect my.csv" in text
    assert "pscd fit" not in text
    assert "'fit'" not in refused(["teach"], capsys)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_that_fits_its_line(name, capsys):
    text = help_of([name, "--help"], capsys)
    line = COMMANDS[name].help
    assert line[0].islower()
    assert not line.endswith(".")
    assert line[1:] in text
    assert " fit " not in text
    reads_a_run = name in ("score", "sample", "evaluate", "plot", "strip", "mend", "report")
    assert ("--import MODULE" in text) == reads_a_run


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

    monkeypatch.setattr(sys.modules[main.__module__], "build_parser", fail)
    assert main(["look", "x.csv"]) == 2
    assert capsys.readouterr().err == "pscd: there is not enough memory for this; what was kept before is still there\n"


def test_a_mistake_of_the_library_s_own_is_raised(monkeypatch):
    def fail(argv):
        raise SystemError("bad argument to internal function")

    monkeypatch.setattr(sys.modules[main.__module__], "build_parser", fail)
    with pytest.raises(SystemError, match="bad argument"):
        main(["look", "x.csv"])
