import torch

import pscd
from pscd.rng import generator


def test_load_reads_runs_models_and_detectors(tmp_path):
    rows = torch.randn(120, 3, generator=generator(0))
    model = pscd.fit(rows, updates=2)
    model.save(tmp_path / "m.safetensors")
    assert isinstance(pscd.load(tmp_path / "m.safetensors"), pscd.Model)
    detector = pscd.EnergyDetector(random_state=0).fit(rows.numpy())
    detector.save(tmp_path / "detector")
    assert isinstance(pscd.load(tmp_path / "detector"), pscd.EnergyDetector)
