import sys

import torch

from pscd.config import TrainConfig
from pscd.errors import Diverged
from pscd.paper import Choice
from pscd.paper.scratch_images import ROUGH, cells, label, roughness
from pscd.rng import generator


def test_roughness_by_hand_and_of_noise():
    x = torch.tensor([[0, 255], [51, 255]], dtype=torch.uint8).view(1, 1, 2, 2)
    # Across: 1 and 0.8; down: 0.2 and 0.
    torch.testing.assert_close(roughness(x), torch.tensor([(1 + 0.8 + 0.2 + 0) / 4]))
    noise = torch.randint(256, (50, 1, 28, 28), generator=generator(0)).to(torch.uint8)
    # Two independent uniform numbers differ by 1/3 on average; 1,512 pairs an image leave an error of .008 at the most.
    assert ((roughness(noise) - 1 / 3).abs() < 0.05).all()
    assert ROUGH == 1 / 6


def test_every_line_starts_from_scratch_on_dirty_and_on_clean_images():
    made = cells(Choice(junk="blank", ratio=0.2), False, 2)
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
        assert (config.seed, config.steps, config.energy.classes) == (s["seed"], 2000, 0)
        assert (s["junk"], s["ratio"]) == ("blank", 0.2)


def test_a_run_that_diverges_is_told_without_a_path(tmp_path, monkeypatch):
    def give_up(*args, **settings):
        raise Diverged("training diverged 6 times", f"the model of step 5 is kept in {tmp_path}")

    module = sys.modules[cells.__module__]  # the package has a function of the same name
    monkeypatch.setattr(module, "fit", give_up)
    (first, *_) = cells(Choice(data="digits", features="pixels"), True, 1)
    found = module.compute(first, tmp_path)
    assert found.pop("error") == "training diverged 6 times"
    assert set(found) == set(module.COLUMNS)
    assert set(found.values()) == {None}
