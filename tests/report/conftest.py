import os

import numpy as np
import pandas as pd
import pytest
import torch

from pscd.cli.main import main
from pscd.data.toys import moon
from tests.cli.helpers import SMALL

# Cells as strangers send them: HTML, a formula, emoji, a very long text, text from right to left, a broken encoding.
HOSTILE = [
    "</script><script>window.broken = 1</script>",
    '<img src=x onerror="window.broken = 1">',
    '=HYPERLINK("http://example.com";"click")',
    "\N{PILE OF POO}\N{ZERO WIDTH JOINER} &amp; \u202edrawkcab",
    "long " * 1000,
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "'\"`;--<!-- ]]> ${window.broken = 1} {{ 7 * 7 }}",
]
HOSTILE_COLUMN = '<b onclick="window.broken = 1">a.b[0]\'"</b>'


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """The folder of a detector that was fitted to a hostile table; its outliers have hostile names."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = np.random.default_rng(0).normal(size=(120, 3))
    rows[: len(HOSTILE), 1] += 30
    frame = pd.DataFrame(rows, columns=["x", HOSTILE_COLUMN, "y"])
    frame.insert(0, "note", [*HOSTILE, *(f"row of {i}" for i in range(len(HOSTILE), len(frame)))])
    frame.to_csv(folder / "table.csv", index=False)
    words = ["detect", folder / "table.csv", "--id", "note", "--updates", 3, "--out", folder / "run"]
    assert main([str(word) for word in words]) == 0
    return folder / "run"


@pytest.fixture(scope="session")
def two_moons(tmp_path_factory):
    """The folder of a small run on a csv of two columns, trained."""
    folder = tmp_path_factory.mktemp("moons")
    frame = pd.DataFrame(moon(300, torch.Generator().manual_seed(0)).numpy(), columns=["left", "right"])
    frame.insert(0, "who", [f"nobody {i}" for i in range(len(frame))])
    frame.to_csv(folder / "moons.csv", index=False)
    here = os.getcwd()
    os.chdir(folder)
    try:
        words = ["train", "moons.csv", "--columns", "left,right", *SMALL, "--set", "guard.checkpoint_every=10"]
        assert main([*words, "--out", "run"]) == 0
    finally:
        os.chdir(here)
    return folder / "run"
