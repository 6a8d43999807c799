"""The stress script notices a test that fails, and gives every copy an order of its own."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("stress", ROOT / "scripts" / "stress.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_run_has_an_order_of_its_own_and_a_failure_is_shown(script, monkeypatch, tmp_path, capsys):
    seen = []

    def once(seed, words):
        seen.append((seed, words))
        return (1, "what failed\n1 failed") if seed == 2 else (0, "5 passed")

    monkeypatch.setattr(script, "once", once)
    monkeypatch.setattr(script, "FOLDER", tmp_path / "stress")
    monkeypatch.setattr(script, "LOG", tmp_path / "stress.jsonl")
    assert script.main(["--runs", "2", "--", "tests/x.py"]) == 1
    assert sorted(seen) == [(seed, ["tests/x.py"]) for seed in range(4)]
    out = capsys.readouterr().out
    assert "order 1: exit code 0, 5 passed" in out
    assert "what failed" in out
    assert (tmp_path / "stress" / "order-2.txt").read_text() == "what failed\n1 failed"
    monkeypatch.setattr(script, "once", lambda seed, words: (0, ""))
    assert script.main([]) == 0  # another sitting, other orders
    assert "all in all 6 runs, 1 of them failed" in capsys.readouterr().out
    assert sorted(record["order"] for record in script.records()) == list(range(6))
