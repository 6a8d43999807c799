"""Every experiment in its quick form, its JSON against the schema, and what must hold of the framework."""

import json
import math
from dataclasses import replace
from functools import partial
from shutil import rmtree

import joblib
import jsonschema
import pytest
import torch

from pscd import exact
from pscd.config import ChainSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.data import TOYS_2D, Toy
from pscd.data.toys import MIXTURE_1D, contaminated_1d
from pscd.energies import MLP, Architecture, Quadratic
from pscd.errors import UserError
from pscd.objectives import PseudoSpherical
from pscd.rng import generator
from pscd.training.fit import fit
from studies.__main__ import main
from studies.engine import SCHEMA, Experiment, Row, Run, mean_rows, run_experiment
from studies.paper import EXPERIMENTS, reproduce
from studies.paper.blame_2d import GAMMAS, STAGES, Quadrature, interleaved_grids
from studies.paper.contamination_gaussian import kl_to_clean
from studies.paper.gaussian_fit import exact_optimum
from studies.paper.landscapes import CASES
from studies.paper.lemma_checks import check_grid, grid_runs
from studies.paper.published import CONTAMINATION_GAUSSIAN
from studies.paper.toys_2d import stray_mass


def runs(quick, seeds):
    return [{"value": v, "seed": s} for v in (1, 2) for s in range(seeds)]


def compute(settings):
    return {"square": settings["value"] ** 2 + settings["seed"], "kept": [1, 2, 3]}


def rows(done):
    return mean_rows(done, lambda s: ("square", str(s["value"])), "square", {("square", "1"): 1.0})


def toy_experiment(**changes):
    settings = {"runs": runs, "compute": compute, "rows": rows, "draw": lambda done, out: []} | changes
    return Experiment("toy", "A toy", "no time", 2, **settings)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_artefact_runs_quickly_and_keeps_to_the_schema(name, tmp_path, capsys):
    assert main([name, "--quick", "--jobs", "1", "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / f"{name}.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["quick"] is True
    page = (tmp_path / f"{name}.md").read_text()
    assert f"python -m studies {name} --quick" in page
    assert report["figures"]
    for figure in report["figures"]:
        assert (tmp_path / figure).stat().st_size > 5000
        assert figure in page
    assert all(row["measured"] is not None and math.isfinite(row["measured"]) for row in report["rows"])
    if EXPERIMENTS[name].resumes_from_page:  # as in a fresh clone, which has the pages without the runs
        rmtree(tmp_path / f"{EXPERIMENTS[name].family}.runs")
        assert main([name, "--quick", "--jobs", "1", "--out", str(tmp_path)]) == 0
        assert json.loads((tmp_path / f"{name}.json").read_text())["runs_computed_in_that_time"] == 0
        assert (tmp_path / f"{name}.md").read_text() == page


def pinwheel(n, generator=None):
    angle = torch.randint(5, (n,), generator=generator) * 2 * math.pi / 5
    radius = 2 + 0.3 * torch.randn(n, generator=generator)
    angle = angle + 0.1 * torch.randn(n, generator=generator) + 0.25 * radius.exp() / math.e
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


def on_the_seventh(name, quick, seeds):
    """Its runs of an experiment; `objectives-2d` is quick on moon alone, and one objective will do."""
    if name == "toys-2d":
        return [run for run in EXPERIMENTS[name].runs(quick, seeds) if run["set"] == "seventh"]
    cost, one, *_ = EXPERIMENTS[name].runs(quick, seeds)
    return [
        cost,
        {**one, "set": "seventh", "config": {**one["config"], "rows": {**one["config"]["rows"], "data": "seventh"}}},
    ]


@pytest.mark.parametrize("name", ["toys-2d", "objectives-2d"])
@pytest.mark.parametrize("known", [True, False], ids=["with density", "without"])
def test_a_seventh_toy_is_one_entry(name, known, tmp_path, monkeypatch):
    """Its box and window are read off a draw; nothing is published about it, and its density may be unknown."""
    toy = Toy(TOYS_2D["moon"].draw, TOYS_2D["moon"].log_density) if known else Toy(pinwheel)
    monkeypatch.setitem(TOYS_2D, "seventh", toy)
    runs = partial(on_the_seventh, name)
    run_experiment(replace(EXPERIMENTS[name], runs=runs), tmp_path, quick=True, jobs=1, show=False)
    report = json.loads((tmp_path / f"{name}.json").read_text())
    ours = [row for row in report["rows"] if "seventh" in row["row"] + row["column"]]
    assert sum("MMD, density" in row["column"] for row in ours) == len(runs(True, 1)) - (name == "objectives-2d")
    assert any("KL" in row["column"] for row in ours) == known


def test_the_quadrature_of_a_seventh_toy_is_checked_too(monkeypatch):
    monkeypatch.setitem(TOYS_2D, "seventh", Toy(TOYS_2D["mog"].draw, TOYS_2D["mog"].log_density))
    monkeypatch.setitem(TOYS_2D, "eighth", Toy(pinwheel))
    *_, one = grid_runs()
    assert one["set"] == "seventh"
    assert check_grid(one)["holds"]


def test_the_list_names_every_artefact_with_its_cost(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    for experiment in EXPERIMENTS.values():
        assert experiment.name in out
        assert experiment.cost in out


def test_finished_cells_are_kept_and_a_killed_run_goes_on(tmp_path):
    calls = []

    def fragile(settings):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(settings)
        return compute(settings)

    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy_experiment(compute=fragile), tmp_path, jobs=1, show=False)
    assert len(calls) == 3
    calls.clear()
    run_experiment(toy_experiment(compute=fragile), tmp_path, jobs=1, show=False)
    assert len(calls) == 1
    report = json.loads((tmp_path / "toy.json").read_text())
    assert [row["measured"] for row in report["rows"]] == [1.5, 4.5]
    assert report["runs_computed_in_that_time"] == 1
    assert "kept" not in report["runs"][0]


def test_a_page_goes_on_growing_without_its_cells_if_its_numbers_are_enough(tmp_path):
    one, again = (toy_experiment(resumes_from_page=resumes) for resumes in (False, True))
    for experiment, seeds, computed in ((again, 1, 2), (again, 2, 2), (again, 2, 0), (one, 2, 4)):
        rmtree(tmp_path / "toy.runs", ignore_errors=True)
        run_experiment(experiment, tmp_path, seeds=seeds, jobs=1, show=False)
        report = json.loads((tmp_path / "toy.json").read_text())
        assert report["runs_computed_in_that_time"] == computed
        assert [run["square"] for run in report["runs"]] == ([1, 4] if seeds == 1 else [1, 2, 4, 5])
    for spoil in ({"versions": {"pscd": "0.0.1"}}, {"runs": [{}]}, {"runs": 3}):
        (tmp_path / "toy.json").write_text(json.dumps(report | spoil))
        rmtree(tmp_path / "toy.runs", ignore_errors=True)
        run_experiment(again, tmp_path, seeds=2, jobs=1, show=False)
        assert json.loads((tmp_path / "toy.json").read_text())["runs_computed_in_that_time"] == 4


def test_a_change_of_settings_is_not_mixed_with_old_cells(tmp_path):
    run_experiment(toy_experiment(), tmp_path, jobs=1, show=False)
    other = toy_experiment(runs=lambda quick, seeds: [{**c, "value": c["value"] + 1} for c in runs(quick, seeds)])
    run_experiment(other, tmp_path, jobs=1, show=False)
    report = json.loads((tmp_path / "toy.json").read_text())
    assert [row["measured"] for row in report["rows"]] == [4.5, 9.5]
    assert report["runs_computed_in_that_time"] == 2  # value 2 was there already


def test_a_damaged_cell_is_computed_again(tmp_path):
    run_experiment(toy_experiment(), tmp_path, jobs=1, show=False)
    damaged = next((tmp_path / "toy.runs").iterdir())
    damaged.write_text('{"settings"')
    run_experiment(toy_experiment(), tmp_path, jobs=1, show=False)
    assert json.loads((tmp_path / "toy.json").read_text())["runs_computed_in_that_time"] == 1


def test_processes_and_one_process_agree(tmp_path):
    run_experiment(toy_experiment(), tmp_path / "one", jobs=1, show=False)
    run_experiment(toy_experiment(), tmp_path / "two", jobs=2, show=False)
    one, two = (json.loads((tmp_path / d / "toy.json").read_text())["rows"] for d in ("one", "two"))
    assert one == two


def test_a_users_own_joblib_backend_does_the_work(tmp_path):
    """With threads, what a run does to this process is seen here; with the default processes it is not."""
    seen = []

    def noted(settings):
        seen.append(settings["value"])
        return compute(settings)

    run_experiment(toy_experiment(compute=noted), tmp_path / "default", jobs=2, show=False)
    assert seen == []
    with joblib.parallel_config(backend="threading"):
        run_experiment(toy_experiment(compute=noted), tmp_path / "threads", jobs=2, show=False)
    assert sorted(seen) == [1, 1, 2, 2]


def test_a_bar_in_a_name_does_not_break_the_table(tmp_path):
    named = toy_experiment(rows=lambda done: [Row("KL(p || q)", "x", 1.0)])
    page = run_experiment(named, tmp_path, jobs=1, show=False).read_text()
    assert "| KL(p \\|\\| q) | x | 1 |  | 1 |" in page


def test_mean_and_standard_deviation_over_seeds():
    done = [Run({"value": 1, "seed": s}, {"square": v}) for s, v in enumerate((1.0, 3.0))]
    assert rows(done) == [Row("square", "1", 2.0, std=math.sqrt(2), n=2, published=1.0)]


def test_bad_input(tmp_path):
    with pytest.raises(UserError, match="unknown experiment 'table-9'; there are: gamma-1d"):
        reproduce("table-9")
    with pytest.raises(UserError, match="--seeds must be at least 1"):
        run_experiment(toy_experiment(), tmp_path, seeds=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        run_experiment(toy_experiment(), tmp_path / "file")


# Known optima of the gamma-score for one Gaussian on the mixture, computed independently.
@pytest.mark.parametrize(
    ("gamma", "start", "mean", "sd"),
    [
        (-0.5, (1.0, 1.8), 1.223, 1.587),
        (0.0, (1.0, 1.8), 1.010, 1.830),
        (1.0, (1.0, 1.8), 0.839, 2.240),
        (2.0, (1.0, 1.8), 0.748, 2.580),
        (2.0, (-1.0, 0.3), -0.993, 0.261),
    ],
)
def test_exact_optimum_on_the_mixture(gamma, start, mean, sd):
    assert exact_optimum(MIXTURE_1D, gamma, start) == pytest.approx((mean, sd), abs=1e-3)


def test_exact_optimum_of_maximum_likelihood_is_the_moments():
    mean, sd = exact_optimum(contaminated_1d(0.2), 0.0, (-0.5, 1.0))
    assert mean == pytest.approx(-1 + 0.2 * 3, abs=1e-6)
    assert sd**2 == pytest.approx(0.8 * 0.5 + 0.2 * 0.05 + 0.2 * 0.8 * 9, abs=1e-6)


def test_published_contamination_column_is_that_of_the_exact_optimum():
    for ratio, column in CONTAMINATION_GAUSSIAN.items():
        mean, sd = exact_optimum(contaminated_1d(ratio), 0.0, (-0.5, 1.0))
        assert kl_to_clean(mean, sd) == pytest.approx(column[0.0], abs=6e-4)


def test_kl_to_clean_is_zero_at_the_truth_and_agrees_with_torch():
    assert kl_to_clean(-1.0, math.sqrt(0.5)) == pytest.approx(0, abs=1e-15)
    p, q = torch.distributions.Normal(-1.0, math.sqrt(0.5)), torch.distributions.Normal(0.3, 1.2)
    assert kl_to_clean(0.3, 1.2) == pytest.approx(torch.distributions.kl_divergence(p, q).item(), rel=1e-6)
    assert set(CASES) == {"well-specified", "mis-specified"}


# The Gaussian p of the tests of blame-2d, with coordinates in which the network sees something else.
MEAN, SD = torch.tensor([0.5, -1.0]).double(), torch.tensor([0.8, 0.6]).double()
SHIFT, SCALE = torch.tensor([1.0, -2.0]).double(), torch.tensor([2.0, 0.5]).double()


def quadrature(gamma, *, known=True, shift=SHIFT, scale=SCALE, steps=4):
    grids = interleaved_grids(exact.Box((-10.0, -8.0), (10.0, 8.0), cut=math.inf), 80)
    p = torch.distributions.Independent(torch.distributions.Normal(MEAN, SD), 1)
    log_p = tuple(p.log_prob(grid.points) for grid in grids) if known else None
    return Quadrature(PseudoSpherical(gamma=gamma), grids, log_p, shift, scale, steps)


def quadrature_gradients(objective, energy, x_pos=None):
    x_pos = torch.zeros(1, 2) if x_pos is None else x_pos
    loss, _ = objective(energy, None, x_pos, x_pos[:0], generator(0))
    return loss.item(), torch.autograd.grad(loss, list(energy.parameters()))


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("known", [True, False])
def test_quadrature_loss_and_gradient_are_the_closed_form_of_gaussians(gamma, known):
    energy = Quadratic(0.3, 0.7, dim=2)
    x_pos = torch.tensor([[0.2, 0.4], [-0.3, 1.5], [0.9, 0.1]])
    loss, gradients = quadrature_gradients(quadrature(gamma, known=known), energy, x_pos)

    leaves = [parameter.detach().double().requires_grad_() for parameter in energy.parameters()]
    mu, sigma = SHIFT + SCALE * leaves[0], SCALE * leaves[1].exp()
    if known and gamma == 0:
        positive = ((SD**2 + (MEAN - mu) ** 2) / (2 * sigma**2)).sum()
    elif known:
        # E_p[exp(-gamma E)] of one axis is sigma / w exp(-gamma (mean - mu)^2 / (2 w^2)), w^2 = sigma^2 + gamma sd^2.
        w2 = sigma**2 + gamma * SD**2
        positive = ((MEAN - mu) ** 2 / (2 * w2) - (sigma**2 / w2).log() / (2 * gamma)).sum()
    else:
        e = (((SHIFT + SCALE * x_pos - mu) / sigma) ** 2).sum(1) / 2
        positive = e.mean() if gamma == 0 else -(-gamma * e).exp().mean().log() / gamma
    expected = positive + (2 * math.pi * sigma**2 / (gamma + 1)).log().sum() / (2 * (gamma + 1))

    # Energies are computed in float32: seven digits.
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, leaves), strict=True):
        assert torch.allclose(ours.double(), theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_quadrature_gradient_of_a_network_is_that_of_theorem_2(gamma):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        energy = MLP((2,), width=16, depth=2, fourier=4, base_scale=1.0)
    objective = quadrature(gamma, shift=torch.zeros(2).double(), scale=torch.ones(2).double()).at(1.0)
    _, gradients = quadrature_gradients(objective, energy)
    theirs = exact.gamma_gradient(objective.log_p[objective.turn], energy, gamma, objective.grids[objective.turn])
    assert max(g.abs().max() for g in theirs.values()) > 0.01
    for (name, _), ours in zip(energy.named_parameters(), gradients, strict=True):
        assert torch.allclose(ours.double(), theirs[name], rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("gamma", GAMMAS)
def test_quadrature_loss_is_lowest_at_the_truth(gamma):
    objective = quadrature(gamma, shift=MEAN, scale=SD)
    best, gradients = quadrature_gradients(objective, Quadratic(0.0, 1.0, dim=2))
    assert all(g.abs().max() < 1e-6 for g in gradients)
    for mu, sigma in ((0.1, 1.0), (-0.1, 1.0), (0.0, 1.05), (0.0, 0.95)):
        assert quadrature_gradients(objective, Quadratic(mu, sigma, dim=2))[0] > best + 1e-4


@pytest.mark.parametrize("gamma", GAMMAS)
def test_training_by_quadrature_finds_the_truth_without_looking_at_data(gamma):
    """The rows that are given are noise; only the density counts."""
    config = TrainConfig(
        objective=quadrature(gamma, shift=torch.zeros(2).double(), scale=torch.ones(2).double(), steps=200),
        energy=Architecture(name="quadratic"),
        updates=200,
        chains=ChainSettings(jump_components=1),
        optimizer=OptimizerSettings(lr=0.05),
        rows=RowSettings(standardise="none"),
    )
    model = fit(torch.randn(100, 2, generator=generator(0)), config=config)
    assert model.network.mu.tolist() == pytest.approx(MEAN.tolist(), abs=0.01)
    assert model.network.sigma.tolist() == pytest.approx(SD.tolist(), abs=0.01)


def test_quadrature_takes_its_grids_in_turn_while_gamma_warms_up():
    objective = quadrature(1.0, steps=1500)
    assert [objective.at(step / 1500).turn for step in range(1500)] == [step % 4 for step in range(1500)]
    assert [objective.at(progress).rule.gamma for progress in (0.0, 0.25, 0.5, 1.0)] == [0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize("name", ["cosine", "funnel", "rings"])
def test_interleaved_grids_are_one_grid_and_each_of_them_integrates(name):
    fine, grids = exact.grid(TOYS_2D[name].box, 192), interleaved_grids(TOYS_2D[name].box, 96)
    assert {tuple(x) for grid in grids for x in grid.points.tolist()} == {tuple(x) for x in fine.points.tolist()}
    for grid in grids:
        assert grid.shape == (96, 96)
        assert exact.log_integral(TOYS_2D[name].log_density(grid.points), grid).item() == pytest.approx(0, abs=1e-9)


def test_notes_of_blame_are_computed_from_the_cells():
    """CD the better one in KL everywhere, in the gamma-1 divergence too on one set of two; one set lost its chains."""
    config = TrainConfig().to_dict()
    done = []
    for gamma in GAMMAS:
        for i, stage in enumerate(STAGES):
            for name in ("moon", "mog", "rings"):
                settings = {"gamma": gamma, "stage": stage, "set": name, "n_train": 8, "n_grid": 16, "config": config}
                kl = 1 + gamma + i + (name == "mog")
                result = {"kl": kl, "gamma_1": kl if name == "mog" else -kl, "kl_train": kl - 0.25 * (i == 0)}
                if (stage, name, gamma) == ("sampled", "rings", 1.0):
                    result = dict.fromkeys(result)
                done.append(Run(settings, result))
    notes = EXPERIMENTS["blame-2d"].notes(done)
    assert "| CD: KL | 1.5 | 2.5 | 3.5 |" in notes  # of moon and mog: rings has no number at one stage
    assert "| gamma 1: KL | 2.5 | 3.5 | 4.5 |" in notes
    assert "| CD: gamma-1 divergence | 0.5 | 0.5 | 0.5 |" in notes
    one = "CD has the lower KL on {n} of {n} sets, and gamma 1 has the lower gamma-1 divergence on {k} of {n} sets"
    assert f"- *data*: {one.format(n=3, k=2)}." in notes
    assert f"- *sampled*: {one.format(n=2, k=1)}." in notes
    assert "0.25 (*exact*), 0 (*data*), 0 (*sampled*)" in notes
    assert "Of 18 runs, 1 diverged." in notes


def test_what_somebody_wrote_about_results_stays_when_they_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", toy_experiment())
    (tmp_path / "toy.reading.md").write_text("## Reading\n\nIt works.\n")
    page = reproduce("toy", tmp_path, quick=True, jobs=1)
    assert page.read_text().endswith("## Reading\n\nIt works.\n")


def test_mass_astray_by_hand():
    grid = exact.grid(exact.Box((0.0,), (4.0,)), 4)
    log_p = torch.tensor([0.5, 0.4999, 0.0001 / 2, 0.0001 / 2]).double().log()
    assert stray_mass(log_p, torch.zeros(4).double(), grid) == pytest.approx(0.5)
    assert stray_mass(log_p, log_p, grid) == pytest.approx(1e-4)
