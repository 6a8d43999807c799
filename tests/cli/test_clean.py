import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector
from pscd.cli.main import main
from tests.cli.helpers import refused

N = 160
WORDS = ["--updates", "5"]


def clean(*words):
    return main(["clean", *map(str, words)])


def cells(path):
    listed = pd.read_csv(path, dtype=str, keep_default_na=False)
    return {(int(row), column, problem) for row, column, problem in listed[["row", "column", "problem"]].to_numpy()}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Blanks, quotes and line endings that must stay; two wrong cells in rows 4 and 6, missing ones in 5 and 7."""
    rng = np.random.default_rng(0)
    lines = ["id, height ,weight,sex"]
    for i in range(N):
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


@pytest.fixture(scope="module")
def run(table):
    out = table.parent / "run"
    assert main(["detect", str(table), "--id", "id", "--out", str(out), *WORDS]) == 0
    return out


FOUND = {(4, "height", "wrong"), (6, "height", "wrong"), (5, "weight", "missing"), (7, "sex", "missing")}


def test_cells_are_listed_and_nothing_is_changed_unless_asked(table, tmp_path, capsys):
    listed, before = tmp_path / "cells.csv", table.read_bytes()
    assert clean(table, "--id", "id", "--list", listed, *WORDS) == 0
    printed = capsys.readouterr().out
    assert "2 wrong in height, such as row " in printed
    assert "missing: 1 in weight, 1 in sex" in printed
    assert "nothing was changed" in printed
    assert table.read_bytes() == before
    found = pd.read_csv(listed)
    assert list(found.columns) == [
        "row", "id", "column", "value", "problem", "suggestion", "low", "high", "confidence"
    ]  # fmt: skip
    assert cells(listed) >= FOUND
    assert found.loc[found["row"] == 4, "id"].tolist() == ["p, 4"]


def test_other_bytes_of_a_text_copy_are_as_they_were(table, run, tmp_path, capsys):
    out = tmp_path / "repaired.csv"
    assert clean(table, "--run", run, "--repair", "--fill", "--out", out) == 0
    old, new = table.read_bytes().split(b"\r\n"), out.read_bytes().split(b"\r\n")
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    assert {5, 6, 7, 8} <= set(changed)
    assert len(changed) <= 8  # few right cells of 480 are called wrong
    assert new[5].startswith(b'"p, 4",1.')
    assert new[7].startswith(b'"p, 6", 1.')
    assert new[8] == b'"p, 7", 1.80 ,71.0,male'
    assert new[6].startswith(b'"p, 5", 1.80 ,7')
    assert (tmp_path / "repaired.cells.csv").exists()
    assert "exists" in refused(["clean", table, "--run", run, "--repair", "--out", out], capsys)
    assert clean(table, "--run", run, "--repair", "--out", out, "--force") == 0
    assert b'"p, 5", 1.80 ,?,male' in out.read_bytes()


def test_only_cells_above_the_confidence_are_changed(table, run, tmp_path):
    for confidence in (0.1, 0.99):
        out = tmp_path / f"{confidence}.csv"
        assert clean(table, "--run", run, "--repair", "--confidence", confidence, "--out", out) == 0
        found = pd.read_csv(tmp_path / f"{str(confidence).split('.')[0]}.cells.csv")
        assert (found["confidence"] >= confidence).all()
        for path in tmp_path.glob("*.cells.csv"):
            path.unlink()


def test_large_and_small_tables_give_the_same(table, run, tmp_path, request, capsys):
    parquet = tmp_path / "x.parquet"
    frame = pd.read_csv(table, skipinitialspace=True, na_values=["?"])
    frame.columns = [name.strip() for name in frame.columns]
    frame.to_parquet(parquet, row_group_size=25)
    words = [*("--run", run), "--repair", "--fill", "--out"]
    for source in (table, parquet):
        assert clean(source, *words, tmp_path / f"small{source.suffix}", "--list", tmp_path / "small.c.csv") == 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pscd.tables.read.block_size", lambda width: 16)
            assert clean(source, *words, tmp_path / f"large{source.suffix}", "--list", tmp_path / "large.c.csv") == 0
        assert (tmp_path / "small.c.csv").read_bytes() == (tmp_path / "large.c.csv").read_bytes()
        small, large = (tmp_path / f"{name}{source.suffix}" for name in ("small", "large"))
        if source is table:
            assert small.read_bytes() == large.read_bytes()
        else:
            made = pd.read_parquet(large)
            pd.testing.assert_frame_equal(pd.read_parquet(small), made)
            assert made.dtypes.tolist() == frame.dtypes.tolist()
            assert made["height"].max() < 2.2
            assert not made.isna().to_numpy().any()
        for path in tmp_path.glob("*.c.csv"):
            path.unlink()


def test_a_stopped_command_resumes(table, run, tmp_path, small_blocks, monkeypatch, capsys):
    out, judged, judge = tmp_path / "y.csv", [], EnergyDetector.cells

    def stopped(detector, rows, **options):
        judged.append(len(rows))
        if len(judged) == 4:
            raise KeyboardInterrupt
        return judge(detector, rows, **options)

    words = [table, "--run", run, "--repair", "--out"]
    with monkeypatch.context() as patch:
        patch.setattr("pscd.fast.threads.allowed_threads", lambda: 1)
        patch.setattr(EnergyDetector, "cells", stopped)
        assert clean(*words, out) == 130
        assert not out.exists()
        assert clean(*words, out) == 0
        assert len(judged) == N // 16 + 1
    assert "resuming after " in capsys.readouterr().out
    assert clean(*words, tmp_path / "whole.csv") == 0
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "y.cells.csv").read_bytes() == (tmp_path / "whole.cells.csv").read_bytes()


def test_arrays_stay_arrays_and_a_detector_of_arrays_knows_columns_by_place(tmp_path):
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(80, 1)) + 0.1 * rng.normal(size=(80, 3))).astype(np.float32)
    EnergyDetector(updates=5).fit(x.astype(float)).save(tmp_path / "run")
    x[30, 1], x[60, 2] = 40, np.nan
    np.save(tmp_path / "x.npy", x)
    for name, words in (("a", WORDS), ("b", ["--run", tmp_path / "run"])):
        out = tmp_path / f"{name}.npy"
        assert clean(tmp_path / "x.npy", *words, "--repair", "--fill", "--out", out) == 0
        y = np.load(out)
        assert (y.dtype, y.shape) == (np.float32, x.shape)
        assert {(30, 1), (60, 2)} <= set(zip(*np.nonzero(y != x), strict=True))
        assert (y != x).sum() < 8
        assert abs(y[30, 1] - x[30, 0]) < 1


def test_mistakes_are_reported_in_one_line(table, run, tmp_path, capsys):
    words = ["clean", table, "--run", run]
    assert "--out goes with" in refused([*words, "--repair"], capsys)
    assert "--out goes with" in refused([*words, "--out", tmp_path / "a.csv"], capsys)
    assert "is the table itself" in refused([*words, "--repair", "--out", table], capsys)
    assert "no such file" in refused(["clean", tmp_path / "none.csv"], capsys)
    assert "between 0 and 1" in refused([*words, "--confidence", "2"], capsys)
    assert "must end in .csv" in refused([*words, "--list", tmp_path / "c.txt"], capsys)
    assert "must end in" in refused([*words, "--fill", "--out", tmp_path / "c.xlsx"], capsys)
    assert "no fitted detector" in refused(["clean", table, "--run", tmp_path], capsys)
    (tmp_path / "few.csv").write_text("a,b\n1,2\n")
    assert "too few" in refused(["clean", tmp_path / "few.csv"], capsys)
    (tmp_path / "value.csv").write_text("value,b\n" + "1,2\n" * 30)
    assert "has a column 'value', too" in refused(["clean", tmp_path / "value.csv", "--id", "value"], capsys)
    pd.DataFrame({"a": np.zeros(50)}).to_parquet(tmp_path / "other.parquet")
    assert "has no column" in refused(["clean", tmp_path / "other.parquet", "--run", run], capsys)
    (tmp_path / "empty").mkdir()
    assert "without Parquet files" in refused(["clean", tmp_path / "empty", "--run", run], capsys)
    assert not list(tmp_path.glob("*.cells.csv"))
