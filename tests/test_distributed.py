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
from pscd.losses import DIVERGENCES
from pscd.objectives import FEBM, OBJECTIVES, NoiseContrastive, PseudoSpherical, Trimmed
from pscd.rng import generator

# All that the command line knows, and PS-CD over a range of gamma.
EVERY = {
    **OBJECTIVES,
    **{f"ps-cd {gamma}": PseudoSpherical(gamma=gamma) for gamma in (-0.5, 0.0, 0.5, 1.0, 2.0)},
    **{f"f-ebm {name}": FEBM(divergence=name, l2=0.1, l2_first=0) for name in DIVERGENCES},
    "nce, 3 rows of noise": NoiseContrastive(ratio=3),
    "trim, 2 of 8 rows": Trimmed(alpha=0.25),
}

WORKER = """
import sys
import torch
import torch.distributed as dist
from pscd import distributed
from pscd.rng import generator
from tests.test_distributed import EVERY, gradients, problem

torch.set_num_threads(1)
assert distributed.start(torch.device("cpu"))
energy, x_pos, x_neg = problem()
half = slice(4 * distributed.rank(), 4 * distributed.rank() + 4)
rank = distributed.rank()
result = {name: gradients(energy, x_pos[half], x_neg[half], name, generator(0, rank)) for name in EVERY}
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


def gradients(energy, x_pos, x_neg, name, rng):
    """Of the energy and of what is trained beside it, over all processes."""
    objective = EVERY[name]
    torch.manual_seed(1)
    aux = objective.init(energy, torch.randn(100, 2, generator=generator(2)).double())
    parameters = [*energy.parameters(), *(aux.double().parameters() if aux is not None else [])]
    for p in parameters:
        p.grad = None
    loss, _ = objective.at(1.0)(energy, aux, x_pos, x_neg, rng)
    loss.backward()
    stats = distributed.sum_gradients(parameters, {"rank": torch.tensor(float(distributed.rank()))})
    assert stats["rank"] == (distributed.world_size() - 1) / 2
    return torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in parameters])


def torchrun(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    environment["PYTHONFAULTHANDLER"] = "1"  # a process that is aborted says where it was
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


def test_two_processes_give_the_gradient_of_one(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    done = torchrun(str(tmp_path / "worker.py"), str(tmp_path / "gradients.pt"))
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "gradients.pt", weights_only=True)
    energy, x_pos, x_neg = problem()
    for name, objective in EVERY.items():
        halves = [
            gradients(energy, x_pos[half], x_neg[half], name, generator(0, rank))
            for rank, half in enumerate((slice(4), slice(4, 8)))
        ]
        averaged = (halves[0] + halves[1]) / 2
        if not objective.needs_negatives:
            # A mean over rows, each with noise of its own: the whole is the average of the halves.
            torch.testing.assert_close(found[name], averaged, rtol=1e-9, atol=1e-9)
            continue
        whole = gradients(energy, x_pos, x_neg, name, generator(0))
        torch.testing.assert_close(found[name], whole, rtol=1e-9, atol=1e-9)
        if getattr(objective, "gamma", 0) != 0:  # what a wrapper that averages would have given instead
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
