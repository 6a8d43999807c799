from pathlib import Path

import pytest

from pscd.config import TrainConfig
from pscd.errors import UserError
from pscd.recipes.configs import NOTES, RECIPES, for_data, for_rows, name_for_rows, recipe, recovering


@pytest.mark.parametrize(
    ("shape", "own", "name"),
    [
        ((1,), False, "plane"),
        ((2,), False, "plane"),
        ((3,), False, "table"),
        ((3,), True, "free"),
        ((2, 2), True, "table"),
        ((3, 32, 32), False, "images"),
    ],
)
def test_rows_find_their_recipe(shape, own, name):
    assert for_rows(shape, own=own) is RECIPES[name]
    assert name_for_rows(shape, own=own) in NOTES


def test_data_find_their_recipe(tmp_path, monkeypatch):
    assert for_data(str(tmp_path)) is RECIPES["images"]
    assert for_data("x.csv") is RECIPES["table"]
    assert for_data("x.csv", 2) is RECIPES["plane"]
    assert for_data("digits") is RECIPES["digits"]
    monkeypatch.chdir(tmp_path)
    for name in ("plane", "table", "free"):  # of a recipe, and of a folder of pictures
        Path(name).mkdir()
        assert for_data(name) is RECIPES["images"]
    assert for_data("") == for_data("own.module:toy") == for_data("moon") == TrainConfig()
    with pytest.raises(UserError, match="unknown recipe 'nonsense'; there are: plane, table"):
        recipe("nonsense")


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_json(name):
    assert TrainConfig.from_dict(RECIPES[name].to_dict()) == RECIPES[name]


def test_recovery_likelihood_changes_the_recipe_of_images():
    config = recovering(RECIPES["images"])
    assert config.objective.uses_levels
    assert (config.energy.levels, config.energy.classes, config.compute.precision) == (12, 0, "float32")
