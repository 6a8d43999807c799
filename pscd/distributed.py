"""The few collectives that let several processes compute one loss; all are the identity in a single process.

The gamma-score couples the whole batch, so averaging a loss per process would be another objective. Instead the
energies are gathered, every process computes the same loss on all of them with only its own part differentiable, and
the parameter gradients are summed: exact for any number of processes.
"""

import os
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from pscd.errors import UserError


def is_on() -> bool:
    """Whether a process group is running."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """The number of this process, 0 in a single process."""
    return dist.get_rank() if is_on() else 0


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if is_on() else 1


def start(device: torch.device) -> bool:
    """Join the process group that `torchrun` announces in the environment.

    Args:
        device: where this process computes; it decides on the backend.

    Returns:
        Whether this call joined one.
    """
    if is_on() or int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        return False
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    # gloo may be connected here and not yet there: a process that ended now, with a mistake in its input for example,
    # would close the connection under the other's hands, which fails or, in gloo's own thread, aborts.
    dist.barrier()
    return True


def stop() -> None:
    """Leave the process group."""
    dist.destroy_process_group()


def gather(x: Tensor) -> Tensor:
    """The rows of all processes, in rank order; the gradient flows into this process's own rows only.

    Args:
        x: `(B, *shape)`, of equal size in all processes.

    Returns:
        `(world_size * B, *shape)`.
    """
    if not is_on():
        return x
    parts = [torch.empty_like(x) for _ in range(world_size())]
    dist.all_gather(parts, x.detach().contiguous())
    parts[rank()] = x
    return torch.cat(parts)


def gather_parts(x: Tensor, sizes: list[int]) -> list[Tensor]:
    """Gather several parts in one message.

    Args:
        x: `(B,)`, the parts one after the other.
        sizes: their lengths, the same in every process.

    Returns:
        Each part, gathered from all processes.
    """
    by_process = gather(x).view(world_size(), -1)
    return [part.flatten() for part in by_process.split(sizes, 1)]


def sum_gradients(parameters: Iterable[torch.nn.Parameter], stats: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sum the gradients of all processes in place, and average their statistics, in one message.

    A parameter without a gradient here may have one elsewhere, so it takes part as zeros.

    Args:
        parameters: whose gradients are summed.
        stats: scalars by name.

    Returns:
        The means of the statistics over the processes.
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
    """Run an action on process 0 while the others wait.

    Args:
        action: what to run.

    Raises:
        UserError: the action raised one; all processes raise it, so that none hangs.
    """
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
    """Run an action on every process; a mistake of one ends all of them.

    Args:
        action: what to run.

    Raises:
        UserError: the action raised one on some process; all raise that of the first.
    """
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
