"""A contaminated table: 357 benign tumours, 15 malignant ones among them, and three typing errors.

The measurements are scikit-learn's breast cancer data (Street, Wolberg & Mangasarian 1993). The labels are written to a
second file that no model is fitted to.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

N_MALIGNANT = 15


def main(folder: Path) -> None:
    data = load_breast_cancer(as_frame=True)
    rng = np.random.default_rng(0)
    benign, malignant = data.data[data.target == 1], data.data[data.target == 0].sample(N_MALIGNANT, random_state=0)
    table = pd.concat([benign, malignant])
    truth = pd.Series(["benign"] * len(benign) + ["malignant"] * len(malignant), index=table.index)
    slips = {"mean radius": 10.0, "mean smoothness": 100.0, "worst area": 0.1}  # a decimal point in the wrong place
    for row, (column, factor) in zip(rng.choice(benign.index, len(slips), replace=False), slips.items(), strict=True):
        table.loc[row, column] *= factor
        truth[row] = f"slip in {column}"
    order = rng.permutation(len(table))
    table, truth = table.iloc[order], truth.iloc[order]
    names = [f"patient {i:03d}" for i in range(1, len(table) + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    table.insert(0, "name", names)
    table.to_csv(folder / "tumours.csv", index=False)
    pd.DataFrame({"name": names, "truth": truth.to_numpy()}).to_csv(folder / "truth.csv", index=False)
    print(f"{len(table)} rows: {folder / 'tumours.csv'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("."))
