"""Compute what the interactive picture of the site shows, docs/explanations/one-picture.json. Two minutes.

For every gamma and share of junk on its sliders: the Gaussian with the best gamma-score on the paper's contaminated
data of one dimension, by quadrature (`pscd.exact`). The score may have several maxima, so the best of three descents
is taken: from the clean data, from the junk, and from far and wide.
"""

import json
from pathlib import Path

import torch

from pscd import exact
from pscd.data.toys import contaminated_1d
from pscd.energies import Quadratic
from studies.paper.contamination_gaussian import kl_to_clean
from studies.paper.gaussian_fit import best_gaussian

FILE = Path(__file__).resolve().parents[1] / "docs" / "explanations" / "one-picture.json"
GAMMAS = [i / 10 for i in range(21)]
RATIOS = [i / 50 for i in range(21)]
STARTS = [(-1.0, 0.7), (2.0, 0.22), (0.0, 2.0)]  # (mean, sd)
GRID = exact.grid(exact.Box((-40.0,), (40.0,)), 2400)


def optimum(ratio: float, gamma: float) -> dict[str, float]:
    """The best Gaussian for data of which the share `ratio` is junk.

    Args:
        ratio: share of junk.
        gamma: of the score.

    Returns:
        Its mean and standard deviation, and how far it is from the clean density, KL in nats.
    """
    log_p = contaminated_1d(ratio).log_prob(GRID.points)

    def loss(energy: Quadratic, _: object = None) -> torch.Tensor:
        return -exact.gamma_score(log_p, energy, gamma, GRID)

    with_losses = []
    for start in STARTS:
        mean, sd = best_gaussian(loss, start)
        with_losses.append((loss(Quadratic(mean, sd)).item(), mean, sd))
    _, mean, sd = min(with_losses)
    found = {"mean": mean, "sd": sd, "kl": kl_to_clean(mean, sd)}
    return {"ratio": ratio, "gamma": gamma} | {name: round(value, 5) for name, value in found.items()}


def main() -> None:
    """Compute all settings and write the file, one setting a line."""
    rows = [json.dumps(optimum(ratio, gamma)) for ratio in RATIOS for gamma in GAMMAS]
    FILE.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    print(f"{len(rows)} settings: {FILE}")


if __name__ == "__main__":
    main()
