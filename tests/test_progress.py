from types import SimpleNamespace

import pytest

from pscd import progress
from pscd.progress import duration, progress_bar


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told to go on."""
    now = SimpleNamespace(at=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.at)
    return now


def steps(bar, clock, seconds):
    for took in seconds:
        clock.at += took
        bar.update()


def test_the_time_of_a_step_is_told_once_and_without_the_first_one(clock, capsys):
    asked = []

    def forecast(seconds):
        asked.append(seconds)
        return "a long time"

    with progress_bar(100, forecast=forecast) as bar:
        steps(bar, clock, [50.0, 0.5, 1.0])
        assert asked == []
        steps(bar, clock, [0.6, 9.0, 9.0])
    assert asked == [pytest.approx(0.7)]  # 2.1 seconds for three steps
    assert capsys.readouterr().err.count("a long time\n") == 1


def test_one_long_step_is_enough(clock):
    asked = []
    with progress_bar(100, forecast=asked.append) as bar:
        steps(bar, clock, [9.0, 7.0])
    assert asked == [7.0]


def test_steps_that_were_taken_back_are_not_divided_by(clock):
    asked = []
    with progress_bar(100, done=40, forecast=asked.append) as bar:
        steps(bar, clock, [1.0])
        clock.at += 5
        bar.update(-1)  # a run that diverged goes back
        assert asked == []
        steps(bar, clock, [1.0, 2.0])
    assert asked == [8.0]


def test_a_silent_bar_says_nothing(clock, capsys):
    with progress_bar(10, show=False, forecast=lambda seconds: "never") as bar:
        steps(bar, clock, [5.0, 5.0, 5.0])
    assert capsys.readouterr().err == ""


def test_durations():
    assert [duration(s) for s in (89, 90, 5399, 5400)] == ["89 s", "2 min", "90 min", "1.5 hours"]
