import shlex

import numpy as np
import pandas as pd
import pytest

import pscd
from pscd import EnergyDetector
from pscd.cli.main import main
from pscd.cli.scoring import Scoring
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
    assert "columns; outliers beyond the 1 % expected of clean rows: " in printed
    assert "have a weight below 0.1\n" in printed
    assert "which 99 % of the model's samples" in printed
    scores = pd.read_csv(out / "scores.csv")
    assert list(scores.columns) == ["row", "name", "energy", "outlier", "because"]
    assert scores.loc[scores["energy"].idxmax(), "name"] == "person 6"
    assert (out / "scores.png").stat().st_size > 5000


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
    assert "invalid float" in refused(["detect", csv, "--gamma", "much", "--out", tmp_path / "a"], capsys)
    assert "contamination must be" in refused(["detect", csv, "--contamination", "2", "--out", tmp_path / "a"], capsys)
    few = tmp_path / "few.csv"
    few.write_text("a,b\n1,2\n3,4\n")
    assert "too few" in refused(["detect", few, "--out", tmp_path / "a"], capsys)
    constant = tmp_path / "constant.csv"
    constant.write_text("a,b\n" + "1,2\n" * 30)
    assert "constant" in refused(["detect", constant, "--out", tmp_path / "a"], capsys)
    images = tmp_path / "images.npy"
    np.save(images, np.ones((30, 4, 4)))
    assert "pscd train takes them" in refused(["detect", images, "--out", tmp_path / "a"], capsys)
    assert not (tmp_path / "a").exists()
    assert "need the run folder of pscd train" in refused(["report", run, "--evaluate"], capsys)
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
    assert "expected" in printed
    cells = pd.read_csv(out / "cells.csv")
    assert {(7, "height"), (8, "weight")} <= set(zip(cells["row"], cells["column"], strict=True))
    scores = pd.read_csv(out / "scores.csv")
    assert scores["energy"].notna().all()
    assert scores["energy"].idxmax() == 7
    assert main(["sample", str(out), "--n", "5", "--out", str(tmp_path / "new.csv")]) == 0
    assert set(pd.read_csv(tmp_path / "new.csv")["sex"]) <= {"m", "f"}
    capsys.readouterr()
    assert "is not numeric" in refused(["sample", out, "--n", "5", "--out", tmp_path / "new.npy"], capsys)


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
    assert "cannot be an id and be modelled" in line


def test_a_run_folder_that_cannot_be_written_to_is_told_before_the_work(csv, tmp_path, monkeypatch, capsys):
    def fit(*args):
        raise AssertionError("work was done")

    monkeypatch.setattr(EnergyDetector, "fit", fit)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "run", "/proc/none/run"):
        assert f"cannot write to {out}: " in refused(["detect", csv, "--out", out], capsys)


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


def test_every_row_of_a_large_table_is_scored_by_what_was_learnt_from_some(csv, tmp_path, small_blocks, capsys):
    out = tmp_path / "run"
    assert main(["detect", str(csv), "--id", "name", "--updates", "5", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "drawing 121 of about 121 rows" in printed
    assert "pscd clean" in printed.split("cells: ")[1]
    found = pd.read_csv(out / "scores.csv")
    energy = -EnergyDetector.load(out).score_samples(pd.read_csv(csv))
    np.testing.assert_allclose(found["energy"], energy, rtol=1e-7)
    assert found["name"].tolist() == [f"person {i}" for i in range(N)]


def test_stopped_scoring_of_a_new_detector_resumes_by_the_command_it_names(
    csv, tmp_path, small_blocks, monkeypatch, capsys
):
    words = ["detect", str(csv), "--id", "name", "--updates", "5", "--out", str(tmp_path / "run")]
    starts, part = [], Scoring.part

    def stopped(scoring, start, block):
        starts.append(start)
        if start == 64 and starts.count(64) == 1:
            raise KeyboardInterrupt
        return part(scoring, start, block)

    monkeypatch.setattr(Scoring, "part", stopped)
    assert main(words) == 130
    capsys.readouterr()
    line = refused(words, capsys)
    assert main(shlex.split(line.split("to score all rows: pscd ")[1])) == 0
    assert "resuming after" in capsys.readouterr().out
    assert starts.count(0) == 1
    assert len(pd.read_csv(tmp_path / "run" / "scores.csv")) == N


@pytest.mark.parametrize("flags", [[], ["--contamination", "0.05"]])
def test_the_threshold_is_printed_and_can_be_chosen(csv, tmp_path, flags, capsys):
    out = tmp_path / "run"
    assert main(["detect", str(csv), "--id", "name", "--out", str(out), "--updates", "5", *flags]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("outlier: "))
    assert line.split()[3] == f"{-EnergyDetector.load(out).offset_:.4g},"
    assert ("as 5 % of these rows" in line) == bool(flags)
    if flags:
        assert pd.read_csv(out / "scores.csv")["outlier"].sum() == 0.05 * N


def test_a_table_is_read_once_and_encoded_once(csv, tmp_path, monkeypatch):
    calls = []
    encode, blocks = pscd.tables.encode, pscd.tables.TableFile.blocks
    monkeypatch.setattr("pscd.detector.reading.encode", lambda *a, **k: calls.append("encode") or encode(*a, **k))
    monkeypatch.setattr("pscd.tables.TableFile.blocks", lambda *a, **k: calls.append("read") or blocks(*a, **k))
    assert main(["detect", str(csv), "--id", "name", "--updates", "2", "--out", str(tmp_path / "run")]) == 0
    assert sorted(calls) == ["encode", "read"]
