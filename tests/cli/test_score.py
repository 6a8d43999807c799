import numpy as np
import pandas as pd
import pytest

import pscd
from pscd import EnergyDetector
from pscd.cli.main import main
from pscd.cli.scoring import Scoring
from tests.cli.helpers import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with missing values, a category and an outlier in several kinds of files; detectors and a model."""
    path = tmp_path_factory.mktemp("score")
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
    EnergyDetector(updates=5).fit(np.nan_to_num(np.load(path / "x.npy"))).save(path / "numbers")
    train = [
        "train",
        path / "train.csv",
        "--columns",
        "a,b",
        "--updates",
        "5",
        "--measure",
        "0",
        "--out",
        path / "model",
    ]
    assert main([str(word) for word in train]) == 0
    return path


def score(*words):
    return main(["score", *map(str, words)])


def test_columns_are_found_by_name_whatever_their_order_and_format(folder, tmp_path):
    frame = pd.read_csv(folder / "train.csv")[["b", "name", "colour", "a"]]
    frame.to_csv(tmp_path / "new.csv", index=False, sep=";", decimal=",")
    for run in ("detector", "model"):
        scores = []
        for path, out in ((folder / "train.csv", "one.csv"), (tmp_path / "new.csv", "two.csv")):
            assert score(folder / run, path, "--id", "name", "--out", tmp_path / out, "--force") == 0
            scores.append(pd.read_csv(tmp_path / out))
        shared = [name for name in scores[0] if name != "because"]  # which quotes cells as they stand
        pd.testing.assert_frame_equal(*(found[shared] for found in scores))
        assert list(scores[0].columns)[:3] == ["row", "name", "energy"]
        assert scores[0]["row"].tolist() == list(range(90))


@pytest.mark.parametrize("source", ["x.csv", "x.parquet"])
@pytest.mark.parametrize("flags", [[], ["--log-density"], ["--reasons", "all"]])
def test_large_and_small_tables_give_the_same(folder, tmp_path, request, source, flags, capsys):
    words = [folder / "detector", folder / source, "--id", "name", *flags]
    assert score(*words, "--out", tmp_path / "small.csv") == 0
    printed = capsys.readouterr().out
    request.getfixturevalue("small_blocks")
    assert score(*words, "--out", tmp_path / "large.csv") == 0
    assert capsys.readouterr().out == printed.replace("small.csv", "large.csv")
    assert (tmp_path / "small.csv").read_bytes() == (tmp_path / "large.csv").read_bytes()
    assert score(*words, "--out", tmp_path / "parts") == 0
    small, parts = pd.read_csv(tmp_path / "small.csv", keep_default_na=False), pd.read_parquet(tmp_path / "parts")
    np.testing.assert_allclose(parts["energy"], small["energy"], rtol=1e-8)
    assert parts["because"].tolist() == small["because"].tolist()
    is_outlier = small["outlier"] == 1
    assert small["because"][is_outlier].str.contains("a = 40").any()
    assert (small["because"][~is_outlier] != "").any() == ("all" in flags)


@pytest.mark.parametrize("run", ["numbers", "model"])
def test_arrays_go_by_place(folder, tmp_path, small_blocks, run):
    x = np.nan_to_num(np.load(folder / "x.npy"))
    np.save(tmp_path / "x.npy", x)
    assert score(folder / run, tmp_path / "x.npy", "--out", tmp_path / "out.npy") == 0
    if run == "numbers":
        expected = -EnergyDetector.load(folder / run).score_samples(x)
    else:
        expected = pscd.load(folder / run).energy(x).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-6)


def test_a_detector_of_numbers_reads_text(folder, tmp_path):
    frame = pd.read_csv(folder / "train.csv")[["a", "b"]]
    EnergyDetector(updates=5).fit(frame).save(tmp_path / "run")
    assert score(tmp_path / "run", folder / "x.csv", "--out", tmp_path / "s.csv") == 0
    new = pd.read_parquet(folder / "x.parquet")[["a", "b"]]
    expected = -EnergyDetector.load(tmp_path / "run").score_samples(new)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "s.csv")["energy"], expected, rtol=1e-6)


def test_missing_cells_are_named_and_completed_by_a_model_that_can(folder, tmp_path, request, capsys):
    for source in ("x.csv", "x.parquet", "large"):
        if source == "large":
            request.getfixturevalue("small_blocks")
        path = folder / source.replace("large", "x.csv")
        assert score(folder / "model", path, "--id", "name", "--out", tmp_path / "s.csv", "--force") == 0
        printed = capsys.readouterr().out
        assert "90 rows scored" in printed
        first = "first: row 3, b is missing or not a finite number"
        assert f"rows with missing or invalid cells: 2, of which 0 have no energy ({first})" in printed
        found = pd.read_csv(tmp_path / "s.csv", keep_default_na=False)
        assert np.isfinite(found["energy"]).all()
        assert found["problem"].tolist()[2:4] == ["", "b is missing or not a finite number"]
    expected = pscd.load(folder / "model").energy(pd.read_parquet(folder / "x.parquet")[["a", "b"]].to_numpy())
    np.testing.assert_allclose(found["energy"], expected, rtol=1e-6)
    (tmp_path / "empty.csv").write_text("a,b\n,\n1,2\n")
    assert score(folder / "model", tmp_path / "empty.csv", "--log-density", "--out", tmp_path / "s.csv", "--force") == 0
    found = pd.read_csv(tmp_path / "s.csv")
    assert found[["energy", "log_density"]].isna().to_numpy().tolist() == [[True, True], [False, False]]


def test_impossible_cells_do_not_stop_a_detector(folder, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("b,colour,a\n0.1,red,0\nwhat,green,\n,,\n1,blue,0.5\n")
    assert score(folder / "detector", tmp_path / "new.csv", "--out", tmp_path / "s.csv") == 0
    scores = pd.read_csv(tmp_path / "s.csv")
    assert scores["energy"].notna().all()
    assert scores["energy"].idxmax() == 1
    assert "b = what" in scores["because"][1]
    assert "a new category: 1\n" in capsys.readouterr().out


def test_a_file_of_numbers_needs_no_reasons(folder, tmp_path, small_blocks, monkeypatch):
    explained, explain = [], EnergyDetector.explain
    monkeypatch.setattr(EnergyDetector, "explain", lambda self, x: explained.append(len(x)) or explain(self, x))
    np.save(tmp_path / "x.npy", np.full((32, 2), 50.0))  # all outliers
    assert score(folder / "numbers", tmp_path / "x.npy", "--out", tmp_path / "out.npy") == 0
    assert explained == [10, 10]  # only those that are printed


def test_a_stopped_command_resumes(folder, tmp_path, small_blocks, monkeypatch, capsys):
    out = tmp_path / "s.parquet"
    words = [folder / "detector", folder / "x.parquet", "--id", "name", "--out"]
    starts, part = [], Scoring.part

    def stopped(scoring, start, block):
        starts.append(start)
        if starts.count(48) == 1 and start == 48:
            raise KeyboardInterrupt
        return part(scoring, start, block)

    monkeypatch.setattr(Scoring, "part", stopped)
    assert score(*words, out) == 130
    assert not out.exists()
    assert score(*words, out) == 0
    assert "resuming after 48 rows" in capsys.readouterr().out
    assert starts.count(0) == starts.count(32) == 1
    assert score(*words, tmp_path / "whole.parquet") == 0
    pd.testing.assert_frame_equal(pd.read_parquet(out), pd.read_parquet(tmp_path / "whole.parquet"))


def test_mistakes_are_reported_in_one_line(folder, tmp_path, capsys):
    out = ["--out", tmp_path / "s.csv"]
    run = folder / "detector"
    pd.DataFrame({"a": np.zeros(50)}).to_parquet(tmp_path / "narrow.parquet")
    np.save(tmp_path / "wide.npy", np.zeros((50, 5)))
    np.save(tmp_path / "images.npy", np.zeros((5, 1, 8, 8)))
    assert "no column 'b', 'colour'" in refused(["score", run, tmp_path / "narrow.parquet", *out], capsys)
    assert "no column 'b'" in refused(["score", folder / "model", tmp_path / "narrow.parquet", *out], capsys)
    assert "5 numbers a row, but" in refused(["score", run, tmp_path / "wide.npy", *out], capsys)
    assert "5 columns, but" in refused(["score", folder / "model", tmp_path / "wide.npy", *out], capsys)
    assert "1 x 8 x 8 numbers are no table" in refused(["score", run, tmp_path / "images.npy", *out], capsys)
    assert "no column 'nobody'" in refused(["score", run, folder / "x.parquet", "--id", "nobody", *out], capsys)
    assert "leave --id out" in refused(["score", folder / "numbers", folder / "x.npy", "--id", "a", *out], capsys)
    assert "has a column 'energy', too" in refused(["score", run, folder / "x.csv", "--id", "energy", *out], capsys)
    assert "must end in" in refused(["score", run, folder / "x.csv", "--out", tmp_path / "s.txt"], capsys)
    assert "on the cpu" in refused(["score", run, folder / "x.csv", "--device", "cuda", *out], capsys)
    for flag in (["--by", "gradient"], ["--reference", tmp_path], ["--background", run]):
        assert "are for models of images" in refused(["score", folder / "model", folder / "x.csv", *out, *flag], capsys)
    (tmp_path / "there").mkdir()
    words = ["score", run, folder / "x.parquet", "--force", "--out", tmp_path / "there"]
    assert "folders are not replaced" in refused(words, capsys)
    assert not (tmp_path / "s.csv").exists()


def test_a_file_of_a_model_takes_the_place_of_its_run_folder(folder, tmp_path):
    model = tmp_path / "mine.safetensors"
    model.write_bytes((folder / "model" / "model.safetensors").read_bytes())
    for name, source in (("a", folder / "model"), ("b", model)):
        assert score(source, folder / "train.csv", "--out", tmp_path / f"{name}.csv") == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
