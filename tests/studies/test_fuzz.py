"""A small share of `make fuzz`, and that it would notice."""

import os
import pickle
import signal

import pytest

from pscd.errors import UserError
from studies.__main__ import main
from studies.fuzz import formats as kinds
from studies.fuzz import isolate, program
from studies.fuzz.formats import Format
from studies.fuzz.isolate import read_all, wrong_file
from studies.reliability import put_table

SHARE = 0.25  # seconds for each format; .ci/run takes a minute for all of them


@pytest.fixture(scope="module")
def formats():
    return kinds.formats()


def test_right_files_are_read(formats, tmp_path):
    for number, kind in enumerate(formats.values()):
        for content in kind.right:
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            path = folder / (kind.suffix if kind.suffix[0] not in ".-_" else f"x{kind.suffix}")
            path.write_bytes(content)
            try:
                kind.read(path)
            except UserError as error:
                if "not numeric" not in str(error):  # one of the tables has text in it
                    raise


def test_wrong_files_give_a_value_or_one_line(formats):
    for name, kind in formats.items():
        outcome = read_all(name, kind, seed=1, first=0, n=10**6, seconds=SHARE)
        assert not outcome.findings, f"{name}: {outcome.findings}"
        assert outcome.read + outcome.refused > 0


def loop_forever(path):
    while True:
        pass


def take_memory(path):
    return bytes(2 * isolate.MEMORY)


@pytest.mark.parametrize(
    ("read", "finding"),
    [
        (lambda path: 1 / 0, "ZeroDivisionError"),
        (lambda path: os.kill(os.getpid(), signal.SIGKILL), "crash: SIGKILL"),
        (lambda path: os.system("true"), "ran code"),
        (lambda path: pickle.loads(b"cos\nsystem\n."), "ran code"),
        (take_memory, "MemoryError"),
        (loop_forever, "hang"),
    ],
)
def test_whatever_else_happens_is_a_finding(monkeypatch, read, finding):
    monkeypatch.setattr(isolate, "SECONDS", 0.3)
    outcome = read_all("x", Format(".x", [b"right"], read), seed=0, first=7, n=1)
    assert list(outcome.findings) == [7]
    assert finding in outcome.findings[7]


def test_inputs_are_counted_and_can_be_made_again():
    def read(path):
        if path.read_bytes() != b"right":
            raise UserError("wrong")

    kind = Format(".x", [b"right"], read)
    outcome = read_all("x", kind, seed=0, first=0, n=50)
    files = [wrong_file("x", kind, 0, number) for number in range(50)]
    assert files == [wrong_file("x", kind, 0, number) for number in range(50)]
    assert len(set(files)) > 30
    assert outcome.read == files.count(b"right")
    assert outcome.read + outcome.refused == 50


@pytest.fixture
def page(monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- fuzz -->\nold\n<!-- end of fuzz -->\nAfter.\n")
    monkeypatch.setattr(program, "put_table", lambda *args: put_table(*args, page=page))
    monkeypatch.setattr(program, "COUNTS", tmp_path / "counts.json")
    monkeypatch.setattr(program, "FINDINGS", tmp_path / "found")
    return page


def test_the_command_counts_and_keeps_its_findings(monkeypatch, tmp_path, page, capsys):
    made = {"a": Format(".a", [b"x"], lambda path: None), "b": Format(".b", [b"x"], lambda path: 1 / 0)}
    monkeypatch.setattr(program, "formats", lambda: made)
    assert main(["fuzz", "--n", "5", "--only", "a", "--write"]) == 0
    assert main(["fuzz", "--n", "2", "--only", "b", "--write"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert len(list((tmp_path / "found").iterdir())) == 2
    text = page.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert "| a | 5 | 5 | 0 | 0 |" in text  # kept, although left out of the second run
    assert "| b | 0 | 0 | 0 | 2 |" in text
    assert "old" not in text


def test_more_inputs_are_new_ones_and_are_counted_with_those_before(monkeypatch, tmp_path, page):
    tried = tmp_path / "tried"

    def read(path):
        with tried.open("ab") as file:
            file.write(path.read_bytes().hex().encode() + b"\n")
        if long(path.read_bytes()):
            raise ZeroDivisionError

    def long(content):
        return len(content) > 6

    kind = Format(".a", [b"right"], read)
    monkeypatch.setattr(program, "formats", lambda: {"a": kind})
    monkeypatch.setattr(program, "BATCH", 7)
    files = [wrong_file("a", kind, 3, number) for number in range(30)]
    n_wrong = sum(map(long, files))
    assert 0 < sum(map(long, files[:20])) < n_wrong < program.MOST_FINDINGS
    for n, code in (20, 1), (30, 1), (30, 0):
        assert main(["fuzz", "--n", str(n), "--seed", "3", "--write", "--more"]) == code
    assert tried.read_text().split("\n")[:-1] == [content.hex() for content in files]
    assert f"| a | {30 - n_wrong} | {30 - n_wrong} | 0 | {n_wrong} |" in page.read_text()
    main(["fuzz", "--n", "4", "--seed", "4", "--write", "--more"])  # another seed: counted anew
    assert len(tried.read_text().split()) == 34
