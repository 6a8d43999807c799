import numpy as np
import pandas as pd
import pytest

from pscd.cli import sample
from pscd.cli.main import main
from pscd.model import Model
from tests.cli.helpers import SMALL, refused


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sampling")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    frame.to_csv(folder / "x.csv", index=False)
    frame.assign(colour=rng.choice(["red", "blue"], 60)).to_csv(folder / "y.csv", index=False)
    assert main(["train", str(folder / "x.csv"), *SMALL, "--out", str(folder / "model")]) == 0
    assert main(["detect", str(folder / "y.csv"), "--updates", "5", "--out", str(folder / "detector")]) == 0
    return folder


@pytest.mark.parametrize("run", ["model", "detector"])
def test_the_first_part_of_many_samples_is_a_small_sample(runs, tmp_path, monkeypatch, run, capsys):
    words = ["sample", str(runs / run), "--seed", "3", "--out"]
    assert main([*words, str(tmp_path / "few.csv"), "--n", "20"]) == 0
    monkeypatch.setattr(sample, "BLOCK", 20)
    assert main([*words, str(tmp_path / "many.csv"), "--n", "50"]) == 0
    assert "50 samples" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "folder"), "--n", "50"]) == 0
    few, many = pd.read_csv(tmp_path / "few.csv"), pd.read_csv(tmp_path / "many.csv")
    pd.testing.assert_frame_equal(many[:20], few)
    assert len(many) == 50
    assert len(many.drop_duplicates()) == 50  # every part has its own seed
    found = pd.read_parquet(tmp_path / "folder")
    pd.testing.assert_frame_equal(found, many, check_dtype=False, rtol=1e-7)


def test_stopped_sampling_resumes(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "BLOCK", 20)
    words = ["sample", str(runs / "model"), "--n", "70", "--out"]
    sizes, draw = [], Model.sample

    def stopped(model, n, **rest):
        sizes.append(n)
        if len(sizes) == 3:
            raise KeyboardInterrupt
        return draw(model, n, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(Model, "sample", stopped)
        assert main([*words, str(tmp_path / "x.npy")]) == 130
        assert main([*words, str(tmp_path / "x.npy")]) == 0
    assert sizes == [20, 20, 20, 20, 10]
    assert main([*words, str(tmp_path / "y.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy"))


def test_text_columns_do_not_go_into_an_array(runs, tmp_path, capsys):
    words = ["sample", runs / "detector", "--n", "5", "--out", tmp_path / "x.npy"]
    assert "'colour' is not numeric" in refused(words, capsys)


def test_modules_are_imported_before_a_run_is_read(run, mine, tmp_path):
    import sys

    assert main(["sample", str(run), "--n", "5", "--import", mine, "--out", str(tmp_path / "s.csv")]) == 0
    assert mine in sys.modules
