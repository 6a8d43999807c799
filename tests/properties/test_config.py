"""Configurations: JSON and back, and any combination of flags is a run or one clear line."""

import json
from dataclasses import fields, is_dataclass, replace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pscd.cli.main import main
from pscd.config import GROUPS, RowSettings, TrainConfig
from pscd.data import TOYS
from pscd.errors import Diverged, UserError
from pscd.objectives import OBJECTIVES
from pscd.rng import generator
from pscd.sampling import SAMPLERS
from pscd.training.fit import fit
from tests.cli.helpers import SMALL, parse

NAMES = {"divergence": ("kl", "reverse-kl", "hellinger", "js"), "critic": ("same", "mlp"),
         "name": ("mlp", "quadratic", "conv", "resnet", "cnn", "corrected")}  # fmt: skip


def values_of(kind, name):
    """Values that may or may not be allowed for a field of this type."""
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if name == "betas":
        return st.tuples(st.floats(0, 0.99), st.floats(0, 1.1))
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
    chosen = {
        "objective": draw(parts(type(draw(st.sampled_from(list(OBJECTIVES.values())))))),
        "sampler": draw(parts(draw(st.sampled_from(list(SAMPLERS.values()))))),
        **{name: draw(parts(kind)) for name, kind in GROUPS.items()},
    }
    columns = draw(st.one_of(st.none(), st.lists(st.text(max_size=3), max_size=2).map(tuple)))
    chosen["rows"] = replace(chosen["rows"], columns=columns)
    hints = get_type_hints(TrainConfig)
    for name in sorted(draw(st.sets(st.sampled_from(["updates", "batch_size", "seed"])))):
        chosen[name] = draw(values_of(hints[name], name))
    try:
        return TrainConfig(**chosen)
    except UserError as error:
        assert len(str(error).splitlines()) == 1
        return TrainConfig(rows=RowSettings(columns=columns))


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
    ours = dict(flat(one.to_dict()))
    if not any(name.endswith(".kind") for name in names):
        assert other.changed({name: ours[name] for name in names}) == one


def test_one_setting_that_differs_is_the_one_difference():
    """Every number, switch and choice of a run, one at a time."""
    config, found = TrainConfig(), []
    kinds = {"": TrainConfig, **{f"{name}.": kind for name, kind in GROUPS.items()}}
    for prefix, kind in kinds.items():
        part, hints = getattr(config, prefix[:-1]) if prefix else config, get_type_hints(kind)
        for name in (field.name for field in fields(kind)):
            value = getattr(part, name)
            others = [c for c in get_args(hints[name]) if c != value] if get_origin(hints[name]) is Literal else []
            if isinstance(value, int | float):
                others = [not value] if isinstance(value, bool) else [value + 1, value / 2, value + 0.25]
                others = [other for other in others if other != value]
            for other in others:
                try:
                    changed = config.changed({prefix + name: other})
                except UserError:
                    continue
                assert changed.differences(config) == [f"{prefix}{name}: {other} asked, {value} there"]
                found.append(prefix + name)
                break
    assert {"seed", "updates", "optimizer.lr", "chains.restart", "rows.standardise", "compute.gradients"} <= set(found)
    assert len(found) >= 24


def flat(values, prefix=""):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


# Flags and settings as a user may combine them, also wrongly.
FLAGS = {
    "--gamma": ["0", "0.5", "-1", "-2", "auto", "much", "nan"],
    "objective.warmup": ["0", "1", "2"],
    "objective.unit": ["nats", "spread", "metres"],
    "objective.negatives": ["auto", "direct", "weighted"],
    "objective.l2": ["0", "0.1", "-1"],
    "objective.divergence": ["js", "kl", "tv"],
    "objective.alpha": ["0", "0.5", "1"],
    "chains.start": ["persistent", "data", "short-run"],
    "chains.base": ["gaussian", "box"],
    "rows.start": ["none", "mixture"],
    "rows.standardise": ["std", "robust", "none"],
    "optimizer.stop": ["end", "randomised"],
    "optimizer.schedule": ["cosine", "constant"],
    "chains.restart": ["0", "1", "1.5"],
    "optimizer.clip": ["none", "0.1", "0"],
    "optimizer.ema": ["0", "0.9", "1"],
    "optimizer.betas": ["0,0.9", "0.5", "0,1"],
    "rows.data_noise": ["0", "0.1", "-1"],
    "rows.hold_out": ["0", "0.3", "2"],
    "energy.classes": ["0", "3"],
    "compute.precision": ["float32", "bfloat16"],
    "compute.gradients": ["auto", "eager", "plain"],
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
@example(words=["--set", "chains.restart=1.5"])
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
    argv = ["train", "moon", *SMALL, "--updates", "3", "--set", "guard.max_retries=0", *words, "--out", str(folder)]
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
        model = fit(TOYS["moon"](60, generator(0)), config=config.changed({"guard.max_retries": 0}))
    except (UserError, Diverged) as error:
        assert len(str(error).splitlines()) == 1
    except SystemExit as stop:
        one_clear_line(stop.code, capsys.readouterr().err)
    else:
        assert model.energy(torch.zeros(3, 2)).isfinite().all()


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=lines(5), number=st.integers(0, 2**40))
def test_many_flags_run_or_are_one_clear_line(words, number, tmp_path, capsys):
    run_or_one_line(words, tmp_path / str(number), capsys)
