"""landscapes: the gamma-divergence over all Gaussians, well- and mis-specified (the paper's Figures 3 and 4)."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pscd import exact
from pscd.data.toys import CLEAN_1D, MIXTURE_1D, GaussianMixture1d
from pscd.energies import Quadratic
from pscd.errors import UserError
from studies.engine import Experiment, Result, Row, Run, Settings, mean_rows, objective_label
from studies.paper.gaussian_fit import GAMMAS, GRID, HALF_WIDTH, exact_optimum, in_column

CASES: dict[str, GaussianMixture1d] = {"well-specified": CLEAN_1D, "mis-specified": MIXTURE_1D}


def _runs(quick: bool, seeds: int) -> list[Settings]:
    size = {"n": 6 if quick else 80, "half_width": HALF_WIDTH}
    return [{"case": case, "gamma": gamma, **size} for case in CASES for gamma in GAMMAS]


def landscape_axes(n: int) -> tuple[Tensor, Tensor]:
    """The means and the deviations that a landscape shows."""
    return torch.linspace(-3.0, 3.0, n, dtype=torch.float64), torch.linspace(0.15, 3.2, n, dtype=torch.float64)


def landscape(case: str, gamma: float, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """D_gamma(p, q) over the Gaussians q."""
    p = CASES[case]
    means, sds = landscape_axes(n)
    log_p = p.log_prob(GRID.points)
    values = [[_divergence(log_p, float(m), float(s), gamma) for s in sds] for m in means]
    return means, sds, torch.tensor(values, dtype=torch.float64)


@torch.no_grad()
def _divergence(log_p: Tensor, mean: float, sd: float, gamma: float) -> float:
    try:
        return float(exact.gamma_divergence(log_p, Quadratic(mean, sd), gamma, GRID))
    except UserError:  # the integrand leaves the box: below gamma = 0, E_p[q^gamma] is infinite for a narrow q
        return math.inf


def _compute(settings: Settings) -> Result:
    means, sds, values = landscape(settings["case"], settings["gamma"], settings["n"])
    lowest = divmod(int(values.argmin()), len(sds))
    start = (float(means[lowest[0]]), float(sds[lowest[1]]))
    mean, sd = exact_optimum(CASES[settings["case"]], settings["gamma"], start)
    # Fewer digits than computed: the surface is kept to be drawn.
    surface = [[float(f"{v:.4g}") if math.isfinite(v) else None for v in row] for row in values.tolist()]
    return {"mean": start[0], "sd": start[1], "exact_mean": mean, "exact_sd": sd, "surface": surface}


def _rows(done: Sequence[Run]) -> list[Row]:
    rows: list[Row] = []
    for value in ("mean", "sd"):
        rows += mean_rows(
            done,
            in_column(lambda s: f"{s['case']}, {objective_label(s['gamma'])}", value),
            value,
            exact=f"exact_{value}",
        )
    return rows


def _notes(done: Sequence[Run]) -> str:
    return """
The gamma-divergence over the mean and the deviation of one Gaussian, by quadrature. *exact* is its minimum,
*measured* the lowest point of the drawn grid, which lies within one cell of it. Well-specified, data from
N(-1, 0.5): every gamma has its minimum at the truth, the scores being proper. Mis-specified, data from
0.33 N(-1, 0.0625) + 0.67 N(2, 2): they prefer different fits, and for large gamma a second valley opens at the
narrow component. Variances throughout. These are the paper's Figures 3 and 4.
"""


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    paths = []
    for case in CASES:
        panels = {objective_label(d.settings["gamma"]): d.result for d in done if d.settings["case"] == case}
        paths.append(figures.landscapes(panels, *landscape_axes(done[0].settings["n"]), out / f"landscapes-{case}.png"))
    return paths


LANDSCAPES = Experiment(
    "landscapes",
    "Objective landscapes, well- and mis-specified (Figures 3 and 4)",
    "2 minutes",
    1,
    _runs,
    _compute,
    _rows,
    _draw,
    _notes,
)
