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

# Table 1: FID on CIFAR-10, conditional, by gamma (0 is CD).
CIFAR10_FID: dict[float, float] = {0.0: 37.90, -0.5: 27.95, 0.5: 35.02, 1.0: 29.78, 2.0: 33.19}

# Table 4: the effect of gamma on CIFAR-10.
CIFAR10_GAMMA: dict[float, dict[str, float]] = {
    0.0: {"density": 0.693, "coverage": 0.601, "precision": 0.798, "recall": 0.368, "fid": 37.90},
    -0.5: {"density": 0.906, "coverage": 0.691, "precision": 0.848, "recall": 0.360, "fid": 27.95},
    0.5: {"density": 0.772, "coverage": 0.634, "precision": 0.819, "recall": 0.352, "fid": 35.02},
    1.0: {"density": 0.929, "coverage": 0.694, "precision": 0.853, "recall": 0.341, "fid": 29.78},
    2.0: {"density": 0.932, "coverage": 0.652, "precision": 0.861, "recall": 0.351, "fid": 33.19},
}

# Table 5: AUROC of models of CIFAR-10, CD (0) and PS-CD (listed under 1; its gamma is not given).
CIFAR10_OOD: dict[str, dict[float, float]] = {
    "svhn": {0.0: 0.43, 1.0: 0.56},
    "textures": {0.0: 0.36, 1.0: 0.44},
    "uniform noise": {0.0: 1.0, 1.0: 1.0},
    "Gaussian noise": {0.0: 1.0, 1.0: 1.0},
    "interpolations": {0.0: 0.63, 1.0: 0.68},
    "celeba": {0.0: 0.51, 1.0: 0.58},
}

# Table 6: FID on CIFAR-10 before and after training with a tenth of the images replaced by noise, by update.
CIFAR10_CONTAMINATED: dict[str, dict[int, float]] = {
    "CD": {0: 68.77, 1000: 95.56, 2000: 300.89},
    "PS-CD": {0: 68.77, 1000: 59.78, 2000: 57.24},
}
