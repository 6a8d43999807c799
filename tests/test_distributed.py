"""Two real processes against one, through torchrun as a user starts them."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from pscd import distributed
from pscd.config import ChainSettings, RowSettings, TrainConfig
from pscd.coordinates import Coordinates
from pscd.data.chunks import ArrayChunks
from pscd.data.streams import ChunkedSource
from pscd.energies import MLP, Architecture
from pscd.errors import UserError
from pscd.losses import DIVERGENCES
from pscd.objectives import FEBM, OBJECTIVES, NoiseContrastive, PseudoSpherical, Recovery, Trimmed
from pscd.recipes.tables import Prepared
from pscd.rng import generator
from pscd.training import checkpoint
from pscd.training.batches import Batches
from pscd.training.fit import fit
from pscd.training.state import init_state

# All objectives, and PS-CD over a range of gamma.
EVERY = {
    **{name: objective for name, objective in OBJECTIVES.items() if name != "recovery"},
    **{f"ps-cd {gamma}": PseudoSpherical(gamma=gamma) for gamma in (-0.5, 0.0, 0.5, 1.0, 2.0)},
    **{f"f-ebm {name}": FEBM(divergence=name, l2=0.1, l2_first=0) for name in DIVERGENCES},
    "nce, 3 rows of noise": NoiseContrastive(ratio=3),
    "trim, 2 of 8 rows": Trimmed(alpha=0.25),
}

WORKER = """
import json
import sys
from pathlib import Path
import torch
import torch.distributed as dist
from pscd import distributed
from pscd.rng import generator
from tests.test_distributed import EVERY, gradients, problem, together

torch.set_num_threads(1)
assert distributed.start(torch.device("cpu"))
energy, x_pos, x_neg = problem()
half = slice(4 * distributed.rank(), 4 * distributed.rank() + 4)
rank = distributed.rank()
result = {name: gradients(energy, x_pos[half], x_neg[half], name, generator(0, rank)) for name in EVERY}
ranks = [torch.zeros(1), torch.zeros(1)]
dist.all_gather(ranks, torch.tensor([float(distributed.rank())]))
assert distributed.mean(torch.tensor(float(distributed.rank()))) == 0.5
together(distributed.rank())
if distributed.rank() == 0:
    torch.save(result, sys.argv[1])
distributed.barrier()
distributed.stop()

from pscd.cli.main import main
codes = [main(words) for words in json.loads(sys.argv[2])]
Path(sys.argv[1]).with_name(f"codes-{rank}.json").write_text(json.dumps(codes))
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


def together(rank):
    """What two processes must agree on, or must not; called in both."""
    assert distributed.gather(torch.tensor([rank, 5])).tolist() == [0, 5, 1, 5]
    parts = distributed.gather_parts(10 * rank + torch.arange(3), [1, 2])
    assert [part.tolist() for part in parts] == [[0, 10], [1, 2, 11, 12]]
    shared = [torch.full((2,), float(rank)), torch.tensor([rank + 7])]
    distributed.broadcast(shared)
    assert [t.tolist() for t in shared] == [[0.0, 0.0], [7]]
    # A parameter that has a gradient in one process only, and statistics that differ.
    here, there = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))
    (here if rank == 0 else there).grad = torch.ones(2 if rank == 0 else 3)
    frozen = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
    stats = distributed.sum_gradients([here, frozen, there], {"a": torch.tensor(float(rank)), "b": torch.tensor(3.0)})
    assert (here.grad.tolist(), there.grad.tolist(), frozen.grad) == ([1.0] * 2, [1.0] * 3, None)
    assert {name: float(value) for name, value in stats.items()} == {"a": 0.5, "b": 3.0}
    # Rows and weights that differ: the model, its coordinates and what is trained beside it are those of process 0.
    for objective in (FEBM(), NoiseContrastive(components=2)):
        torch.manual_seed(rank)
        x = (1 + rank) * torch.randn(60, 2)
        config = TrainConfig(batch_size=8, objective=objective, chains=ChainSettings(buffer_size=12, jump_components=2))
        state = init_state(x, config, MLP((2,), width=4), torch.device("cpu"))
        tensors = [*state.energy.state_dict().values(), *state.averaged.state_dict().values()]
        tensors += [*state.coordinates.tensors().values(), *state.proposal.tensors().values()]
        tensors += [t for t in state.aux.state_dict().values() if t.is_floating_point()]
        same = distributed.gather(torch.cat([t.double().flatten() for t in tensors])[None])
        assert torch.equal(same[0], same[1])
        chains = distributed.gather(state.buffer.x[None])
        assert chains.shape == (2, 6, 2)  # half of them each, and not the same ones
        assert not torch.isclose(chains[0], chains[1]).any()
    # All processes recover rows of the same level, or their energies could not be compared.
    for seed in range(4):
        levels = Architecture("conv", width=2, depth=1, levels=5).build((1, 4, 4))
        Recovery()(levels, None, torch.rand(3, 1, 4, 4), torch.empty(0), generator(seed, rank))[0].backward()
        used = levels.net.net[-1].weight.grad.abs().sum(1)[None] > 0
        assert torch.equal(*distributed.gather(used.int()))
    state.buffer.label = 2 * torch.arange(6) + rank
    mine, values = state.buffer.x.clone(), checkpoint.snapshot(state)
    assert torch.equal(values["buffer"], chains.flatten(0, 1))
    state.buffer.x, state.buffer.label = torch.zeros(6, 2), torch.zeros(6, dtype=torch.long)
    checkpoint.restore(state, values)
    assert torch.equal(state.buffer.x, mine)
    assert state.buffer.label.tolist() == (2 * torch.arange(6) + rank).tolist()
    # A mistake of the first process ends both.
    said = []

    def fail():
        said.append(rank)
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        distributed.on_first(fail)
    assert said == [0] * (rank == 0)
    distributed.on_first(lambda: None)
    # A shard that only the second process reads ends both, with its message.
    with pytest.raises(UserError, match="no"):
        distributed.on_all(fail if rank == 1 else lambda: None)
    assert said == [rank]
    distributed.on_all(lambda: None)
    # Data or a folder that are not the same everywhere end all.
    distributed.require_same("7", "no")
    with pytest.raises(UserError, match="folder"):
        distributed.require_same(str(rank), "another folder")
    streamed()


def streamed():
    """Two processes read each row of an epoch once, and train one model on what both of them read."""
    x = torch.arange(400.0).view(200, 2)
    chunks = ArrayChunks(x)
    chunks.rows, chunks.sizes, chunks.window = 50, np.full(4, 50), 50
    source = ChunkedSource(chunks)
    config = TrainConfig(
        batch_size=20,
        updates=20,
        chains=ChainSettings(buffer_size=12, jump_components=2),
        rows=RowSettings(standardise="none"),
    )
    with Batches(source, Prepared(x, Coordinates.identity((2,))), config, torch.device("cpu")) as batches:
        rows = torch.cat([batches.batch(step)[0] for step in range(10)])
    assert sorted(distributed.gather(rows)[:, 0].tolist()) == x[:, 0].tolist()
    model = fit(source, config=config.changed({"rows.standardise": "std", "energy": Architecture(width=4)}))
    same = distributed.gather(torch.cat([t.double().flatten() for t in model.state_dict().values()])[None])
    assert torch.equal(same[0], same[1])


def torchrun(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    environment["PYTHONFAULTHANDLER"] = "1"  # an aborted process prints where it was
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes did and said: starting them takes far longer than what they do."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "worker.py").write_text(WORKER)
    flags = "--updates 30 --batch-size 32 --measure 200 --set rows.n_data=500 --set chains.buffer_size=100 "
    flags += "--set chains.jump_components=4 --set energy.width=8 --set guard.log_every=10"
    command = ["train", "moon", *flags.split(), "--out", str(folder / "run")]
    odd = [*command[:-1], str(folder / "odd"), "--batch-size", "33"]
    other = [*command, "--gamma", "0.5"]  # only the first process looks at the folder
    done = torchrun(str(folder / "worker.py"), str(folder / "gradients.pt"), json.dumps([command, odd, other]))
    assert done.returncode == 0, done.stderr
    return folder, done


def test_two_processes_give_the_gradient_of_one(two):
    found = torch.load(two[0] / "gradients.pt", weights_only=True)
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


def test_the_command_line_trains_one_model_and_the_first_process_writes(two):
    """One command after the other: each ends in both processes, mistakes included, and is reported once."""
    folder, done = two
    assert [json.loads((folder / f"codes-{rank}.json").read_text()) for rank in (0, 1)] == [[0, 2, 2]] * 2
    assert done.stdout.count("picture:") == 1
    assert len((folder / "run" / "metrics.jsonl").read_text().splitlines()) == 3
    state = torch.load(folder / "run" / "state.pt", weights_only=True)
    assert state["buffer"].shape == (100, 2)  # both processes' chains
    assert json.loads((folder / "run" / "config.json").read_text())["batch_size"] == 32
    assert done.stderr.count("must be multiples of the 2 processes") == 1
    assert done.stderr.count("holds a run with other settings") == 1
    assert "Traceback" not in done.stderr


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
    distributed.require_same("x", "no")


class Store:
    """torchrun's store, for threads that play processes."""

    def __init__(self, **values):
        self.values = dict(values)

    def set(self, name, value):
        self.values[name] = value

    def get(self, name):
        for _ in range(3000):
            if name in self.values:
                return self.values[name].encode()
            time.sleep(0.001)
        raise AssertionError(f"nobody set {name}")

    def check(self, names):
        return all(name in self.values for name in names)


def test_processes_of_one_start_share_a_word_that_no_earlier_start_had():
    """The store still holds what the processes of the start before said."""
    store = Store(**{"hello 1": "gone", "received old 1": "", "answer gone": "old"})
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(distributed._token_of_attempt, store, rank, 3, 5.0) for rank in (0, 1, 2)]
        words = {job.result() for job in jobs}
    assert len(words) == 1
    (word,) = words
    assert len(word) == 32
    assert {f"received {word} 1", f"received {word} 2"} <= store.values.keys()
    assert distributed._token_of_attempt(Store(), 0, 1, 0.0) != word  # a single process does not wait


def test_a_process_that_does_not_come_is_named():
    with pytest.raises(dist.DistStoreError, match=r"timed out: processes \[1, 2\] did not come"):
        distributed._token_of_attempt(Store(), 0, 3, 0.02)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (dist.DistStoreError("Timed out after 3 s"), "another process has not answered for 7 s"),
        (RuntimeError("[/x/gloo/y.cc:3] Timeout waiting"), "another process has not answered for 7 s"),
        (RuntimeError("[/x/gloo/y.cc:3] Connection closed by peer"), "another process has ended"),
        (dist.DistNetworkError("reset"), "another process has ended"),
        (RuntimeError("shapes do not fit"), None),
    ],
)
def test_a_lost_process_is_one_line(error, message, monkeypatch):
    monkeypatch.setattr(distributed, "start", lambda device, timeout: False)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(RuntimeError) as caught, distributed.group(torch.device("cpu"), 7.0):
        raise error
    if message is None:
        assert caught.value is error
    else:
        assert isinstance(caught.value, distributed.LostProcess)
        assert str(caught.value).startswith(
            f"process 2 of 5: {message}; run the same command again to resume from the last checkpoint"
        )


def test_a_group_is_left_if_it_was_joined(monkeypatch):
    left = []
    monkeypatch.setattr(distributed, "stop", lambda: left.append(1))
    for joined in (True, False):
        monkeypatch.setattr(distributed, "start", lambda device, timeout, joined=joined: joined)
        with suppress(KeyError), distributed.group(torch.device("cpu")):
            raise KeyError
        assert bool(left) is joined
        left.clear()


class Two:
    """torch.distributed as the second of two processes sees it, whose messages are given."""

    def __init__(self, monkeypatch, other):
        self.other = other
        monkeypatch.setattr(distributed, "is_on", lambda: True)
        monkeypatch.setattr(distributed, "dist", self)

    def get_rank(self):
        return 1

    def get_world_size(self):
        return 2

    def get_backend(self):
        return "gloo"

    def all_gather(self, parts, x):
        assert x.is_contiguous()
        assert not x.requires_grad
        parts[0].copy_(self.other)
        parts[1].copy_(x)

    def all_reduce(self, x):
        x += self.other

    def all_gather_object(self, found, text):
        found[:] = [self.other, text]

    def broadcast(self, t, source):
        assert source == 0
        t.copy_(self.other)


def test_rows_are_gathered_in_the_order_of_processes_and_the_gradient_is_of_ones_own(monkeypatch):
    Two(monkeypatch, torch.tensor([1.0, 2.0, 3.0]))
    x = torch.tensor([4.0, 5.0, 6.0], requires_grad=True)
    found = distributed.gather(x)
    assert found.tolist() == [1, 2, 3, 4, 5, 6]
    (found * torch.arange(6.0)).sum().backward()
    assert x.grad.tolist() == [3, 4, 5]
    parts = distributed.gather_parts(x, [1, 2])
    assert [part.tolist() for part in parts] == [[1, 4], [2, 3, 5, 6]]


def test_gradients_are_summed_and_statistics_averaged_in_one_message(monkeypatch):
    a, b, held = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    held.requires_grad_(False)
    a.grad = torch.tensor([1.0, 2.0])
    Two(monkeypatch, torch.tensor([10.0, 20.0, 30.0, 40.0, 5.0, 6.0]))
    stats = distributed.sum_gradients([a, b, held], {"loss": torch.tensor(1.0), "gap": torch.tensor(2.0).double()})
    assert (a.grad.tolist(), b.grad.tolist(), held.grad) == ([11, 22], [30, 40], None)
    assert {name: float(value) for name, value in stats.items()} == {"loss": 3.0, "gap": 4.0}


def test_small_messages_between_two(monkeypatch):
    x = torch.tensor([3.0])
    Two(monkeypatch, torch.tensor([5.0]))
    assert distributed.mean(x).tolist() == [4]
    assert x.tolist() == [3]
    distributed.broadcast([x])
    assert x.tolist() == [5]
    Two(monkeypatch, "a")
    distributed.require_same("a", "no")
    with pytest.raises(UserError, match="they differ"):
        distributed.require_same("b", "they differ")


def test_a_mistake_of_one_process_ends_all(monkeypatch):
    def fail():
        raise UserError("here")

    with pytest.raises(UserError, match="here"):
        distributed.on_all(fail)
    distributed.on_all(lambda: None)
    two = Two(monkeypatch, 0.0)
    distributed.on_all(lambda: None)
    two.all_gather_object = lambda found, text: found.__setitem__(slice(None), ["there", text])
    two.other = 1.0
    for action in (fail, lambda: None):
        with pytest.raises(UserError, match="there"):
            distributed.on_all(action)


def test_no_group_is_joined_by_a_single_process(monkeypatch):
    for size in ("0", "1"):
        monkeypatch.setenv("WORLD_SIZE", size)
        assert not distributed.start(torch.device("cpu"))
