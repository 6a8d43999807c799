"""Junk in two-dimensional sets and in tables, and the flow that shows why the start decides."""

import json
import math

import jsonschema
import numpy as np
import pytest
import torch

from pscd.data import TOYS_2D
from pscd.errors import UserError
from pscd.rng import generator
from studies.__main__ import main
from studies.engine import SCHEMA, Experiment, Run, run_experiment
from studies.paper import EXPERIMENTS, reproduce
from studies.paper.contamination_2d import CLUSTER, junk, limit, meets, share_ignored, wide_box
from studies.paper.contamination_tables import above, read, split, usable
from studies.paper.path import CLEAN, DIRTY, flow, line


@pytest.fixture
def tables(tmp_path):
    """Two tables of four columns, 120 clean rows and 12 odd ones; one too small and one too narrow."""
    rng = np.random.default_rng(0)
    for name, n, d in (("one", 120, 4), ("two", 120, 4), ("small", 50, 4), ("narrow", 120, 2)):
        x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
        x[:, 0] = x[:, 0].round()
        odd = 4 + rng.normal(size=(12, d))
        np.savez(tmp_path / f"{name}.npz", X=np.concatenate([x, odd]), y=np.r_[np.zeros(n), np.ones(12)])
    return tmp_path


def test_tables_in_the_quick_form(tables, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["contamination-tables", "--data", str(tables), "--quick", "--jobs", "1", "--out", str(out)]
    assert main(words) == 0
    report = json.loads((out / "contamination-tables.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert {run["settings"]["table"] for run in report["runs"]} == {"one", "two"}
    assert str(tables) not in json.dumps(report["runs"])
    assert all(math.isfinite(row["measured"]) for row in report["rows"])
    page = (out / "contamination-tables.md").read_text()
    assert "Not run: gamma 0, gamma 1, flow, trimmed flow" in page
    assert "| uniform 0.1 |" in page
    assert (out / "contamination-tables.png").stat().st_size > 5000


def test_a_folder_is_needed(tmp_path):
    with pytest.raises(UserError, match="--data"):
        reproduce("contamination-tables", tmp_path)
    with pytest.raises(UserError, match=r"no \.npz"):
        usable(tmp_path)
    (tmp_path / "bad.npz").write_text("nothing")
    with pytest.raises(UserError, match="X and y"):
        read(tmp_path / "bad.npz")


@pytest.mark.parametrize("kind", ["uniform", "shuffled", "own"])
def test_split_has_the_share_of_junk_and_keeps_fresh_rows_apart(kind, tables):
    clean, odd = read(tables / "one.npz")
    x, held, fresh = split(clean, odd, kind, 0.05, 0)
    assert (len(held), len(x)) == (36, 84 + 4)  # 4 of 88 is as near to a twentieth as whole rows come
    assert torch.equal(x[:84], split(clean, odd, "none", 0.0, 0)[0])
    assert not (x[:, None] == held[None]).all(2).any()
    assert not (x[:, None] == fresh[None]).all(2).any()
    inside = x[84:]
    if kind == "own":
        assert all((row == odd).all(1).any() for row in inside)
    else:
        assert (inside >= x[:84].amin(0)).all()
        assert (inside <= x[:84].amax(0)).all()
    if kind == "shuffled":
        assert all((inside[:, [j]] == x[:84, j]).any(1).all() for j in range(4))


def test_above_by_hand():
    def run(value):
        return [Run({}, {"log_prob": value})]

    assert above({"auto": run(1.0), "mixture": run(0.5), "kernels": run(0.9)}, ("mixture", "kernels"))
    assert not above({"auto": run(1.0), "mixture": run(1.5)}, ("mixture", "kernels"))
    assert above({"auto": run(1.0), "mixture": run(None)}, ("mixture",))
    assert not above({"auto": run(None), "mixture": run(0.0)}, ("mixture",))
    assert above({"auto": run(1.0)}, ("mixture",)) is None


def test_the_limit_is_that_of_clean_training_of_the_same_seed():
    def run(method, ratio, seed, kl, mmd=0.0):
        return Run({"method": method, "ratio": ratio, "set": "moon", "seed": seed}, {"kl": kl, "mmd": mmd})

    done = [run("CD", 0.0, 0, 0.02), run("CD", 0.0, 1, 0.04), run("auto", 0.1, 1, 0.06, 1.9)]
    assert limit(done, done[2].settings) == pytest.approx(0.07)
    assert meets(done, done[2])
    assert not meets(done, run("auto", 0.1, 0, 0.06, 1.9))
    assert not meets(done, run("auto", 0.1, 1, 0.06, 2.1))
    assert not meets(done, run("auto", 0.1, 1, None, None))


def test_kinds_of_junk():
    uniform, gaussian, cluster = (junk(kind, "moon")(4000, generator(0)) for kind in ("uniform", "gaussian", "cluster"))
    assert uniform.abs().max() <= 6
    assert gaussian.std().item() == pytest.approx(5, rel=0.05)  # 8000 numbers: a standard error of 0.8 %
    assert (cluster.mean(0) - torch.tensor(CLUSTER["moon"])).abs().max() < 0.03  # 0.3 / sqrt(4000), six times


@pytest.mark.parametrize("name", TOYS_2D)
def test_the_wide_box_keeps_jumps_where_the_quadrature_wants_them(name):
    box = wide_box(TOYS_2D[name].quadrature_box)
    for low, high, jumps in zip(box.low, box.high, box.jumps, strict=True):
        assert high - low == pytest.approx(64)
        assert all((jump - low) == pytest.approx(round(jump - low)) for jump in jumps)


def test_the_share_is_read_off_the_notes():
    note = "gamma 0.3: about 9.6% of the rows look like junk, and 8.7% are ignored"
    assert share_ignored((note, "a group of 2% of the rows")) == pytest.approx(0.087)
    assert share_ignored(("gamma 0: every row counts",)) == 0


def test_what_matters_most_comes_first_and_nothing_twice():
    runs = EXPERIMENTS["contamination-2d"].runs(False, 2)
    assert [c["seed"] for c in runs] == sorted(c["seed"] for c in runs)
    texts = [json.dumps(c, sort_keys=True) for c in runs]
    assert len(set(texts)) == len(texts)
    dirty = [c for c in runs if c["seed"] == 0 and c["method"] == "trim"]
    # Two kinds on six sets and a cluster on two, at four ratios.
    assert len(dirty) == 14 * 4
    assert all(c["config"]["objective"]["alpha"] == c["ratio"] for c in dirty)


def test_the_flow_at_gamma_zero_is_known_in_closed_form():
    """dq/dt = p - q from a density that lacks the junk: q = p + (q0 - p) exp(-t), to first order in the step."""
    x, cell = line(800)
    log_p, log_q = DIRTY.log_prob(x[:, None]), CLEAN.log_prob(x[:, None])
    (found,) = flow(log_q, log_p, 0.0, cell, torch.tensor([1.0]), 0.001)
    expected = log_p.exp() + (log_q.exp() - log_p.exp()) * math.exp(-1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_the_flow_rests_at_the_data_and_gamma_slows_what_is_not_known(gamma):
    x, cell = line(400)
    log_p, log_q = DIRTY.log_prob(x[:, None]), CLEAN.log_prob(x[:, None])
    (rest,) = flow(log_p, log_p, gamma, cell, torch.tensor([1.0]), 0.05)
    torch.testing.assert_close(rest, log_p.exp() / (log_p.exp().sum() * cell))
    (moved,) = flow(log_q, log_p, gamma, cell, torch.tensor([3.0]), 0.01)
    weight = float(moved[x > 3.5].sum() * cell)
    low, high = {0.0: (0.09, 0.1), 0.5: (0.02, 0.08), 1.0: (0.0, 0.001)}[gamma]
    assert low < weight < high


def counted(settings):
    return {"value": settings["value"]}


def test_hours_end_a_run_and_the_page_says_so(tmp_path, monkeypatch):
    clock = iter([0.0, 0.0, 0.0, 1.0])  # when it must end, when it begins, and before two runs; then time is up
    monkeypatch.setattr("studies.engine.parallel.time.monotonic", lambda: next(clock, 4000.0))
    experiment = Experiment(
        "toy",
        "A toy",
        "no time",
        1,
        lambda quick, seeds: [{"value": v} for v in range(5)],
        counted,
        lambda done: [],
        lambda done, out: [],
    )
    page = run_experiment(experiment, tmp_path, jobs=1, show=False, hours=1.0)
    assert "3 of 5 runs are missing" in page.read_text()
    assert json.loads((tmp_path / "toy.json").read_text())["runs_left"] == 3
