"""Large tables: what is written in blocks is what is written at once."""

import shlex

import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector
from pscd.cli import scoring
from pscd.cli.main import main
from tests.cli.helpers import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with gaps, categories and a word among numbers, in several kinds of files; a detector and a model."""
    path = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 2)).round(3), columns=["a", "b"])
    frame = frame.assign(colour=rng.choice(["red", "blue"], 90), name=[f"row {i}" for i in range(90)])
    frame.loc[0, "a"] = 40.0
    frame.to_csv(path / "train.csv", index=False)
    frame.loc[[3, 50], "b"] = np.nan
    frame.to_csv(path / "x.csv", index=False, sep=";", decimal=",")
    frame.to_parquet(path / "x.parquet", row_group_size=20)
    np.save(path / "x.npy", frame[["a", "b"]].to_numpy(np.float32))
    detect = ["detect", path / "train.csv", "--id", "name", "--updates", "5", "--out", path / "detector"]
    assert main([str(word) for word in detect]) == 0
    EnergyDetector(n_updates=5).fit(np.nan_to_num(np.load(path / "x.npy"))).save(path / "numbers")
    train = ["train", path / "train.csv", "--columns", "a,b", "--updates", "5", "--out", path / "model"]
    assert main([str(word) for word in train]) == 0
    return path


def score(*words):
    return main(["score", *map(str, words)])


@pytest.mark.parametrize("source", ["x.csv", "x.parquet"])
@pytest.mark.parametrize("flags", [[], ["--log-density"]])
def test_in_blocks_as_at_once(folder, tmp_path, request, source, flags, capsys):
    words = [folder / "detector", folder / source, "--id", "name", *flags]
    assert score(*words, "--out", tmp_path / "once.csv") == 0
    told = capsys.readouterr().out
    request.getfixturevalue("small_blocks")
    assert score(*words, "--reasons", "all", "--out", tmp_path / "blocks.csv") == 0
    assert capsys.readouterr().out == told.replace("once.csv", "blocks.csv")
    assert (tmp_path / "once.csv").read_bytes() == (tmp_path / "blocks.csv").read_bytes()
    assert score(*words, "--out", tmp_path / "blocks") == 0
    once, parts = pd.read_csv(tmp_path / "once.csv"), pd.read_parquet(tmp_path / "blocks")
    np.testing.assert_allclose(parts["energy"], once["energy"], rtol=1e-8)
    assert parts["name"].tolist() == once["name"].tolist()
    is_outlier = once["outlier"] == 1
    assert parts["because"][is_outlier].tolist() == once["because"][is_outlier].tolist()
    assert (parts["because"][~is_outlier] == "").all()
    assert is_outlier.any()


@pytest.mark.parametrize("run", ["numbers", "model"])
def test_arrays_in_blocks_as_at_once(folder, tmp_path, request, run):
    x = np.nan_to_num(np.load(folder / "x.npy"))
    np.save(tmp_path / "x.npy", x)
    request.getfixturevalue("small_blocks")
    assert score(folder / run, tmp_path / "x.npy", "--out", tmp_path / "out.npy") == 0
    if run == "numbers":
        wanted = -EnergyDetector.load(folder / run).score_samples(x)
    else:
        import pscd

        wanted = pscd.load(folder / run).energy(x).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), wanted, rtol=1e-6)


def test_a_file_of_numbers_needs_no_reasons(folder, tmp_path, small_blocks, monkeypatch):
    explained, explain = [], EnergyDetector.explain
    monkeypatch.setattr(scoring, "STRANGEST", 2)
    monkeypatch.setattr(EnergyDetector, "explain", lambda self, x: explained.append(len(x)) or explain(self, x))
    x = np.full((32, 2), 50.0)  # all outliers
    np.save(tmp_path / "x.npy", x)
    assert score(folder / "numbers", tmp_path / "x.npy", "--out", tmp_path / "out.npy") == 0
    assert explained == [2, 2]


def test_rows_that_a_model_cannot_score_are_marked_and_counted(folder, tmp_path, small_blocks, capsys):
    for source in ("x.csv", "x.parquet"):
        assert score(folder / "model", folder / source, "--id", "name", "--out", tmp_path / "s.csv", "--force") == 0
        told = capsys.readouterr().out
        assert "88 rows scored" in told
        assert "2 rows could not be scored and have no energy (first: row 4, b is missing or no number)" in told
        found = pd.read_csv(tmp_path / "s.csv", keep_default_na=False, na_values={"energy": ""})
        assert np.flatnonzero(found["energy"].isna()).tolist() == [3, 50]
        assert found["problem"].tolist()[2:4] == ["", "b is missing or no number"]
        assert found["name"].tolist() == [f"row {i}" for i in range(90)]


def test_a_small_file_with_a_bad_row_is_scored_like_a_large_one(folder, tmp_path, capsys):
    words = [folder / "model", folder / "x.csv", "--id", "name", "--out", tmp_path / "s.csv"]
    assert score(*words) == 0
    assert "2 rows could not be scored and have no energy (first: row 4, b is missing or no number)" in (
        capsys.readouterr().out
    )
    found = pd.read_csv(tmp_path / "s.csv")
    assert np.flatnonzero(found["energy"].isna()).tolist() == [3, 50]
    good = pd.read_csv(folder / "x.csv", sep=";", decimal=",").dropna()
    good.to_csv(tmp_path / "good.csv", index=False)
    assert score(folder / "model", tmp_path / "good.csv", "--out", tmp_path / "t.csv") == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "t.csv")["energy"], found["energy"].dropna(), rtol=1e-6)
    for name, text in (("words.csv", "a,b\nx,y\nz,w\n"), ("other.csv", "a,c\n1,2\n3,\n")):  # no row can be scored
        (tmp_path / name).write_text(text)
        refused(["score", folder / "model", tmp_path / name, "--out", tmp_path / "u.csv"], capsys)


def test_a_killed_command_goes_on_where_it_was(folder, tmp_path, small_blocks, monkeypatch, capsys):
    out = tmp_path / "s.parquet"
    words = [folder / "detector", folder / "x.parquet", "--id", "name", "--out", out]
    computed, work = [], scoring._detected

    def counted(detector, rows, block, start, *rest):
        computed.append(start)
        if start == 48 and computed.count(48) == 1:
            raise KeyboardInterrupt
        return work(detector, rows, block, start, *rest)

    monkeypatch.setattr(scoring, "_detected", counted)
    assert score(*words) == 130
    assert not out.exists()
    assert score(*words) == 0
    assert "going on after row 48" in capsys.readouterr().out
    assert sorted(set(computed)) == [0, 16, 32, 48, 64, 80]
    assert {start for start in computed if computed.count(start) > 1} <= {48, 64, 80}
    assert computed.count(0) == computed.count(32) == 1
    monkeypatch.setattr(scoring, "_detected", work)
    assert score(*words[:-1], tmp_path / "whole.parquet") == 0
    pd.testing.assert_frame_equal(pd.read_parquet(out), pd.read_parquet(tmp_path / "whole.parquet"))


def test_mistakes_are_told_in_one_line(folder, tmp_path, small_blocks, capsys):
    out = ["--out", tmp_path / "s.csv"]
    run = folder / "detector"
    pd.DataFrame({"a": np.zeros(50)}).to_parquet(tmp_path / "narrow.parquet")
    np.save(tmp_path / "wide.npy", np.zeros((50, 5)))
    assert "no column 'b', 'colour'" in refused(["score", run, tmp_path / "narrow.parquet", *out], capsys)
    assert "no column 'b'" in refused(["score", folder / "model", tmp_path / "narrow.parquet", *out], capsys)
    for name in ("detector", "numbers"):
        assert "5 numbers a row" in refused(["score", folder / name, tmp_path / "wide.npy", *out], capsys)
    assert "5 numbers a row" in refused(["score", folder / "model", tmp_path / "wide.npy", *out], capsys)
    assert "'nobody' for --id" in refused(["score", run, folder / "x.parquet", "--id", "nobody", *out], capsys)
    assert "leave --id out" in refused(["score", folder / "numbers", folder / "x.npy", "--id", "a", *out], capsys)
    (tmp_path / "there").mkdir()
    words = ["score", run, folder / "x.parquet", "--force", "--out", tmp_path / "there"]
    assert "folders are not replaced" in refused(words, capsys)
    assert not (tmp_path / "s.csv").exists()


def test_a_detector_learns_from_a_sample_of_a_large_table(folder, tmp_path, small_blocks, monkeypatch, capsys):
    monkeypatch.setattr(scoring, "N_FIT", 60)
    words = ["detect", str(folder / "x.parquet"), "--id", "name", "--updates", "5", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "drawing 60 of about 90 rows" in told
    assert "60 rows, 3 columns" in told
    assert "of 90 rows" in told
    found = pd.read_csv(tmp_path / "run" / "scores.csv")
    detector = EnergyDetector.load(tmp_path / "run")
    assert detector.n_rows_ == 60
    energy = -detector.score_samples(pd.read_parquet(folder / "x.parquet"))
    np.testing.assert_allclose(found["energy"], energy, rtol=1e-7)
    assert found["name"].tolist() == [f"row {i}" for i in range(90)]
    assert "holds a detector" in refused(words, capsys)


def test_stopped_scoring_of_a_new_detector_goes_on_by_the_command_that_is_told(
    folder, tmp_path, small_blocks, monkeypatch, capsys
):
    monkeypatch.setattr(scoring, "N_FIT", 60)
    words = ["detect", str(folder / "x.parquet"), "--id", "name", "--updates", "5", "--out", str(tmp_path / "run")]
    work, computed = scoring._detected, []

    def stopped(detector, rows, block, start, *rest):
        computed.append(start)
        if start == 64 and computed.count(64) == 1:
            raise KeyboardInterrupt
        return work(detector, rows, block, start, *rest)

    monkeypatch.setattr(scoring, "_detected", stopped)
    assert main(words) == 130
    assert (tmp_path / "run" / "scores.csv.partial").is_dir()
    capsys.readouterr()
    told = refused(words, capsys)
    assert main(shlex.split(told.split("to go on scoring: pscd ")[1])) == 0
    assert "going on after row" in capsys.readouterr().out
    assert computed.count(0) == 1
    assert len(pd.read_csv(tmp_path / "run" / "scores.csv")) == 90
