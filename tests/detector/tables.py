"""Small tables with gaps, categories and known mistakes."""

import numpy as np
import pandas as pd


def people(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Height in metres, weight, age and sex, which have to do with each other."""
    rng = np.random.default_rng(seed)
    male = rng.uniform(size=n) < 0.5
    height = np.where(male, 1.78, 1.64) + rng.normal(0, 0.05, n)
    weight = 23 * height**2 + rng.normal(0, 4, n)
    return pd.DataFrame(
        {
            "sex": np.where(male, "m", "f"),
            "height": height.round(2),
            "weight": weight.round(1),
            "age": rng.integers(18, 80, n),
        }
    )


def with_gaps(frame: pd.DataFrame, share: float, seed: int = 1) -> pd.DataFrame:
    """The table with so many of its cells missing at random."""
    return frame.mask(np.random.default_rng(seed).uniform(size=frame.shape) < share)
