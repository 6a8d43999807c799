import errno
import fcntl
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

import pscd
from pscd.errors import UserError
from pscd.rng import generator
from pscd.run_folder import RunFolder
from pscd.runs import train


def test_train_writes_a_folder_that_describes_itself(small, tmp_path):
    run = train(small, tmp_path / "run", progress=False)
    assert {p.name for p in run.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "state.pt",
        "state-previous.pt",
    }
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == [10, 20, 30, 40, 50, 60]
    modified = (run / "model.safetensors").stat().st_mtime_ns
    train(small, run, progress=False)  # finished: nothing to do
    assert (run / "model.safetensors").stat().st_mtime_ns == modified
    with pytest.raises(UserError, match=r"other settings \(updates: 61 asked, 60 there\)"):
        train(replace(small, updates=61), run, progress=False)


def test_settings_that_are_not_of_a_run_are_left_alone(small, tmp_path):
    """Those of a run that was stopped before its first checkpoint are replaced."""
    for text in ('{"app": "mine"}', "[1]", "no JSON"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match="holds other files; choose another folder"):
            train(small, tmp_path, progress=False)
        assert (tmp_path / "config.json").read_text() == text
    stopped = tmp_path / "stopped"
    train(small, stopped, progress=False)
    for path in stopped.iterdir():
        if path.name != "config.json":
            path.unlink()
    assert train(replace(small, updates=20), stopped, progress=False) == stopped


def test_the_same_rows_by_another_path_are_the_same_run(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("rows.csv", torch.randn(60, 2, generator=generator(0)).numpy(), delimiter=",", header="a,b", comments="")
    config = small.changed({"rows.data": "rows.csv", "updates": 20})
    run = train(config, tmp_path / "run", progress=False)
    before = (run / "model.safetensors").stat().st_mtime_ns
    train(config.changed({"rows.data": str(tmp_path / "rows.csv")}), run, progress=False)
    assert (run / "model.safetensors").stat().st_mtime_ns == before
    np.savetxt(
        "other.csv", torch.randn(60, 2, generator=generator(1)).numpy(), delimiter=",", header="a,b", comments=""
    )
    with pytest.raises(UserError, match=r"other settings \(rows.data: other.csv asked, rows.csv there\)"):
        train(config.changed({"rows.data": "other.csv"}), run, progress=False)


def test_a_run_that_diverged_is_not_taken_for_finished(small, tmp_path):
    run = train(small, str(tmp_path / "run"), progress=False)
    before = pscd.load(run).network.state_dict()
    (run / "state-previous.pt").rename(run / "state.pt")  # as a diverged run leaves it: a model of step 40
    (run / "model.safetensors").write_bytes(b"the last good one")
    train(small, run, progress=False)
    again = pscd.load(run).network.state_dict()
    assert all(torch.equal(before[name], again[name]) for name in before)


def test_rows_logged_after_the_last_checkpoint_are_not_doubled(small, tmp_path):
    run = train(small, tmp_path / "run", progress=False)
    first = (run / "metrics.jsonl").read_text()
    (run / "model.safetensors").unlink()
    (run / "state-previous.pt").rename(run / "state.pt")  # as if killed after step 40's checkpoint
    train(small, run, progress=False)
    assert (run / "metrics.jsonl").read_text() == first


def test_tensorboard_is_written_when_asked(small, tmp_path):
    run = train(replace(small, updates=10), tmp_path / "run", progress=False, tensorboard=True)
    assert any((run / "tensorboard").iterdir())


def test_a_damaged_configuration_is_told(small, tmp_path):
    run = train(replace(small, updates=5), tmp_path / "run", progress=False)
    (run / "config.json").write_text("{")
    with pytest.raises(UserError, match="is damaged, or of another version"):
        train(replace(small, updates=5), run, progress=False)


def test_a_cut_last_line_of_the_log_is_left_out(small, tmp_path):
    run = train(small, tmp_path / "run", progress=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 70, "lo')
    assert [row["step"] for row in RunFolder(run).read_metrics()] == [10, 20, 30, 40, 50, 60]
    assert RunFolder(tmp_path).read_metrics() == []


def test_a_run_that_fails_at_its_start_gives_its_folder_back(small, tmp_path):
    torch.save({}, tmp_path / "unrelated")
    table = tmp_path / "rows.csv"
    table.write_text("a,b\n" + "".join(f"{i},7\n" for i in range(40)))  # a counts, b is constant
    config = small.changed({"rows.data": str(table), "updates": 5})
    with pytest.raises(UserError, match="no column of numbers or dates is left"):
        train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    train(config.changed({"rows.columns": ("a",)}), tmp_path / "run", progress=False)  # corrected


def test_a_folder_that_holds_nothing_but_settings_may_be_claimed_by_others(small, tmp_path):
    """As a kill before the first checkpoint leaves it."""
    config = replace(small, updates=5)
    run = train(config, tmp_path / "run", progress=False)
    for path in run.iterdir():
        if path.name != "config.json":
            path.unlink()
    train(replace(config, seed=1), run, progress=False)
    assert pscd.load(run).config.seed == 1


def test_a_finished_run_is_told_without_unpacking_its_state(small, tmp_path, monkeypatch):
    run = train(replace(small, updates=5), tmp_path / "run", progress=False)
    monkeypatch.setattr(torch, "load", None)  # cannot be called
    train(replace(small, updates=5), run, progress=False)


def test_every_row_of_the_log_says_how_often_the_run_was_rolled_back(trained):
    assert {row["retries"] for row in RunFolder(trained).read_metrics()} == {0}


def lines_of(run):
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_line_that_a_kill_has_cut_is_not_written_on_to(small, tmp_path):
    run = train(small, tmp_path / "run", progress=False)
    first = (run / "metrics.jsonl").read_bytes()
    (run / "model.safetensors").unlink()
    (run / "state-previous.pt").rename(run / "state.pt")  # as if killed after step 40's checkpoint
    (run / "metrics.jsonl").write_bytes(first[: len(first) * 3 // 4])  # within the line of step 50
    assert len(RunFolder(run).read_metrics()) == 4
    train(small, run, progress=False)
    assert (run / "metrics.jsonl").read_bytes() == first


def test_a_number_of_the_log_that_has_changed_on_disk_is_left_out(trained):
    path = trained / "metrics.jsonl"
    path.write_text(path.read_text().replace('"step": 10', '"step": 11'))
    assert [row["step"] for row in RunFolder(trained).read_metrics()] == [20]


def test_a_damaged_model_is_made_again_from_the_last_checkpoint(small, tmp_path):
    run = train(small, tmp_path / "run", progress=False)
    right = pscd.load(run).state_dict()
    content = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(content[:-9] + bytes([content[-9] ^ 4]) + content[-8:])
    with pytest.raises(UserError, match="checksum is wrong"):
        pscd.load(run)
    train(small, run, progress=False)
    assert all(torch.equal(value, right[name]) for name, value in pscd.load(run).state_dict().items())


def test_a_changed_setting_on_disk_is_damage_and_not_another_run(small, tmp_path):
    run = train(replace(small, updates=5), tmp_path / "run", progress=False)
    path = run / "config.json"
    path.write_text(path.read_text().replace('"updates": 5', '"updates": 7'))
    with pytest.raises(UserError, match="is damaged, or of another version"):
        train(replace(small, updates=7), run, progress=False)


def test_a_folder_in_which_a_kill_left_half_of_the_settings_is_taken(small, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json.4711.tmp").write_text('{"da')
    (run / ".lock").touch()
    train(replace(small, updates=5), run, progress=False)
    assert not list(run.glob("*.tmp"))
    assert not (run / ".lock").exists()


def test_a_second_training_in_the_folder_is_told(small, tmp_path):
    short, x = replace(small, updates=5), torch.randn(50, 2)
    descriptor = os.open(tmp_path / ".lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    for again in (lambda: train(short, tmp_path), lambda: pscd.fit(x, config=short, folder=tmp_path)):
        with pytest.raises(UserError, match="is in use by another run"):
            again()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    os.close(descriptor)
    train(short, tmp_path, progress=False)


def test_a_disk_that_is_full_at_a_checkpoint_is_told_and_the_one_before_is_kept(small, tmp_path, monkeypatch):
    from pscd.training import checkpoint

    fsync, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 4:  # settings, checkpoints of 20 and 40, and this
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write to .*state\.pt: No space left"):
        train(small, tmp_path / "run", progress=False)
    monkeypatch.setattr(os, "fsync", fsync)
    assert checkpoint.load(tmp_path / "run")["step"] == 40
    assert not list((tmp_path / "run").glob("*.tmp"))
    run = train(small, tmp_path / "run", progress=False)
    assert lines_of(run) == [10, 20, 30, 40, 50, 60]
