import json

import numpy as np
import pandas as pd

import pscd
from pscd.cli.main import main
from tests.cli.helpers import SMALL, refused


def test_train_sample_score_evaluate(run, csv, tmp_path, capsys):
    assert (run / "plot.png").stat().st_size > 10_000
    assert main(["sample", str(run), "--n", "50", "--out", str(tmp_path / "s.csv")]) == 0
    assert main(["sample", str(run), "--n", "50", "--out", str(tmp_path / "s.npy")]) == 0
    samples = pd.read_csv(tmp_path / "s.csv")
    assert list(samples.columns) == ["height", "weight", "age"]
    np.testing.assert_allclose(samples.to_numpy(), np.load(tmp_path / "s.npy"), rtol=1e-5)

    # columns are found by name, whatever their order and whatever stands beside them
    pd.read_csv(csv)[["age", "name", "weight", "height"]].to_csv(tmp_path / "other.csv", index=False)
    assert main(["score", str(run), str(tmp_path / "other.csv"), "--out", str(tmp_path / "a.csv")]) == 0
    assert main(["score", str(run), str(csv), "--out", str(tmp_path / "b.npy")]) == 0
    scores = pd.read_csv(tmp_path / "a.csv")
    assert list(scores["row"]) == list(range(200))
    np.testing.assert_allclose(scores["energy"], np.load(tmp_path / "b.npy"), rtol=1e-4)

    assert main(["report", str(run), "--evaluate", "--n", "100", "--picture", str(tmp_path / "again.png")]) == 0
    out = capsys.readouterr().out
    assert "MMD^2" in out
    assert (tmp_path / "again.png").exists()
    rows = json.loads((run / "evaluation.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["samples", "data"]


def test_a_run_that_was_stopped_can_be_scored_and_sampled(run, csv, tmp_path, capsys):
    (run / "model.safetensors").unlink()
    out = [str(tmp_path / name) for name in ("scores.csv", "samples.csv", "scores.npy", "large")]
    assert main(["score", str(run), str(csv), "--out", out[0]]) == 0
    note = f"note: {run}: trained for 20 of 20 updates so far; training with the same configuration resumes it"
    assert capsys.readouterr().out.splitlines()[0] == note
    assert main(["sample", str(run), "--n", "5", "--out", out[1]]) == 0
    assert capsys.readouterr().out == f"{note}\n5 samples: {out[1]}\n"
    assert list(pd.read_csv(out[1]).columns) == ["height", "weight", "age"]
    assert "holds a run of pscd train" in refused(["detect", csv, "--out", run], capsys)
    # Samples in parts belong to the state that they were drawn from, if it is the previous one, too.
    (run / "state.pt").rename(run / "state-previous.pt")
    assert main(["sample", str(run), "--n", "5", "--out", out[3]]) == 0
    assert len(pd.read_parquet(out[3])) == 5
    (run / "state-previous.pt").rename(run / "state.pt")
    train = ["train", str(csv), "--columns", "height,weight,age", *SMALL, "--out", str(run)]
    assert main(train) == 0  # which makes the model: all updates were made
    assert main(["score", str(run), str(csv), "--out", out[2]]) == 0
    np.testing.assert_allclose(np.load(out[2]), pd.read_csv(out[0])["energy"], rtol=1e-5)


def test_a_changed_file_is_not_mixed_into_a_run(run, csv, capsys):
    frame = pd.read_csv(csv)
    frame.loc[0, "age"] = 99.0
    frame.to_csv(csv, index=False)
    line = refused(["train", csv, "--columns", "height,weight,age", *SMALL, "--out", run], capsys)
    assert "has changed since" in line


def test_bad_files_are_one_line_and_exit_code_2(tmp_path, capsys):
    (tmp_path / "empty.csv").write_text("")
    assert "is empty" in refused(["train", tmp_path / "empty.csv"], capsys)
    (tmp_path / "words.csv").write_text("a,b\n" + "x,y\nz,w\n" * 20)
    refused(["train", tmp_path / "words.csv"], capsys)
    (tmp_path / "few.csv").write_text("a,b\n1,2\n3,5\n")
    assert "too few" in refused(["train", tmp_path / "few.csv", "--out", tmp_path / "r"], capsys)
    assert not (tmp_path / "r").exists()


def test_a_table_is_read_once_and_encoded_once(csv, tmp_path, monkeypatch, capsys):
    calls = []
    encode, blocks = pscd.tables.encode, pscd.tables.TableFile.blocks
    monkeypatch.setattr("pscd.tables.encode", lambda *a, **k: calls.append("encode") or encode(*a, **k))
    monkeypatch.setattr("pscd.tables.TableFile.blocks", lambda *a, **k: calls.append("read") or blocks(*a, **k))
    assert main(["train", str(csv), *SMALL, "--out", str(tmp_path / "run")]) == 0
    assert sorted(calls) == ["encode", "read"]
    assert "not learnt from: name" in capsys.readouterr().out


def test_dates_and_booleans_are_learnt_and_come_back(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(50, 9, 80).round(1), "city": "Bern"})
    frame["when"] = (pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 80), "D")).strftime("%Y-%m-%d")
    frame["new"] = rng.choice(["yes", "no"], 80)
    frame.to_csv(tmp_path / "a.csv", index=False)
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "a.csv"), *SMALL, "--measure", "0", "--out", str(run)]) == 0
    assert main(["sample", str(run), "--n", "30", "--out", str(tmp_path / "s.csv")]) == 0
    drawn = pd.read_csv(tmp_path / "s.csv")
    assert list(drawn.columns) == ["size", "when", "new"]
    assert set(drawn["new"]) <= {"yes", "no"}
    assert pd.to_datetime(drawn["when"]).notna().all()
    frame.loc[3, "when"] = "someday"
    frame.to_csv(tmp_path / "b.csv", index=False)
    assert main(["score", str(run), str(tmp_path / "b.csv"), "--out", str(tmp_path / "e.csv")]) == 0
    scores = pd.read_csv(tmp_path / "e.csv")
    assert scores["energy"].notna().all()
    assert np.flatnonzero(scores["problem"].notna()).tolist() == [3]
    assert scores["problem"][3].startswith("when")


def test_nothing_is_overwritten(csv, run, tmp_path, capsys):
    precious = tmp_path / "precious.csv"
    precious.write_text("mine")
    assert "exists" in refused(["sample", run, "--out", precious], capsys)
    assert "exists" in refused(["score", run, csv, "--out", precious], capsys)
    assert precious.read_text() == "mine"
    assert main(["score", str(run), str(csv), "--out", str(precious), "--force"]) == 0
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    assert "holds other files" in refused(["train", "moon", *SMALL, "--out", tmp_path / "full"], capsys)
    (tmp_path / "file").write_text("mine")
    assert "cannot write to" in refused(["train", "moon", *SMALL, "--out", tmp_path / "file"], capsys)
    assert "cannot write" in refused(["sample", run, "--out", tmp_path / "file" / "x.npy"], capsys)


def test_a_file_of_a_model_takes_the_place_of_its_run_folder(run, csv, tmp_path, capsys):
    model = tmp_path / "mine.safetensors"
    model.write_bytes((run / "model.safetensors").read_bytes())
    for name, source in (("a", run), ("b", model)):
        assert main(["sample", str(source), "--n", "5", "--out", str(tmp_path / f"{name}.npy")]) == 0
        assert main(["score", str(source), str(csv), "--out", str(tmp_path / f"{name}.csv")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    capsys.readouterr()
    assert "need the run folder" in refused(["report", model, "--evaluate"], capsys)
