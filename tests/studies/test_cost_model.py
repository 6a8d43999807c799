"""The cost model: its bytes are those that an update really sends, and its limits are right."""

import json
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from pscd import distributed
from studies.__main__ import main
from studies.cost_model import measure, model, program
from studies.cost_model.model import Network, Work
from studies.timing import CASES, Training

WORK = Work(parameters=1000, statistics=2, fixed=1e-3, per_row=1e-5, per_energy=1e-8)
FREE = Network("free", 0.0, 0.0)
SLOW = Network("slow", 1e-4, 1e-9)


@pytest.mark.parametrize("processes", [2, 4])
def test_an_update_sends_what_the_model_says(monkeypatch, processes):
    """A group of equal processes, of which this is the first: what the others would send is a copy of its own."""
    training = Training(replace(CASES["mlp-2"], batch_size=32, n_steps=2, rows=64, buffer_size=64), 1.0)
    parameters = sum(p.numel() for p in training.state.energy.parameters())
    statistics = measure.statistics_of(training)

    def all_gather(parts, x):
        for part in parts:
            part.copy_(x)

    monkeypatch.setattr(distributed, "is_on", lambda: True)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    monkeypatch.setattr(distributed, "world_size", lambda: processes)
    monkeypatch.setattr(dist, "all_gather", all_gather)
    monkeypatch.setattr(dist, "all_reduce", lambda x: x.mul_(processes))
    with measure.counted() as calls:
        training.update()
    work = replace(WORK, parameters=parameters, statistics=statistics)
    rows = 32 // processes
    assert calls == [("all_gather", model.gathered_bytes(rows)), ("all_reduce", model.summed_bytes(work))]
    assert calls[0][1] == 4 * 2 * rows


def test_a_ring_sends_so_many_messages_and_bytes():
    """Counted by walking around it: p - 1 steps gather, and twice as many sum, a p-th of the gradient each."""
    for p in (2, 3, 8):
        gathering = [model.gathered_bytes(5)] * (p - 1)
        summing = [model.summed_bytes(WORK) / p] * (p - 1) * 2
        assert model.messages(p) == len(gathering) + len(summing)
        assert model.bytes_sent(WORK, p, 5) == pytest.approx(sum(gathering) + sum(summing))
    assert (model.messages(1), model.bytes_sent(WORK, 1, 5)) == (0, 0)


def test_limits_of_efficiency():
    for efficiency in (model.efficiency_growing, model.efficiency_fixed):
        assert efficiency(WORK, SLOW, 1, 256) == pytest.approx(1)
        values = [efficiency(WORK, SLOW, p, 256) for p in (2, 8, 64)]
        assert 1 > values[0] > values[1] > values[2] > 0
    nothing_shared = replace(WORK, fixed=0.0, per_energy=0.0)
    assert model.efficiency_growing(nothing_shared, FREE, 1024, 256) == 1
    assert model.efficiency_fixed(nothing_shared, FREE, 64, 256) == pytest.approx(1)
    # Without communication a fixed batch loses the fixed cost alone: Amdahl's law.
    amdahl = replace(WORK, per_energy=0.0)
    serial = amdahl.fixed / amdahl.alone(256)
    assert model.efficiency_fixed(amdahl, FREE, 8, 256) == pytest.approx(1 / (8 * serial + 1 - serial))


def test_the_page_is_written_from_the_numbers(tmp_path, monkeypatch):
    works = dict.fromkeys(program.ON_MACHINES[:2], WORK.__dict__)
    times = {"1": [1.0, 1.0, 1.2], "2": [0.8, 0.5, 0.6], "2 apart": [0.5] * 3, "4": [0.5] * 3, "4 apart": [0.5] * 3}
    times |= {"1 busy": [1.0, 1.0, 1.2], "2 busy": [0.6, 0.5, 0.6], "4 busy": [0.3] * 3}
    found = {
        "network": SLOW.__dict__,
        "works": works,
        "measured": {"mlp-20": times},
        "machine": "a machine",
        "versions": {"torch": "torch 2"},
        "load": 0.1,
        "updates": 10,
    }
    (tmp_path / "cost-model.json").write_text(json.dumps(found))
    assert main(["cost-model", "--page-only", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "cost-model.md").read_text()
    written = json.loads((tmp_path / "cost-model.json").read_text())
    two = written["compared"][0]
    assert two["measured"] == pytest.approx(1.0)  # the median of 1 / 1.6, 1 and 1.2 / 1.2
    assert two["of_processor"] == pytest.approx(1.0)
    assert written["compared"][1]["of_processor"] == pytest.approx(1 / 1.2)
    assert (two["lowest"], two["highest"]) == pytest.approx((1 / 1.6, 1.0))
    assert f"| 2 | {two['predicted']:.2f} |" in page
    billion = {row["processes"]: row for row in written["billion"] if row["network"] == "slow"}
    alone = WORK.alone(512)
    assert billion[1]["hours"] == pytest.approx(1e9 / 512 * alone / 3600)
    assert billion[8]["shard_gigabytes"] == 10
    assert billion[8]["rows_per_second"] == pytest.approx(8 * 512 / model.together(WORK, SLOW, 8, 512))
    assert (tmp_path / "cost-model.png").stat().st_size > 10_000


@pytest.mark.slow
def test_two_real_processes_measure_their_network():
    network, points = measure.network_here(5)
    assert 1e-6 < network.latency < 1
    assert 1e-12 <= network.seconds_per_byte < 1e-5
    assert len(points["sum"]) == len(measure.SIZES)
    torch.set_num_threads(1)
