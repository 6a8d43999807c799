"""The numbers of the page, computed from the results of all cells."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from studies.detection.detectors import AUTO, DETECTORS, FOREST, NOT_ROBUST
from studies.detection.work import Key, Plan
from studies.engine import Result, Row

# The tables that the defaults of EnergyDetector were first chosen on. Several were revised after a look at all of
# them (docs/detector.md).
DEVELOPMENT = (
    "2_annthyroid",
    "6_cardio",
    "8_celeba",
    "14_glass",
    "16_http",
    "19_landsat",
    "24_mnist",
    "28_pendigits",
    "33_skin",
    "35_SpamBase",
    "39_vertebral",
    "42_WBC",
    "44_Wilt",
    "46_WPBC",
)
TIE = 1e-9

Results = Mapping[Key, Result]


def cube(plan: Plan, results: Results, value: str) -> np.ndarray:
    """A value of every cell without added contamination, `(sets, detectors, seeds)`."""
    return np.array(
        [
            [
                [results[Key(facts.name, name, seed, 0.0)][value] for seed in range(plan.seeds)]
                for name in plan.detectors
            ]
            for facts in plan.sets
        ],
        dtype=np.float64,
    )


def spread(values: np.ndarray) -> float | None:
    """Standard deviation of the values, if there are two."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def ranks(scores: np.ndarray) -> np.ndarray:
    """Rank of every detector on every set, 1 for the highest score; `(sets, detectors)` to the same.

    Equal scores share the mean of their ranks.
    """
    from scipy.stats import rankdata

    return np.asarray(rankdata(-scores, axis=1))


def summarise(plan: Plan, results: Results) -> dict[str, Any]:
    """All numbers that the page shows, as JSON can hold them."""
    return {
        "detectors": detector_rows(plan, results),
        "groups": group_rows(plan, results),
        "auto_against_gamma_0": comparisons(plan, results),
        "sets": set_rows(plan, results),
        "contamination": contamination(plan, results),
        "errors": errors(results),
    }


def detector_rows(plan: Plan, results: Results) -> list[dict[str, Any]]:
    """One row for every detector, the highest mean AUROC first."""
    auroc, ap = cube(plan, results, "auroc"), cube(plan, results, "ap")
    by_set = auroc.mean(2)
    rank = ranks(by_set).mean(0)
    best = (by_set >= by_set.max(1, keepdims=True) - TIE).sum(0)
    # A result that several seeds share counts for each of them, as if it had been computed again.
    seconds = cube(plan, results, "fit_seconds").sum((0, 2))
    names = list(plan.detectors)
    unit = seconds[names.index(FOREST)] if FOREST in names else 0.0
    rows = [
        {
            "detector": name,
            "mean_auroc": float(by_set[:, i].mean()),
            "sd_over_seeds": spread(auroc[:, i].mean(0)),
            "median_auroc": float(np.median(by_set[:, i])),
            "mean_ap": float(ap[:, i].mean()),
            "ap_sd_over_seeds": spread(ap[:, i].mean(0)),
            "mean_rank": float(rank[i]),
            "best_on": int(best[i]),
            "seconds": float(seconds[i]),
            "times_forest": float(seconds[i] / unit) if unit > 0 else None,
        }
        for i, name in enumerate(names)
    ]
    return sorted(rows, key=lambda row: -row["mean_auroc"])


def groups(plan: Plan) -> dict[str, np.ndarray]:
    """Which sets are all, those of the development, and the rest; only the first if one of the others is empty."""
    chosen_on = np.array([facts.name in DEVELOPMENT for facts in plan.sets])
    every = {"all": np.ones(len(plan.sets), bool), "development": chosen_on, "rest": ~chosen_on}
    return every if 0 < chosen_on.sum() < len(plan.sets) else {"all": every["all"]}


def group_rows(plan: Plan, results: Results) -> list[dict[str, Any]]:
    """Means of every detector over each group of sets."""
    auroc, ap = cube(plan, results, "auroc").mean(2), cube(plan, results, "ap").mean(2)
    return [
        {
            "group": group,
            "sets": [facts.name for facts, inside in zip(plan.sets, members, strict=True) if inside],
            "mean_auroc": dict(zip(plan.detectors, auroc[members].mean(0).tolist(), strict=True)),
            "mean_ap": dict(zip(plan.detectors, ap[members].mean(0).tolist(), strict=True)),
            "mean_rank": dict(zip(plan.detectors, ranks(auroc[members]).mean(0).tolist(), strict=True)),
        }
        for group, members in groups(plan).items()
    ]


def comparisons(plan: Plan, results: Results) -> list[dict[str, Any]]:
    """What robustness alone brings, for each group of sets; nothing if one of the two was not run."""
    names = list(plan.detectors)
    if AUTO not in names or NOT_ROBUST not in names:
        return []
    differences = {}
    for value in ("auroc", "ap"):
        means = cube(plan, results, value).mean(2)
        differences[value] = means[:, names.index(AUTO)] - means[:, names.index(NOT_ROBUST)]
    return [
        {"group": group, **compare(differences["auroc"][members], differences["ap"][members])}
        for group, members in groups(plan).items()
    ]


def compare(auroc: np.ndarray, ap: np.ndarray) -> dict[str, Any]:
    """Wins, ties and losses by the differences in AUROC, and both mean differences with their standard errors."""

    def error(values: np.ndarray) -> float | None:
        sd = spread(values)
        return None if sd is None else sd / len(values) ** 0.5

    return {
        "wins": int((auroc > TIE).sum()),
        "ties": int((abs(auroc) <= TIE).sum()),
        "losses": int((auroc < -TIE).sum()),
        "auroc_difference": float(auroc.mean()),
        "auroc_standard_error": error(auroc),
        "ap_difference": float(ap.mean()),
        "ap_standard_error": error(ap),
    }


def set_rows(plan: Plan, results: Results) -> list[dict[str, Any]]:
    """One row for every set: the AUROC of all detectors, the best rival, and the gamma that was chosen."""
    auroc, ap = cube(plan, results, "auroc").mean(2), cube(plan, results, "ap").mean(2)
    share = cube(plan, results, "anomaly_share").mean((1, 2))  # among the rows used, which drawing can change
    rows = []
    for i, facts in enumerate(plan.sets):
        by_name = dict(zip(plan.detectors, auroc[i].tolist(), strict=True))
        rivals = [name for name in by_name if not DETECTORS[name].own]
        chosen = [results[Key(facts.name, AUTO, s, 0.0)] for s in range(plan.seeds)] if AUTO in by_name else []
        rows.append(
            {
                **facts.to_dict(),
                "anomaly_share": float(share[i]),
                "rows": min(facts.n, plan.max_rows),
                "auroc": by_name,
                "ap": dict(zip(plan.detectors, ap[i].tolist(), strict=True)),
                "best_rival": max(rivals, key=lambda name: by_name[name], default=None),
                "gamma": [result.get("gamma") for result in chosen],
                "contamination": [result.get("contamination") for result in chosen],
            }
        )
    return rows


def contamination(plan: Plan, results: Results) -> dict[str, Any]:
    """AUROC against the share of contamination added: mean over sets, its deviation over seeds, and each set."""
    if not plan.curve_sets or not plan.curve_detectors:
        return {"sets": [], "levels": [], "curves": []}
    curves = []
    for name in plan.curve_detectors:
        values = np.array(
            [
                [
                    [results[Key(table, name, seed, level)]["auroc"] for seed in range(plan.seeds)]
                    for level in plan.levels
                ]
                for table in plan.curve_sets
            ]
        )
        curves.append(
            {
                "detector": name,
                "mean_auroc": values.mean((0, 2)).tolist(),
                "sd_over_seeds": [spread(at_level) for at_level in values.mean(0)],
                "by_set": dict(zip(plan.curve_sets, values.mean(2).tolist(), strict=True)),
            }
        )
    return {"sets": list(plan.curve_sets), "levels": list(plan.levels), "curves": curves}


def errors(results: Results) -> list[dict[str, Any]]:
    """What failed, with its message."""
    return [{**key._asdict(), "error": result["error"]} for key, result in results.items() if "error" in result]


def table_rows(detectors: Sequence[dict[str, Any]], seeds: int) -> list[Row]:
    """The means in the form of the paper's experiments."""
    columns = (("AUROC", "mean_auroc", "sd_over_seeds"), ("AP", "mean_ap", "ap_sd_over_seeds"))
    return [
        Row(row["detector"], column, row[mean], row[sd], seeds) for row in detectors for column, mean, sd in columns
    ]
