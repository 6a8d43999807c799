"""Every artefact in its quick form, its JSON against the schema, and what must hold of the framework."""

import json
import math

import joblib
import jsonschema
import pytest
import torch

from pscd.cli import main
from pscd.data.toys import MIXTURE_1D, contaminated_1d
from pscd.errors import UserError
from pscd.paper import ARTEFACTS, reproduce
from pscd.paper.artefact import SCHEMA, Artefact, Done, Row, mean_rows, run
from pscd.paper.one_dimension import CASES, exact_optimum, kl_to_clean
from pscd.paper.published import CONTAMINATION_GAUSSIAN


def cells(quick, seeds):
    return [{"value": v, "seed": s} for v in (1, 2) for s in range(seeds)]


def compute(settings):
    return {"square": settings["value"] ** 2 + settings["seed"], "kept": [1, 2, 3]}


def rows(done):
    return mean_rows(done, lambda s: ("square", str(s["value"])), "square", {("square", "1"): 1.0})


def toy_artefact(**changes):
    settings = {"cells": cells, "compute": compute, "rows": rows, "draw": lambda done, out: []} | changes
    return Artefact("toy", "A toy", "no time", 2, **settings)


@pytest.mark.parametrize("name", ARTEFACTS)
def test_every_artefact_runs_quickly_and_keeps_to_the_schema(name, tmp_path, capsys):
    assert main(["reproduce", name, "--quick", "--jobs", "1", "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / f"{name}.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["quick"] is True
    page = (tmp_path / f"{name}.md").read_text()
    assert f"pscd reproduce {name} --quick" in page
    assert report["figures"]
    for figure in report["figures"]:
        assert (tmp_path / figure).stat().st_size > 5000
        assert figure in page
    assert all(row["measured"] is not None and math.isfinite(row["measured"]) for row in report["rows"])


def test_the_list_names_every_artefact_with_its_cost(capsys):
    assert main(["reproduce"]) == 0
    out = capsys.readouterr().out
    for artefact in ARTEFACTS.values():
        assert artefact.name in out
        assert artefact.cost in out


def test_finished_cells_are_kept_and_a_killed_run_goes_on(tmp_path):
    calls = []

    def fragile(settings):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(settings)
        return compute(settings)

    with pytest.raises(KeyboardInterrupt):
        run(toy_artefact(compute=fragile), tmp_path, n_jobs=1, show=False)
    assert len(calls) == 3
    calls.clear()
    run(toy_artefact(compute=fragile), tmp_path, n_jobs=1, show=False)
    assert len(calls) == 1
    report = json.loads((tmp_path / "toy.json").read_text())
    assert [row["measured"] for row in report["rows"]] == [1.5, 4.5]
    assert report["cells_computed_in_that_time"] == 1
    assert "kept" not in report["cells"][0]


def test_a_change_of_settings_is_not_mixed_with_old_cells(tmp_path):
    run(toy_artefact(), tmp_path, n_jobs=1, show=False)
    other = toy_artefact(cells=lambda quick, seeds: [{**c, "value": c["value"] + 1} for c in cells(quick, seeds)])
    run(other, tmp_path, n_jobs=1, show=False)
    report = json.loads((tmp_path / "toy.json").read_text())
    assert [row["measured"] for row in report["rows"]] == [4.5, 9.5]
    assert report["cells_computed_in_that_time"] == 2  # value 2 was there already


def test_a_damaged_cell_is_computed_again(tmp_path):
    run(toy_artefact(), tmp_path, n_jobs=1, show=False)
    damaged = next((tmp_path / "toy.cells").iterdir())
    damaged.write_text('{"settings"')
    run(toy_artefact(), tmp_path, n_jobs=1, show=False)
    assert json.loads((tmp_path / "toy.json").read_text())["cells_computed_in_that_time"] == 1


def test_processes_and_one_process_agree(tmp_path):
    run(toy_artefact(), tmp_path / "one", n_jobs=1, show=False)
    run(toy_artefact(), tmp_path / "two", n_jobs=2, show=False)
    one, two = (json.loads((tmp_path / d / "toy.json").read_text())["rows"] for d in ("one", "two"))
    assert one == two


def test_a_users_own_joblib_backend_does_the_work(tmp_path):
    """With threads, what a cell does to this process is seen here; with the default processes it is not."""
    seen = []

    def noted(settings):
        seen.append(settings["value"])
        return compute(settings)

    run(toy_artefact(compute=noted), tmp_path / "default", n_jobs=2, show=False)
    assert seen == []
    with joblib.parallel_config(backend="threading"):
        run(toy_artefact(compute=noted), tmp_path / "threads", n_jobs=2, show=False)
    assert sorted(seen) == [1, 1, 2, 2]


def test_a_bar_in_a_name_does_not_break_the_table(tmp_path):
    named = toy_artefact(rows=lambda done: [Row("KL(p || q)", "x", 1.0)])
    page = run(named, tmp_path, n_jobs=1, show=False).read_text()
    assert "| KL(p \\|\\| q) | x | 1 |  | 1 |" in page


def test_mean_and_standard_deviation_over_seeds():
    done = [Done({"value": 1, "seed": s}, {"square": v}) for s, v in enumerate((1.0, 3.0))]
    assert rows(done) == [Row("square", "1", 2.0, std=math.sqrt(2), n=2, published=1.0)]


def test_bad_input(tmp_path):
    with pytest.raises(UserError, match="unknown artefact 'table-9'; there are: gamma-1d"):
        reproduce("table-9")
    with pytest.raises(UserError, match="--seeds must be at least 1"):
        run(toy_artefact(), tmp_path, seeds=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        run(toy_artefact(), tmp_path / "file")


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
