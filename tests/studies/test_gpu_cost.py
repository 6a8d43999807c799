"""What the page about GPUs says: operations worked out by hand, hours by arithmetic, and whole updates, slowly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pscd
from studies.__main__ import main
from studies.gpu_cost import count as counting
from studies.gpu_cost import program
from studies.gpu_cost.count import Cost
from studies.presets import PRESETS, preset

DOCS = Path(__file__).parents[2] / "docs"
KEPT = json.loads((DOCS / "results" / "gpu-cost.json").read_text())


def convolution(kernel, inputs, outputs, side):
    """Multiplications and additions of one image; `side` is that of the output."""
    return 2 * kernel**2 * inputs * outputs * side**2


# Figure 6 of the paper, layer by layer. A halving block pools after its convolutions.
RESNET = (
    convolution(3, 3, 128, 32)
    + 2 * convolution(3, 128, 128, 32)
    + 2 * convolution(3, 128, 128, 16)
    + convolution(3, 128, 256, 16) + convolution(3, 256, 256, 16) + convolution(1, 128, 256, 16)
    + 2 * convolution(3, 256, 256, 8)
    + 2 * convolution(3, 256, 256, 8)
    + 2 * convolution(3, 256, 256, 4)
    + 2 * 256
)  # fmt: skip
CNN = (
    convolution(3, 3, 64, 64)
    + convolution(4, 64, 128, 32)
    + convolution(4, 128, 256, 16)
    + convolution(4, 256, 512, 8)
    + convolution(4, 512, 512, 4)
    + convolution(4, 512, 1, 1)
)


@pytest.mark.parametrize(("name", "forward"), [("paper-cifar10", RESNET), ("paper-celeba", CNN)])
def test_the_counts_are_those_worked_out_by_hand(name, forward):
    """A step is a pass forward and one back to the image; the loss has data and samples, and no gradient for them."""
    cost = Cost(**KEPT["counted"][name])
    assert cost.step == 2 * forward
    first = convolution(3, 3, PRESETS[name].energy.width, counting.SHAPES[name][1])
    assert cost.loss == 2 * (3 * forward - first)
    assert cost.parameters == sum(p.numel() for p in PRESETS[name].energy.build(counting.SHAPES[name]).parameters())


def test_counting_an_update(monkeypatch):
    """Of a network so small that it takes no time: the same formulas."""
    small = preset("paper-celeba").changed({"energy.width": 2, "energy.depth": 1, "energy.classes": 3})
    monkeypatch.setattr(counting, "preset", lambda name: small)
    monkeypatch.setitem(counting.SHAPES, "small", (3, 8, 8))
    cost = counting.count("small")
    first = convolution(3, 3, 2, 8)
    forward = first + convolution(4, 2, 4, 4) + convolution(4, 4, 3, 1)
    assert (cost.step, cost.loss) == (2 * forward, 2 * (3 * forward - first))
    assert cost.operations(10, 7) == 10 * (7 * cost.step + cost.loss)
    # Autograd keeps the image, and the two activations before and after their leaky ReLU, which share storage or not.
    numbers = 3 * 64 + 2 * 64 + 4 * 16
    assert 4 * numbers <= cost.kept <= 2 * 4 * numbers
    assert cost.numbers == 192
    memory = cost.memory(small, 1000)
    assert memory["training images"] == 4 * 1000 * 192
    assert memory["activations"] == 2 * 64 * cost.kept


def test_hours_by_arithmetic():
    fewest, most = program.hours(3.6e18, 100e12)  # ten hours at the peak
    assert fewest == pytest.approx(10 / 0.30)
    assert most == pytest.approx(10 / 0.05)
    assert program.on_many(72, 72) == pytest.approx((10, 18))


def test_the_page_is_the_one_of_the_numbers():
    assert (DOCS / "gpu.md").read_text() == program.page(KEPT)
    assert "was run on a GPU" in program.page({**KEPT, "updates": {}})


def test_a_small_update_is_measured(monkeypatch, capsys):
    small = preset("paper-celeba").changed({"energy.width": 2, "batch_size": 4, "sampler.n_steps": 2})
    monkeypatch.setattr(counting, "preset", lambda name: small)
    assert main(["gpu-cost", "--one", "paper-celeba"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"] > 0
    assert 0 < found["change"] < 1e-5  # the learning rate is warmed up: a hundredth of 1e-4 in the first update


@pytest.mark.slow
@pytest.mark.parametrize("name", counting.SHAPES)
def test_a_whole_update_of_the_paper_s_presets(name):
    """At full size, in a process of its own, whose time and memory it prints."""
    command = [sys.executable, "-m", "studies", "gpu-cost", "--one", name]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, cwd=DOCS.parent).stdout.splitlines()
    found = json.loads(lines[-1])
    print(f"{name}: {found['processor_seconds']:.0f} s of processor time, {found['mebibytes']:.0f} MiB")
    assert torch.isfinite(torch.tensor(found["loss"]))
    assert 0 < found["change"] < 1e-5
    cost = Cost(**KEPT["counted"][name])
    kept = 2 * preset(name).batch_size * cost.kept / 2**20
    assert found["mebibytes"] < 4 * kept + 1000  # what the page counts, and what convolutions take on the way


@pytest.mark.slow
def test_a_compiled_network_trains_to_the_same_weights():
    """As the page shows; a backend without machine code has the same graphs, and needs no compiler."""
    changes = {
        "energy.width": 4,
        "energy.depth": 2,
        "batch_size": 4,
        "chains.buffer_size": 8,
        "sampler.n_steps": 2,
        "updates": 3,
    }
    config = preset("paper-cifar10").changed(changes)
    x = torch.randint(256, (12, 3, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)

    def fitted(**compiled):
        torch.manual_seed(0)
        energy = config.energy.build((3, 8, 8))
        if compiled:
            energy.compile(**compiled)
        return pscd.fit(x, config=config, label=torch.arange(12) % 10, energy=energy).network.state_dict()

    torch.testing.assert_close(fitted(backend="aot_eager", fullgraph=True), fitted(), rtol=0, atol=1e-6)
