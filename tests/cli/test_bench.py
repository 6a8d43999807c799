import pytest

from pscd import timing
from pscd.cli.main import main
from tests.test_timing import TINY


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(timing, "CASES", {"tiny": TINY})


def test_bench_prints_a_row_for_each_case(capsys):
    assert main(["bench", "--quick", "--rounds", "1"]) == 0
    head, row, *words = capsys.readouterr().out.splitlines()
    assert "PS-CD / CD" in head
    assert row.startswith("tiny")
    assert "make bench" in " ".join(words)


@pytest.mark.parametrize(("flags", "message"), [(["--only", "huge"], "huge"), (["--rounds", "0"], "--rounds")])
def test_bad_flags_are_told_in_one_line(flags, message, capsys):
    assert main(["bench", *flags]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
