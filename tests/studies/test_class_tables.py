import numpy as np
import pytest

from studies.class_tables import COLUMNS, SHARES, class_tables, components


def test_each_class_of_digits_is_a_majority_once():
    tables = list(class_tables("digits"))
    assert [name for name, _, _ in tables] == [f"digits-{i}" for i in range(10)]
    for (_, x, y), share, columns in zip(tables, SHARES, COLUMNS, strict=True):
        assert x.shape == (len(y), columns)
        assert y.sum() == max(3, round(share / (1 - share) * (~y).sum()))
    again = list(class_tables("digits"))
    np.testing.assert_array_equal(tables[3][1], again[3][1])


def test_components_by_hand():
    x = np.array([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
    assert np.abs(components(x, 1)).ravel() == pytest.approx([8**0.5, 0, 8**0.5])
