"""The interactive picture shows what the library computes today."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("compute_one_picture", ROOT / "scripts" / "compute_one_picture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shown(script):
    return {(row["ratio"], row["gamma"]): row for row in json.loads(script.FILE.read_text())}


def test_every_place_of_the_sliders_is_there(script, shown):
    assert set(shown) == {(ratio, gamma) for ratio in script.RATIOS for gamma in script.GAMMAS}


@pytest.mark.parametrize("place", [(0.1, 1.0), (0.2, 0.5)])
def test_it_is_the_optimum(script, shown, place):
    assert script.optimum(*place) == pytest.approx(shown[place], abs=2e-5)


def test_likelihood_has_the_mean_and_variance_of_all_rows(shown):
    """By hand: at ratio .1 the mean is -.7, and the variance .9 (.5 + .3^2) + .1 (.05 + 2.7^2)."""
    row = shown[0.1, 0.0]
    assert row["mean"] == pytest.approx(-0.7, abs=1e-4)
    assert row["sd"] ** 2 == pytest.approx(0.9 * (0.5 + 0.09) + 0.1 * (0.05 + 7.29), abs=1e-4)
