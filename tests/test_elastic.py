"""Processes that are killed or hang while they train together: two agents of torchrun, as on two machines."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from pscd import distributed
from pscd.errors import LostProcess
from pscd.files import read_tensors, tensors_digest

ROOT = Path(__file__).parents[1]
FLAGS = """train moon --updates 300 --batch-size 32 --set rows.n_data=500 --set chains.buffer_size=100
--set chains.jump_components=4 --set energy.width=8 --set guard.log_every=20 --set guard.checkpoint_every=40
--set chains.sample_steps=5"""
LONGEST = 400  # seconds to wait for anything, on a busy machine


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def two_machines(out, *more):
    """Two agents that know each other by an address, one process each; nothing leaves the loopback."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    agent += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "test"]
    agent += ["--local-addr", "127.0.0.1", "--monitor-interval", "0.2", "--max-restarts", "3", "-m", "pscd"]
    command = [*agent, *FLAGS.split(), "--out", str(out), *more]
    logs = [out.with_name(f"{out.name}-{name}.log") for name in "ab"]
    agents = []
    try:
        for log in logs:
            with log.open("w") as file:
                agents.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
        yield agents, logs
    finally:
        for agent in agents:
            for worker in workers_of(agent):
                os.kill(worker, signal.SIGKILL)
            agent.kill()
            agent.wait(30)


def workers_of(agent):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        if int(parent) == agent.pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_until(condition, what):
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, f"waited too long: {what}"
        time.sleep(0.02)


def ended_well(agents, logs):
    for agent, log in zip(agents, logs, strict=True):
        assert agent.wait(LONGEST) == 0, log.read_text()[-3000:]


def rows_of_log(run):
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.is_file() else 0


def result(run):
    tensors, metadata = read_tensors(run / "model.safetensors")
    state = torch.load(run / "state.pt", weights_only=True)
    return (
        tensors_digest(tensors),
        metadata,
        tensors_digest({"buffer": state["buffer"]}),
        (run / "metrics.jsonl").read_text(),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    with two_machines(run) as (agents, logs):
        ended_well(agents, logs)
        assert not any("another process" in log.read_text() for log in logs)
    return result(run)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("machine", [0, 1])
def test_a_killed_process_is_replaced_and_the_run_ends_with_the_same_bits(tmp_path, undisturbed, machine):
    run = tmp_path / "run"
    with two_machines(run) as (agents, logs):
        wait_until(lambda: rows_of_log(run) >= 5, "for the first checkpoints")
        (victim,) = workers_of(agents[machine])
        os.kill(victim, signal.SIGKILL)
        ended_well(agents, logs)
        told = "".join(log.read_text() for log in logs)
    assert "Traceback" not in told.split("torch/distributed")[0]
    assert result(run) == undisturbed


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_a_process_that_hangs_is_told_and_replaced(tmp_path, undisturbed):
    run = tmp_path / "run"
    with two_machines(run, "--timeout", "20") as (agents, logs):
        wait_until(lambda: rows_of_log(run) >= 5, "for the first checkpoints")
        (victim,) = workers_of(agents[1])
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: any("has not answered for 20 s" in log.read_text() for log in logs), "for the message")
        ended_well(agents, logs)
        told = [line for log in logs for line in log.read_text().splitlines() if line.startswith("pscd: ")]
    go_on = "run the same command again to resume from the last checkpoint, or use torchrun --max-restarts 3"
    (rank,) = {"0", "1"} & set(told[0].split())
    assert told == [f"pscd: process {rank} of 2: another process has not answered for 20 s; {go_on}"]
    assert result(run) == undisturbed


def test_a_restart_does_not_meet_the_words_of_the_start_before():
    """As torchrun leaves its store: with the hello of a process that is gone, which was answered."""
    store = dist.HashStore()

    def start(rank, store=store):
        return distributed._token_of_attempt(store, rank, 3, timeout=20, pause=0.001)

    with ThreadPoolExecutor(3) as processes:
        first = list(processes.map(start, range(3)))
        others = [processes.submit(start, rank) for rank in (2, 0)]
        time.sleep(0.05)
        assert not others[1].done()  # process 1 has not come: only its old hello is there
        second = [start(1), *(process.result(20) for process in others)]
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]


def test_a_process_that_does_not_start_is_reported(monkeypatch):
    monkeypatch.setattr(distributed, "start", lambda *_: distributed._token_of_attempt(dist.HashStore(), 0, 2, 0.05))
    late = pytest.raises(LostProcess, match=r"^process 0 of 1: another process has not answered for 0.05 s; run")
    with late, distributed.group(torch.device("cpu"), 0.05):
        raise AssertionError("there is no group")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("[/x/third_party/gloo/gloo/transport/tcp/pair.cc:537] Connection closed by peer", "has ended"),
        ("[/x/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 9000ms for recv", "not answered for 9 s"),
    ],
)
def test_what_gloo_says_is_told_in_one_line(message, told):
    with pytest.raises(LostProcess, match=told), distributed.group(torch.device("cpu"), 9):
        raise RuntimeError(message)
    with pytest.raises(RuntimeError, match="shapes"), distributed.group(torch.device("cpu"), 9):
        raise RuntimeError("shapes do not fit")


def test_the_command_line_tells_a_lost_process_once_and_has_a_code_for_it(monkeypatch, capsys, tmp_path):
    from pscd.cli.main import main

    def lose(*args, **settings):
        assert settings["timeout"] == 7
        raise LostProcess("process 1 of 2: another process has ended")

    monkeypatch.setattr("pscd.runs.train_model", lose)
    monkeypatch.setenv("RANK", "1")
    assert main(["train", "moon", "--timeout", "7", "--out", str(tmp_path / "run")]) == 3
    assert capsys.readouterr().err == "pscd: process 1 of 2: another process has ended\n"
