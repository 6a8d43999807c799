import json
from dataclasses import replace

import pytest
import torch

import pscd
from pscd.errors import UserError
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
    with pytest.raises(UserError, match=r"other settings \(steps: 61 asked, 60 there\)"):
        train(replace(small, steps=61), run, progress=False)


def test_a_run_that_diverged_is_not_taken_for_finished(small, tmp_path):
    run = train(small, str(tmp_path / "run"), progress=False)
    before = pscd.load(run).energy.state_dict()
    (run / "state-previous.pt").rename(run / "state.pt")  # as a diverged run leaves it: a model of step 40
    (run / "model.safetensors").write_bytes(b"the last good one")
    train(small, run, progress=False)
    again = pscd.load(run).energy.state_dict()
    assert all(torch.equal(before[name], again[name]) for name in before)


def test_rows_logged_after_the_last_checkpoint_are_not_doubled(small, tmp_path):
    run = train(small, tmp_path / "run", progress=False)
    first = (run / "metrics.jsonl").read_text()
    (run / "model.safetensors").unlink()
    (run / "state-previous.pt").rename(run / "state.pt")  # as if killed after step 40's checkpoint
    train(small, run, progress=False)
    assert (run / "metrics.jsonl").read_text() == first


def test_tensorboard_is_written_when_asked(small, tmp_path):
    run = train(replace(small, steps=10), tmp_path / "run", progress=False, tensorboard=True)
    assert any((run / "tensorboard").iterdir())


def test_a_damaged_configuration_is_told(small, tmp_path):
    run = train(replace(small, steps=5), tmp_path / "run", progress=False)
    (run / "config.json").write_text("{")
    with pytest.raises(UserError, match="is damaged, or of another version"):
        train(replace(small, steps=5), run, progress=False)


def test_a_cut_last_line_of_the_log_is_left_out(small, tmp_path):
    run = train(small, tmp_path / "run", progress=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 70, "lo')
    assert [row["step"] for row in RunFolder(run).read_metrics()] == [10, 20, 30, 40, 50, 60]
    assert RunFolder(tmp_path).read_metrics() == []


def test_a_run_that_fails_at_its_start_gives_its_folder_back(small, tmp_path):
    torch.save({}, tmp_path / "unrelated")
    table = tmp_path / "rows.csv"
    table.write_text("a,b\n" + "".join(f"{i},7\n" for i in range(40)))  # b is constant
    config = replace(small, data=str(table), steps=5)
    with pytest.raises(UserError, match="column b is constant"):
        train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    train(replace(config, columns=("a",)), tmp_path / "run", progress=False)  # corrected


def test_a_folder_that_holds_nothing_but_settings_may_be_claimed_by_others(small, tmp_path):
    """As a kill before the first checkpoint leaves it."""
    config = replace(small, steps=5)
    run = train(config, tmp_path / "run", progress=False)
    for path in run.iterdir():
        if path.name != "config.json":
            path.unlink()
    train(replace(config, seed=1), run, progress=False)
    assert pscd.load(run).config.seed == 1


def test_a_finished_run_is_told_without_unpacking_its_state(small, tmp_path, monkeypatch):
    run = train(replace(small, steps=5), tmp_path / "run", progress=False)
    monkeypatch.setattr(torch, "load", None)  # cannot be called
    train(replace(small, steps=5), run, progress=False)


def test_every_row_of_the_log_says_how_often_the_run_was_rolled_back(trained):
    assert {row["retries"] for row in RunFolder(trained).read_metrics()} == {0}
