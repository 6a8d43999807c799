import json

import pytest
import torch

from pscd.data import Dataset
from pscd.errors import Diverged
from studies import image_ablation
from studies.__main__ import main
from studies.image_ablation import CD, DIRTY, FINAL, VARIANTS, WINNER, key_of, measure, page
from studies.presets import PRESETS

CELL = {"fid": 12.34, "precision": 0.8, "coverage": 0.7, "training": 90.0, "total": 101.4}


def test_every_setting_is_another_one():
    keys = [
        key_of(c, task) for task, s in (("choice", VARIANTS), ("final", FINAL), ("junk", DIRTY)) for c in s.values()
    ]
    assert len(keys) == len(set(keys))
    assert all(config.rows.data == "mnist" for config in VARIANTS.values())


def test_what_was_chosen_is_a_preset():
    assert PRESETS["mnist-sharp"] == WINNER == VARIANTS["CD, learning rate 2e-3, average over 1,000 updates"]


def test_the_page_has_a_row_for_what_was_measured():
    of_junk = {"AP of noise": 1.0, "samples like noise": 0.25, "digits like noise": 0.1}
    of_junk |= {"AP of letters": 0.5, "samples like letters": 0.0, "digits like letters": 0.2}
    runs = {
        key_of(CD, "choice"): CELL,
        key_of(VARIANTS["CD, cosine"], "choice"): {"error": "a gap"},
        key_of(DIRTY["CD"], "junk"): {**CELL, **of_junk},
    }
    text = page({"runs": runs, "machine": "2 cores"})
    assert "| CD, as it was | 2,000 | 12.3 | 0.80 | 0.70 | 101 |" in text
    assert "| CD, cosine | 2,000 | diverged |" in text
    assert "| CD | 2,000 | 12.3 | 0.80 | 0.70 | 101 | 1.000 | 0.250 | 0.100 | 0.500 | 0.000 | 0.200 |" in text
    assert "seed 0" not in text


@pytest.fixture
def images(monkeypatch):
    x = torch.randint(256, (40, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    x[:20] = 0  # training images
    data = Dataset(x[:20], x[20:], train_labels=None, held_out_labels=None)
    monkeypatch.setattr(image_ablation, "load_dataset", lambda name, seed: data)
    monkeypatch.setattr(image_ablation, "load_feature_map", lambda name, data: lambda x: x.flatten(1)[:, :6].float())
    seen = {}

    class Fitted:
        def sample(self, n, seed):
            return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))

    def fit(x, config):
        seen["x"] = x
        return Fitted()

    monkeypatch.setattr(image_ablation, "fit", fit)
    return data, seen


def test_images_that_choose_are_training_images_that_the_model_does_not_see(images):
    _, seen = images
    found = measure(CD, "choice", n=8)
    assert len(seen["x"]) == 12
    assert int(seen["x"].max()) == 0
    assert found["total"] >= found["training"] >= 0
    assert found["config"] == CD.to_dict()


def test_the_final_measurement_has_all_training_images_and_held_out_ones(images):
    data, seen = images
    to_held_out = measure(CD, "final", n=8)["fid"]
    assert seen["x"] is data.train
    assert to_held_out != measure(CD, "choice", n=8)["fid"]


def test_results_are_kept_and_not_computed_again(tmp_path, monkeypatch, capsys):
    calls = []

    def measured(config, task):
        calls.append(task)
        return CELL

    monkeypatch.setattr(image_ablation, "measure", measured)
    words = ["image-ablation", "--out", str(tmp_path), "--only", "CD, cosine"]
    assert main(words) == 0
    assert main(words) == 0
    assert calls == ["choice"]
    (run,) = json.loads((tmp_path / "image-ablation.json").read_text())["runs"]
    assert run["settings"]["setting"] == "CD, cosine"
    assert "| CD, cosine |" in (tmp_path / "image-ablation.md").read_text()


def test_a_run_that_diverges_is_told(images, monkeypatch):
    def fit(x, config):
        raise Diverged("a gap")

    monkeypatch.setattr(image_ablation, "fit", fit)
    assert measure(CD, "choice", n=8)["error"] == "a gap"
