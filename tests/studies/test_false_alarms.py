import pytest
import torch

from pscd.rng import generator
from studies import false_alarms
from studies.__main__ import main
from studies.false_alarms import KINDS, is_taken_for_dirty, with_junk


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_what_their_name_says(kind):
    x = KINDS[kind](4000, 2, generator(0))
    assert x.shape == (4000, 2)
    # Five standard errors of a mean of 4,000 are .08 deviations.
    means = {"normal": 0.0, "two modes": 3.0, "even": 0.5, "exponential": 1.0}
    deviations = {"normal": 1.0, "two modes": 10**0.5, "even": 12**-0.5, "exponential": 1.0}
    assert (x.mean(0) - means[kind]).abs().max() < 0.08 * deviations[kind]
    assert x.std(0) == pytest.approx(deviations[kind], rel=0.1)


def test_junk_is_spread_over_twice_the_range():
    x = torch.linspace(0, 1, 1000, dtype=torch.float64)[:, None].clone()
    dirty = with_junk(x.clone(), 0.1, generator(0))
    assert (dirty != x).sum() == 100
    assert -0.5 <= dirty.min() < -0.4
    assert 1.4 < dirty.max() <= 1.5


def test_junk_is_seen_and_its_absence_too():
    assert not is_taken_for_dirty("normal", 500, 2, 0.0, 2)
    assert is_taken_for_dirty("normal", 500, 2, 0.1, 2)


def test_a_line_for_every_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(false_alarms, "is_taken_for_dirty", lambda kind, n, d, share, seed: share > 0 or seed == 0)
    (tmp_path / "false-alarms.reading.md").write_text("So it is.\n")
    assert main(["false-alarms", "--out", str(tmp_path), "--seeds", "3", "--rows", "50", "60"]) == 0
    text = (tmp_path / "false-alarms.md").read_text()
    assert "`python -m studies false-alarms --seeds 3 --rows 50 60`" in text
    assert "| exponential | 2 | 60 | 1 of 3 | 3 of 3 |" in text
    assert text.count("of 3 | ") == 2 * 2 * len(KINDS)
    assert text.endswith("So it is.\n")
