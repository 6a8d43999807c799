import json
import math
import sys
from dataclasses import dataclass, fields
from operator import attrgetter
from types import SimpleNamespace

import pytest

from pscd.config import LATER, TrainConfig
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.objectives import OBJECTIVES, PseudoSpherical
from pscd.presets import PRESETS, recovering
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
        assert attrgetter(name)(TrainConfig(sampler=Langevin())) == value


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


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("sampler", 3, "sampler is several settings; change one of sampler.kind, sampler.n_steps"),
        ("sampler.kind", "Gibbs", "there is no 'Gibbs'; there are: Mala, Langevin, Jumps"),
        ("objective.kind", "x", "there is no 'x'; there are: "),
        ("steps.x", 1, "there is no setting 'steps.x'"),
        ("nothing.x.y", 1, "there is no setting 'nothing.x.y'"),
    ],
)
def test_changes_that_no_setting_takes_are_told(name, value, told):
    with pytest.raises(UserError) as error:
        TrainConfig().changed({name: value})
    assert str(error.value).startswith(told)


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


def test_every_default_is_part_of_what_a_run_computes():
    """Old results are found by their settings, which do not name those that were left at their default."""
    objective = {"kind": "PseudoSpherical", "gamma": 1.0, "warmup": 0.5, "l2": 0.0, "negatives": "auto"}
    sampler = {"kind": "Mala", "n_steps": 4, "step_size": 0.05, "target_acceptance": 0.6, "jump_every": 2}
    energy = {"name": "mlp", "width": 128, "depth": 3, "fourier": 16, "spectral_norm": False, "base_scale": 2.0}
    assert TrainConfig().to_dict() == {
        "data": "", "columns": None, "n_data": 50_000, "objective": objective,
        "sampler": {**sampler, "low": None, "high": None}, "energy": energy, "steps": 4000, "batch_size": 256,
        "lr": 0.003, "schedule": "cosine", "beta1": 0.9, "stop": "end", "clip": None, "ema": 0.999, "data_noise": 0.0,
        "standardise": "std", "buffer_size": 10_000, "restart": 0.01, "jump_components": 32, "max_gap": 50.0,
        "max_retries": 5, "checkpoint_every": 500, "log_every": 50, "sample_steps": 100, "seed": 0,
    }  # fmt: skip


def test_every_later_setting_is_left_out_at_its_default_alone():
    others = {"chains": "data", "gradients": "eager", "base": "box", "precision": "bfloat16", "image_size": 8,
              "energy.classes": 3, "objective.unit": "spread", "start": "mixture", "hold_out": 0.1, "idle_steps": 7,
              "energy.bound": 2.0, "stream": "no", "sampler.slope": 1.3}  # fmt: skip
    levels = {"energy.levels", "energy.least_noise", "energy.most_noise"}  # the next test's
    assert others.keys() == LATER.keys() - levels
    for name, value in others.items():
        besides = {"box": {"sampler.low": 0.0, "sampler.high": 1.0}, 3: {"energy.name": "cnn"}}.get(value, {})
        plain = TrainConfig(sampler=Langevin()) if name == "sampler.slope" else TrainConfig()
        config = plain.changed({name: value, **besides})
        *path, last = name.split(".")
        values = config.to_dict()
        inner = values[path[0]] if path else values
        assert inner.pop(last) == value
        assert values == plain.changed(besides).to_dict()
        assert TrainConfig.from_dict(config.to_dict()) == config


def test_levels_of_noise_are_left_out_where_there_are_none():
    assert (LATER["energy.levels"], LATER["energy.least_noise"], LATER["energy.most_noise"]) == (0, 0.05, 3.2)
    noisy = recovering(PRESETS["mnist"])
    assert noisy.to_dict()["energy"]["levels"] == 12
    for name, value in (("least_noise", 0.1), ("most_noise", 2.0)):
        assert name not in noisy.to_dict()["energy"]
        changed = noisy.changed({f"energy.{name}": value})
        assert changed.to_dict()["energy"][name] == value
        assert TrainConfig.from_dict(changed.to_dict()) == changed


@pytest.mark.parametrize("name", ["n_data", "steps", "batch_size", "buffer_size", "jump_components", "checkpoint_every",
                                  "log_every", "sample_steps"])  # fmt: skip
def test_counts_begin_at_one(name):
    assert getattr(TrainConfig(**{name: 1}), name) == 1
    with pytest.raises(UserError, match=f"{name} must be at least 1, got 0"):
        TrainConfig(**{name: 0})


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("lr", [1e-9, 5.0], [0.0, -1.0, math.inf, math.nan]),
        ("max_gap", [1e-9, 5.0], [0.0, -1.0, math.inf]),
        ("clip", [None, 1e-9, 5.0], [0.0, -1.0, math.inf]),
        ("restart", [0.0, 1.0], [-0.01, 1.01]),
        ("ema", [0.0, 0.9999], [-0.01, 1.0, 1.5]),
        ("beta1", [0.0, 0.9999], [-0.01, 1.0, 1.5]),
        ("data_noise", [0.0, 3.0], [-0.01, math.inf]),
        ("max_retries", [0], [-1]),
        ("seed", [0], [-1]),
    ],
)
def test_numbers_may_lie_on_the_edge_of_what_is_allowed(name, allowed, refused):
    for value in allowed:
        assert getattr(TrainConfig(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(UserError, match=f"{name} must"):
            TrainConfig(**{name: value})


def test_settings_that_do_not_go_together():
    for sampler in (Mala(), Mala(low=0.0, high=2.0), Mala(low=-1.0, high=1.0)):
        with pytest.raises(UserError, match="base box needs a sampler with low 0 and high 1"):
            TrainConfig(base="box", sampler=sampler)
    assert TrainConfig(base="box", sampler=Mala(low=0.0, high=1.0)).base == "box"
    for name in ("f-ebm", "nce"):
        assert TrainConfig(objective=OBJECTIVES[name]).energy.classes == 0
        with pytest.raises(UserError, match="f-ebm and nce know no labels"):
            TrainConfig(objective=OBJECTIVES[name], energy=Architecture("cnn", classes=2))
    assert TrainConfig(energy=Architecture("cnn", classes=2)).energy.classes == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 1.5), ("steps", True), ("sampler.n_steps", 2.5), ("energy.depth", 1.5),
     ("columns", [1]), ("columns", 3), ("columns", "age"), ("energy.spectral_norm", 1), ("clip", "much"),
     ("steps", None), ("ema", [0.9]), ("sampler.step_size", "0.1"), ("objective.gamma", "1"), ("energy.width", {})],
)  # fmt: skip
def test_values_of_another_type_are_refused_wherever_they_stand(name, value):
    with pytest.raises(UserError, match=f"{name.split('.')[-1]} must be"):
        TrainConfig().changed({name: value})


def test_a_part_that_was_loaded_too_late_says_so(monkeypatch):
    values = TrainConfig().to_dict()
    values["sampler"] = {"kind": "loaded.later:Sampler"}
    config = TrainConfig.from_dict(values)
    assert (config.sampler.low, config.sampler.high) == (None, None)
    assert not hasattr(config.sampler, "__array__")  # as copy, pickle and numpy ask
    monkeypatch.setitem(sys.modules, "loaded.later", SimpleNamespace(Sampler=Mala))
    with pytest.raises(UserError, match=r"loaded\.later:Sampler was loaded too late; load the run again"):
        _ = config.sampler.run
    assert TrainConfig.from_dict(values).sampler == Mala()
    monkeypatch.setitem(sys.modules, "loaded.later", SimpleNamespace(Sampler=Mala()))  # a value, not a class
    with pytest.raises(UserError, match="is not a dataclass of settings"):
        TrainConfig.from_dict(values)
