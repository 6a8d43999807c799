"""A sweep: a grid of runs that survives kills, and the page about it."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pscd.errors import InUse, UserError
from pscd.files import locked, read_tensors, tensors_digest
from pscd.parallel import Engine
from pscd.sweep import Run, grid, measure, sweep
from tests.cli.helpers import SMALL

ROOT = Path(__file__).parents[1]
HERE = Engine(n_jobs=1)


@pytest.fixture
def tiny(small):
    return replace(small, steps=4, n_data=200, log_every=2, sample_steps=2)


@pytest.fixture
def done(tiny, tmp_path):
    """A sweep of four runs, one of which diverges."""
    runs = grid(tiny, {"objective.gamma": [0.0, 1.0]}, seeds=range(2))
    hopeless = replace(runs[3].config, max_gap=1e-9, max_retries=0)
    runs[3] = replace(runs[3], config=hopeless)
    sweep(runs, tmp_path / "sweep", engine=HERE, n=50, show=False, command="pscd sweep moon")
    return runs, tmp_path / "sweep"


def bits(run):
    tensors, metadata = read_tensors(run / "model.safetensors")
    return tensors_digest(tensors), metadata


def test_a_grid_has_every_combination(small):
    runs = grid(small, {"objective.gamma": [0.0, 1.0], "steps": [1, 2, 3]}, seeds=(5, 7))
    assert len({run.key for run in runs}) == len(runs) == 12
    assert runs[-1].varied == {"gamma": "1.0", "steps": "3"}
    assert (runs[-1].config.objective.gamma, runs[-1].config.steps, runs[-1].config.seed) == (1.0, 3, 7)
    with pytest.raises(UserError, match="there is no setting"):
        grid(small, {"objective.temperature": [1]})


def test_one_table_one_picture_and_the_best_run(done):
    _, out = done
    found = json.loads((out / "sweep.json").read_text())
    assert [run["seed"] for run in found["runs"]] == [0, 1, 0, 1]
    assert ["failed" in run for run in found["runs"]] == [False, False, False, True]
    zero, one = found["settings"]
    values = [run["mmd"] for run in found["runs"][:2]]
    assert zero["measures"]["mmd"]["mean"] == pytest.approx(sum(values) / 2)
    assert zero["measures"]["mmd"]["sd"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert (one["runs"], one["failed"], one["measures"]["mmd"]["sd"]) == (2, 1, None)
    # Settings with failures come last, whatever they measure; of the best setting, the best seed.
    assert found["by"] == "mmd"
    assert found["best"]["varied"] == {"gamma": "0.0"}
    assert found["best"]["mmd"] == min(values)
    text = (out / "sweep.md").read_text()
    assert "4 runs, 3 of them finished. Made by `pscd sweep moon`." in text
    assert "| gamma 1.0 | 1 | training diverged 1 times" in text
    assert "## Best: gamma 0.0" in text
    assert (out / "sweep.png").stat().st_size > 5000
    # Every run is a run folder like any other.
    model = torch.load(out / found["best"]["folder"] / "state.pt", weights_only=True)
    assert model["step"] == 4
    assert json.loads((out / found["best"]["folder"] / "evaluation.json").read_text())["rows"][0]["n_fake"] == 50


def test_what_is_done_is_not_computed_again_and_a_larger_grid_computes_what_is_new(done, monkeypatch):
    runs, out = done
    started = []

    def noted(config, folder, **rest):
        started.append((config.objective.gamma, config.seed))
        raise UserError("no")

    monkeypatch.setattr("pscd.sweep.train", noted)
    before = [run["folder"] for run in json.loads((out / "sweep.json").read_text())["runs"]]
    sweep([*runs, *runs], out, engine=HERE, n=50, show=False)
    assert len(json.loads((out / "sweep.json").read_text())["runs"]) == 4  # each once
    assert started == []  # that a run diverged is its result
    larger = grid(runs[0].config, {"objective.gamma": [0.0, 1.0], "lr": [runs[0].config.lr]}, seeds=range(3))
    sweep(larger, out, engine=HERE, n=50, show=False)
    assert sorted(started) == [(0.0, 2), (1.0, 1), (1.0, 2)]
    found = json.loads((out / "sweep.json").read_text())
    assert found["runs"][0]["folder"] == before[0]  # the name that it had, though another setting is told now
    text = (out / "sweep.md").read_text()
    assert text.count("| no |") == 3
    assert "The same command tries them again" in text


def test_a_half_done_run_resumes_and_gives_the_same_bits(tiny, tmp_path, monkeypatch):
    config = replace(tiny, checkpoint_every=2)
    runs = [Run(config, {})]
    from pscd.training import loop

    def killed(*args):
        if args[0].step == 3:
            raise RuntimeError("killed")
        return whole(*args)

    whole = loop.train_step
    monkeypatch.setattr(loop, "train_step", killed)
    with pytest.raises(UserError, match="every run failed: RuntimeError: killed"):
        sweep(runs, tmp_path / "two", engine=HERE, n=50, show=False)
    steps = []
    monkeypatch.setattr(loop, "train_step", lambda state, *rest: steps.append(state.step) or whole(state, *rest))
    sweep(runs, tmp_path / "two", engine=HERE, n=50, show=False)
    assert steps == [2, 3]
    sweep(runs, tmp_path / "one", engine=HERE, n=50, show=False)
    one, two = (next((tmp_path / d / "runs").iterdir()) for d in ("one", "two"))
    assert bits(one) == bits(two)


def test_a_run_that_another_process_computes_is_waited_for(tiny, tmp_path, monkeypatch):
    from pscd import sweep as module

    tried = []

    def train(config, folder, **rest):
        tried.append(folder)
        if len(tried) < 3:
            raise InUse("in use")
        raise UserError("enough")

    monkeypatch.setattr(module, "train", train)
    monkeypatch.setattr("pscd.sweep.time.sleep", lambda seconds: None)
    with pytest.raises(UserError, match="every run failed: enough"):
        sweep([Run(tiny, {})], tmp_path / "sweep", engine=HERE, show=False)
    assert len(tried) == 3
    monkeypatch.setattr(module, "ANOTHER_WRITES", -1.0)
    tried.clear()
    with pytest.raises(UserError, match="every run failed: in use"):
        sweep([Run(tiny, {})], tmp_path / "sweep", engine=HERE, show=False)


def test_what_cannot_be_swept_is_told(tiny, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="is not the folder of a sweep"):
        sweep([Run(tiny, {})], tmp_path / "other", engine=HERE)
    assert os.listdir(tmp_path / "other") == ["thesis.tex"]
    with pytest.raises(UserError, match="at least one run"):
        sweep([], tmp_path / "none", engine=HERE)
    with pytest.raises(UserError, match=r"every run failed: .*no_such"):
        sweep([Run(replace(tiny, data="no_such.csv"), {})], tmp_path / "data", engine=HERE, show=False)
    with pytest.raises(UserError, match="no run was begun in time"):
        sweep([Run(tiny, {})], tmp_path / "late", engine=HERE, hours=0.0, show=False)
    with (
        ThreadPoolExecutor(1) as other,
        locked(tmp_path / "late" / ".lock"),
        pytest.raises(InUse, match="is in use by another run"),
    ):
        other.submit(sweep, [Run(tiny, {})], tmp_path / "late", engine=HERE, show=False).result()


def test_a_worker_that_does_not_see_the_folder_says_so(tiny, tmp_path):
    from pscd.sweep import _compute

    with pytest.raises(UserError, match="must lie on a disk that every worker sees"):
        _compute({"config": tiny.to_dict()}, out=tmp_path / "nowhere", names={}, device="cpu", imports=())


def test_changed_data_are_noticed(tiny, tmp_path):
    path = tmp_path / "rows.csv"
    rows = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    path.write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in rows.tolist()))
    config = replace(tiny, data=str(path))
    sweep([Run(config, {})], tmp_path / "sweep", engine=HERE, n=50, show=False)
    found = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert found["by"] == "log_density"  # of a table
    assert found["runs"][0]["log_density"] > -10
    path.write_text(path.read_text() + "\n0,0")
    with pytest.raises(UserError, match=r"every run failed: .* has changed since"):
        sweep([Run(config, {})], tmp_path / "sweep", engine=HERE, n=50, show=False)


def test_the_density_of_held_out_rows_leaves_junk_out(trained):
    """The mean over the likeliest four fifths, worked out from all of them."""
    from pscd.evaluation import load_run_data
    from pscd.run_folder import RunFolder
    from pscd.runs import load

    model = load(trained)
    values = sorted(model.log_prob(load_run_data(model).held_out[:50]).tolist(), reverse=True)
    found = measure(model, RunFolder(trained), 50)
    assert found["log_density"] == pytest.approx(sum(values[:40]) / 40)
    assert 0 < found["ess"] <= 1
    assert found["retries"] == 0


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


COUNTING = """
import os, time
from dataclasses import dataclass
from pathlib import Path
from pscd import PseudoSpherical

@dataclass(frozen=True)
class Counting(PseudoSpherical):
    def at(self, progress):
        with open(Path(os.environ["COUNTS"]) / f"{os.getpid()}", "a") as file:
            file.write(f"{self.gamma} {progress}\\n")
        time.sleep(0.02)
        return super().at(progress)
"""


@pytest.mark.slow
def test_a_sweep_of_twelve_runs_killed_twice_ends_complete_and_computes_nothing_twice(tmp_path):
    (tmp_path / "counting.py").write_text(COUNTING)
    (tmp_path / "counts").mkdir()
    out, env = tmp_path / "sweep", {**environment(), "COUNTS": str(tmp_path / "counts")}
    gammas = [f"{g / 10:g}" for g in range(12)]
    flags = ["--objective", "counting:Counting", "--gamma", ",".join(gammas), "--seeds", "1", "--n", "50"]
    command = [sys.executable, "-m", "pscd", "sweep", "moon", *flags, *SMALL, "--checkpoint-every", "5"]
    command += ["--out", str(out)]

    def cells():
        return sorted(path.name for path in (out / "cells").glob("*.json"))

    def updates():
        """How often each update of each run was computed."""
        found = {}
        for path in (tmp_path / "counts").iterdir():
            for line in path.read_text().splitlines():
                found[line] = found.get(line, 0) + 1
        return found

    at_kill = []
    for goal in (3, 7):
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 300
        while len(cells()) < goal:
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        at_kill.append({name: (out / "cells" / name).read_bytes() for name in cells()})
    assert subprocess.run(command, cwd=tmp_path, env=env, check=False, timeout=300).returncode == 0
    assert len(cells()) == 12
    assert len(at_kill[1]) < 12
    for kept in at_kill:  # a result once kept is never written again
        assert all((out / "cells" / name).read_bytes() == content for name, content in kept.items())
    found = json.loads((out / "sweep.json").read_text())
    assert len(found["runs"]) == 12
    assert not any("failed" in run for run in found["runs"])
    counts = updates()
    assert {line.split()[0] for line in counts} == {str(float(gamma)) for gamma in gammas}
    # Two processes were killed, twice; each lost the updates since its last checkpoint, and nothing else.
    again = [line for line, n in counts.items() if n > 1]
    assert len(counts) == 12 * 20
    assert len({line.split()[0] for line in again}) <= 4
    assert sum(counts.values()) - len(counts) <= 4 * 5
    # As an undisturbed sweep, bit for bit.
    one = next((out / "runs").glob("gamma-0.3*"))
    whole = [*command[: command.index("--gamma")], "--gamma", "0.3", *command[command.index("--seeds") : -1]]
    subprocess.run([*whole, str(tmp_path / "whole")], cwd=tmp_path, env=env, check=True, timeout=300)
    assert bits(next((tmp_path / "whole" / "runs").iterdir())) == bits(one)
