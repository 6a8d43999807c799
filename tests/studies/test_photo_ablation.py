import json
from pathlib import Path

import pytest
import torch

from pscd.data import Dataset
from pscd.errors import Diverged
from studies import photo_ablation
from studies.__main__ import main
from studies.engine import with_reading
from studies.photo_ablation import CD, CHOSEN, FINAL, LAST, VARIANTS, key_of, measure, page
from studies.presets import PRESETS

RESULTS = Path(__file__).parents[2] / "docs" / "results"
CELL = {"fid": 150.04, "training": 90.0, "total": 101.4}


def test_every_setting_is_another_one():
    keys = [key_of(c, task) for task, s in photo_ablation.TASKS.items() for c in s.values()]
    assert len(keys) == len(set(keys)) == 7
    assert PRESETS["cifar10-spectrum"] == CHOSEN == FINAL["steps by the spectrum, seed 0"]
    assert FINAL["CD, as it was, seed 1"] == CD.changed({"seed": 1})


def test_the_page_has_a_row_for_what_was_measured():
    first, *_, last = VARIANTS.values()
    runs = {
        key_of(first, "choice"): {**CELL, "config": first.to_dict()},
        key_of(last, "choice"): {"error": "a gap", "config": last.to_dict()},
        key_of(CHOSEN, LAST): {**CELL, "config": CHOSEN.to_dict()},
    }
    text = page({"runs": runs, "machine": "2 cores"})
    assert "| CD, as it was | 600 | 150.0 | 101 |" in text
    assert "| learning rate 1e-3, steps by the spectrum | 600 | diverged |" in text
    assert "| steps by the spectrum, seed 0 | 1,400 | 150.0 | 101 |" in text
    assert "Not run to the end." in text
    runs[key_of(CD, LAST)] = {**CELL, "fid": 200.0, "config": CD.to_dict()}
    assert "the FID is 25% lower" in page({"runs": runs, "machine": "2 cores"})


@pytest.fixture
def seen(monkeypatch):
    """Ten training images and ten held-out ones, of which a model has seen what is in `seen`."""
    x = torch.arange(20, dtype=torch.uint8)[:, None, None, None].expand(20, 3, 2, 2).contiguous()
    data = Dataset(x[:10], x[10:], train_labels=torch.arange(10), held_out_labels=None)
    monkeypatch.setattr(photo_ablation, "load_dataset", lambda name, seed: data)
    found = {}

    class Features:
        name = "pixels of one channel"

        def __call__(self, x):
            found.setdefault("features", []).append(x)
            return torch.cat([x.flatten(1)[:, :1].float(), torch.rand(len(x), 1)], 1)

    class Fitted:
        def sample(self, n, seed):
            return torch.rand(n, 3, 2, 2, generator=torch.Generator().manual_seed(seed))

    def fit(x, config, label):
        found.update(x=x, label=label)
        return Fitted()

    monkeypatch.setattr(photo_ablation, "load_feature_map", lambda name, data: Features())
    monkeypatch.setattr(photo_ablation, "fit", fit)
    return found


def test_a_choice_looks_at_no_held_out_image_and_trains_on_none_that_chooses(seen):
    run = measure(CD, "choice", n=5, aside=4, choosing=3)
    real, samples = seen["features"]
    trained, chose = set(seen["x"][:, 0, 0, 0].tolist()), set(real[:, 0, 0, 0].tolist())
    assert (len(trained), len(chose), len(samples)) == (6, 3, 5)
    assert not trained & chose
    assert max(trained | chose) < 10
    assert seen["label"].tolist() == seen["x"][:, 0, 0, 0].tolist()
    assert run["fid"] > 0
    assert 0 <= run["training"] <= run["total"]
    assert (run["features"], run["config"]) == ("pixels of one channel", CD.to_dict())


def test_the_last_word_is_on_held_out_images(seen):
    measure(CD, LAST, n=5)
    assert sorted(seen["x"][:, 0, 0, 0].tolist()) == list(range(10))
    assert seen["features"][0][:, 0, 0, 0].tolist() == [10, 11, 12, 13, 14]


def test_a_run_that_diverges_is_a_row(seen, monkeypatch):
    def fit(x, config, label):
        raise Diverged("a gap")

    monkeypatch.setattr(photo_ablation, "fit", fit)
    assert measure(CD, "choice", n=5, aside=4, choosing=3) == {"error": "a gap", "config": CD.to_dict()}


def test_what_is_there_is_not_trained_again(tmp_path, monkeypatch):
    asked = []

    def once(config, task):
        asked.append((task, config))
        return {**CELL, "samples": photo_ablation.encode(torch.zeros(4, 3, 8, 8).byte()), "config": config.to_dict()}

    monkeypatch.setattr(photo_ablation, "measure", once)
    words = ["photo-ablation", "--out", str(tmp_path)]
    assert main([*words, "--only", "CD, as it was, seed 0"]) == 0
    assert asked == [(LAST, CD)]
    assert main(words) == 0
    assert len(asked) == 7
    assert {path.name for path in tmp_path.iterdir()} == {
        "photo-ablation.json", "photo-ablation.md", "photo-ablation.png", "photo-ablation-before.png",
        "photo-ablation.runs",
    }  # fmt: skip
    assert len(json.loads((tmp_path / "photo-ablation.json").read_text())["runs"]) == 7


def test_the_page_is_the_one_of_the_numbers():
    path = RESULTS / "photo-ablation.md"
    assert path.read_text() == with_reading(page(json.loads(path.with_suffix(".json").read_text())), path)
