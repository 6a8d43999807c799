"""What the paper's image experiments would cost on GPUs: `python -m studies gpu-cost` writes docs/gpu.md.

python -m studies gpu-cost                # seconds: operations and memory, counted
python -m studies gpu-cost --update       # minutes to an hour: also times a whole update of each on this CPU
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pscd.files import write_json, write_text_atomic
from pscd.version import machine, versions
from studies.engine.markdown import markdown_table
from studies.gpu_cost.count import SHAPES, Cost, count, one_update
from studies.presets import preset

DOCS = Path(__file__).parents[2] / "docs"
DATA = {"paper-cifar10": ("cifar10", 50_000), "paper-celeba": ("celeba", 162_770)}  # and its training images
# The paper, Appendix D.4: "about 48 hours on 4 Titan Xp GPUs, while the CelebA experiments take about 16 hours".
PUBLISHED_HOURS, PUBLISHED_GPUS, TITAN_XP = {"paper-cifar10": 48, "paper-celeba": 16}, 4, 12.1e12
# Dense peaks by the makers' data sheets, operations per second, and the share of them that small convolutions may
# reach: assumptions.
GPUS = {
    "A100": {"float32 (TF32)": 156e12, "bfloat16": 312e12},
    "H100 SXM": {"float32 (TF32)": 495e12, "bfloat16": 989e12},
}
SHARE = (0.05, 0.30)
MANY, SCALING = 8, (0.5, 0.9)


def hours(operations: float, peak: float) -> tuple[float, float]:
    """The fewest and the most hours that so many operations take on a GPU, by the shares assumed."""
    most, fewest = (operations / (share * peak) / 3600 for share in SHARE)
    return fewest, most


def on_many(fewest: float, most: float) -> tuple[float, float]:
    """The same on several GPUs that train one model together, by the efficiency assumed."""
    worst, best = SCALING
    return fewest / (MANY * best), most / (MANY * worst)


def measure(update: bool, before: dict[str, Any]) -> dict[str, Any]:
    """Counts of both presets; whole updates are measured if asked for, and kept from before otherwise."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"versions": versions(), "counted": {}, "updates": before.get("updates", {})}
    for name in SHAPES:
        found["counted"][name] = asdict(count(name))
        if update:
            command = [sys.executable, "-m", "studies", "gpu-cost", "--one", name]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            found["updates"][name] = json.loads(lines[-1]) | {"machine": machine()}
    return found


def page(found: dict[str, Any]) -> str:
    """The page in Markdown."""
    costs = {name: Cost(**values) for name, values in found["counted"].items()}
    totals = {name: cost.operations(_batch(name), _steps(name)) * preset(name).updates for name, cost in costs.items()}
    return PAGE.format(
        work=_work_table(costs, totals),
        hours=_hours_table(totals),
        memory=_memory_table(costs),
        implied=_implied(totals),
        here=_measured(found["updates"]),
        low=SHARE[0],
        high=SHARE[1],
        worst=SCALING[0],
        best=SCALING[1],
        many=MANY,
        torch=found["versions"]["torch"],
    )


def _batch(name: str) -> int:
    return preset(name).batch_size


def _steps(name: str) -> int:
    return preset(name).sampler.n_steps


def _work_table(costs: dict[str, Cost], totals: dict[str, float]) -> str:
    rows = []
    for name, cost in costs.items():
        update = cost.operations(_batch(name), _steps(name))
        loss = _batch(name) * cost.loss / update
        numbers = f"{cost.parameters:,}", f"{_batch(name)}", f"{_steps(name)}", f"{cost.step / 1e9:.2f}"
        rows.append([f"`{name}`", *numbers, f"{update / 1e12:.1f}", f"{loss:.0%}", f"{totals[name] / 1e18:.2f}"])
    head = ["", "parameters", "batch", "steps", "a step of one image, 1e9", "an update, 1e12", "of it the loss"]
    return markdown_table([*head, "the whole run, 1e18"], rows)


def _hours_table(totals: dict[str, float]) -> str:
    rows = []
    for name, total in totals.items():
        for gpu, peaks in GPUS.items():
            for precision, peak in peaks.items():
                one = hours(total, peak)
                rows.append([f"`{name}`", gpu, precision, _span(*one), _span(*on_many(*one))])
    return markdown_table(["", "GPU", "precision", "hours, one", f"hours, {MANY} together"], rows)


def _span(low: float, high: float) -> str:
    return f"{low:.2g} to {high:.2g}"


def _memory_table(costs: dict[str, Cost]) -> str:
    taken = {name: cost.memory(preset(name), DATA[name][1]) for name, cost in costs.items()}
    parts = list(next(iter(taken.values())))
    rows = [[f"`{name}`", *(f"{by[p] / 1e9:.2f}" for p in parts), f"{sum(by.values()) / 1e9:.1f}"]
            for name, by in taken.items()]  # fmt: skip
    return markdown_table(["GB", *parts, "together"], rows)


def _implied(totals: dict[str, float]) -> str:
    """The share of the peak that the published hours amount to."""
    shares = (
        f"{totals[name] / (3600 * h * PUBLISHED_GPUS * TITAN_XP):.0%} (`{name}`, {h} hours)"
        for name, h in PUBLISHED_HOURS.items()
    )
    return " and ".join(shares)


def _measured(updates: dict[str, dict[str, Any]]) -> str:
    if not updates:
        return "Whole updates have not been timed on a CPU."
    rows = [
        [f"`{name}`", f"{u['processor_seconds']:.0f}", f"{u['seconds']:.0f}", f"{u['mebibytes']:,.0f}", u["machine"]]
        for name, u in updates.items()
    ]
    head = ["", "seconds of a core", "by the clock, beside other work", "MiB more than before it", "machine"]
    return f"{MEASURED}\n\n{markdown_table(head, rows)}"


MEASURED = """\
One whole update of each, at full size, in float32 on one thread of a CPU: it runs, its loss is finite and it moves the
weights. Made by `python -m studies gpu-cost --update`; `make test-slow` repeats it."""
PAGE = """\
# On a GPU

**Nothing on this page was run on a GPU.** Operations and memory are counted in real updates of the paper's networks;
hours follow from them by assumptions that are named. The counts are made by `python -m studies gpu-cost`
({torch}), the numbers are kept in `docs/results/gpu-cost.json`.

## The commands

With the CUDA build of PyTorch ([installation](install.md#pytorch-without-a-gpu)), the paper's two experiments are

```python
import pscd
from studies.images.sets import load_dataset  # python -m studies data get cifar10
from studies.presets import preset

data, config = load_dataset("cifar10", seed=0), preset("paper-cifar10")  # or celeba, paper-celeba
folder = "runs/paper-cifar10"
model = pscd.fit(data.train, config=config, label=data.train_labels, device="cuda", folder=folder, progress=True)
```

`gamma=-0.5` is the paper's other setting, `gamma=0.0` its baseline. After the first updates `fit` reports how long the
rest takes on *your* GPU, which is more reliable than every number below; Ctrl-C stops it, and the same call resumes.
With several processes (`torchrun`) the batch of 128 (64) and the buffer are divided among them; the gradient is that of
one process on the whole batch ([training](training.md#several-processes-and-gpus)).

## What an update costs

Operations of convolutions and matrix products, a multiplication and an addition counted as two. A step of a chain is a
pass forward and one backward to the image; the loss goes once through data and samples, and back to the weights.

{work}

## Hours

The paper reports 48 hours (CIFAR-10) on 4 Titan Xp and 16 hours (CelebA, short-run chains). With the counts above, and
with four GPUs for both, that is {implied}
of a peak of 12.1e12 operations a second each.

Assumed: dense peaks of the data sheets, of which such convolutions reach {low:.0%} to {high:.0%} on tensor cores (they
are small, and elementwise work between them is bound by memory); {many} GPUs together with {worst:.0%} to {best:.0%} of
{many} times the speed of one, since each then has 16 images (8 for CelebA) of a batch, too few to fill it.

{hours}

## Memory

{memory}

Weights are there nine times: the network, its average, gradient, two moments of Adam, and a copy of all but the
gradient to go back to if training diverges. Training images lie on the GPU in float32, which for CelebA is most of it.
Activations are those that autograd keeps for the loss, in float32; bfloat16 takes about half. Workspace of cuDNN comes
on top.

## On a CPU

{here}

## Settings

- `preset("paper-cifar10").changed({{"compute.precision": "bfloat16"}})` computes networks under autocast, energies are
  summed in float32. On CPUs the recipe for images trains with it; with the paper's networks it was not tried.
- float32 on recent GPUs means TF32 in convolutions unless PyTorch is set otherwise.
- A compiled network goes through the trainer as it is, and keeps the names of its weights, so checkpoints fit both:

  ```python
  data, config = load_dataset("cifar10", seed=0), preset("paper-cifar10")
  energy = config.energy.build((3, 32, 32))
  energy.compile()
  model = pscd.fit(
      data.train, config=config, label=data.train_labels, energy=energy, device="cuda", folder="runs/compiled"
  )
  ```

  A slow test does this with a small network and a backend that compiles nothing to machine code: no graph breaks, and
  the same weights as without. What it gains on a GPU is not known.
- Chains of `paper-celeba` take their gradients layer by layer without a graph, those of the residual network by
  autograd; the setting `compute.gradients="plain"` is autograd for both.

## What to look at

- **The first minutes.** `E data` and `E samples` in the progress line should stay within a few tenths of each other; a
  difference that grows steadily ends in a roll-back, which is reported. `retries` in `metrics.jsonl` counts them.
- **ESS.** Steps of 10 with noise .005 are a temperature of 1.25e-6: energies differ by little, and at gamma 1 per nat
  all weights are nearly equal (ESS near 1). That is the published setting. `objective.unit="spread"` gives
  gamma its strength back ([the unit of gamma](explanations/unit-of-gamma.md)).
- **Samples**: `pscd sample runs/paper-cifar10 --out grid.png` at any time, also while it trains.

## Where the presets differ from the paper

The paper gives networks, batch, updates, steps, step size and noise (CIFAR-10), buffer, L2 and the optimiser; a test
names the place of each. It gives no learning rates, no clipping, no noise on the data, and for CelebA no step size:
these are from the code of the works that it follows. Two things differ on purpose: the L2 term is weighted like the
score, without which it would undo the robustness (at this temperature all weights are nearly 1), and parameter
gradients are not clipped by Adam's second moment, as IGEBM does.
"""


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--update", action="store_true", help="measure a whole update of each preset on this CPU")
    parser.add_argument("--one", choices=SHAPES, help=argparse.SUPPRESS)  # what a process of its own does
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the documentation (default: docs)")


def run(args: argparse.Namespace) -> None:
    """Count, and write docs/gpu.md."""
    if args.one:
        torch.set_num_threads(1)
        print(json.dumps(one_update(args.one)))
        return
    kept = args.out / "results" / "gpu-cost.json"
    found = measure(args.update, json.loads(kept.read_text()) if kept.is_file() else {})
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_json(kept, found)
    write_text_atomic(args.out / "gpu.md", page(found))
    print(f"page: {args.out / 'gpu.md'}")
