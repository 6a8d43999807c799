"""A run that was stopped is a model: the one that training had at its last checkpoint, to the last bit."""

import json
from dataclasses import dataclass, replace

import pytest
import torch

import pscd
from pscd.coordinates import Coordinates
from pscd.data import load_dataset
from pscd.errors import UserError
from pscd.files import read_tensors, tensors_digest
from pscd.objectives import OBJECTIVES
from pscd.objectives.gamma import PseudoSpherical
from pscd.recipes.configs import RECIPES
from pscd.rng import generator
from pscd.run_folder import RunFolder
from pscd.training import checkpoint
from pscd.training.finish import load_stopped, settled
from pscd.training.fit import fit

IMAGES = RECIPES["digits"].changed(
    {
        "energy.width": 4,
        "energy.classes": 10,
        "batch_size": 8,
        "chains.buffer_size": 30,
        "updates": 6,
        "sampler.n_steps": 2,
    }
)


class Stopped(Exception):
    pass


def stopped_run(folder, x, config, at, **more):
    """Train until update `at`, and return the model that there was then."""
    models = []

    def stop(now):
        if now["step"] == at:
            models.append(now["model"]())
            return True

    fit(
        x,
        config=config.changed({"guard.checkpoint_every": at, "guard.log_every": at}),
        folder=folder,
        callbacks=[stop],
        **more,
    )
    RunFolder(folder).model.unlink()  # as if killed
    return models[-1]


@pytest.fixture
def x():
    return torch.randn(200, 3, generator=generator(0)) * torch.tensor([1.0, 5.0, 0.2])


def test_a_table(small, x, tmp_path):
    names = ("a", "b", "c")
    there = stopped_run(tmp_path, x, small, 20, columns=names, fingerprint="f00d")
    with pytest.warns(UserWarning, match=r"trained for 20 of 60 updates so far; training with the same configuration"):
        model = pscd.load(tmp_path)
    assert torch.equal(model.energy(x), there.energy(x))
    assert torch.equal(model.sample(9, seed=3), there.sample(9, seed=3))
    assert (model.columns, model.fingerprint, model.config) == (names, "f00d", there.config)
    assert model.notes == ("trained for 20 of 60 updates so far",)


def test_an_objective_that_json_cannot_tell_trains_and_resumes_but_is_not_read(small, x, tmp_path):
    @dataclass(frozen=True)
    class Own(PseudoSpherical):
        weights: torch.Tensor | None = None

    config = small.changed({"objective": Own(weights=torch.ones(2)), "updates": 20, "guard.checkpoint_every": 10})
    fit(x, config=replace(config, updates=10), folder=tmp_path)
    assert checkpoint.load(tmp_path)["step"] == 10
    with pytest.raises(UserError, match="does not describe its model"):
        load_stopped(tmp_path)


def test_loading_changes_nothing_and_a_finished_model_is_preferred(small, tmp_path):
    run = pscd.train(small, tmp_path / "run", progress=False)
    finished = tensors_digest(read_tensors(run / "model.safetensors")[0])
    (run / "model.safetensors").unlink()
    (run / "state-previous.pt").rename(run / "state.pt")  # as if killed after update 40
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.warns(UserWarning, match="for 40 of 60"):
        half = pscd.load(run)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    pscd.train(small, run, progress=False)
    assert tensors_digest(read_tensors(run / "model.safetensors")[0]) == finished
    assert not torch.equal(pscd.load(run).energy(torch.zeros(1, 2)), half.energy(torch.zeros(1, 2)))


def test_images_go_on_from_their_chains_and_labels(tmp_path):
    data = load_dataset("digits", seed=0, n=60)
    there = stopped_run(tmp_path, data.train, IMAGES, 3, label=data.train_labels)
    model = load_stopped(tmp_path)
    assert torch.equal(model.energy(data.train), there.energy(data.train))
    assert torch.equal(model.proposal.points, there.proposal.points)
    assert torch.equal(model.proposal.label, there.proposal.label)
    assert len(model.proposal.label.unique()) > 1
    assert torch.equal(model.sample(4, n_steps=2, label=1), there.sample(4, n_steps=2, label=1))


def test_the_best_weights_by_held_out_rows_and_the_gamma_that_was_chosen(x, tmp_path):
    config = RECIPES["table"].changed({"updates": 8, "batch_size": 32, "chains.buffer_size": 64, "guard.log_every": 2})
    there = stopped_run(tmp_path, x, config, 6)
    values = checkpoint.load(tmp_path)
    values["best"]["weights"] = {name: t + 1 for name, t in values["best"]["weights"].items()}
    assert torch.equal(load_stopped(tmp_path).energy(x), there.energy(x))
    assert isinstance(load_stopped(tmp_path).config.objective.gamma, float)
    assert load_stopped(tmp_path).notes[:-1] == there.notes
    checkpoint.save(values, tmp_path)
    assert not torch.equal(load_stopped(tmp_path).energy(x), there.energy(x))


def test_without_chains_in_training_the_step_is_adapted_on_loading(small, x, tmp_path):
    there = stopped_run(tmp_path, x, replace(small, objective=OBJECTIVES["dsm"]), 20)
    before = there.step_size.clone()
    assert load_stopped(tmp_path).step_size == settled(there).step_size != before


def test_a_network_of_ones_own(small, x, tmp_path):
    def own():
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1), torch.nn.Flatten(0))

    there = stopped_run(tmp_path, x, small, 20, energy=own())
    with pytest.raises(UserError, match=r"its weights are those of Sequential; load it with energy=Sequential"):
        load_stopped(tmp_path)
    assert torch.equal(load_stopped(tmp_path, energy=own()).energy(x), there.energy(x))


def test_where_there_is_no_checkpoint(tmp_path):
    assert load_stopped(tmp_path) is None
    with pytest.raises(UserError, match="not a run folder, or stopped before its first checkpoint"):
        pscd.load(tmp_path)


@pytest.fixture
def values(small, x, tmp_path):
    stopped_run(tmp_path, x, small, 20)
    return checkpoint.load(tmp_path)


def settings(values, **changes):
    config = json.loads(values["about"]["config"])
    config.update(changes)
    values["about"]["config"] = json.dumps(config)


OTHER_KINDS = (7, "text", torch.zeros(3, 3, 3), {"a": 1}, [torch.zeros(2)])


def refused(values, folder):
    checkpoint.save(values, folder)
    with pytest.raises(UserError, match=r"state\.pt: "):
        load_stopped(folder)
    return True


@pytest.mark.parametrize("name", ["averaged", "step_size", "shift", "scale", "proposal"])
def test_what_is_missing_or_of_another_kind_is_one_line(values, tmp_path, name):
    assert all(refused({**values, name: value}, tmp_path) for value in (None, *OTHER_KINDS))
    del values[name]
    assert refused(values, tmp_path)


def test_so_are_chains_of_images(tmp_path):
    data = load_dataset("digits", seed=0, n=60)
    stopped_run(tmp_path, data.train, IMAGES, 3, label=data.train_labels)
    values = checkpoint.load(tmp_path)
    assert all(refused({**values, "buffer": value}, tmp_path) for value in OTHER_KINDS)
    assert all(refused({**values, "label": value}, tmp_path) for value in OTHER_KINDS)


def test_numbers_that_are_repeated_without_end_take_no_memory(values, tmp_path):
    """A view of one number as ten million million, which torch would save and load in a kilobyte."""
    endless = torch.zeros(1).expand(10**13)
    for name in ("shift", "scale"):
        checkpoint.save({**values, name: endless}, tmp_path)
        with pytest.raises(UserError, match=f"{name} is larger than what the file holds"):
            load_stopped(tmp_path)
    weights = dict.fromkeys(values["averaged"], endless)
    checkpoint.save({**values, "averaged": weights}, tmp_path)
    with pytest.raises(UserError, match="larger than what the file holds"):
        load_stopped(tmp_path)
    checkpoint.save({**values, "shift": torch.zeros(3).to_sparse()}, tmp_path)
    with pytest.raises(UserError, match="shift is larger than what the file holds"):
        load_stopped(tmp_path)


@pytest.mark.parametrize("kind", ["os:system", "subprocess:Popen", "pathlib:Path"])
def test_import_paths_call_nothing(values, tmp_path, kind):
    settings(values, objective={"kind": kind, "command": "touch harm", "args": "touch harm"})
    checkpoint.save(values, tmp_path)
    with pytest.raises(UserError, match="not a dataclass of settings"):
        load_stopped(tmp_path)


def test_an_objective_of_ones_own_that_is_not_imported_is_not_needed_for_energies(values, x, tmp_path):
    there = load_stopped(tmp_path).energy(x)
    settings(values, objective={"kind": "strangers_module:Loss"})
    checkpoint.save(values, tmp_path)
    assert torch.equal(load_stopped(tmp_path).energy(x), there)


def test_sizes_in_the_settings_take_no_memory(values, tmp_path):
    settings(values, energy={**json.loads(values["about"]["config"])["energy"], "width": 10**9})
    checkpoint.save(values, tmp_path)
    with pytest.raises(UserError, match="its weights are those of MLP"):
        load_stopped(tmp_path)


def test_coordinates_are_those_of_the_checkpoint(values, tmp_path):
    model = load_stopped(tmp_path)
    assert isinstance(model.coordinates, Coordinates)
    assert torch.equal(model.shift, values["shift"])
    assert torch.equal(model.scale, values["scale"])
