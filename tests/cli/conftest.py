import sys

import numpy as np
import pandas as pd
import pytest

from pscd.cli.main import main
from tests.cli.helpers import SMALL, write_module


@pytest.fixture
def small_blocks(monkeypatch):
    """Tables of more than sixteen rows are large."""
    monkeypatch.setattr("pscd.tables.read.block_size", lambda width: 16)


@pytest.fixture
def csv(tmp_path):
    rows = np.random.default_rng(0).normal(size=(200, 3))
    frame = pd.DataFrame(rows, columns=["height", "weight", "age"])
    frame["name"] = "somebody"
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def run(csv, tmp_path, capsys):
    code = main(["train", str(csv), "--columns", "height,weight,age", *SMALL, "--out", str(tmp_path / "run")])
    capsys.readouterr()
    assert code == 0
    return tmp_path / "run"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The name of a module with parts of one's own in the current folder, not imported yet."""
    monkeypatch.chdir(tmp_path)
    name = write_module(tmp_path, "mine_of_a_test")
    yield name
    sys.modules.pop(name, None)
