"""The benchmark of large tables on a small one."""

import json

import numpy as np

from benchmarks.large import __main__ as program
from benchmarks.large import child, table


def test_a_part_is_measured_and_kept(tmp_path, capsys):
    flags = ["--rows", "2000", "--parts", "training", "--folder", str(tmp_path), "--out", str(tmp_path / "out")]
    assert program.main(flags) == 0
    assert "2,000 rows" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "large.json").read_text())
    assert found["n_rows"] == 2000
    assert program.kept_results(tmp_path / "out" / "large.json", 2000) == found["results"]
    assert program.kept_results(tmp_path / "out" / "large.json", 3000) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # the table is removed


def test_an_unknown_part_is_told(capsys):
    assert program.main(["--parts", "nothing"]) == 2
    assert "unknown part 'nothing'" in capsys.readouterr().err


def test_both_files_hold_the_same_rows(tmp_path):
    import pyarrow.parquet as pq

    npy = table.make_npy(tmp_path / "x.npy", 1000, show=False)
    folder = table.make_parquet(tmp_path / "x", npy, files=3)
    columns = [pq.read_table(path).to_pandas().to_numpy() for path in sorted(folder.iterdir())]
    assert np.array_equal(np.concatenate(columns), np.load(npy))
    assert len(columns) == 3


def test_memory_of_a_child_is_its_own():
    found = child.run("tests.benchmarks.test_large:takes", megabytes=200)
    assert found["answer"] == 7
    assert 195 < found["peak_mb"] < 300


def takes(megabytes):
    assert np.ones(megabytes * 125_000).sum() > 0
    return {"answer": 7}
