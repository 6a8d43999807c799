"""Two real processes against one, through torchrun as a user starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pscd import distributed
from pscd.energies import MLP
from pscd.errors import UserError
from pscd.objectives import PseudoSpherical
from pscd.rng import generator

GAMMAS = [-0.5, 0.0, 0.5, 1.0, 2.0]

WORKER = """
import sys
import torch
import torch.distributed as dist
from pscd import distributed
from tests.test_distributed import GAMMAS, gradients, problem

torch.set_num_threads(1)
assert distributed.start(torch.device("cpu"))
energy, x_pos, x_neg = problem()
half = slice(4 * distributed.rank(), 4 * distributed.rank() + 4)
result = {gamma: gradients(energy, x_pos[half], x_neg[half], gamma) for gamma in GAMMAS}
ranks = [torch.zeros(1), torch.zeros(1)]
dist.all_gather(ranks, torch.tensor([float(distributed.rank())]))
assert distributed.mean(torch.tensor(float(distributed.rank()))) == 0.5
if distributed.rank() == 0:
    torch.save(result, sys.argv[1])
distributed.barrier()
distributed.stop()
"""


def problem():
    torch.manual_seed(0)
    energy = MLP((2,), width=16).double()
    with torch.no_grad():  # spread the energies, so that averaging per-process losses would be visibly wrong
        energy.net[-1].weight.mul_(20)
    return (
        energy,
        torch.randn(8, 2, generator=generator(0)).double(),
        torch.randn(8, 2, generator=generator(1)).double(),
    )


def gradients(energy, x_pos, x_neg, gamma):
    energy.zero_grad()
    loss, _ = PseudoSpherical(gamma=gamma)(energy, None, x_pos, x_neg, generator(0))
    loss.backward()
    distributed.sum_gradients(energy.parameters())
    return torch.cat([p.grad.flatten() for p in energy.parameters()])


def torchrun(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


def test_two_processes_give_the_gradient_of_one(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    done = torchrun(str(tmp_path / "worker.py"), str(tmp_path / "gradients.pt"))
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "gradients.pt", weights_only=True)
    energy, x_pos, x_neg = problem()
    for gamma in GAMMAS:
        whole = gradients(energy, x_pos, x_neg, gamma)
        torch.testing.assert_close(found[gamma], whole, rtol=1e-9, atol=1e-9)
        halves = [gradients(energy, x_pos[half], x_neg[half], gamma) for half in (slice(4), slice(4, 8))]
        averaged = (halves[0] + halves[1]) / 2
        if gamma != 0:  # what a wrapper that averages would have given instead
            assert (averaged - whole).norm() / whole.norm() > 1e-3


@pytest.mark.parametrize("nproc", [2])
def test_the_command_line_trains_one_model_and_the_first_process_writes(tmp_path, nproc):
    run = tmp_path / "run"
    flags = "--steps 30 --n-data 500 --batch-size 32 --buffer-size 100 --jump-components 4 --width 8 --log-every 10"
    command = ["-m", "pscd", "train", "moon", *flags.split(), "--out", str(run)]
    done = torchrun(*command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("picture:") == 1
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3
    state = torch.load(run / "state.pt", weights_only=True)
    assert state["buffer"].shape == (100, 2)  # both processes' chains
    assert json.loads((run / "config.json").read_text())["batch_size"] == 32
    done = torchrun(*command[:-1], str(tmp_path / "odd"), "--batch-size", "33")
    assert done.returncode != 0
    assert done.stderr.count("must be multiples of the 2 processes") == 1
    done = torchrun(*command, "--gamma", "0.5")  # only the first process looks at the folder; all must end
    assert done.returncode != 0
    assert done.stderr.count("holds a run with other settings") == 1
    assert "Traceback" not in done.stderr.split("ChildFailedError")[0].split("torch/distributed")[0]


def test_an_error_on_the_first_process_is_raised():
    def fail():
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        distributed.on_first(fail)


def test_one_process_is_the_identity():
    x = torch.ones(3, requires_grad=True)
    assert distributed.gather(x) is x
    assert distributed.mean(x) is x
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    assert not distributed.start(torch.device("cpu"))
