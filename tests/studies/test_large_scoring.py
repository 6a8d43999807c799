import numpy as np
import pytest

from pscd import EnergyDetector
from studies.large import scoring


def values(peaks=(200.0, 240.0), rates=((100.0, 190.0), (100.0, 150.0), (100.0, 185.0))):
    found = {"rows": 5_000_000, "per_second": 1e5, "cores_used": 1.5}
    turns = [{"1": found | {"per_second": one}, "2": found | {"per_second": two}} for one, two in rates]
    return {
        "memory": {name: found | {"peak_mb": peak} for name, peak in zip(("tenth", "whole"), peaks, strict=True)},
        "turns": turns,
        "forest": {"1": {"rows": 10, "per_second": 5.0}, "2": {"rows": 10, "per_second": 6.0}},
        "single": {"model": {"median": 0.5, "slow": 0.7}, "peak_mb": 300.0},  # every process tells its memory
    }


def test_the_page_says_whether_memory_grew_and_what_a_second_core_brought():
    assert scoring.growth(values()) == 40.0
    assert scoring.speedup(values()) == pytest.approx(1.85)
    page = "\n".join(scoring.section(values()))
    assert "40 MB more: within the 100 MB" in page
    assert "one, in turns of the same run: 1.85" in page
    assert page.endswith("after loading: model 0.50 ms (19 of 20 below 0.70).")
    assert "MORE THAN the 100 MB" in "\n".join(scoring.section(values((200.0, 301.0))))


def test_a_file_is_scored_as_the_command_does(tmp_path):
    x = np.random.default_rng(0).normal(size=(200, 2))
    EnergyDetector(updates=5).fit(x).save(tmp_path)
    np.save(tmp_path / "x.npy", x)
    found = scoring.score(str(tmp_path), str(tmp_path / "x.npy"))
    assert found["rows"] == 200
    assert found["per_second"] > 0
    assert not (tmp_path / "x.scores.npy").exists()
    np.save(tmp_path / "ten.npy", np.zeros((10, 10), np.float32))
    assert scoring.forest(str(tmp_path / "ten.npy"), 1)["rows"] == 1
