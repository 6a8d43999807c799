"""How long an update takes on this machine, and how close its sampler is to the matrix products that it cannot avoid.

`python -m studies bench` prints this, and the comparison with other libraries builds on it (`make bench`, package
`studies.speed`): the cases, the rounds, the statistics and the bound. The comparison itself is not part of the
library, since it needs the other libraries installed and much time; this part needs neither, and shows whether a
machine behaves like the one of the published numbers.

Tasks to be compared take turns, in rounds, in one process, so that the load of the machine affects all alike; ratios
are taken within a round before the median is taken over rounds.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pscd import fast
from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.energies import Architecture
from pscd.fast import enough_threads, threads_set
from pscd.mixtures import Mixture
from pscd.objectives import PseudoSpherical
from pscd.progress import progress_bar
from pscd.rng import generator
from pscd.sampling import Langevin
from pscd.training.loop import train_step
from pscd.training.state import init_state
from studies.engine.streams import StudyStream

BUFFER, ROWS, IMAGES = 10_000, 10_000, 1_000
LR = 1e-4  # so small that hundreds of updates on noise change nothing about their cost
TRIALS, TRIAL_SECONDS = (3, 25), 3.0  # of threads: fewest and most, and how long they may take with one
CONFIDENCE = 0.95  # of the intervals of medians
BLOCK_SECONDS = 0.1  # the least that a turn takes: many updates of a small network, one of a large one

Task = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A network, its input and a batch whose update is timed.

    Args:
        title: what it is, in a line.
        shape: of a row.
        energy: the network.
        batch_size: rows per update.
        n_steps: sampler steps per update.
        rows: training rows.
        buffer_size: persistent chains.
        step_size: of the sampler (default: one that suits rows or images).
    """

    title: str
    shape: tuple[int, ...]
    energy: Architecture
    batch_size: int
    n_steps: int
    rows: int = ROWS
    buffer_size: int = BUFFER
    step_size: float | None = None

    @property
    def is_image(self) -> bool:
        """Whether rows are images in [0, 1], whose chains stay there."""
        return len(self.shape) == 3

    @property
    def sampler(self) -> Langevin:
        """Unadjusted Langevin, which all libraries have; at temperature 1, or for images with little noise in a box."""
        if self.is_image:
            step_size = self.step_size or 1.0
            return Langevin(n_steps=self.n_steps, step_size=step_size, noise_scale=0.005, low=0.0, high=1.0)
        return Langevin(n_steps=self.n_steps, step_size=self.step_size or 0.01)

    def config(self, gamma: float) -> TrainConfig:
        """Persistent chains, Adam and averaged weights; gamma 0 is CD."""
        return TrainConfig(
            objective=PseudoSpherical(gamma=gamma, warmup=0.0),
            sampler=self.sampler,
            energy=self.energy,
            batch_size=self.batch_size,
            chains=ChainSettings(buffer_size=self.buffer_size, base="box" if self.is_image else "gaussian"),
            optimizer=OptimizerSettings(lr=LR, schedule="constant"),
            guard=GuardSettings(max_gap=1e6),
            rows=RowSettings(standardise="none" if self.is_image else "std"),
        )

    def data(self) -> Tensor:
        """Rows of noise; the time does not depend on what they are."""
        draw = torch.rand if self.is_image else torch.randn
        return draw(self.rows, *self.shape, generator=generator(0, StudyStream.TIMING_DATA))


def mlp(width: int) -> Architecture:
    """A network with two hidden layers of the given width, and nothing else."""
    return Architecture("mlp", width=width, depth=2, fourier=0, base_scale=None)


def _images(name: str, width: int, depth: int) -> Architecture:
    return Architecture(name, width=width, depth=depth, fourier=0, base_scale=None)


CASES: dict[str, Case] = {
    "mlp-2": Case("MLP 2-128-128-1, batch 256, 60 steps", (2,), mlp(128), 256, 60),
    "mlp-20": Case("MLP 20-256-256-1, batch 512, 20 steps", (20,), mlp(256), 512, 20),
    "conv": Case("conv net 1x28x28, batch 64, 30 steps", (1, 28, 28), _images("conv", 16, 4), 64, 30, IMAGES),
    "resnet": Case("ResNet 3x32x32, batch 16, 5 steps", (3, 32, 32), _images("resnet", 64, 3), 16, 5, IMAGES),
}
OBJECTIVES = {"CD": 0.0, "PS-CD": 1.0}  # and their gamma


class Training:
    """A run of this library that advances by one update, or by its sampler calls alone.

    Args:
        case: what to train.
        gamma: of the objective; 0 is CD.
        mode: how gradients are computed, see `pscd.fast.using`.
    """

    def __init__(self, case: Case, gamma: float, mode: str = "auto") -> None:
        self.config = case.config(gamma).changed({"compute.gradients": mode})
        x = case.data()
        # These chains never jump, so nothing has to be fitted for that.
        proposal = None if case.is_image else Mixture.standard(math.prod(case.shape))
        self.state = init_state(x, self.config, None, torch.device("cpu"), proposal=proposal)
        self.x = self.state.coordinates.forward(x)
        self._rng = generator(0, StudyStream.TIMING_CHAINS)
        self._starts = self.state.buffer.draw(case.batch_size, 0.0, self._rng).x

    @property
    def gradients(self) -> str:
        """How chains compute their gradient, in words."""
        return fast.evaluator(self.state.energy).how

    def update(self) -> None:
        """One update, with as many threads as `fit` would use."""
        with enough_threads(self.state.energy, self.config.batch_size, tuple(self.x.shape[1:])):
            train_step(self.state, self.x, self.config)

    def sample(self) -> None:
        """The chains of one update, and nothing else."""
        with enough_threads(self.state.energy, self.config.batch_size, tuple(self.x.shape[1:])):
            self.config.sampler.run(
                self.state.energy,
                self._starts,
                step_size=self.state.step_size,
                n_steps=self.config.sampler.n_steps,
                generator=self._rng,
            )

    def bound(self) -> Task:
        """A function that computes the matrix products of `sample`, with the fastest number of threads."""
        products = matrix_products(self.state.energy, self._starts)

        @torch.no_grad()
        def run() -> None:
            for _ in range(self.config.sampler.n_steps):
                for product in products:
                    product()

        return with_threads(run, best_threads(run))


def matrix_products(energy: nn.Module, x: Tensor) -> list[Task]:
    """The matrix products of one input gradient: all linear and convolutional layers, forward and backward.

    Each has the shapes that it has in the network, and the bias, which is free within the product; there are no
    activations, no noise and no graph. Of two memory layouts a convolution takes the faster one. Backward through a
    layer with one output is no matrix product and is left out.

    Args:
        energy: the network.
        x: a batch, `(B, *shape)`.

    Returns:
        A function for each product.
    """
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append((module, inputs[0].detach(), output.detach()))

    layers = [m for m in energy.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        with torch.no_grad():
            energy(x)
    finally:
        for hook in hooks:
            hook.remove()
    products: list[Task] = []
    for module, inputs, output in seen:
        products += _of_linear(module, inputs, output) if isinstance(module, nn.Linear) else _of_conv(module, inputs)
    return products


def _of_linear(module: nn.Linear, x: Tensor, y: Tensor) -> list[Task]:
    weight, bias = module.weight.detach(), module.bias.detach()
    out, back, grad = torch.empty_like(y), torch.empty_like(x), torch.randn_like(y)
    products: list[Task] = [lambda: torch.addmm(bias, x, weight.T, out=out)]
    if len(weight) > 1:
        products.append(lambda: torch.mm(grad, weight, out=back))
    return products


def _of_conv(module: Any, x: Tensor) -> list[Task]:
    def in_layout(layout: torch.memory_format) -> list[Task]:
        weight, bias = module.weight.detach().contiguous(memory_format=layout), module.bias.detach()
        rows = x.contiguous(memory_format=layout)
        where = (module.stride, module.padding, module.dilation)
        grad = torch.randn_like(functional.conv2d(rows, weight, bias, *where))
        return [
            lambda: functional.conv2d(rows, weight, bias, *where),
            lambda: torch.ops.aten.convolution_backward(
                grad, rows, weight, None, *where, False, [0, 0], 1, [True, False, False]
            ),
        ]

    layouts = (in_layout(torch.contiguous_format), in_layout(torch.channels_last))
    return [min(both, key=_quickest) for both in zip(*layouts, strict=True)]


def _quickest(task: Task, tries: int = 5) -> float:
    task()
    return min(_seconds(task) for _ in range(tries))


def _seconds(task: Task, repeats: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        task()
    return (time.perf_counter() - start) / repeats


def take_turns(
    tasks: Mapping[str, Task], rounds: int, *, block: float = BLOCK_SECONDS, show: bool = False
) -> dict[str, list[float]]:
    """Time tasks in rounds, each of which starts with another one of them.

    Each task first runs once, to load or compile what it needs, and once more to find how often it must be repeated to
    fill a turn.

    Args:
        tasks: functions by name.
        rounds: turns for each.
        block: seconds that a turn takes at least.
        show: show a progress line.

    Returns:
        Seconds per call of each task, round by round.
    """
    names = list(tasks)
    repeats = {}
    for name in names:
        tasks[name]()
        repeats[name] = max(1, math.ceil(block / max(_seconds(tasks[name]), 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in names}
    with progress_bar(rounds * len(names), show=show, unit="turn") as bar:
        for turn in range(rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(_seconds(tasks[name], repeats[name]))
                bar.update()
    return times


def best_threads(task: Task) -> int:
    """The number of threads, one or all, that is faster for this task."""
    everything = torch.get_num_threads()
    if everything == 1:
        return 1
    choices = {str(n): with_threads(task, n) for n in (1, everything)}
    (first,) = take_turns({"1": choices["1"]}, 1, block=0.0)["1"]
    fewest, most = TRIALS
    times = take_turns(choices, min(max(fewest, round(TRIAL_SECONDS / first)), most), block=0.0)
    return int(min(times, key=lambda name: statistics.median(times[name])))


def with_threads(task: Task, n: int) -> Callable[[], None]:
    """A task that runs with a given number of torch threads.

    Args:
        task: the task.
        n: number of threads.

    Returns:
        A function that runs it.
    """

    def run() -> None:
        with threads_set(n):
            task()

    return run


@dataclass(frozen=True)
class Estimate:
    """A median and its confidence interval.

    Args:
        median: of the values.
        low: lower end of the 95 % interval.
        high: its upper end.
        n: number of values.
    """

    median: float
    low: float
    high: float
    n: int


def estimate(values: Sequence[float]) -> Estimate:
    """The median and its distribution-free 95 % confidence interval, between two order statistics.

    The interval is that of the sign test (`scipy.stats.quantile_test`). Fewer than six values do not reach 95 %: the
    interval then is their range.

    Args:
        values: a number for each round.

    Returns:
        Median and interval.

    >>> estimate([5.0, 1.0, 3.0])
    Estimate(median=3.0, low=1.0, high=5.0, n=3)
    """
    from scipy.stats import quantile_test

    low, high = quantile_test(values, p=0.5).confidence_interval(CONFIDENCE)
    if math.isnan(low) or math.isnan(high):
        low, high = min(values), max(values)
    return Estimate(statistics.median(values), float(low), float(high), len(values))


def ratio(times: Sequence[float], base: Sequence[float]) -> Estimate:
    """How many times longer than a baseline: the ratio within each round, then the median.

    Args:
        times: seconds, round by round.
        base: seconds of the baseline in the same rounds.

    Returns:
        Median and interval of the ratio.
    """
    return estimate([a / b for a, b in zip(times, base, strict=True)])


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent b of the power law a * size^b, fitted on logarithmic scales.

    Args:
        sizes: positive.
        values: positive.

    Returns:
        b.

    >>> round(slope([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    x, y = [math.log(s) for s in sizes], [math.log(v) for v in values]
    return statistics.linear_regression(x, y).slope
