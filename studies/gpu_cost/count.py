"""Operations and memory of an update, counted in real training on a few images; time and memory of a whole one."""

import resource
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from pscd.config import TrainConfig
from pscd.energies import as_function
from pscd.rng import generator
from pscd.training.loop import train_step
from pscd.training.state import TrainState, init_state
from studies.presets import preset

SHAPES = {"paper-cifar10": (3, 32, 32), "paper-celeba": (3, 64, 64)}
FLOAT = 4  # bytes
COPIES_OF_WEIGHTS = 9  # weights, average, gradient, two moments; and all but the gradient once more, to go back to
COPIES_OF_CHAINS = 2  # the buffer, and the one to go back to


@dataclass(frozen=True)
class Cost:
    """What an update costs.

    Args:
        parameters: of the network.
        step: operations (a multiplication and an addition are two) of a step of a chain, per image.
        loss: operations of the loss and its gradient, per image of data, with its sample.
        kept: bytes that autograd keeps of an image for the gradient of the loss, in float32.
        numbers: of an image.
    """

    parameters: int
    step: int
    loss: int
    kept: float
    numbers: int

    def operations(self, batch_size: int, n_steps: int) -> int:
        """Operations of an update."""
        return batch_size * (n_steps * self.step + self.loss)

    def memory(self, config: TrainConfig, n_images: int) -> dict[str, float]:
        """Bytes on a GPU by what takes them, without cuDNN's workspace."""
        return {
            "weights and optimiser": COPIES_OF_WEIGHTS * FLOAT * self.parameters,
            "chains": COPIES_OF_CHAINS * config.chains.buffer_size * self.numbers,
            "training images": FLOAT * n_images * self.numbers,
            "activations": 2 * config.batch_size * self.kept,  # data and samples go through the network together
        }


class Counter(TorchDispatchMode):
    """Adds up the operations of convolutions and matrix products, by torch's own formulas.

    Torch's `FlopCounterMode` also follows modules, which it cannot do under `torch.autograd.grad`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def count(name: str) -> Cost:
    """What an update of a preset costs.

    Args:
        name: of the preset.

    Returns:
        Its cost, from updates with an image and its sample, of one step and of two: it is proportional to the images.
    """
    config = preset(name)
    one, two = (_operations(config, SHAPES[name], 1, n_steps) for n_steps in (1, 2))
    state, x = _begin(config, SHAPES[name], 2)
    parameters = sum(p.numel() for p in state.energy.parameters())
    return Cost(parameters, two - one, 2 * one - two, _kept(state, config, x) / len(x), x[0].numel())


def _begin(config: TrainConfig, shape: tuple[int, ...], n: int) -> tuple[TrainState, Tensor]:
    """A run before its first update, on images of noise: what an update costs does not depend on them."""
    x = torch.rand(n, *shape, generator=generator(0))
    return init_state(x, config, None, torch.device("cpu")), x


def _labels(config: TrainConfig, n: int) -> Tensor | None:
    return torch.arange(n) % config.energy.classes if config.energy.classes else None


def _operations(config: TrainConfig, shape: tuple[int, ...], batch_size: int, n_steps: int) -> int:
    changes = {
        "batch_size": batch_size,
        "chains.buffer_size": batch_size,
        "sampler.n_steps": n_steps,
        "compute.gradients": "plain",
    }
    small = config.changed(changes)
    state, x = _begin(small, shape, batch_size)
    with Counter() as counter:
        train_step(state, x, small, _labels(config, batch_size))
    return counter.total


def _kept(state: TrainState, config: TrainConfig, x: Tensor) -> int:
    """Bytes of all that autograd keeps of a pass through the network, weights left out."""
    weights = {t.untyped_storage().data_ptr() for t in (*state.energy.parameters(), *state.energy.buffers())}
    found: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        if t.dim() == 4 and len(t) == len(x):  # activations; what is derived of weights has another shape
            found[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        energies = as_function(state.energy, "float32", _labels(config, len(x)))(x)
    del energies
    return sum(n_bytes for pointer, n_bytes in found.items() if pointer not in weights)


def one_update(name: str) -> dict[str, float]:
    """A whole update of a preset on the CPU, at its full size.

    Args:
        name: of the preset.

    Returns:
        Seconds by the clock and of the processor, the mebibytes by which the process grew, the loss, and the largest
        change of a weight.
    """
    config = preset(name)
    state, x = _begin(config.changed({"chains.buffer_size": config.batch_size}), SHAPES[name], config.batch_size)
    before = next(state.energy.parameters()).detach().clone()
    memory, clock, busy = _peak(), time.perf_counter(), time.process_time()
    stats = train_step(state, x, config, _labels(config, len(x)))
    return {
        "seconds": time.perf_counter() - clock,
        "processor_seconds": time.process_time() - busy,
        "mebibytes": _peak() - memory,
        "loss": float(stats["loss"]),
        "change": float((next(state.energy.parameters()).detach() - before).abs().max()),
    }


def _peak() -> float:
    """Mebibytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
