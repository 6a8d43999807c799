"""The benchmark of large tables on a small one."""

import json

import numpy as np
import pytest

from studies.__main__ import main
from studies.large import child, cleaning, program, reading, table


def times(seconds):
    return {"seconds": seconds, "processor": [2 * s for s in seconds]}


MADE_UP = {
    "streamed": {kind: {"peak_mb": 250.4, "notes": ["gamma 0.3", "a sample"]} for kind in ("npy", "Parquet")},
    "side by side": {
        "times": {
            "in memory": times([2.0, 2.0, 2.2]),
            "npy": times([2.0, 4.0, 2.1]),
            "Parquet": times([2.5, 2.5, 3.0]),
        },
        "import_mb": 235.0,
    },
    "steps": 400,
    "segment": 100,
}


def test_a_part_is_kept_and_written_down(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(program.training, "measure", lambda folder, n_rows: MADE_UP)
    flags = [
        "large",
        "--rows",
        "2000",
        "--parts",
        "training",
        "--folder",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(flags) == 0
    page = capsys.readouterr().out
    assert "2,000 rows" in page
    assert "| in memory | 50 | 1 | 1 |  |  |" in page
    assert "| npy | 48 | 0.95 (0.50 to 1.05) | 0.95 | 0.9 | 250 |" in page
    assert "| Parquet | 40 | 0.80 (0.73 to 0.80) | 0.80 | 0.8 | 250 |" in page
    found = json.loads((tmp_path / "out" / "large.json").read_text())
    assert found["n_rows"] == 2000
    assert main(flags) == 0
    assert json.loads((tmp_path / "out" / "large.json").read_text())["runs_computed_in_that_time"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # the table is removed


@pytest.mark.slow
def test_all_parts_are_measured_on_a_small_table(tmp_path):
    assert main(["large", "--rows", "3000", "--folder", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "large.json").read_text())["results"]
    assert set(found) == set(program.PARTS)
    assert found["training"]["streamed"]["npy"]["peak_mb"] < 700


def test_cleaning_is_measured_on_text_and_parquet(tmp_path):
    import pandas as pd  # not above: a child of another test would have it in its memory

    few = {"tenth": 10.4, "whole": 90.0}
    found = {
        f"{kind} {name}": {"rows": 100, "cells": 7, "per_second": 1234.5, "peak_mb": mb}
        for kind in ("parquet", "csv")
        for name, mb in few.items()
    }
    found["csv whole"]["peak_mb"] = 200
    page = "\n".join(cleaning.section(found))
    assert "| parquet | 100 | 7 | 90 MB | 1,234 |" in page
    assert "of parquet take 80 MB more: within" in page
    assert "of csv take 190 MB more: MORE THAN" in page
    for name in ("x.csv", "x.parquet"):
        cleaning.make(str(tmp_path / name), 3000)
    csv, parquet = pd.read_csv(tmp_path / "x.csv"), pd.read_parquet(tmp_path / "x.parquet")
    pd.testing.assert_frame_equal(csv, parquet)
    assert 50 < csv.isna().to_numpy().sum() < 250  # 150 are expected


def test_reading_takes_the_time_of_rows(tmp_path):
    path = table.make_npy(tmp_path / "x.npy", 20_000, show=False)
    found = reading.read(str(path))
    assert all(found[state][what] > 0 for state in ("cached", "not cached") for what in ("random_us", "chunks_us"))
    assert "| not cached |" in "\n".join(reading.section(found))


def test_an_unknown_part_is_told(capsys):
    assert main(["large", "--parts", "nothing"]) == 2
    assert "unknown part 'nothing'" in capsys.readouterr().err


def test_both_files_hold_the_same_rows(tmp_path):
    import pyarrow.parquet as pq

    npy = table.make_npy(tmp_path / "x.npy", 1000, show=False)
    folder = table.make_parquet(tmp_path / "x", npy, files=3)
    columns = [pq.read_table(path).to_pandas().to_numpy() for path in sorted(folder.iterdir())]
    assert np.array_equal(np.concatenate(columns), np.load(npy))
    assert len(columns) == 3


def test_memory_of_a_child_is_its_own():
    found = child.run("tests.studies.test_large:takes", megabytes=200)
    assert found["answer"] == 7
    assert 195 < found["peak_mb"] < 300


def takes(megabytes):
    assert np.ones(megabytes * 125_000).sum() > 0
    return {"answer": 7}
