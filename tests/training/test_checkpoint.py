import copy
import os
import zipfile
from dataclasses import replace

import pytest
import torch

from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.objectives import OBJECTIVES
from pscd.rng import generator
from pscd.run_folder import RunFolder
from pscd.training import checkpoint
from pscd.training.loop import train_step
from pscd.training.state import Best, init_state


@pytest.fixture
def state(small):
    x = torch.randn(300, 2, generator=generator(0))
    state = init_state(x, small, None, torch.device("cpu"))
    for _ in range(3):
        train_step(state, x, small)
    return state, x


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_restore_undoes_everything_that_training_changes(state, small):
    state, x = state
    values = checkpoint.snapshot(state)
    reference = copy.deepcopy(values)
    for _ in range(5):
        train_step(state, x, small)
    assert not same(checkpoint.snapshot(state), reference)
    checkpoint.restore(state, values)
    assert same(checkpoint.snapshot(state), reference)
    train_step(state, x, small)
    assert same(values, reference)  # the snapshot itself is not trained on


def test_save_and_load(state, tmp_path):
    values = checkpoint.snapshot(state[0])
    checkpoint.save(values, tmp_path)
    assert same(checkpoint.load(tmp_path), values)
    assert checkpoint.load(tmp_path / "nowhere") is None


def test_a_checkpoint_of_a_gpu_can_be_read_without_one(state, tmp_path, monkeypatch):
    checkpoint.save(checkpoint.snapshot(state[0]), tmp_path)
    where, load = [], torch.load

    def spy(path, map_location=None, **options):
        where.append(map_location)
        return load(path, map_location=map_location, **options)

    monkeypatch.setattr(torch, "load", spy)
    checkpoint.load(tmp_path)
    assert set(where) == {"cpu"}


@pytest.mark.parametrize(("then", "now", "goes_on"), [("a", "a", True), ("a", "b", False), (None, "b", True)])
def test_a_run_goes_on_with_its_own_rows_only(state, small, tmp_path, then, now, goes_on):
    """A checkpoint that does not say which rows it is of, as old ones do not, is trusted."""
    state, x = state
    checkpoint.save(checkpoint.snapshot(state) | {"rows": then}, tmp_path)
    other = init_state(x, small, None, torch.device("cpu"))
    other.rows = now
    if goes_on:
        checkpoint.resume(other, tmp_path)
        assert other.step == 3
    else:
        with pytest.raises(UserError, match="holds a run on other rows; choose another folder"):
            checkpoint.resume(other, tmp_path)


def test_chains_of_another_shape_are_refused(state):
    state, _ = state
    values = checkpoint.snapshot(state)
    with pytest.raises(ValueError, match=r"its chains have the shape \(3,\)"):
        checkpoint.restore(state, values | {"buffer": torch.zeros(len(values["buffer"]), 3)})


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "truncated":
        content = content[: len(content) // 2]
    elif how == "one bit":
        content[len(content) // 2] ^= 1
    else:
        content = b"not a checkpoint"
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["truncated", "one bit", "other"])
def test_damage_falls_back_to_the_checkpoint_before(state, small, tmp_path, how):
    state, x = state
    checkpoint.save(checkpoint.snapshot(state), tmp_path)
    train_step(state, x, small)
    checkpoint.save(checkpoint.snapshot(state), tmp_path)
    damage(RunFolder(tmp_path).state, how)
    with pytest.warns(UserWarning, match=r"state\.pt: damaged .* resuming from state-previous\.pt, update 3"):
        assert checkpoint.load(tmp_path)["step"] == 3
    damage(RunFolder(tmp_path).previous_state, how)
    with pytest.raises(UserError, match=r"state\.pt: damaged .* and .*state-previous\.pt: damaged"):
        checkpoint.load(tmp_path)


def test_a_kill_between_the_two_renames_loses_nothing(state, tmp_path):
    checkpoint.save(checkpoint.snapshot(state[0]), tmp_path)
    (RunFolder(tmp_path).state).rename(RunFolder(tmp_path).previous_state)
    assert checkpoint.load(tmp_path)["step"] == 3


def changed(value):
    """The same kind of value, but another one."""
    if isinstance(value, dict):
        return {key: changed(v) for key, v in value.items()}
    if isinstance(value, torch.Tensor):
        return ~value if value.dtype == torch.bool else value + 1
    return f"{value}+" if isinstance(value, str) else value + 1


FIELDS = ["step", "retries", "energy", "averaged", "aux", "buffer", "label", "step_size", "shift", "scale", "linear",
          "used", "constants", "proposal", "best"]  # fmt: skip


def whole_state(small):
    """A state in which no field is empty: labels, a critic, dropped columns, compressed tails, held-out rows."""
    x = torch.randn(60, 3, generator=generator(0)).double()
    x[:, 1] = 4.0
    config = small.changed(
        {
            "objective": OBJECTIVES["f-ebm"],
            "rows.standardise": "robust",
            "energy": Architecture("quadratic"),
            "chains.buffer_size": 20,
        }
    )
    state = init_state(x, config, None, torch.device("cpu"))
    state.buffer.label = torch.arange(20) % 3
    state.best = Best(0.25, {name: t.clone() for name, t in state.averaged.state_dict().items()})
    return state


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_comes_back_by_itself(small, tmp_path, field):
    """One field of the file is changed, and that one alone is different in the state that is restored from it."""
    state = whole_state(small)
    before = checkpoint.snapshot(state)
    assert before.keys() == {*FIELDS, "optimizer", "rows", "about"}
    assert not [name for name, value in before.items() if value is None]
    values = copy.deepcopy(before)
    values[field] = changed(values[field])
    checkpoint.save(values, tmp_path)
    checkpoint.restore(state, checkpoint.load(tmp_path))
    after = checkpoint.snapshot(state)
    assert same(after[field], values[field])
    assert not same(after[field], before[field])
    assert all(same(after[name], before[name]) for name in before if name != field)


def test_the_optimiser_comes_back_with_its_moments_and_rate(state, small):
    state, x = state
    values = checkpoint.snapshot(state)
    other = init_state(x, small, None, torch.device("cpu"))
    checkpoint.restore(other, values)
    moments = other.optimizer.state_dict()["state"]
    assert moments
    assert same(other.optimizer.state_dict(), values["optimizer"])
    for one in (state, other):
        train_step(one, x, small)
    assert same(checkpoint.snapshot(state), checkpoint.snapshot(other))


def test_a_snapshot_is_a_copy_and_so_is_what_is_restored_from_it(state):
    state, _ = state
    values = checkpoint.snapshot(state)
    reference = copy.deepcopy(values)
    with torch.no_grad():
        state.buffer.x.add_(1)
        state.step_size.add_(1)
        state.coordinates.shift.add_(1)
        for p in state.energy.parameters():
            p.add_(1)
    assert same(values, reference)
    checkpoint.restore(state, values)
    with torch.no_grad():
        state.buffer.x.add_(1)
        state.coordinates.shift.add_(1)
    assert same(values, reference)


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_hostile_file_runs_nothing(tmp_path):
    trap = tmp_path / "trap"
    torch.save({"step": 1, "energy": Hostile(trap)}, RunFolder(tmp_path).state)
    with pytest.raises(UserError, match="damaged"):
        checkpoint.load(tmp_path)
    assert not trap.exists()


def test_the_previous_checkpoint_is_kept(state, small, tmp_path):
    state, x = state
    for step in (3, 4, 5):
        checkpoint.save(checkpoint.snapshot(state), tmp_path)
        newest = torch.load(RunFolder(tmp_path).state, weights_only=True)
        assert newest["step"] == step
        train_step(state, x, small)
    assert torch.load(RunFolder(tmp_path).previous_state, weights_only=True)["step"] == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state-previous.pt", "state.pt"]


def test_a_branch_starts_at_zero_with_everything_else(state, tmp_path):
    state, _ = state
    state.retries, state.best = 2, Best(0.5, state.averaged.state_dict())
    values = checkpoint.snapshot(state)
    (tmp_path / "a").mkdir()
    checkpoint.save(values, tmp_path / "a")
    checkpoint.branch(tmp_path / "a", tmp_path / "deep" / "b")
    found = checkpoint.load(tmp_path / "deep" / "b")
    fresh = {"step": 0, "retries": 0, "rows": "", "best": None}
    assert {name: found[name] for name in fresh} == fresh
    assert all(same(found[name], values[name]) for name in values if name not in fresh)


def test_a_branch_leaves_a_run_that_is_there_alone_and_tells_nothing_of_its_source(state, small, tmp_path):
    state, x = state
    with pytest.raises(UserError, match="a: no run to start from"):
        checkpoint.branch(tmp_path / "a", tmp_path / "b")
    for name in "ab":
        (tmp_path / name).mkdir()
    checkpoint.save(checkpoint.snapshot(state) | {"about": {"config": "{}"}}, tmp_path / "a")
    checkpoint.branch(tmp_path / "a", tmp_path / "b")
    assert checkpoint.load(tmp_path / "b")["about"] == {}
    train_step(state, x, small)
    checkpoint.save(checkpoint.snapshot(state), tmp_path / "b")
    checkpoint.branch(tmp_path / "a", tmp_path / "b")
    assert checkpoint.load(tmp_path / "b")["step"] == 4


def test_moments_of_another_shape_are_refused(state):
    """torch loads them, and its fused Adam reads beyond their end."""
    state, _ = state
    values = checkpoint.snapshot(state)
    other = copy.deepcopy(values)
    other["optimizer"]["state"][0]["exp_avg"] = torch.zeros(1)
    with pytest.raises(ValueError, match=r"exp_avg of the optimiser has the shape \(1,\), not \("):
        checkpoint.restore(state, other)
    other["optimizer"]["state"][0] = dict(values["optimizer"]["state"][0]) | {"note": "no tensor"}
    checkpoint.restore(state, other)


def test_a_run_goes_on_from_nothing_where_there_is_nothing(state, tmp_path):
    state, _ = state
    for folder in (None, tmp_path):
        checkpoint.resume(state, folder)
        assert state.step == 3


def test_a_checkpoint_of_another_network_is_one_line(state, small, tmp_path):
    state, x = state
    checkpoint.save(checkpoint.snapshot(state), tmp_path)
    other = init_state(x, replace(small, energy=replace(small.energy, width=7)), None, torch.device("cpu"))
    with pytest.raises(UserError, match=r"state\.pt: damaged, or of another network"):
        checkpoint.resume(other, tmp_path)


def test_a_step_size_of_another_shape_and_type_is_restored(state):
    state, _ = state
    values = checkpoint.snapshot(state)
    values["step_size"] = values["step_size"].double().view(1, 1) * 2
    checkpoint.restore(state, values)
    assert (state.step_size.dtype, state.step_size.shape) == (torch.float32, torch.Size())
    assert state.step_size == values["step_size"].float()


@pytest.mark.parametrize("values", [{"energy": {}}, {"step": "many"}, [1]])
def test_what_holds_no_step_is_damaged(values, tmp_path):
    torch.save(values, RunFolder(tmp_path).state)
    with pytest.raises(UserError, match=r"state\.pt: damaged .*; delete the run folder to start again"):
        checkpoint.load(tmp_path)


def test_a_file_that_would_unpack_to_more_than_it_is_is_not_read(state, tmp_path):
    """torch does not compress; somebody else may have."""
    path = RunFolder(tmp_path).state
    checkpoint.save(checkpoint.snapshot(state[0]), tmp_path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    assert checkpoint.load(tmp_path)["step"] == 3
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (parts | {"archive/more": bytes(10**6)}).items():
            archive.writestr(name, content)
    with pytest.raises(UserError, match="its members are larger than the file"):
        checkpoint.load(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(RunFolder(tmp_path).state)
    assert checkpoint.load(tmp_path) is None
