import numpy as np
import pandas as pd

from pscd import EnergyDetector
from pscd.cli.main import main


def test_it_is_told_where_the_threshold_comes_from(tmp_path, capsys):
    table = tmp_path / "a.csv"
    x = np.random.default_rng(0).normal(size=(200, 2))

    def told(*flags):
        pd.DataFrame(x, columns=["a", "b"]).to_csv(table, index=False)
        out = tmp_path / "run"
        assert main(["detect", str(table), "--out", str(out), "--updates", "5", "--force", *flags]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("outlier: "))
        assert line.split()[3] == f"{-EnergyDetector.load(out).offset_:.4g},"
        return line.partition(", ")[2]

    assert told("--contamination", "0.05") == "the strangest 5 % of these rows (--contamination)"
    x[:20] += 9
    assert told() == "which 99 % of the model's own samples stay below"
    x[:20] -= 9
    x[np.abs(x).max(1) > 2] = 0  # rows that stand out less than those of the model
    assert told() == "in any case the strangest hundredth of these rows (--contamination)"
