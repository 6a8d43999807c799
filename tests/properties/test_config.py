"""Configurations: JSON and back, and any combination of flags is a run or one clear line."""

import json
import math
from dataclasses import fields, is_dataclass, replace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pscd.cli.main import main
from pscd.config import COUNTS, LATER, TrainConfig
from pscd.data import TOYS
from pscd.energies import Architecture
from pscd.errors import Diverged, UserError
from pscd.objectives import OBJECTIVES
from pscd.rng import generator
from pscd.sampling import SAMPLERS
from pscd.training.loop import fit
from tests.cli.helpers import SMALL, parse

NAMES = {"divergence": ("kl", "reverse-kl", "hellinger", "js"), "critic": ("same", "mlp"),
         "name": ("mlp", "quadratic", "conv", "resnet", "cnn", "corrected")}  # fmt: skip


def values_of(kind, name):
    """Values that may or may not be allowed for a field of this type."""
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    options = get_args(kind) if not isinstance(kind, type) and get_origin(kind) is not tuple else (kind,)
    made = {
        int: st.integers(-1, 40),
        float: st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-0.5, 3)),
        bool: st.booleans(),
        str: st.sampled_from(NAMES.get(name, ("", "a,b", "x.csv"))),
        type(None): st.none(),
    }
    found = [
        st.sampled_from(get_args(o)) if get_origin(o) is Literal else made[o]
        for o in options
        if o in made or get_origin(o) is Literal
    ]
    return st.one_of(found) if found else st.none()


@st.composite
def parts(draw, kind):
    hints = get_type_hints(kind)
    chosen = draw(st.sets(st.sampled_from([f.name for f in fields(kind)]), max_size=4))
    try:
        return kind(**{name: draw(values_of(hints[name], name)) for name in sorted(chosen)})
    except (UserError, ValueError):
        return kind()


@st.composite
def configs(draw):
    hints = get_type_hints(TrainConfig)
    given_parts = {
        "objective": draw(parts(type(draw(st.sampled_from(list(OBJECTIVES.values())))))),
        "sampler": draw(parts(draw(st.sampled_from(list(SAMPLERS.values()))))),
        "energy": draw(parts(Architecture)),
    }
    plain = [f.name for f in fields(TrainConfig) if f.name not in (*given_parts, "columns")]
    chosen = sorted(draw(st.sets(st.sampled_from(plain), max_size=6)))
    rest = {name: draw(values_of(hints[name], name)) for name in chosen}
    rest["columns"] = draw(st.one_of(st.none(), st.lists(st.text(max_size=3), max_size=2).map(tuple)))
    try:
        return TrainConfig(**given_parts, **rest)
    except UserError as error:
        assert len(str(error).splitlines()) == 1
        return TrainConfig(columns=rest["columns"])


@given(configs())
def test_json_and_back(config):
    text = json.dumps(config.to_dict())
    assert TrainConfig.from_dict(json.loads(text)) == config
    assert json.dumps(TrainConfig.from_dict(json.loads(text)).to_dict()) == text
    assert config.differences(config) == []
    assert is_dataclass(config.sampler)


@given(configs(), configs())
def test_differences_are_what_turns_one_into_the_other(one, other):
    """Applying every difference gives the other configuration; equal ones have none."""
    assert (one.differences(other) == []) == (one == other)
    names = [line.split(":")[0] for line in one.differences(other)]
    ours = dict(flat(one._all()))
    if not any(name.endswith(".kind") for name in names):
        assert other.changed({name: ours[name] for name in names}) == one


def test_one_setting_that_differs_is_the_one_difference():
    """Every number, switch and choice of a run, one at a time."""
    config = TrainConfig()
    hints, found = get_type_hints(TrainConfig), []
    for name in (field.name for field in fields(TrainConfig)):
        value = getattr(config, name)
        others = [c for c in get_args(hints[name]) if c != value] if get_origin(hints[name]) is Literal else []
        if isinstance(value, int | float):
            others = [not value] if isinstance(value, bool) else [value + 1, value / 2, value + 0.25]
        for other in others:
            try:
                changed = replace(config, **{name: other})
            except UserError:
                continue
            assert changed.differences(config) == [f"{name}: {other} asked, {value} there"]
            found.append(name)
            break
    assert {"seed", "steps", "lr", "restart", "ema", "schedule", "standardise", "gradients"} <= set(found)
    assert len(found) >= 24


def flat(values, prefix=""):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@given(configs())
def test_younger_settings_are_left_out_at_their_default_and_only_there(config):
    found, every = dict(flat(config.to_dict())), dict(flat(config._all()))
    assert every.keys() - found.keys() == {name for name in LATER if name in every and every[name] == LATER[name]}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_start_at_one(name):
    assert getattr(TrainConfig().changed({name: 1}), name) == 1
    for bad in (0, -1):
        with pytest.raises(UserError, match=f"{name} must be at least 1, got {bad}"):
            TrainConfig().changed({name: bad})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("lr", (1e-9, 10.0), (0.0, -1.0, math.inf, math.nan)),
        ("max_gap", (1e-9, 1e9), (0.0, -1.0, math.inf, math.nan)),
        ("clip", (1e-9, None), (0.0, -1.0, math.inf, math.nan)),
        ("restart", (0.0, 1.0), (-0.01, 1.01, math.nan)),
        ("ema", (0.0, 0.9999), (-0.01, 1.0, math.nan)),
        ("beta1", (0.0, 0.9999), (-0.01, 1.0, math.nan)),
        ("data_noise", (0.0, 9.0), (-0.01, math.inf, math.nan)),
        ("max_retries", (0, 9), (-1,)),
        ("seed", (0, 9), (-1,)),
    ],
)
def test_ranges_include_their_ends_as_they_say(name, good, bad):
    for value in good:
        assert getattr(TrainConfig(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(UserError, match=name):
            TrainConfig(**{name: value})


# Flags and settings as a user may combine them, also wrongly.
FLAGS = {
    "--gamma": ["0", "0.5", "-1", "-2", "auto", "much", "nan"],
    "objective.warmup": ["0", "1", "2"],
    "objective.unit": ["nats", "spread", "metres"],
    "objective.negatives": ["auto", "direct", "weighted"],
    "objective.l2": ["0", "0.1", "-1"],
    "objective.divergence": ["js", "kl", "tv"],
    "objective.alpha": ["0", "0.5", "1"],
    "chains": ["persistent", "data", "short-run"],
    "base": ["gaussian", "box"],
    "start": ["none", "mixture"],
    "standardise": ["std", "robust", "none"],
    "stop": ["end", "randomised"],
    "schedule": ["cosine", "constant"],
    "restart": ["0", "1", "1.5"],
    "clip": ["none", "0.1", "0"],
    "ema": ["0", "0.9", "1"],
    "beta1": ["0", "0.5"],
    "data_noise": ["0", "0.1", "-1"],
    "hold_out": ["0", "0.3", "2"],
    "energy.classes": ["0", "3"],
    "precision": ["float32", "bfloat16"],
    "gradients": ["auto", "eager", "plain"],
    "sampler.n_steps": ["1", "3", "0"],
    "sampler.jump_every": ["0", "2", "1"],
    "sampler.low": ["-1", "0", "none"],
    "sampler.high": ["1", "-5"],
    "sampler.step_size": ["0.1", "0"],
    "--seed": ["0", "7", "-1"],
    "energy.name": ["mlp", "quadratic", "corrected", "conv", "resnet", "nothing"],
    "--columns": ["a,b"],
    "--nonsense": ["1"],
}


@st.composite
def lines(draw, most):
    words = ["--objective", draw(st.sampled_from(list(OBJECTIVES)))] if draw(st.booleans()) else []
    words += ["--sampler", draw(st.sampled_from(list(SAMPLERS)))] if draw(st.booleans()) else []
    for flag in sorted(draw(st.sets(st.sampled_from(list(FLAGS)), max_size=most))):
        value = draw(st.sampled_from(FLAGS[flag]))
        words += [flag, value] if flag.startswith("--") else ["--set", f"{flag}={value}"]
    return words


def one_clear_line(code, text):
    message = text.strip().splitlines()
    assert code == 2
    assert len(message) == 1, text
    assert message[0].startswith("pscd")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(words=["--set", "restart=1.5"])
@given(words=lines(4))
def test_any_flags_are_a_configuration_or_one_clear_line(words, capsys):
    try:
        config = parse(" ".join(["train", "moon", *words, "--out", "nowhere"]))
    except UserError as error:
        assert len(str(error).splitlines()) == 1
    except SystemExit as stop:
        one_clear_line(stop.code, capsys.readouterr().err)
    else:
        assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def run_or_one_line(words, folder, capsys):
    argv = ["train", "moon", *SMALL, "--updates", "3", "--set", "max_retries=0", *words, "--out", str(folder)]
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    text = capsys.readouterr().err
    assert "Traceback" not in text
    if code == 0:
        assert (folder / "model.safetensors").is_file()
    else:
        assert code in (1, 2, 3)
        assert len([line for line in text.strip().splitlines() if line.startswith("pscd")]) == 1, (argv, text)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=lines(3))
def test_any_configuration_trains_or_is_one_clear_line(words, capsys):
    try:
        config = parse(" ".join(["train", "moon", *SMALL, *words, "--updates", "2", "--out", "nowhere"]))
        model = fit(TOYS["moon"](60, generator(0)), replace(config, max_retries=0))
    except (UserError, Diverged) as error:
        assert len(str(error).splitlines()) == 1
    except SystemExit as stop:
        one_clear_line(stop.code, capsys.readouterr().err)
    else:
        assert model.energies(torch.zeros(3, 2)).isfinite().all()


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=lines(5), number=st.integers(0, 2**40))
def test_many_flags_run_or_are_one_clear_line(words, number, tmp_path, capsys):
    run_or_one_line(words, tmp_path / str(number), capsys)
