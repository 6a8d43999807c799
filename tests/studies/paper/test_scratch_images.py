import sys

import torch

from pscd.config import TrainConfig
from pscd.data import Dataset
from pscd.errors import Diverged
from pscd.images.features import load_feature_map
from pscd.rng import generator
from studies.images.contamination import blank
from studies.paper import Choice
from studies.paper.scratch_images import ROUGH, label, looks_like_junk, roughness, runs


def test_roughness_by_hand_and_of_noise():
    x = torch.tensor([[0, 255], [51, 255]], dtype=torch.uint8).view(1, 1, 2, 2)
    # Across: 1 and 0.8; down: 0.2 and 0.
    torch.testing.assert_close(roughness(x), torch.tensor([(1 + 0.8 + 0.2 + 0) / 4]))
    noise = torch.randint(256, (50, 1, 28, 28), generator=generator(0)).to(torch.uint8)
    # Two independent uniform numbers differ by 1/3 on average; 1,512 pairs an image leave an error of .008 at the most.
    assert ((roughness(noise) - 1 / 3).abs() < 0.05).all()
    assert ROUGH == 1 / 6


def test_every_line_starts_from_scratch_on_dirty_and_on_clean_images():
    made = runs(Choice(junk="blank", ratio=0.2), False, 2)
    assert len(made) == 2 * 2 * 3
    assert [label(s) for s in made[:6]] == [
        "CD",
        "gamma 0.3, warm-up 0.5",
        "gamma 0.3, warm-up 0.05",
        "CD, clean images",
        "gamma 0.3, warm-up 0.5, clean images",
        "gamma 0.3, warm-up 0.05, clean images",
    ]
    for s in made:
        config = TrainConfig.from_dict(s["config"])
        assert (config.objective.gamma, config.objective.warmup) == (s["gamma"], s["warmup"])
        assert (config.seed, config.updates, config.energy.classes) == (s["seed"], 2000, 0)
        assert (s["junk"], s["ratio"]) == ("blank", 0.2)


def test_a_run_that_diverges_is_told_without_a_path(tmp_path, monkeypatch):
    def give_up(*args, **settings):
        raise Diverged("training diverged 6 times", f"the model of step 5 is kept in {tmp_path}")

    module = sys.modules[runs.__module__]  # the package has a function of the same name
    monkeypatch.setattr(module, "fit", give_up)
    (first, *_) = runs(Choice(data="digits", features="pixels"), True, 1)
    found = module.compute(first, tmp_path)
    assert found.pop("error") == "training diverged 6 times"
    assert set(found) == set(module.COLUMNS)
    assert set(found.values()) == {None}


def test_samples_that_are_junk_look_like_it_and_others_do_not():
    """Frames of one level beside images of noise: all frames are taken for junk, and about 1 % of clean images."""
    rng = generator(0)
    x = torch.randint(256, (1200, 1, 8, 8), generator=rng).to(torch.uint8)
    data = Dataset(x[:600], x[600:])
    pixels = load_feature_map("pixels")
    found = looks_like_junk(torch.cat([blank(x, 150, rng), x[:450]]), data, "blank", pixels, 0)
    # The threshold is the third highest of 300: more than 6 % of other images above it have a chance of 3e-6, that of
    # two or fewer events where 18 are expected.
    assert 0.25 <= found["like_junk"] <= 0.25 + 0.06 * 0.75
    assert found["junk_seen"] == 1
    assert looks_like_junk(x[:600], data, "blank", pixels, 0)["like_junk"] <= 0.06
