import copy

import pytest
import torch

from pscd.errors import UserError
from pscd.rng import generator
from pscd.run_folder import RunFolder
from pscd.training import checkpoint
from pscd.training.initial import init_state
from pscd.training.loop import train_step


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
    with pytest.warns(UserWarning, match=r"state\.pt: damaged .* going on from state-previous\.pt, step 3"):
        assert checkpoint.load(tmp_path)["step"] == 3
    damage(RunFolder(tmp_path).previous_state, how)
    with pytest.raises(UserError, match=r"state\.pt: damaged .* and .*state-previous\.pt: damaged"):
        checkpoint.load(tmp_path)


def test_a_kill_between_the_two_renames_loses_nothing(state, tmp_path):
    checkpoint.save(checkpoint.snapshot(state[0]), tmp_path)
    (RunFolder(tmp_path).state).rename(RunFolder(tmp_path).previous_state)
    assert checkpoint.load(tmp_path)["step"] == 3
