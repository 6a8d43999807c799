import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from pscd import load
from pscd.cli.main import main
from pscd.data import load_dataset
from pscd.images import grids
from pscd.images.scores import OutlierScore
from tests.cli.helpers import refused


def size_of(path):
    with Image.open(path) as picture:
        return picture.size


SMALL = ["--updates", "6", "--batch-size", "16", "--set", "energy.width=2", "--set", "chains.buffer_size=120"]
SMALL += ["--set", "chains.sample_steps=2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("images") / "digits"
    assert main(["train", "digits", *SMALL, "--set", "energy.classes=10", "--out", str(out)]) == 0
    return out


def test_training_keeps_a_model_a_picture_and_numbers(run, capsys):
    assert size_of(run / "plot.png")[0] > 400
    assert "frechet" in (run / "evaluation.json").read_text()
    model = load(run)
    assert model.shape == (1, 8, 8)
    assert len(model.proposal.points) == 120


def test_the_same_seed_gives_the_same_model(run, tmp_path):
    out = tmp_path / "again"
    assert main(["train", "digits", *SMALL, "--set", "energy.classes=10", "--out", str(out)]) == 0
    first, second = load(run), load(out)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


def test_samples_of_a_label_as_a_grid_and_as_numbers(run, tmp_path, capsys):
    picture, numbers = tmp_path / "x.png", tmp_path / "x.npy"
    assert main(["sample", str(run), "--label", "3", "--n", "20", "--out", str(picture)]) == 0
    assert size_of(picture) == (4 * 102, 4 * 22)
    assert main(["sample", str(run), "--n", "7", "--out", str(numbers)]) == 0
    assert main(["sample", str(run), "--label", "11", "--out", str(tmp_path / "y.png")]) == 2
    assert "between 0 and 9" in capsys.readouterr().err


def test_labels_choose_the_chains(run):
    model = load(run)
    index = model.proposal.choose(50, label=4)
    assert set(model.proposal.label[index].tolist()) == {4}
    assert len(set(model.proposal.choose(120).tolist())) == 120


def test_rows_of_numbers_are_no_images(tmp_path, capsys):
    out = tmp_path / "moon"
    assert (
        main(
            ["train", "gaussian_1d", "--updates", "2", "--set", "rows.n_data=100", "--measure", "0", "--out", str(out)]
        )
        == 0
    )
    assert main(["sample", str(out), "--out", str(tmp_path / "x.png")]) == 2
    assert "not images" in capsys.readouterr().err


def test_a_folder_of_pictures_from_training_to_scores(tmp_path, capsys):
    folder, out = tmp_path / "mine", tmp_path / "run"
    digits = load_dataset("digits", seed=0).held_out[:30]
    for i, x in enumerate(digits):
        grids.save(x[0].numpy(), folder / f"{i:02}.png")
    sizes = ["--set", "rows.image_size=8", "--set", "energy.depth=2", "--set", "compute.precision=float32"]
    assert main(["train", str(folder), *SMALL, *sizes, "--out", str(out)]) == 0
    scores = tmp_path / "scores.csv"
    assert main(["score", str(out), str(folder), "--out", str(scores)]) == 0
    lines = scores.read_text().splitlines()
    assert lines[0] == "file,energy,joint"
    energy = {line.split(",")[0]: float(line.split(",")[1]) for line in lines[1:]}
    expected = load(out).energy(digits)
    assert energy["03.png"] == pytest.approx(expected[3].item(), rel=1e-5)
    assert size_of(tmp_path / "scores.png")[0] > 100
    other = tmp_path / "other.csv"
    other.with_suffix(".png").write_text("precious")
    assert main(["score", str(out), str(folder), "--out", str(other)]) == 2
    assert "other.png exists; choose another --out, or add --force" in capsys.readouterr().err
    assert (other.with_suffix(".png").read_text(), other.exists()) == ("precious", False)
    assert main(["score", str(out), str(folder), "--out", str(other), "--force"]) == 0
    joint = {line.split(",")[0]: float(line.split(",")[2]) for line in lines[1:]}
    highest = max(joint, key=joint.get)
    assert highest in capsys.readouterr().out.split("of highest score:")[1].split("joint")[0]


def test_pictures_that_cannot_be_read_are_left_out_of_training_and_scores(tmp_path, capsys):
    folder, out, scores = tmp_path / "mine", tmp_path / "run", tmp_path / "scores.csv"
    for i, x in enumerate(load_dataset("digits", seed=0).held_out[:30]):
        grids.save(x[0].numpy(), folder / "ab"[i % 2] / f"{i:02}.png")
    (folder / "a" / "00a.png").write_text("no picture")
    sizes = ["--set", "rows.image_size=8", "--set", "energy.depth=2", "--set", "energy.classes=2"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["train", str(folder), *SMALL, *sizes, "--out", str(out)]) == 0
        assert main(["score", str(out), str(folder), "--by", "energy", "--out", str(scores)]) == 0
    told = capsys.readouterr().err
    assert "note: 1 of 31 pictures cannot be read" in told
    assert "image_formats.py" not in told
    names = pd.read_csv(scores)["file"].tolist()
    assert len(names) == 30
    assert "a/00a.png" not in names


def test_images_are_scored_in_several_ways(run, tmp_path, capsys):
    images, out = tmp_path / "images.npy", tmp_path / "scores.csv"
    digits = load_dataset("digits", seed=0)
    x = torch.cat([digits.held_out[:20], torch.zeros(1, 1, 8, 8, dtype=torch.uint8)])
    np.save(images, x.numpy())
    model, known = load(run), digits.held_out
    assert main(["score", str(run), str(images), "--by", "energy", "--out", str(tmp_path / "e.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), model.energy(x).numpy(), rtol=1e-5)  # 255 is white
    capsys.readouterr()
    for by in ("typicality", "complexity", "gradient"):
        assert main(["score", str(run), str(images), "--by", by, "--out", str(out), "--force"]) == 0
        expected = OutlierScore.fit(model, known, by)(x).numpy()
        scores = pd.read_csv(out)
        assert list(scores.columns) == ["row", "energy", by]
        np.testing.assert_allclose(scores[by], expected, rtol=1e-5, atol=1e-6)
        assert capsys.readouterr().out.splitlines()[1].split()[:2] == [str(int(expected.argmax())), by]
    assert main(["score", str(run), str(images), "--out", str(out), "--force"]) == 0
    np.testing.assert_allclose(pd.read_csv(out)["joint"], OutlierScore.fit(model, known, "joint")(x), rtol=1e-5)
    background = ["--background", str(run), "--reference", str(images)]
    assert main(["score", str(run), str(images), *background, "--out", str(tmp_path / "b.npy")]) == 0
    assert not np.load(tmp_path / "b.npy").any()  # it is its own background


def test_scores_that_do_not_fit_are_one_line(run, tmp_path, capsys):
    images, out = tmp_path / "images.npy", tmp_path / "scores.csv"
    np.save(images, np.zeros((20, 1, 9, 9), np.uint8))
    words = ["score", run, images, "--out", out, "--by"]
    assert "1 x 9 x 9 numbers, but the run was trained on 1 x 8 x 8" in refused([*words, "gradient"], capsys)
    assert "invalid choice: 'beauty'" in refused([*words, "beauty"], capsys)
    assert "a folder of pictures, or an array" in refused(["score", run, __file__, "--out", out], capsys)
    np.save(images, np.zeros((20, 1, 8, 8), np.uint8))
    assert "images have energies, not densities" in refused([*words[:-1], "--log-density"], capsys)
    assert not out.exists()


def test_a_model_of_images_in_memory_needs_images_to_compare_with(run, tmp_path, capsys):
    model = load(run)
    model.config = model.config.changed({"rows.data": ""})
    (tmp_path / "run").mkdir()
    model.save(tmp_path / "run" / "model.safetensors", step=6)
    np.save(tmp_path / "x.npy", np.zeros((12, 1, 8, 8), np.uint8))
    words = ["score", tmp_path / "run", tmp_path / "x.npy", "--out", tmp_path / "s.csv", "--by", "typicality"]
    assert "give images to compare with: --reference FOLDER" in refused(words, capsys)
    assert main([str(word) for word in words[:-2]]) == 0  # without --by
    assert capsys.readouterr().out.startswith("by energy alone: ")
    assert list(pd.read_csv(tmp_path / "s.csv").columns) == ["row", "energy"]
    few = np.zeros((9, 1, 8, 8), np.uint8)
    np.save(tmp_path / "few.npy", few)
    assert main([*map(str, words[:-2]), "--reference", str(tmp_path / "few.npy"), "--force"]) == 0
    assert "only 9 images to compare with" in capsys.readouterr().out
