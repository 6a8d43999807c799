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

TIMEOUT = 600.0  # seconds that a process may keep the others waiting, unless said


def is_on() -> bool:
    """Whether a process group is running."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """The number of this process, 0 in a single process."""
    return dist.get_rank() if is_on() else 0


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if is_on() else 1


def start(device: torch.device, timeout: float = TIMEOUT) -> bool:
    """Join the process group that `torchrun` announces in the environment."""
    if is_on() or int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        return False
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    from torch._C._distributed_c10d import PrefixStore  # not in builds of torch for one process only
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
    # gloo may be connected here and not yet there: a process that ended now, with a mistake in its input for example,
    # would close the connection under the other's hands, which fails or, in gloo's own thread, aborts.
    dist.barrier()
    return True


def _token_of_attempt(store: Any, rank: int, world_size: int, timeout: float, pause: float = 0.01) -> str:
    """A word that the processes of this start share, and no earlier start had.

    After a restart torchrun's store still holds the addresses of processes that are gone, and a process that is early
    would try those (pytorch issue 135712); its count of restarts is no help, for machines count on their own. So each
    process says hello under a name nobody had before, and the first answers every hello until all have heard it.
    """
    here = uuid.uuid4().hex
    if rank:
        store.set(f"hello {rank}", here)
        token = store.get(f"answer {here}").decode()  # waits
        store.set(f"heard {token} {rank}", "")
        return token
    end, missing = time.monotonic() + timeout, set(range(1, world_size))
    while missing:
        for other in sorted(missing):
            if store.check([f"hello {other}"]):
                store.set(f"answer {store.get(f'hello {other}').decode()}", here)
        missing = {other for other in missing if not store.check([f"heard {here} {other}"])}
        if missing and time.monotonic() > end:
            raise dist.DistStoreError(f"timed out: processes {sorted(missing)} did not come")
        time.sleep(pause if missing else 0.0)
    return here


def stop() -> None:
    """Leave the process group."""
    dist.destroy_process_group()


@contextmanager
def group(device: torch.device, timeout: float = TIMEOUT) -> Iterator[None]:
    """Be one of the processes that `torchrun` started, for the block; nothing changes in a single process."""
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
        here = f"process {os.environ.get('RANK', '0')} of {os.environ.get('WORLD_SIZE', '1')}"
        late = any(words in str(error).lower() for words in ("timed out", "timeout"))
        what = f"another process has not answered for {timeout:g} s" if late else "another process has ended"
        go_on = "the same command goes on from the last checkpoint; torchrun --max-restarts 3 does so by itself"
        raise LostProcess(f"{here}: {what}; {go_on}") from None


def _is_of_collectives(error: RuntimeError) -> bool:
    """Whether the network between processes failed; gloo raises plain errors that name its source files."""
    return isinstance(error, getattr(dist, "DistError", ())) or "/gloo/" in str(error)


def require_same(text: str, what: str) -> None:
    """Refuse to go on if the processes do not agree."""
    if is_on():
        found: list[str | None] = [None] * world_size()
        dist.all_gather_object(found, text)
        if len(set(found)) > 1:
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
        found: list[str | None] = [None] * world_size()
        dist.all_gather_object(found, message)
        message = next(text for text in found if text is not None)
    if message is not None:
        raise UserError(message)


def _device() -> torch.device:
    """Where small messages have to be for the backend to send them."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def barrier() -> None:
    """Wait for all processes."""
    if is_on():
        dist.barrier()
