"""The numbers of whole fits: results and saved detectors rest on them, so a change has to be made on purpose.

`python -m tests.mixtures.test_kept_numbers` writes them anew. They are the same on other machines to nine digits or so.
"""

import json
from pathlib import Path

import pytest
import torch

from pscd.mixtures import fit_robust_mixture
from pscd.mixtures.mixed_fit import fit_mixed
from pscd.rng import generator

KEPT = Path(__file__).with_suffix(".json")


def table():
    """Two groups of three correlated columns, a category that tells them apart, strange rows, wrong cells and gaps."""
    rng = generator(11)
    z = torch.randn(240, 3, generator=rng, dtype=torch.float64)
    group = torch.arange(240) % 2
    z[:, 1] = 0.8 * z[:, 0] + 0.4 * z[:, 1]
    z = 0.6 * z + torch.tensor([0.9, -0.7, 0.0]).double() * (2 * group - 1)[:, None]
    code = torch.where(torch.rand(240, generator=rng) < 0.9, group, 2).double()
    z[:12] = 12 * torch.rand(12, 3, generator=rng, dtype=torch.float64) - 6
    x = torch.cat([z, code[:, None]], 1)
    wrong = x.clone()
    wrong[20:24, 1] += 8.0
    wrong[30:32, 3] = 2 - wrong[30:32, 3]
    wrong[torch.rand(x.shape, generator=rng) < 0.05] = torch.nan
    return z, wrong


def fits():
    """Numbers of each fit, by name."""
    z, x = table()
    found = {}
    for robust in (True, False):
        fit = fit_robust_mixture(z, robust=robust, seed=2)
        inner = fit.components
        parts = {"weights": inner.weights, "means": inner.means, "factors": inner.factors, "tail": fit.tail.factors,
                 "junk": fit.junk, "held out": fit.held_out, "clean": fit.clean(z[::10])}  # fmt: skip
        found |= {f"robust mixture {robust}, {name}": value for name, value in parts.items()}
        mixed = fit_mixed(x, [0, 0, 0, 3], seed=3, robust=robust)
        found |= {f"mixed mixture {robust}, {name}": value for name, value in mixed.tensors().items()}
        found |= {f"mixed mixture {robust}, {name}": value for name, value in questions(mixed, x).items()}
    return found


def questions(mixed, x):
    """What a mixture says of rows with gaps and wrong cells, by name."""
    trusted, some = mixed.trusted(x), x[::12]
    cells = mixed.cells(some, trusted[::12])
    lower, upper = cells.quantiles(0.9, torch.ones_like(cells.trusted))
    return {
        "trusted": trusted.double().sum(0),
        "log density": mixed.log_prob(some),
        "energy": mixed.energy(some),
        "expected": mixed.expected(some),
        "completed": mixed.complete(some, generator(5)),
        "drawn": mixed.sample(5, generator(6)),
        "cost": cells.cost,
        "mean": cells.mean,
        "surprise": cells.surprise,
        "lower": lower,
        "upper": upper,
    }


def numbers(value):
    flat = torch.as_tensor(value).double().flatten().nan_to_num(nan=-99.0)
    return [float(f"{v:.9g}") for v in flat.tolist()]


@pytest.fixture(scope="module")
def found():
    return {name: numbers(value) for name, value in fits().items()}


KNOWN = json.loads(KEPT.read_text()) if KEPT.exists() else {}


@pytest.mark.parametrize("name", KNOWN)
def test_a_fit_is_the_one_that_was_kept(found, name):
    assert found[name] == pytest.approx(KNOWN[name], rel=1e-5, abs=1e-6)


def test_nothing_is_left_out(found):
    assert found.keys() == KNOWN.keys()


if __name__ == "__main__":
    KEPT.write_text(json.dumps({name: numbers(value) for name, value in fits().items()}, indent=1) + "\n")
