import numpy as np
import pandas as pd
import pytest

from pscd.cli.main import main
from tests.cli.helpers import refused


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    x = np.random.default_rng(0).normal(size=(60, 2)).round(3)
    pd.DataFrame(x, columns=["a", "b"]).assign(name=[f"row {i}" for i in range(60)]).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(rows):
    out = rows.parent / "run"
    assert main(["train", str(rows), "--columns", "a,b", "--updates", "5", "--out", str(out)]) == 0
    return out


def test_rows_are_scored_by_name(run, rows, tmp_path):
    """Whatever the order of the columns, and with semicolons as well as with commas."""
    frame = pd.read_csv(rows)[["b", "name", "a"]]
    frame.to_csv(tmp_path / "new.csv", index=False, sep=";", decimal=",")
    for path, out in ((rows, "one.csv"), (tmp_path / "new.csv", "two.csv")):
        assert main(["score", str(run), str(path), "--id", "name", "--out", str(tmp_path / out)]) == 0
    one, two = pd.read_csv(tmp_path / "one.csv"), pd.read_csv(tmp_path / "two.csv")
    assert list(one.columns) == ["row", "name", "energy"]
    pd.testing.assert_frame_equal(one, two)


def test_mistakes_are_told_in_one_line(run, rows, tmp_path, capsys):
    wide = tmp_path / "wide.npy"
    np.save(wide, np.ones((5, 3)))
    assert "3 numbers a row" in refused(["score", run, wide, "--out", tmp_path / "s.npy"], capsys)
    assert "energy" in refused(["score", run, rows, "--id", "energy", "--out", tmp_path / "s.csv"], capsys)
    assert "must end in" in refused(["score", run, rows, "--out", tmp_path / "s.txt"], capsys)
