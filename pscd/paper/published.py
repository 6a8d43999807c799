"""The paper's numbers, as data."""

# Table 2: KL(p || q) on contaminated Gaussian data, by contamination ratio and objective.
CONTAMINATION_GAUSSIAN: dict[float, dict[float, float]] = {
    0.01: {0.0: 0.0067, 0.5: 1e-5, 1.0: 1e-7, 2.0: 1e-6},
    0.05: {0.0: 0.0851, 0.5: 0.00027, 1.0: 1.6e-6, 2.0: 0.00011},
    0.1: {0.0: 0.1979, 0.5: 0.00173, 1.0: 1.86e-6, 2.0: 0.00012},
    0.2: {0.0: 0.3869, 0.5: 0.1858, 1.0: 6.4e-6, 2.0: 0.00017},
    0.3: {0.0: 0.5438, 0.5: 0.5429, 1.0: 0.3118, 2.0: 0.00029},
}

# Table 3: MMD x 1e4 on the 2-D sets, mean and standard deviation, for CD and PS-CD with gamma 1.
TOYS_2D: dict[str, dict[float, tuple[float, float]]] = {
    "cosine": {0.0: (1.20, 0.45), 1.0: (0.86, 0.12)},
    "swiss_roll": {0.0: (3.39, 0.48), 1.0: (0.89, 0.39)},
    "moon": {0.0: (0.64, 0.11), 1.0: (0.12, 0.04)},
    "mog": {0.0: (3.01, 0.58), 1.0: (1.78, 0.35)},
    "funnel": {0.0: (1.56, 0.65), 1.0: (2.34, 0.45)},
    "rings": {0.0: (2.79, 0.63), 1.0: (2.02, 0.32)},
}
