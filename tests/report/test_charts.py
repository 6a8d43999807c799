"""Charts say what the numbers say. What they look like is for `test_browser` and for people."""

import json

import numpy as np
import pytest

from pscd.report import charts


def test_every_chart_is_valid_json_without_names_of_the_user_as_fields():
    rng = np.random.default_rng(0)
    window, names = (0.0, 1.0, 0.0, 1.0), ("a.b", "c[0]")
    specs = [
        charts.curves({"a.b": ([1, 2], [0.1, np.nan])}, rolled_back=[2], log=True),
        charts.energies(rng.normal(size=50), rng.normal(size=50)),
        charts.column(np.ones(5), rng.normal(size=50)),
        charts.landscape(np.zeros((4, 4)), window, names),
        charts.cloud(rng.normal(size=(5, 2)), window, names, "data"),
        charts.words([("a.b", 0.5, 0.25)]),
    ]
    for spec in specs:
        text = json.dumps(spec, allow_nan=False)
        assert '"width": "container"' in text
        assert '"field": "a.b"' not in text
        assert "http" not in text


def test_shares_of_a_histogram_count_all_rows_inside():
    data, samples = np.array([0.0] * 10 + [1.0] * 30), np.array([0.0, 1.0])
    bins = charts.energies(data, samples)["datasets"]["bins"]
    assert sum(b["data"] for b in bins) == pytest.approx(1)
    assert (bins[0]["data"], bins[-1]["data"], bins[-1]["samples"]) == (0.25, 0.75, 0.5)


def test_a_few_energies_far_out_compress_the_axis():
    near = np.random.default_rng(0).normal(5, 1, size=500)
    scales = []
    for data in (near, np.append(near, 1000.0)):
        spec = charts.energies(data, near, 9.0)
        scales.append(spec["layer"][0]["encoding"]["x"]["scale"].get("type", "linear"))
        bins = spec["datasets"]["bins"]
        assert sum(b["data"] for b in bins) == pytest.approx(1, abs=1e-3)
        assert [b["low"] for b in bins] == sorted(b["low"] for b in bins)
        assert spec["datasets"]["threshold"] == [{"low": 9.0}]
    assert scales == ["linear", "symlog"]


def test_the_bulk_excludes_a_single_outlier_and_is_never_empty():
    low, high = charts.bulk(np.append(np.linspace(0, 1, 1000), 1e9))
    assert -0.2 < low < 0
    assert 1 < high < 1.2
    low, high = charts.bulk(np.full(3, 5.0))
    assert low < 5 < high
