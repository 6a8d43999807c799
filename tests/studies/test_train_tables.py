import json

import numpy as np

from studies.__main__ import main


def test_a_small_folder_of_tables(tmp_path):
    rng = np.random.default_rng(0)
    for name, d in (("one", 3), ("two", 4)):
        x = rng.normal(size=(120, d))
        np.savez(tmp_path / f"{name}.npz", X=x, y=(np.arange(120) < 6).astype(int))
    out = tmp_path / "out"
    words = ["train-tables", str(tmp_path), "--quick", "--out", str(out), "--jobs", "1"]
    assert main(words) == 0
    page = out / "train-tables.md"
    runs = json.loads((out / "train-tables.json").read_text())["runs"]
    assert {row["settings"]["table"] for row in runs} == {"one", "two"}
    assert all(row["lost"] is None and row["rows"] == 127 for row in runs)
    assert "2 runs, 0 lost" in page.read_text()
    assert main(words) == 0  # nothing is left to do
    assert json.loads((out / "train-tables.json").read_text())["runs_computed_in_that_time"] == 0
