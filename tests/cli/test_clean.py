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
    assert "2 in height: 100 times too large" in printed
    assert "2 cells are missing: 1 in weight, 1 in sex" in printed
    assert "nothing was changed" in printed
    assert table.read_bytes() == before
    found = pd.read_csv(cells)
    assert list(found.columns) == [
        "row", "column", "found", "suggested", "lower", "upper", "energy", "mistake", "what"
    ]  # fmt: skip
    assert set(zip(found["row"], found["column"], found["what"], strict=True)) >= {
        (5, "height", "wrong"), (7, "height", "wrong"), (6, "weight", "missing"), (8, "sex", "missing")
    }  # fmt: skip


def test_other_bytes_are_as_they_were(table, tmp_path, capsys):
    out = tmp_path / "mended.csv"
    assert main(["clean", str(table), "--repair", "--fill", "--out", str(out), *WORDS]) == 0
    old, new = table.read_bytes().split(b"\r\n"), out.read_bytes().split(b"\r\n")
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    assert {5, 6, 7, 8} <= set(changed)
    assert len(changed) <= 6  # false alarms: one in a thousand cells
    assert new[5] == b'"p, 4",1.78,70.5,male'
    assert new[7] == b'"p, 6", 1.81 ,"72.5",male'
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
    assert out.read_text().splitlines()[2] == "1.79,male,70"
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


def test_shifted_rows_and_misspelt_words_are_told_once_and_put_right(table, tmp_path, capsys):
    lines = table.read_text().splitlines()
    whole, word = lines[30], lines[40]
    number, height, weight, sex = whole.rsplit(",", 3)[0], *whole.rsplit(",", 3)[1:]
    lines[30] = f"{number},{weight},{sex},"
    lines[40] = word.replace("male", "mael")
    dirty, out = tmp_path / "dirty.csv", tmp_path / "mended.csv"
    dirty.write_text("\n".join(lines))
    assert main(["clean", str(dirty), "--repair", "--out", str(out), *WORDS]) == 0
    printed = capsys.readouterr().out
    assert "3 in row 30: shifted by one column to the left: such as" in printed
    assert f"row 40, sex = {word.rsplit(',', 1)[1].replace('male', 'mael')}" in printed
    mended = out.read_text().splitlines()
    assert mended[40] == word
    assert mended[30].endswith(f"{weight},{sex}")
    assert float(mended[30].rsplit(",", 3)[1]) == pytest.approx(float(height), abs=0.2)  # lost, and so guessed


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
