import json
from dataclasses import dataclass, fields
from operator import attrgetter

import pytest

from pscd.config import LATER, TrainConfig
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.objectives import OBJECTIVES, PseudoSpherical
from pscd.sampling import SAMPLERS, Langevin, Mala


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_json_and_back(objective, sampler):
    config = TrainConfig(
        data="x.csv",
        columns=("a", "b"),
        objective=OBJECTIVES[objective],
        sampler=SAMPLERS[sampler](),
        energy=Architecture("conv", width=8, base_scale=None, levels=3 if objective == "recovery" else 0),
    )
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_younger_settings_are_left_out_at_their_default():
    """Run folders and results of before are found again by an equal dictionary."""
    assert "chains" not in TrainConfig().to_dict()
    config = TrainConfig().changed({"chains": "data"})
    assert config.to_dict()["chains"] == "data"
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert config.differences(TrainConfig()) == ["chains: data asked, persistent there"]
    for name, value in LATER.items():
        assert attrgetter(name)(TrainConfig()) == value


def test_differences_name_the_setting():
    config = TrainConfig(objective=PseudoSpherical(gamma=0.5))
    assert config.differences(TrainConfig()) == ["objective.gamma: 0.5 asked, 1.0 there"]
    assert config.differences(config) == []
    assert "sampler.kind: Langevin asked, Mala there" in TrainConfig(sampler=Langevin()).differences(TrainConfig())


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 0},
        {"batch_size": 0},
        {"lr": 0.0},
        {"restart": 1.5},
        {"ema": 1.0},
        {"schedule": "linear"},
        {"standardise": "max"},
        {"chains": "free"},
        {"gradients": "none"},
        {"seed": -1},
        {"data_noise": -0.1},
        {"data_noise": float("nan")},
        {"clip": -1.0},
        {"max_gap": float("nan")},
        {"lr": float("inf")},
    ],
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(UserError):
        TrainConfig(**settings)


@pytest.mark.parametrize("settings", [{"gamma": -1.5}, {"gamma": float("nan")}, {"warmup": 2.0}, {"l2": -1.0}])
def test_bad_objectives_are_refused(settings):
    with pytest.raises(UserError):
        PseudoSpherical(**settings)


def test_settings_are_changed_by_their_dotted_names():
    config = TrainConfig().changed({"steps": 10, "sampler.n_steps": 3, "objective.gamma": 0.5})
    assert (config.steps, config.sampler.n_steps, config.objective.gamma) == (10, 3, 0.5)
    assert TrainConfig().changed({}) == TrainConfig()
    with pytest.raises(UserError, match=r"no setting 'sampler\.speed'"):
        TrainConfig().changed({"sampler.speed": 1})


@dataclass(frozen=True)
class Mine(Mala):
    """A sampler of somebody's own."""


def test_a_sampler_that_was_added_is_read_back(monkeypatch):
    monkeypatch.setitem(SAMPLERS, "mine", Mine)
    config = TrainConfig(sampler=Mine(n_steps=7))
    values = json.loads(json.dumps(config.to_dict()))
    assert values["sampler"]["kind"] == f"{__name__}:Mine"
    assert TrainConfig.from_dict(values) == config


def test_a_file_cannot_call_whatever_is_importable():
    values = TrainConfig().to_dict()
    values["objective"] = {"kind": "pathlib:Path", "gamma": 1}
    with pytest.raises(UserError, match="pathlib:Path is not a dataclass of settings"):
        TrainConfig.from_dict(values)


def test_a_part_whose_module_is_not_loaded_says_so_when_it_is_used():
    values = TrainConfig().to_dict()
    values["sampler"] = {"kind": "not.loaded:Sampler", "speed": 3}
    config = TrainConfig.from_dict(values)
    assert config.to_dict() == values
    with pytest.raises(UserError, match=r"not\.loaded:Sampler is not loaded; import not\.loaded first"):
        _ = config.sampler.run


def test_every_option_stands_under_a_heading():
    groups = [field.metadata["group"] for field in fields(TrainConfig)]
    assert set(groups) == {"data", "objective", "sampler", "energy", "optimisation", "chains", "guard"}
