import numpy as np
import pandas as pd
import torch

import pscd
from pscd.evaluation import Measurement, Measurements

HOSTILE = "<script>alert(1)</script>"


def test_a_notebook_shows_a_model_with_its_columns_as_text(small):
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    model = pscd.fit(x, config=small.changed({"rows.data": "", "updates": 2}), columns=("a", HOSTILE))
    html = model._repr_html_()
    assert "&lt;script&gt;" in html
    assert HOSTILE not in html
    assert "gamma=1.0" in html


def test_a_notebook_shows_what_a_detector_has_learnt_above_its_parameters():
    detector = pscd.EnergyDetector(updates=3)
    assert "Detector of strange rows" not in detector._repr_html_()
    detector.fit(pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"]))
    bundle = detector._repr_mimebundle_(include=None, exclude=None)
    assert "60 rows of 2 columns" in bundle["text/html"]
    assert "updates" in bundle["text/html"]
    assert bundle["text/plain"] == repr(detector)


def test_a_notebook_shows_measurements_as_a_table():
    found = Measurements([Measurement("samples", 0.012345, 10, 20)])
    assert found == [Measurement("samples", 0.012345, 10, 20)]
    assert found._repr_html_().count("<tr>") == 2
    assert "<td>0.01235</td>" in found._repr_html_()
    assert Measurements([])._repr_html_() == "<table><tr></tr></table>"
