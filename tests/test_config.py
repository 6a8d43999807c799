import json
import math
import sys
from dataclasses import dataclass, replace
from operator import attrgetter
from types import SimpleNamespace

import pytest

from pscd.config import (
    ChainSettings,
    ComputeSettings,
    GuardSettings,
    OptimizerSettings,
    RowSettings,
    TrainConfig,
)
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.objectives import OBJECTIVES, PseudoSpherical
from pscd.sampling import SAMPLERS, Langevin, Mala


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_json_and_back(objective, sampler):
    config = TrainConfig(
        rows=RowSettings(data="x.csv", columns=("a", "b")),
        objective=OBJECTIVES[objective],
        sampler=SAMPLERS[sampler](),
        energy=Architecture("conv", width=8, base_scale=None, levels=3 if objective == "recovery" else 0),
    )
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_differences_name_the_setting():
    config = TrainConfig(objective=PseudoSpherical(gamma=0.5))
    assert config.differences(TrainConfig()) == ["objective.gamma: 0.5 asked, 1.0 there"]
    assert config.differences(config) == []
    assert "sampler.kind: Langevin asked, Mala there" in TrainConfig(sampler=Langevin()).differences(TrainConfig())


@pytest.mark.parametrize("settings", [{"gamma": -1.5}, {"gamma": float("nan")}, {"warmup": 2.0}, {"l2": -1.0}])
def test_bad_objectives_are_refused(settings):
    with pytest.raises(UserError):
        PseudoSpherical(**settings)


def test_settings_are_changed_by_their_dotted_names():
    config = TrainConfig().changed({"updates": 10, "sampler.n_steps": 3, "objective.gamma": 0.5})
    assert (config.updates, config.sampler.n_steps, config.objective.gamma) == (10, 3, 0.5)
    assert TrainConfig().changed({}) == TrainConfig()
    with pytest.raises(UserError, match=r"no setting 'sampler\.speed'"):
        TrainConfig().changed({"sampler.speed": 1})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("optimizer", 3, "optimizer is several settings; change one of optimizer.lr"),
        ("sampler", "mala", "sampler must be an instance such as pscd.Mala(), got 'mala'"),
        ("objective", PseudoSpherical, "objective must be an instance such as pscd.PseudoSpherical()"),
        ("objective.gamma", "aut", "gamma must be float or 'auto', got 'aut'"),
        ("chains.start", "free", "start must be one of persistent, data, short-run, got 'free'"),
        ("optimizer.clip", "much", "clip must be float or None, got 'much'"),
        ("sampler.kind", "Gibbs", "there is no 'Gibbs'; there are: Mala, Langevin, Jumps"),
        ("objective.kind", "x", "there is no 'x'; there are: "),
        ("updates.x", 1, "there is no setting 'updates.x'"),
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


@pytest.mark.parametrize(
    "name",
    [
        "updates",
        "batch_size",
        "rows.n_data",
        "chains.buffer_size",
        "chains.jump_components",
        "chains.sample_steps",
        "guard.checkpoint_every",
        "guard.log_every",
    ],
)
def test_counts_begin_at_one(name):
    assert attrgetter(name)(TrainConfig().changed({name: 1})) == 1
    for bad in (0, -1):
        with pytest.raises(UserError, match=f"{name.split('.')[-1]} must be at least 1, got {bad}"):
            TrainConfig().changed({name: bad})


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("optimizer.lr", [1e-9, 5.0], [0.0, -1.0, math.inf, math.nan]),
        ("optimizer.clip", [None, 1e-9, 5.0], [0.0, -1.0, math.inf, math.nan]),
        ("optimizer.ema", [0.0, 0.9999], [-0.01, 1.0, math.nan]),
        ("optimizer.betas", [(0.0, 0.0), (0.9, 0.9999)], [(-0.01, 0.9), (0.9, 1.0), (0.9,), (0.9, 0.9, 0.9)]),
        ("optimizer.schedule", ["constant"], ["linear"]),
        ("guard.max_gap", [1e-9, 1e9], [0.0, -1.0, math.inf, math.nan]),
        ("guard.max_retries", [0], [-1]),
        ("chains.restart", [0.0, 1.0], [-0.01, 1.01, math.nan]),
        ("chains.start", ["data"], ["free"]),
        ("rows.data_noise", [0.0, 3.0], [-0.01, math.inf, math.nan]),
        ("rows.idle_updates", [0], [-1]),
        ("rows.hold_out", [0.0, 0.99], [-0.5, 1.0, 5.0, math.nan]),
        ("rows.image_size", [None, 1], [0, -1]),
        ("rows.standardise", ["robust"], ["max"]),
        ("compute.gradients", ["plain"], ["none"]),
        ("seed", [0], [-1]),
    ],
)
def test_numbers_may_lie_on_the_edge_of_what_is_allowed(name, allowed, refused):
    for value in allowed:
        assert attrgetter(name)(TrainConfig().changed({name: value})) == value
    for value in refused:
        with pytest.raises(UserError, match=f"{name.split('.')[-1]} must"):
            TrainConfig().changed({name: value})


def test_parts_are_changed_as_objects_too():
    """An objective of any kind, which need not be plain values, and a setting of the part that is given beside it."""

    @dataclass(frozen=True)
    class Held(PseudoSpherical):
        weights: object = None

    held = Held(weights=math)
    config = TrainConfig().changed({"objective": held, "objective.gamma": 0.5, "chains": ChainSettings(restart=0.5)})
    assert config.objective == replace(held, gamma=0.5)
    assert config.chains == ChainSettings(restart=0.5)
    assert TrainConfig().changed({"optimizer": {"lr": 1.0}}).optimizer == OptimizerSettings(lr=1.0)


def test_settings_that_do_not_go_together():
    for sampler in (Mala(), Mala(low=0.0, high=2.0), Mala(low=-1.0, high=1.0)):
        with pytest.raises(UserError, match="base box needs a sampler with low 0 and high 1"):
            TrainConfig(chains=ChainSettings(base="box"), sampler=sampler)
    TrainConfig(chains=ChainSettings(base="box"), sampler=Mala(low=0.0, high=1.0))
    for name, kind in (("f-ebm", "FEBM"), ("nce", "NoiseContrastive")):
        assert TrainConfig(objective=OBJECTIVES[name]).energy.classes == 0
        with pytest.raises(UserError, match=f"{kind} takes no labels; set classes to 0"):
            TrainConfig(objective=OBJECTIVES[name], energy=Architecture("cnn", classes=2))
    assert TrainConfig(energy=Architecture("cnn", classes=2)).energy.classes == 2
    levels = Architecture("conv", levels=3)
    with pytest.raises(UserError, match="Recovery needs an energy with levels of noise; set levels"):
        TrainConfig(objective=OBJECTIVES["recovery"])
    with pytest.raises(UserError, match="PseudoSpherical has no levels of noise; set levels to 0"):
        TrainConfig(energy=levels)
    with pytest.raises(UserError, match="Recovery computes in float32"):
        TrainConfig(objective=OBJECTIVES["recovery"], energy=levels, compute=ComputeSettings("bfloat16"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainConfig(updates=2.5), "updates must be int, got 2.5"),
        (lambda: TrainConfig(optimizer={"lr": 1}), "optimizer must be OptimizerSettings, got {'lr': 1}"),
        (lambda: OptimizerSettings(lr="1"), "lr must be float, got '1'"),
        (lambda: GuardSettings(log_every=0.5), "log_every must be int, got 0.5"),
        (lambda: Architecture(width=2.5), "width must be int, got 2.5"),
        (lambda: PseudoSpherical(gamma="aut"), "gamma must be float or 'auto', got 'aut'"),
    ],
)
def test_types_are_checked_wherever_a_setting_is_made(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("updates", 1.5),
        ("updates", True),
        ("sampler.n_steps", 2.5),
        ("energy.depth", 1.5),
        ("rows.columns", [1]),
        ("rows.columns", 3),
        ("rows.columns", "age"),
        ("energy.spectral_norm", 1),
        ("optimizer.clip", "much"),
        ("optimizer.betas", 0.9),
        ("updates", None),
        ("optimizer.ema", [0.9]),
        ("sampler.step_size", "0.1"),
        ("objective.gamma", "1"),
        ("energy.width", {}),
    ],
)
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
