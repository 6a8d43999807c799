"""One fault of each kind of `make faults`, and that the harness would notice."""

import os
import shutil
import signal

import pytest

from pscd.files import write_tensors
from studies.__main__ import main
from studies.faults import command, kinds, program
from studies.faults.kinds import KINDS
from studies.reliability import put_table

# A compiler, a mount, many trainings: `make faults` has them.
SLOW = {"the compiled C++ is damaged", "the disk is full"}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    return program.reference(folder)


@pytest.mark.parametrize("name", sorted(KINDS.keys() - SLOW))
def test_a_fault_costs_nothing(right, name):
    assert program.inject(name, 0, 0, right) is None


def test_another_model_is_a_wrong_number(right, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(right.folder, run)
    tensors, metadata = command.read_tensors(run / "model.safetensors")
    write_tensors(run / "model.safetensors", {**tensors, "step_size": 2 * tensors["step_size"]}, metadata)
    assert kinds._goes_on(run, right) == "wrong number: another model loads"


def test_a_traceback_is_noticed(tmp_path):
    def fail():
        raise KeyError("of the harness")

    ended = command.run(tmp_path / "run", fail)
    assert ended.code == 1
    assert kinds._no_traceback(ended).startswith("traceback:")


def test_an_end_without_a_word_is_noticed(tmp_path):
    ended = command.run(tmp_path / "run", lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert ended.code == -signal.SIGKILL
    assert kinds._is_told(ended) is not None


def test_counts_go_to_the_page(right, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- faults -->\n<!-- end of faults -->\n")
    monkeypatch.setattr(program, "put_table", lambda *args: put_table(*args, page=page))
    monkeypatch.setattr(program, "reference", lambda folder: right)
    made = {
        "fine": (lambda folder, rng, right: None, 3),
        "bad": (lambda folder, rng, right: "wrong number: 5" if rng.random() < 2 else None, 2),
    }
    monkeypatch.setattr(program, "KINDS", made)
    assert main(["faults", "--write"]) == 1
    assert "| fine | 3 | 0 | 0 | 0 | 0 |" in page.read_text()
    assert "| bad | 2 | 0 | 2 | 0 | 0 |" in page.read_text()
    assert "number 1: wrong number: 5" in capsys.readouterr().out
