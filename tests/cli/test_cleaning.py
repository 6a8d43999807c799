"""Large tables: what is cleaned in blocks is what is cleaned at once."""

import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector
from pscd.cli import cleaning
from pscd.cli.main import main
from tests.cli.helpers import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Heights, some a hundred times too large, with gaps and a word, in several kinds of files; and a detector."""
    path = tmp_path_factory.mktemp("cleaning")
    rng = np.random.default_rng(0)
    male = rng.uniform(size=120) < 0.5
    height = rng.normal(np.where(male, 1.8, 1.65), 0.05).round(2)
    weight = (22 * height**2 + rng.normal(0, 2, 120)).round(1)
    sex = np.where(male, "male", "female")
    frame = pd.DataFrame({"name": [f"p, {i}" for i in range(120)], "height": height, "weight": weight, "sex": sex})
    frame.to_csv(path / "train.csv", index=False)
    assert clean("detect", path / "train.csv", "--id", "name", "--updates", "5", "--out", path / "run") == 0
    frame.loc[[4, 5, 70], "height"] *= 100
    frame.loc[[8, 100], "weight"] = np.nan
    frame.loc[20, "sex"] = "mael"
    frame.to_parquet(path / "x.parquet", row_group_size=25)
    (path / "shards").mkdir()
    frame[:50].to_parquet(path / "shards" / "0.parquet")
    frame[50:].to_parquet(path / "shards" / "1.parquet")
    lines = frame.to_csv(index=False, sep=";", decimal=",").splitlines()
    lines[7:7] = [""]  # blank lines are no rows
    (path / "x.csv").write_bytes("\r\n".join(lines).encode())
    return path


def clean(*words):
    return main([str(word) for word in words])


def cells(path):
    found = pd.read_csv(path, keep_default_na=False, dtype=str)
    return {tuple(record) for record in found[["row", "column", "value", "problem", "suggestion"]].to_numpy()}


@pytest.mark.parametrize("source", ["x.csv", "x.parquet"])
def test_in_blocks_as_at_once(folder, tmp_path, request, source, capsys):
    ending = source[1:]
    words = ["clean", folder / source, "--run", folder / "run", "--repair", "--fill"]
    assert clean(*words, "--out", tmp_path / f"once{ending}") == 0
    told = capsys.readouterr().out
    request.getfixturevalue("small_blocks")
    assert clean(*words, "--out", tmp_path / f"blocks{ending}") == 0
    again = capsys.readouterr().out
    for text in ("cells look wrong", "3 in height: such as", "2 cells are missing: 2 in weight"):
        assert text in told
        assert text in again
    assert cells(tmp_path / "once.cells.csv") == cells(tmp_path / "blocks.cells.csv")
    rows = pd.read_csv(tmp_path / "blocks.cells.csv")["row"]
    assert rows.is_monotonic_increasing
    once, blocks = (tmp_path / f"{name}{ending}" for name in ("once", "blocks"))
    if ending == ".csv":
        assert once.read_bytes() == blocks.read_bytes()
        assert once.read_bytes() != (folder / source).read_bytes()
    else:
        pd.testing.assert_frame_equal(pd.read_parquet(once), pd.read_parquet(blocks))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"once{ending}", "once.cells.csv", f"blocks{ending}", "blocks.cells.csv"]
    )


def test_a_folder_of_shards_and_nothing_changed(folder, tmp_path, small_blocks, capsys):
    words = ["clean", folder / "shards", "--run", folder / "run", "--cells", tmp_path / "c.csv"]
    assert clean(*words) == 0
    told = capsys.readouterr().out
    assert "3 in height: such as" in told
    assert "nothing was changed" in told
    assert clean("clean", folder / "x.parquet", "--run", folder / "run", "--cells", tmp_path / "d.csv") == 0
    assert (tmp_path / "c.csv").read_bytes() == (tmp_path / "d.csv").read_bytes()


def test_a_detector_learns_from_a_sample(folder, tmp_path, small_blocks, capsys):
    words = ["clean", folder / "x.csv", "--id", "name", "--updates", "5", "--repair", "--out", tmp_path / "y.csv"]
    assert clean(*words) == 0
    assert "rows to learn from" in capsys.readouterr().out
    found = pd.read_csv(tmp_path / "y.csv", sep=";", decimal=",")
    assert found["height"].max() < 2.5
    assert found["weight"].isna().sum() == 2  # not asked for


def test_arrays_stay_arrays(tmp_path, request):
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(80, 1)) + 0.1 * rng.normal(size=(80, 3))).astype(np.float32)
    x[30, 1], x[60, 2] = 40, np.nan
    np.save(tmp_path / "x.npy", x)
    words = ["clean", tmp_path / "x.npy", "--updates", "5", "--repair", "--fill"]
    assert clean(*words, "--out", tmp_path / "once.npy") == 0
    request.getfixturevalue("small_blocks")
    assert clean(*words, "--out", tmp_path / "blocks.npy") == 0
    once, blocks = np.load(tmp_path / "once.npy"), np.load(tmp_path / "blocks.npy")
    assert blocks.dtype == once.dtype == np.float32
    changed = blocks != x
    assert changed[30, 1]
    assert changed[60, 2]
    assert changed.sum() < 6
    assert abs(blocks[30, 1] - x[30, 0]) < 1
    assert np.abs(once - blocks).max() < 0.5  # the detectors have learnt from other samples


def test_a_detector_that_knows_no_names(tmp_path):
    """One that was fitted to an array in Python: columns go by their place, however few rows there are."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 1)) + 0.1 * rng.normal(size=(60, 3))
    EnergyDetector(n_updates=5).fit(x).save(tmp_path / "run")
    x[7, 1] = 40
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", header="x0,x1,x2", comments="")
    words = ["clean", tmp_path / "x.csv", "--run", tmp_path / "run", "--repair", "--out", tmp_path / "y.csv"]
    assert clean(*words) == 0
    found = np.loadtxt(tmp_path / "y.csv", delimiter=",", skiprows=1)
    assert abs(found[7, 1] - x[7, 0]) < 1
    assert (found != x).sum() < 4


def test_a_killed_command_goes_on_where_it_was(folder, tmp_path, small_blocks, monkeypatch, capsys):
    for source in ("x.csv", "x.parquet"):
        out = tmp_path / f"y{source[1:]}"
        words = ["clean", folder / source, "--run", folder / "run", "--repair", "--out", out]
        computed, findings = [], cleaning._findings

        def interrupted(detector, rows, false_alarms, computed=computed, findings=findings):
            computed.append(len(rows))
            if len(computed) == 4:
                raise KeyboardInterrupt
            return findings(detector, rows, false_alarms)

        with monkeypatch.context() as patch:
            patch.setattr("pscd.fast.threads.allowed_threads", lambda: 1)
            patch.setattr(cleaning, "_findings", interrupted)
            assert clean(*words) == 130
        assert not out.exists()
        assert not out.with_name("y.cells.csv").exists()
        capsys.readouterr()
        assert clean(*words) == 0
        assert "going on after row " in capsys.readouterr().out
        assert clean(*words[:-1], tmp_path / f"whole{source[1:]}") == 0
        assert (tmp_path / "y.cells.csv").read_bytes() == (tmp_path / "whole.cells.csv").read_bytes()
        if source == "x.csv":
            assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
        else:
            pd.testing.assert_frame_equal(pd.read_parquet(out), pd.read_parquet(tmp_path / "whole.parquet"))
        for path in tmp_path.iterdir():
            path.unlink()


def test_a_copy_that_was_stopped_is_made_again(folder, tmp_path, small_blocks, monkeypatch, capsys):
    """All cells are listed, and the copy of the text is cut off: nothing is judged twice."""
    words = ["clean", folder / "x.csv", "--run", folder / "run", "--repair", "--out", tmp_path / "y.csv"]

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pscd.tables.write._copy", full)
        assert clean(*words) == 2
        assert "No space left" in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setattr(cleaning, "_findings", None)
    assert clean(*words) == 0
    assert (tmp_path / "y.csv").exists()


def test_mistakes_are_told_in_one_line(folder, tmp_path, small_blocks, capsys):
    run = ["--run", folder / "run"]
    out = ["--repair", "--out", tmp_path / "y.csv"]
    assert "of the same kind; let its name end in .parquet" in refused(
        ["clean", folder / "x.parquet", *run, *out], capsys
    )
    as_table = refused(["clean", folder / "x.csv", *run, "--fill", "--out", tmp_path / "y.parquet"], capsys)
    assert "let its name end as that of the table" in as_table
    assert "must end in .csv" in refused(["clean", folder / "x.csv", *run, "--cells", tmp_path / "c.txt"], capsys)
    other = tmp_path / "other.parquet"
    pd.DataFrame({"a": np.zeros(50)}).to_parquet(other)
    assert "has no column" in refused(["clean", other, *run], capsys)
    (tmp_path / "empty").mkdir()
    assert "no .parquet files" in refused(["clean", tmp_path / "empty", *run], capsys)
