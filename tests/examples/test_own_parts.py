"""CONTRIBUTING's walk: an objective, a sampler and a toy outside the package are trained, kept, loaded and sampled."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pscd
from pscd.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def own_parts(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import own_parts

    return own_parts


def test_the_sampler_follows_the_density(own_parts):
    """The accept step leaves exp(-E) exactly invariant: for E = (x0^2 + 4 x1^2) / 2, variances of 1 and 1/4."""
    generator = torch.Generator().manual_seed(0)
    x = 3 + torch.randn(4000, 2, generator=generator)
    sampler = own_parts.Underdamped()
    for _ in range(30):  # 30 x 10 steps of time 0.14: 42 units of time at friction 1
        x, _ = sampler.run(
            lambda x: 0.5 * (x * x.new_tensor([1.0, 2.0])).square().sum(1),
            x,
            step_size=torch.tensor(sampler.step_size),
            n_steps=sampler.n_steps,
            generator=generator,
        )
    # Of 4,000 points; five standard errors of a mean are 5 / sqrt(4000) = .079, of a variance 5 sqrt(2 / 4000) = .112,
    # each times its scale.
    scaled = x * torch.tensor([1.0, 2.0])
    assert scaled.mean(0).abs().max() < 0.079
    assert (scaled.var(0) - 1).abs().max() < 0.112


def test_all_three_from_python(own_parts, small, tmp_path):
    config = replace(small, objective=own_parts.TrimmedCD(share=0.2), sampler=own_parts.Underdamped(n_steps=3))
    model = pscd.fit(own_parts.pinwheel(500), config=config)
    model.save(tmp_path / "model.safetensors", step=config.updates)
    again = pscd.Model.load(tmp_path / "model.safetensors")
    assert again.config == config
    assert torch.equal(model.sample(50), again.sample(50))


def test_all_three_from_the_command_line(tmp_path, monkeypatch):
    """In the folder of the module, which is not imported yet when a command names it."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    out = str(tmp_path / "run")
    parts = ["own_parts:pinwheel", "--objective", "own_parts:TrimmedCD", "--sampler", "own_parts:Underdamped"]
    size = "--updates 5 --batch-size 8 --measure 100 --set objective.share=0.2 --set rows.n_data=100 "
    size += "--set chains.buffer_size=20 --set chains.jump_components=1 --set chains.sample_steps=2"
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    assert main(["train", *parts, *size.split(), "--out", out]) == 0
    assert Path(sys.modules["own_parts"].__file__).parent == EXAMPLES
    monkeypatch.delitem(sys.modules, "own_parts")
    assert main(["sample", out, "--import", "own_parts", "--n", "10", "--out", str(tmp_path / "samples.csv")]) == 0
    assert len((tmp_path / "samples.csv").read_text().splitlines()) == 11
