import pytest

from studies.engine import Row
from studies.paper import figures


@pytest.fixture
def drawn(monkeypatch):
    """What is drawn stays a figure instead of becoming a file."""
    monkeypatch.setattr(figures, "save", lambda figure, path: figure)


ROWS = [Row("a", "CD", 4.0), Row("a", "PS-CD", 0.5), Row("b", "CD", None), Row("b", "PS-CD", 2.0)]


def lengths(axis):
    return [round(bar.get_width(), 6) for group in axis.containers for bar in group]


def test_a_linear_axis_of_bars_begins_at_0_and_says_what_is_missing(drawn, tmp_path):
    (axis,) = figures.bars(ROWS, tmp_path / "x.png", quantity="FID", floor=None, missing="diverged").axes
    assert (axis.get_xscale(), axis.get_xlim()[0], axis.get_xlabel()) == ("linear", 0.0, "FID")
    assert lengths(axis) == [4.0, 0.5, 2.0]
    (text,) = axis.texts
    # The upper half of the second group: that of the first column.
    assert (text.get_text().strip(), text.get_position()) == ("diverged", (0.0, pytest.approx(0.8)))


def test_a_logarithmic_axis_has_a_floor(drawn, tmp_path):
    (axis,) = figures.bars(ROWS, tmp_path / "x.png", floor=1.0).axes
    assert (axis.get_xscale(), axis.get_xlim()[0]) == ("log", 0.5)
    assert axis.get_xlabel() == "MMD x 1e4 (below 1: at 1)"
    assert lengths(axis) == [4.0, 1.0, 2.0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b"]
