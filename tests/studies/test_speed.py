"""The benchmark of speed on tiny cases and made-up results; the other libraries need not be there."""

import copy
import itertools
import json
from dataclasses import replace

import pytest
import torch

from pscd import losses
from pscd.errors import Diverged, UserError
from studies.__main__ import main
from studies.engine import RunStore, run_experiment
from studies.speed import growth, processes, program, quality, report, rivals, updates
from studies.speed.quality import Learner, time_to_quality
from studies.timing import LR, Training
from tests.studies.test_timing import TINY, TINY_IMAGE


def near(median):
    return {"median": median, "low": median - 0.1, "high": median + 0.1, "n": 9}


def made_up():
    """Results with a target of each kind met and one missed."""
    update = {
        "title": "MLP",
        "rounds": 9,
        "gradients": "by hand",
        "threads": {"pscd": 1, "torchebm CD": 2},
        "milliseconds": {"pscd CD": 10.0, "torchebm CD": 25.0},
        "times_ours": {"torchebm CD": near(2.5), "ebmkit CD": near(1.9), "plain loop CD": near(1.2)},
        "pscd_over_cd": near(1.01),
        "sampler_over_bound": near(2.6),
        "without_cpp": near(1.5),
        "compile_seconds": 3.0,
        "sampler_share": near(0.9),
    }
    looks = [(1.0, 1e-2), (4.0, 1e-4)]

    def run(who, data, seconds):
        setting = {"who": who, "data": data, "setting": "some", "looks": looks}
        found = {"seconds": seconds, "each": [seconds, None, 1.0], "trained": 120.0, "diverged": False, "threads": 2}
        return {**setting, **found}

    axis = {"axis": "steps", "sizes": [10, 20], "rounds": 9, "milliseconds": [1.0, 2.0], "time_slope": 1.0}
    return {
        "updates": {"mlp-20": update},
        "quality": {
            "1": run("pscd", "moon", 10.0),
            "2": run("torchebm", "moon", None),
            "3": run("ebmkit", "moon", 40.0),
            "4": run("ebmkit", "moon", 70.0),
            "5": run("pscd", "rings", 10.0),
            "6": run("torchebm", "rings", None),
        },
        "growth": {
            "steps": {**axis, "mib": [10.0, 10.4], "memory_slope": 0.05},
            "mmd": {"points": 100_000, "seconds": 60.0, "mib": 300.0},
        },
        "processes": {
            "conv": {
                "title": "conv net",
                "rounds": 3,
                "updates": 5,
                "milliseconds": {"1": [300.0], "2": [200.0]},
                "speed_up": near(1.5),
                "allowed": near(1.9),
            }
        },
    }


def test_targets_are_judged_by_the_numbers():
    judged = {t["what"]: (t["shown"].split(" (")[0], t["met"]) for t in report.targets(made_up())}
    assert judged == {
        "MLP: CD, torchebm over pscd": ("2.50", True),
        "MLP: CD, ebmkit over pscd": ("1.90", False),
        "MLP: CD, plain loop over pscd": ("1.20", True),
        "MLP: PS-CD over CD": ("1.01", True),
        "MLP: sampler over its matrix products": ("2.60", False),
        # The better setting of the better peer; on rings nobody else arrived in 120 s.
        "moon: seconds to quality, best peer over pscd": ("4.00", False),
        "rings: seconds to quality, best peer over pscd": ("more than 12.00", True),
        "exponent of time over steps": ("1.00", True),
        "memory over steps, largest over smallest": ("1.04", True),
        "conv net: two processes, speed-up": ("1.50", False),
    }


def test_not_getting_there_is_a_target_missed():
    results = made_up()
    results["quality"]["1"]["seconds"] = None
    (moon,) = [t for t in report.targets(results) if t["what"].startswith("moon")]
    assert (moon["met"], moon["shown"]) == (False, "not reached")


def written(results, out, *, quick):
    """The page of results that are stored already."""
    runs = [{"part": part, "name": name, "quick": quick} for part, values in results.items() for name in values]
    store = RunStore(out / "speed.runs", "speed")
    store.folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        store.write(run, {"values": results[run["part"]][run["name"]], "seconds": 1.0})
    study = replace(program.experiment(), runs=lambda quick, seeds: runs)
    return run_experiment(study, out, quick=quick).read_text()


def test_the_page_has_every_part_and_no_part_that_was_not_measured(tmp_path):
    page = written(made_up(), tmp_path, quick=False)
    for words in (
        "6 of 10 met",
        "| MLP | 10 | 25 |",
        "Compiling takes 3.0 s",
        "| MLP | 1.50 (1.40 to 1.60) | 600 |",  # 3 s, 5 ms an update
        "not in 120",
        "100,000 x 100,000 points: 60 s",
        "300 ms with one",
    ):
        assert words in page
    assert (tmp_path / "speed.png").stat().st_size > 1000
    kept = json.loads((tmp_path / "speed.json").read_text())
    assert kept["results"]["growth"]["mmd"]["mib"] == 300.0
    assert kept["versions"]["torch"] == torch.__version__
    assert "cores" in kept["machine"]
    few = written({"processes": made_up()["processes"]}, tmp_path, quick=True)
    assert "Time to quality" not in few
    assert "Quick" in few


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_the_plain_loss_is_ours(gamma):
    torch.manual_seed(0)
    e_pos, e_neg = (torch.randn(9, dtype=torch.float64, requires_grad=True) for _ in range(2))
    plain, ours = rivals.plain_loss(e_pos, e_neg, gamma), losses.pseudo_spherical(e_pos, e_neg, gamma)
    torch.testing.assert_close(plain, ours)
    for a, b in zip(*(torch.autograd.grad(loss, (e_pos, e_neg)) for loss in (plain, ours)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("case", [TINY, TINY_IMAGE], ids=["rows", "images"])
def test_the_plain_chain_is_ours_with_the_same_noise(case):
    energy = rivals.network(case)
    loop = rivals.PlainLoop(energy, case.data(), case)
    x = loop.fresh(5, *case.shape)
    expected, _ = case.sampler.run(
        energy, x, step_size=torch.tensor(case.sampler.step_size), n_steps=case.n_steps, generator=seeded()
    )
    with seeded_globally():
        moved = loop.chains(x.clone())
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-5)
    assert all(p.requires_grad for p in energy.parameters())


def seeded():
    return torch.Generator().manual_seed(3)


class seeded_globally:  # noqa: N801 (a context, as in contextlib)
    """The global generator gives what `seeded` gives."""

    def __enter__(self):
        self.fork = torch.random.fork_rng(devices=[])
        self.fork.__enter__()
        torch.manual_seed(3)

    def __exit__(self, *error):
        self.fork.__exit__(*error)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_the_plain_update_changes_weights_and_chains_that_it_drew(gamma):
    loop = rivals.PlainLoop(rivals.network(TINY), TINY.data(), TINY, gamma)
    before, chains = copy.deepcopy(loop.energy), loop.buffer.clone()
    assert torch.isfinite(loop.update())
    assert largest_change(before, loop.energy) == pytest.approx(LR, rel=1e-3)  # the first step of Adam
    moved = (loop.buffer != chains).any(1).sum()
    assert 1 <= moved <= TINY.batch_size
    assert Training(TINY, gamma).config.objective.gamma == gamma


def largest_change(before, after):
    return max(
        float((a - b).detach().abs().max()) for a, b in zip(before.parameters(), after.parameters(), strict=True)
    )


class Clock:
    """Time that passes only when somebody trains."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def learner(clock, good_from, good_until=1e9, end=1e9):
    def update():
        clock.now += 0.1

    def samples(seed):
        good = good_from <= clock.now < good_until
        return torch.randn(200, 2, generator=torch.Generator().manual_seed(seed)) + (0.0 if good else 3.0)

    return Learner(update, [lambda seed: torch.full((200, 2), float("nan")), samples], lambda: clock.now >= end)


def same(seed):
    return torch.randn(200, 2, generator=torch.Generator().manual_seed(seed))


def test_time_to_quality_is_the_first_of_three_good_looks():
    clock = Clock()
    result = time_to_quality(lambda: learner(clock, good_from=2.0), same, clock=clock, cap=20.0)
    seconds = [at for at, _ in result["looks"]]
    first = next(at for at in seconds if at >= 2.0)
    assert result["seconds"] == first
    assert len(seconds) == seconds.index(first) + 3
    growth_of_looks = [later / earlier for earlier, later in itertools.pairwise(seconds)]
    assert all(quality.GROWTH - 0.01 < g < quality.GROWTH + 0.21 for g in growth_of_looks)


@pytest.mark.parametrize(
    ("arrivals", "seconds", "tried"),
    [([1.0, 4.0, 2.0], 2.0, 3), ([1.0, None, 2.0], 2.0, 3), ([3.0, None, None], None, 3), ([None, 1.0, 1.0], None, 1)],
)
def test_seeds_count_by_their_median_unless_the_first_is_late(arrivals, seconds, tried, monkeypatch):
    found = iter(arrivals)
    run = {"looks": [], "trained": 5.0, "diverged": False}
    monkeypatch.setattr(quality, "time_to_quality", lambda make, fresh, cap: {**run, "seconds": next(found)})
    monkeypatch.setattr(quality, "best_threads", lambda task: 1)
    monkeypatch.setattr(quality, "ours", lambda data, seed: Learner(lambda: None, []))
    run = quality.measure_ours("moon", (0, 1, 2), 5.0)
    assert (run["seconds"], run["each"]) == (seconds, arrivals[:tried])


def test_a_short_success_does_not_count_and_the_cap_ends_it():
    clock = Clock()
    result = time_to_quality(lambda: learner(clock, 0.4, good_until=0.65), same, clock=clock, cap=5.0)
    assert result["looks"][0][1] < quality.THRESHOLD
    assert result["seconds"] is None
    assert 5.0 <= result["trained"] < 5.0 * 1.5


def test_a_run_that_ends_by_itself_is_looked_at_again_at_its_end():
    clock = Clock()
    result = time_to_quality(lambda: learner(clock, 2.05, end=2.1), same, clock=clock, cap=50.0)
    assert result["seconds"] == pytest.approx(2.1, abs=0.11)
    assert len({at for at, _ in result["looks"][-3:]}) == 1


def test_a_run_that_diverges_is_told():
    def update():
        raise Diverged("away")

    result = time_to_quality(lambda: Learner(update, []), same)
    assert result["diverged"]
    assert result["seconds"] is None


def test_our_learner_trains_and_samples():
    ours = quality.ours("moon", 0, n=30, n_data=500)
    ours.update()
    assert ours.ways[0](0).shape == (30, 2)
    assert not ours.ended()


@pytest.mark.parametrize("axis", growth.AXES)
def test_each_axis_changes_one_thing(axis):
    small, large = (growth.case_of(axis, size) for size in growth.AXES[axis][:2])
    names = ("shape", "batch_size", "n_steps", "rows", "buffer_size")
    assert sum(getattr(small, name) != getattr(large, name) for name in names) == 1


def test_cost_counts_the_memory_that_a_task_touches():
    torch.ones(256 << 18)  # a larger peak before does not hide it
    cost = growth._cost(lambda: torch.ones(64 << 18))  # 64 MiB
    assert 60 <= cost["mib"] <= 70
    assert cost["seconds"] >= 0


def test_one_and_two_processes_take_turns(monkeypatch):
    order = []

    def launch(n, updates):
        order.append(n)
        return 3.0 / n

    monkeypatch.setattr(processes, "launch", launch)
    monkeypatch.setattr(processes, "launch_apart", lambda updates: launch(3, updates))
    found = processes.measure(2, 5)
    assert (found["speed_up"]["median"], found["allowed"]["median"]) == (2.0, 3.0)
    assert order == [1, 2, 3, 3, 2, 1]


@pytest.fixture
def without_peers(monkeypatch):
    monkeypatch.setattr(rivals, "missing_peers", lambda: list(rivals.PEERS))
    monkeypatch.setattr(updates, "CASES", {"mlp-2": TINY, "conv": TINY})


def test_a_quick_row_from_the_command_line(without_peers, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program.figure, "draw", lambda results, path: path)
    assert main(["speed", "--quick", "--parts", "a,b", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "torchebm is not installed and is left out" in told.err
    (run,) = json.loads((tmp_path / "speed.json").read_text())["results"]["updates"].values()
    assert set(run["times_ours"]) == {"plain loop CD", "plain loop PS-CD"}
    assert set(run["threads"]) == {"pscd", *run["times_ours"]}
    assert run["milliseconds"]["bound"] > 0
    assert "| tiny |" in told.out


def test_what_was_measured_is_kept(without_peers, tmp_path, monkeypatch):
    monkeypatch.setattr(program.figure, "draw", lambda results, path: path)
    monkeypatch.setattr(updates, "measure", lambda case, rounds: made_up()["updates"]["mlp-20"])

    def run(*flags):
        assert main(["speed", "--parts", "a", "--out", str(tmp_path), *flags]) == 0
        report = json.loads((tmp_path / "speed.json").read_text())
        return set(report["results"]["updates"]), report["runs_computed_in_that_time"]

    assert run("--only", "conv") == ({"conv"}, 1)
    assert run() == ({"conv", "mlp-2"}, 1)


@pytest.mark.parametrize(("flags", "message"), [(["--parts", "z"], "'z'"), (["--only", "none"], "'none'")])
def test_bad_flags_are_told_in_one_line(without_peers, flags, message, tmp_path, capsys):
    assert main(["speed", *flags, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_parts_by_their_letters():
    assert program.chosen_parts("a,b,c,d") == {"updates", "quality"}
    with pytest.raises(UserError, match="unknown part"):
        program.chosen_parts("a,g")


def test_every_part_has_quick_runs(without_peers):
    for runs in program.PARTS.values():
        assert 1 <= len(runs(True)) <= len(runs(False))


@pytest.mark.parametrize("name", rivals.PEERS)
def test_a_peer_updates_the_same_network(name):
    if name in rivals.missing_peers():
        pytest.skip(f"{name} is not installed; make bench installs it")
    make = {"torchebm": rivals.torchebm_update, "ebmkit": rivals.ebmkit_trainer}[name]
    for case in (TINY, TINY_IMAGE):
        energy = rivals.network(case)
        before = copy.deepcopy(energy)
        make(energy, case.data(), case)[0]()
        assert largest_change(before, energy) == pytest.approx(LR, rel=1e-2)
