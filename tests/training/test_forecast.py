from functools import partial

import pytest

from pscd.training.fit import fit
from pscd.training.loop import forecast


def test_what_is_over_soon_is_not_told():
    assert forecast(0.0599, left=1000) is None
    assert forecast(0.06, left=1000) is not None


@pytest.mark.parametrize(("threads", "place"), [(1, "one core"), (2, "2 cores")])
def test_the_whole_sentence(monkeypatch, threads, place):
    monkeypatch.setattr("pscd.fast.allowed_threads", lambda: threads)
    said = forecast(1.05, left=2000, kept=True)
    assert said == (
        f"about 35 min for 2,000 updates on {place}; 200 take 4 min. "
        "Ctrl-C stops it at any time: the run can be used then, and resumes later"
    )


def test_a_few_long_updates_are_not_made_fewer():
    assert forecast(60, left=5, where="cuda") == "about 5 min for 5 updates on cuda"


def test_training_tells_it_for_the_updates_that_are_left(small, tmp_path, monkeypatch, capsys):
    import torch

    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("pscd.progress._Bar.timed", 0.0)
    soon = partial(forecast, long=0.0)
    monkeypatch.setattr("pscd.training.loop.forecast", soon)
    fit(x, config=small, progress=True)
    assert " for 60 updates on " in capsys.readouterr().err
    monkeypatch.setattr("pscd.training.loop.forecast", partial(forecast, long=1e9))
    fit(x, config=small, progress=True, folder=tmp_path)
    assert "updates on" not in capsys.readouterr().err
