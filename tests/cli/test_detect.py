import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector
from pscd.cli.main import main
from pscd.cli.output import check_folder
from tests.cli.helpers import refused

N = 120


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    """Correlated columns, a name for every row, and one slip of the pen in row 7."""
    rng = np.random.default_rng(0)
    height = rng.normal(1.7, 0.1, N)
    frame = pd.DataFrame(
        {
            "name": [f"person {i}" for i in range(N)],
            "height": height,
            "weight": 22 * height**2 + rng.normal(0, 2, N),
            "age": rng.integers(20, 80, N),
        }
    )
    frame.loc[6, "height"] = 170.0
    path = tmp_path_factory.mktemp("data") / "people.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(csv):
    out = csv.parent / "run"
    assert main(["detect", str(csv), "--id", "name", "--updates", "20", "--out", str(out)]) == 0
    return out


def test_detect_names_the_strange_row_and_the_column(csv, capsys):
    out = csv.parent / "other"
    assert main(["detect", str(csv), "--id", "name", "--updates", "20", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    first = next(line for line in printed.splitlines() if line.startswith("  ") and " energy " in line)
    assert first.split("energy")[0].strip() == "person 6"
    assert "height = 170.0" in first
    assert "estimated contamination" in printed
    scores = pd.read_csv(out / "scores.csv")
    assert list(scores.columns) == ["row", "name", "energy", "outlier", "because"]
    assert scores.loc[scores["energy"].idxmax(), "name"] == "person 6"
    assert (out / "scores.png").stat().st_size > 5000


def test_new_rows_are_scored_by_name_whatever_their_order(csv, run, tmp_path, capsys):
    frame = pd.read_csv(csv)[["age", "weight", "name", "height"]].iloc[:20]
    frame.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "scores.csv"
    assert main(["score", str(run), str(tmp_path / "new.csv"), "--id", "name", "--out", str(out)]) == 0
    scores, before = pd.read_csv(out), pd.read_csv(run / "scores.csv")
    np.testing.assert_allclose(scores["energy"], before["energy"][:20], rtol=1e-6)
    assert list(scores.columns) == ["row", "name", "energy", "outlier", "because"]
    assert "person 6" in capsys.readouterr().out


def test_arrays_have_no_names(run, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 4)))
    out = tmp_path / "array"
    assert main(["detect", str(tmp_path / "x.npy"), "--updates", "10", "--out", str(out)]) == 0
    assert main(["score", str(out), str(tmp_path / "x.npy"), "--out", str(tmp_path / "s.npy")]) == 0
    assert np.load(tmp_path / "s.npy").shape == (60,)
    assert "x0 = " in capsys.readouterr().out
    line = refused(["score", run, tmp_path / "x.npy", "--out", tmp_path / "t.npy"], capsys)
    assert "4 numbers a row" in line
    assert "3 columns" in line


def test_samples_of_a_detector(run, tmp_path):
    assert main(["sample", str(run), "--n", "7", "--out", str(tmp_path / "new.csv")]) == 0
    new = pd.read_csv(tmp_path / "new.csv")
    assert list(new.columns) == ["height", "weight", "age"]
    assert len(new) == 7


def test_mistakes_are_told_in_one_line(csv, run, tmp_path, capsys):
    assert "no column 'nobody'" in refused(["detect", csv, "--id", "nobody", "--out", tmp_path / "a"], capsys)
    assert "holds a detector" in refused(["detect", csv, "--id", "name", "--out", run], capsys)
    assert "gamma" in refused(["detect", csv, "--id", "name", "--gamma", "-2", "--out", tmp_path / "a"], capsys)
    assert "energy" in refused(["detect", csv, "--id", "energy", "--out", tmp_path / "a"], capsys)
    assert "at least 1" in refused(["detect", csv, "--updates", "0", "--out", tmp_path / "a"], capsys)
    assert "invalid float value" in refused(["detect", csv, "--gamma", "much", "--out", tmp_path / "a"], capsys)
    few = tmp_path / "few.csv"
    few.write_text("a,b\n1,2\n3,4\n")
    assert "too few" in refused(["detect", few, "--out", tmp_path / "a"], capsys)
    constant = tmp_path / "constant.csv"
    constant.write_text("a,b\n" + "1,2\n" * 30)
    assert "constant" in refused(["detect", constant, "--out", tmp_path / "a"], capsys)
    missing = tmp_path / "missing.csv"
    missing.write_text("height,weight\n1,2\n")
    assert "no column 'age'" in refused(["score", run, missing, "--out", tmp_path / "s.csv"], capsys)
    images = tmp_path / "images.npy"
    np.save(images, np.ones((30, 4, 4)))
    assert "use pscd train" in refused(["detect", images, "--out", tmp_path / "a"], capsys)
    assert not (tmp_path / "a").exists()
    assert "run of pscd train" in refused(["plot", run], capsys)
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained" / "model.safetensors").touch()
    assert "holds a run of pscd train" in refused(
        ["detect", csv, "--id", "name", "--out", tmp_path / "trained"], capsys
    )


@pytest.fixture(scope="module")
def dirty(tmp_path_factory):
    """As it comes: semicolons, decimal commas, words, gaps, a category, and a misplaced decimal point."""
    rng = np.random.default_rng(1)
    lines = ["name;sex;height;weight;note"]
    for i in range(150):
        male = rng.uniform() < 0.5
        height = rng.normal(1.8 if male else 1.65, 0.05)
        weight = 22 * height**2 + rng.normal(0, 2)
        lines.append(f"person {i};{'m' if male else 'f'};{height:.2f};{weight:.1f};".replace(".", ","))
    lines[8] = lines[8].split(";")[0] + ";m;178;71,0;"
    lines[9] = lines[9].split(";")[0] + ";m;1,78;heavy;"
    lines[10] = lines[10].split(";")[0] + ";;1,78;n/a;"
    path = tmp_path_factory.mktemp("dirty") / "people.csv"
    path.write_text("\r\n".join(lines) + "\r\n", encoding="cp1252", newline="")
    return path


def test_a_dirty_table_is_taken_as_it_comes(dirty, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["detect", str(dirty), "--updates", "5", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "left out: name" in printed
    assert "1 word: heavy" in printed
    assert "height = 178" in printed
    cells = pd.read_csv(out / "cells.csv")
    assert {(8, "height"), (9, "weight")} <= set(zip(cells["row"], cells["column"], strict=True))
    scores = pd.read_csv(out / "scores.csv")
    assert scores["energy"].notna().all()
    assert scores["energy"].idxmax() == 7
    assert main(["sample", str(out), "--n", "5", "--out", str(tmp_path / "new.csv")]) == 0
    assert set(pd.read_csv(tmp_path / "new.csv")["sex"]) <= {"m", "f"}
    capsys.readouterr()
    assert "is not numeric" in refused(["sample", out, "--n", "5", "--out", tmp_path / "new.npy"], capsys)


def test_a_stream_does_not_stop_at_a_bad_row(dirty, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["detect", str(dirty), "--updates", "5", "--out", str(out)]) == 0
    new = tmp_path / "new.csv"
    new.write_text("weight,sex,height\n70,m,1.8\nwhat,x,\n,,\n60,f,1.6\n")
    assert main(["score", str(out), str(new), "--out", str(tmp_path / "s.csv")]) == 0
    scores = pd.read_csv(tmp_path / "s.csv")
    assert scores["energy"].notna().all()
    assert scores["energy"].idxmax() == 1
    assert "weight = what" in scores["because"][1]
    assert "1 row has a cell that cannot be" in capsys.readouterr().out


def test_where_nothing_is_left_to_learn_from_each_column_says_why(tmp_path, capsys):
    table = tmp_path / "empty.csv"
    table.write_text("a,b\n" + "NA,1\n" * 30)
    said = refused(["detect", table, "--out", tmp_path / "run"], capsys)
    assert "no column is left to learn from (a: all missing; b: constant: always '1')" in said


def test_columns_can_be_chosen_and_told(dirty, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["detect", str(dirty), "--columns", "height,weight", "--as", "weight=number", "--missing", "heavy"]
    assert main([*words, "--updates", "5", "--out", str(out)]) == 0
    assert "1 word" not in capsys.readouterr().out
    assert list(EnergyDetector.load(out).sample(2).columns) == ["height", "weight"]
    capsys.readouterr()
    line = refused(["detect", dirty, "--columns", "height", "--id", "height", "--out", tmp_path / "b"], capsys)
    assert "cannot be an id and be learnt from" in line


def test_a_detector_of_numbers_reads_text(run, csv, tmp_path):
    """As those saved before tables were looked at have no schema."""
    frame = pd.read_csv(csv)[["height", "weight", "age"]]
    EnergyDetector(n_updates=5).fit(frame).save(tmp_path / "old")
    assert main(["score", str(tmp_path / "old"), str(csv), "--id", "name", "--out", str(tmp_path / "s.csv")]) == 0
    expected = -EnergyDetector.load(tmp_path / "old").score_samples(frame)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "s.csv")["energy"], expected, rtol=1e-6)


def test_a_run_folder_that_cannot_be_written_to_is_told_before_the_work(csv, tmp_path, monkeypatch, capsys):
    def fit(*args):
        raise AssertionError("work was done")

    monkeypatch.setattr(EnergyDetector, "fit", fit)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "run", "/proc/none/run"):
        assert f"cannot write to {out}: " in refused(["detect", csv, "--out", out], capsys)


def test_checking_a_run_folder_leaves_nothing_behind_and_nothing_out(tmp_path):
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a" / "mine").mkdir(parents=True)
    check_folder(tmp_path / "a" / "b")
    check_folder(tmp_path / "a")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "mine"]


@pytest.fixture
def commas(tmp_path):
    """A table with a comma in the name of a column."""
    x = np.random.default_rng(0).normal(size=(30, 3))
    pd.DataFrame(x, columns=["Income, CHF", "a=b", "c"]).to_csv(tmp_path / "commas.csv", index=False)
    return tmp_path / "commas.csv"


@pytest.mark.parametrize("flags", [['--columns="Income, CHF",a=b'], ["--columns", '"Income, CHF"', "--columns=a=b"]])
def test_names_with_commas_are_quoted_and_flags_of_names_may_be_repeated(flags, commas, capsys):
    out = commas.parent / "run"
    assert main(["detect", str(commas), *flags, "--id", "c", "--updates", "5", "--out", str(out)]) == 0
    assert "30 rows, 2 columns" in capsys.readouterr().out
    learnt = EnergyDetector.load(out).reader_.schema.learnt()
    assert [column.name for column in learnt] == ["Income, CHF", "a=b"]
    assert "double quote" in refused(["detect", commas, "--columns", '"Income, CHF'], capsys)


def test_names_with_commas_are_told_in_quotes(commas, capsys):
    out = commas.parent / "run"
    assert main(["detect", str(commas), "--id", '"Income, CHF",c', "--updates", "5", "--out", str(out)]) == 0
    (out / "scores.csv.partial").mkdir()
    capsys.readouterr()
    line = refused(["detect", commas, "--id", '"Income, CHF",c', "--out", out], capsys)
    assert """ --id '"Income, CHF",c' --out """ in line


def test_what_was_assumed_about_the_file_is_told(tmp_path, capsys):
    table, out = tmp_path / "a.csv", tmp_path / "run"
    table.write_text("\n".join(f"{i % 7}.5,{i % 5}" for i in range(40)))
    note = "note: no header: columns are called x0, x1, ...; state header=True if there is one"
    assert main(["detect", str(table), "--out", str(out), "--updates", "5"]) == 0
    assert note in capsys.readouterr().out
    assert main(["score", str(out), str(table), "--out", str(tmp_path / "scores.csv")]) == 0
    assert note in capsys.readouterr().out
    assert main(["clean", str(table), "--run", str(out)]) == 0
    assert note in capsys.readouterr().out
    assert main(["clean", str(table), "--run", str(out), "--force", "--no-header"]) == 0
    assert "note:" not in capsys.readouterr().out
