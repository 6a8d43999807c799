import json
from dataclasses import replace

import numpy as np

from studies import train_tables


def test_a_small_folder_of_tables(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for name, d in (("one", 3), ("two", 4)):
        x = rng.normal(size=(120, d))
        np.savez(tmp_path / f"{name}.npz", X=x, y=(np.arange(120) < 6).astype(int))
    monkeypatch.setattr(train_tables, "GAMMAS", ("auto",))
    usual = train_tables.default_preset
    monkeypatch.setattr(train_tables, "default_preset", lambda *words: replace(usual(*words), steps=20))
    out = tmp_path / "page"
    words = ["train_tables", str(tmp_path), "--out", str(out), "--seeds", "1", "--jobs", "1"]
    monkeypatch.setattr("sys.argv", words)
    train_tables.main()
    runs = json.loads(out.with_suffix(".json").read_text())["runs"]
    assert {row["table"] for row in runs} == {"one", "two"}
    assert all(row["lost"] is None and row["rows"] == 127 for row in runs)
    assert "2 runs, 0 lost" in out.with_suffix(".md").read_text()
    before = out.with_suffix(".jsonl").read_text()
    train_tables.main()  # nothing is left to do
    assert out.with_suffix(".jsonl").read_text() == before
