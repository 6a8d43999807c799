"""Draw the README's picture, docs/two-moons.png: dirty data, samples of CD, samples of PS-CD. About a minute.

`python scripts/draw_two_moons.py` trains the README's example for longer, on more rows, and prints the distances.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch

import pscd
from pscd.rng import generator

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "two-moons.png"
SHOWN, SIDE = 5000, 6.0


def main() -> None:
    """Train twice, measure, draw."""
    moon = pscd.load_dataset("moon", n=20_000, seed=0)

    def junk(n: int, rng: torch.Generator | None) -> torch.Tensor:
        return 2 * SIDE * torch.rand(n, 2, generator=rng) - SIDE

    dirty = pscd.contaminate(moon.train, 0.1, junk, generator(0)).x
    panels = {"data, a tenth of it junk": dirty}
    for name, gamma in {"CD": 0.0, "PS-CD, gamma 1": 1.0}.items():
        objective = pscd.PseudoSpherical(gamma=gamma, warmup=0)
        model = pscd.fit(dirty, config=pscd.TrainConfig(objective=objective, updates=2000), progress=True)
        samples = model.sample(10_000)
        distance = 1e4 * pscd.mmd(moon.held_out, samples)
        print(f"{name}: MMD^2 x 1e4 to clean data {distance:.2f}")
        panels[f"samples of {name}"] = samples
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.7), sharex=True, sharey=True, layout="constrained")
    for axis, (title, x) in zip(axes, panels.items(), strict=True):
        axis.plot(*x[:SHOWN].T, ".", markersize=1.5, color="#27527f", alpha=0.6)
        axis.set(title=title, xlim=(-SIDE, SIDE), ylim=(-SIDE, SIDE), aspect="equal", xticks=[], yticks=[])
    figure.savefig(PICTURE, dpi=110, bbox_inches="tight", pad_inches=0.1, metadata={"Software": None})
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
