import re

import numpy as np
import pandas as pd
import pytest

from pscd.cli.main import main
from tests.cli.helpers import refused


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Blanks, quotes and comments that nobody should touch; two wrong cells and two gaps."""
    rng = np.random.default_rng(0)
    lines = ["id, height ,weight,sex"]
    for i in range(160):
        male = rng.uniform() < 0.5
        height = rng.normal(1.8 if male else 1.65, 0.05)
        weight = 22 * height**2 + rng.normal(0, 2)
        lines.append(f'"p, {i}", {height:.2f} ,{weight:.1f},{"male" if male else "female"}')
    lines[5] = '"p, 4",178,70.5,male'
    lines[6] = '"p, 5", 1.80 ,?,male'
    lines[7] = '"p, 6", 181 ,"72.5",male'
    lines[8] = '"p, 7", 1.80 ,71.0,'
    path = tmp_path_factory.mktemp("clean") / "people.csv"
    path.write_text("\r\n".join(lines), newline="")
    return path


WORDS = ["--updates", "5"]


def test_only_told_unless_asked(table, tmp_path, capsys):
    cells = tmp_path / "cells.csv"
    before = table.read_bytes()
    assert main(["clean", str(table), "--cells", str(cells), *WORDS]) == 0
    printed = capsys.readouterr().out
    assert "2 in height: such as" in printed
    assert "2 cells are missing: 1 in weight, 1 in sex" in printed
    assert "nothing was changed" in printed
    assert table.read_bytes() == before
    found = pd.read_csv(cells)
    assert list(found.columns) == [
        "row", "column", "value", "problem", "suggestion", "low", "high", "confidence"
    ]  # fmt: skip
    assert set(zip(found["row"], found["column"], found["problem"], strict=True)) >= {
        (5, "height", "wrong"), (7, "height", "wrong"), (6, "weight", "missing"), (8, "sex", "missing")
    }  # fmt: skip


def test_other_bytes_are_as_they_were(table, tmp_path, capsys):
    out = tmp_path / "mended.csv"
    assert main(["clean", str(table), "--repair", "--fill", "--out", str(out), *WORDS]) == 0
    old, new = table.read_bytes().split(b"\r\n"), out.read_bytes().split(b"\r\n")
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    assert {5, 6, 7, 8} <= set(changed)
    assert len(changed) <= 6  # false alarms: one in a thousand cells
    assert re.fullmatch(rb'"p, 4",1\.[78]\d,70\.5,male', new[5])
    assert re.fullmatch(rb'"p, 6", 1\.[78]\d ,"72\.5",male', new[7])
    assert new[8] == b'"p, 7", 1.80 ,71.0,male'
    assert new[6].startswith(b'"p, 5", 1.80 ,7')
    assert (tmp_path / "mended.cells.csv").exists()
    capsys.readouterr()
    assert "exists" in refused(["clean", table, "--repair", "--out", out], capsys)


def test_repair_alone_leaves_gaps(table, tmp_path):
    out = tmp_path / "mended.csv"
    assert main(["clean", str(table), "--repair", "--out", str(out), *WORDS]) == 0
    assert b'"p, 5", 1.80 ,?,male' in out.read_bytes()


def test_by_a_detector_fitted_before(table, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["detect", str(table), "--out", str(run), *WORDS]) == 0
    new = tmp_path / "new.csv"
    new.write_text("height,sex,weight\n1.79,male,71\n17.9,male,70\n")
    out = tmp_path / "mended.csv"
    assert main(["clean", str(new), "--run", str(run), "--repair", "--out", str(out)]) == 0
    assert re.fullmatch(r"1\.[678]\d,male,70", out.read_text().splitlines()[2])
    capsys.readouterr()
    assert "no fitted detector" in refused(["clean", new, "--run", tmp_path], capsys)


def test_parquet_keeps_its_types(table, tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.read_csv(table, skipinitialspace=True, na_values=["?"])
    frame.columns = [name.strip() for name in frame.columns]
    frame.to_parquet(tmp_path / "a.parquet")
    out = tmp_path / "b.parquet"
    assert main(["clean", str(tmp_path / "a.parquet"), "--repair", "--fill", "--out", str(out), *WORDS]) == 0
    made = pd.read_parquet(out)
    assert made.dtypes.tolist() == frame.dtypes.tolist()
    assert made["height"].max() < 2.2
    assert not made.isna().to_numpy().any()


def test_mistakes_are_told_in_one_line(table, tmp_path, capsys):
    assert "--out goes with" in refused(["clean", table, "--repair"], capsys)
    assert "--out goes with" in refused(["clean", table, "--out", tmp_path / "a.csv"], capsys)
    assert "is the table itself" in refused(["clean", table, "--repair", "--out", table], capsys)
    assert "no such file" in refused(["clean", tmp_path / "none.csv"], capsys)
    assert "between 0 and 1" in refused(["clean", table, "--confidence", "2"], capsys)
    few = tmp_path / "few.csv"
    few.write_text("a,b\n1,2\n")
    assert "too few" in refused(["clean", few], capsys)
    assert not (tmp_path / "few.cells.csv").exists()
