"""How well the scores of the example agree with the truth that nothing learnt from."""

import sys
from pathlib import Path

import pandas as pd
from sklearn.metrics import roc_auc_score


def main(folder: Path) -> None:
    scores = pd.read_csv(folder / "run" / "scores.csv").merge(pd.read_csv(folder / "truth.csv"), on="name")
    print(f"AUROC {roc_auc_score(scores['truth'] != 'benign', scores['energy']):.2f}")
    print(scores.sort_values("energy", ascending=False).head(10)[["name", "energy", "truth"]].to_string(index=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("."))
