"""The few collectives that let several processes compute one loss; all are the identity in a single process.

The gamma-score couples the whole batch, so averaging a loss per process would be another objective. Instead the
energies are gathered, every process computes the same loss on all of them with only its own part differentiable, and
the parameter gradients are summed: exact for any number of processes.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pscd.errors import LostProcess, UserError


def is_on() -> bool:
    """Whether a process group is running."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """The number of this process, 0 in a single process."""
    return dist.get_rank() if is_on() else 0


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if is_on() else 1


def start(device: torch.device, timeout: float = 600.0) -> bool:
    """Join the process group that `torchrun` announces in the environment; returns whether there is one to join."""
    if is_on() or int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        return False
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    from torch._C._distributed_c10d import PrefixStore  # missing in builds of torch without distributed
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=timeout)
    store, rank, world_size = next(rendezvous("env://", timeout=limit))
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore(_token_of_attempt(store, rank, world_size, timeout), store),
        rank=rank,
        world_size=world_size,
        timeout=limit,
    )
    # gloo may be connected on this side and not yet on the other: a process that ended now, because its input is
    # invalid for example, would close a connection that the other is still setting up, which aborts that process.
    dist.barrier()
    return True


def _token_of_attempt(store: Any, rank: int, world_size: int, timeout: float, pause: float = 0.01) -> str:
    """A token that the processes of this start share and that no earlier start used."""
    # After a restart the store of torchrun still holds the addresses of dead processes, and a process that starts early
    # would connect to those (pytorch issue 135712); the restart counter does not help: every machine has its own. So
    # each process announces itself under a new name, and process 0 answers until all processes have the token.
    name = uuid.uuid4().hex
    if rank:
        store.set(f"hello {rank}", name)
        token = store.get(f"answer {name}").decode()  # waits
        store.set(f"received {token} {rank}", "")
        return token
    end, missing = time.monotonic() + timeout, set(range(1, world_size))
    while missing:
        for other in sorted(missing):
            if store.check([f"hello {other}"]):
                store.set(f"answer {store.get(f'hello {other}').decode()}", name)
        missing = {other for other in missing if not store.check([f"received {name} {other}"])}
        if missing and time.monotonic() > end:
            raise dist.DistStoreError(f"timed out: processes {sorted(missing)} did not come")
        time.sleep(pause if missing else 0.0)
    return name


def stop() -> None:
    """Leave the process group."""
    dist.destroy_process_group()


@contextmanager
def group(device: torch.device, timeout: float = 600.0) -> Iterator[None]:
    """Run the block as one of the processes that `torchrun` started; a single process needs no group.

    After `timeout` seconds without an answer of another process, it raises `LostProcess`.
    """
    try:
        started = start(device, timeout)
        try:
            yield
        finally:
            if started:
                stop()
    except RuntimeError as error:
        if not _is_of_collectives(error):
            raise
        process = f"process {os.environ.get('RANK', '0')} of {os.environ.get('WORLD_SIZE', '1')}"
        late = any(words in str(error).lower() for words in ("timed out", "timeout"))
        what = f"another process has not answered for {timeout:g} s" if late else "another process has ended"
        hint = "run the same command again to resume from the last checkpoint, or use torchrun --max-restarts 3"
        raise LostProcess(f"{process}: {what}; {hint}") from None


def _is_of_collectives(error: RuntimeError) -> bool:
    """Whether the network between processes failed; gloo raises plain errors that name its source files."""
    return isinstance(error, getattr(dist, "DistError", ())) or "/gloo/" in str(error)


def require_same(text: str, what: str) -> None:
    """Raise a `UserError` with the message `what` in all processes if `text` differs between any two."""
    if is_on():
        texts: list[str | None] = [None] * world_size()
        dist.all_gather_object(texts, text)
        if len(set(texts)) > 1:
            raise UserError(what)


def gather(x: Tensor) -> Tensor:
    """The rows of all processes, in rank order; the gradient flows into this process's own rows only."""
    if not is_on():
        return x
    parts = [torch.empty_like(x) for _ in range(world_size())]
    dist.all_gather(parts, x.detach().contiguous())
    parts[rank()] = x
    return torch.cat(parts)


def gather_parts(x: Tensor, sizes: list[int]) -> list[Tensor]:
    """Gather several parts in one message."""
    by_process = gather(x).view(world_size(), -1)
    return [part.flatten() for part in by_process.split(sizes, 1)]


def sum_gradients(parameters: Iterable[torch.nn.Parameter], stats: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sum the gradients of all processes in place, and average their statistics, in one message.

    A parameter without a gradient here may have one elsewhere, so it takes part as zeros.
    """
    if not is_on():
        return stats
    parameters = [p for p in parameters if p.requires_grad]
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([*(g.reshape(-1) for g in grads), *(s.to(grads[0]).reshape(-1) for s in stats.values())])
    dist.all_reduce(flat)
    *sums, totals = flat.split([*(g.numel() for g in grads), len(stats)])
    for g, part in zip(grads, sums, strict=True):
        g.copy_(part.view_as(g))
    return dict(zip(stats, totals / world_size(), strict=True))


def mean(x: Tensor) -> Tensor:
    """The mean of a tensor over the processes."""
    if not is_on():
        return x
    x = x.clone()
    dist.all_reduce(x)
    return x / world_size()


def broadcast(tensors: Iterable[Tensor]) -> None:
    """Overwrite the tensors with those of process 0, in place."""
    if is_on():
        for t in tensors:
            dist.broadcast(t, 0)


def on_first(action: Callable[[], None]) -> None:
    """Run an action on process 0 while the others wait."""
    message: list[str | None] = [None]
    if rank() == 0:
        try:
            action()
        except UserError as error:
            message = [str(error)]
    if is_on():
        dist.broadcast_object_list(message, 0)
    if message[0] is not None:
        raise UserError(message[0])


def on_all(action: Callable[[], None]) -> None:
    """Run an action on every process; a mistake of one ends all of them."""
    message: str | None = None
    try:
        action()
    except UserError as error:
        message = str(error)
    if is_on() and float(mean(torch.tensor(float(message is not None), device=_device()))) > 0:
        messages: list[str | None] = [None] * world_size()
        dist.all_gather_object(messages, message)
        message = next(text for text in messages if text is not None)
    if message is not None:
        raise UserError(message)


def _device() -> torch.device:
    """Where small messages have to be for the backend to send them."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def barrier() -> None:
    """Wait for all processes."""
    if is_on():
        dist.barrier()
