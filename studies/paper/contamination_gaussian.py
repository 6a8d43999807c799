"""contamination-gaussian: a Gaussian fitted to contaminated Gaussian data (the paper's Table 2)."""

import math
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from pscd.data import contaminate
from pscd.data.toys import CLEAN_1D, CONTAMINATION_1D, contaminated_1d
from pscd.rng import generator
from studies.engine import Experiment, Result, Row, Run, Settings, mean_rows, objective_label
from studies.engine.streams import StudyStream
from studies.paper import published
from studies.paper.gaussian_fit import at_once, exact_optimum, train_gaussian, training_settings

GAMMAS = (0.0, 0.5, 1.0, 2.0)
RATIOS = (0.01, 0.05, 0.1, 0.2, 0.3)


def kl_to_clean(mean: float, sd: float) -> float:
    """KL(p || q) from the clean data's Gaussian to a fitted one, in closed form."""
    (m,), (v,) = CLEAN_1D.means, CLEAN_1D.variances
    return math.log(sd) - 0.5 * math.log(v) + (v + (m - mean) ** 2) / (2 * sd**2) - 0.5


def robust_start(x: Tensor) -> tuple[float, float]:
    """Median and scaled median deviation: with less than half the rows bad, near the good ones."""
    median = x.median()
    return float(median), 1.4826 * float((x - median).abs().median())


def _runs(quick: bool, seeds: int) -> list[Settings]:
    return [
        {"ratio": ratio, "gamma": gamma, "seed": seed, **training_settings(quick)}
        for ratio in RATIOS
        for gamma in GAMMAS
        for seed in range(seeds)
    ]


def _compute(settings: Settings) -> Result:
    seed, ratio, gamma = settings["seed"], settings["ratio"], settings["gamma"]
    clean = CLEAN_1D.sample(settings["n_data"], generator(seed, StudyStream.DATA_1D))
    x = contaminate(clean, ratio, CONTAMINATION_1D.sample, generator(seed, StudyStream.CONTAMINATION_1D)).x
    start = robust_start(x)
    mean, sd = train_gaussian(x, at_once(gamma), start, settings)
    exact_mean, exact_sd = exact_optimum(contaminated_1d(ratio), gamma, start)
    return {
        "mean": mean,
        "sd": sd,
        "kl": kl_to_clean(mean, sd),
        "exact_mean": exact_mean,
        "exact_sd": exact_sd,
        "exact_kl": kl_to_clean(exact_mean, exact_sd),
    }


def _rows(done: Sequence[Run]) -> list[Row]:
    def key(settings: Settings) -> tuple[str, str]:
        return f"ratio {settings['ratio']:g}", objective_label(settings["gamma"])

    table = {
        (f"ratio {ratio:g}", objective_label(gamma)): value
        for ratio, columns in published.CONTAMINATION_GAUSSIAN.items()
        for gamma, value in columns.items()
    }
    return mean_rows(done, key, "kl", table, exact="exact_kl")


def _notes(done: Sequence[Run]) -> str:
    return """
KL(p || q) between the clean distribution, N(-1, 0.5), and the Gaussian fitted to data of which a fraction comes
from N(2, 0.05) (variances), the paper's Table 2. *exact* is the optimum of the objective by quadrature,
*measured* what PS-CD reaches from 2,000,000 samples (5,000 with `--quick`) that hold the contamination. Both
start from the median and the scaled median absolute deviation of the contaminated data: the objective has a
second minimum on the contamination, and the published .3118 at gamma 1, ratio .3 is no optimum of it. Where the
exact value is below 1e-4, the measured one shows the noise of training, about 1e-5, not the objective; the exact
line of gamma 2 lies below the figure.
"""


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    return [figures.contamination(_rows(done), out / "contamination-gaussian.png")]


CONTAMINATION_GAUSSIAN = Experiment(
    "contamination-gaussian",
    "Robustness to contamination on Gaussian data (Table 2)",
    "8 minutes",
    3,
    _runs,
    _compute,
    _rows,
    _draw,
    _notes,
)
