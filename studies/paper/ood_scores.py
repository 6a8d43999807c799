"""Every score of strange images beside the energy: what models measure of each set, and how well each score tells them.

Runs keep what was measured of every image, so that scores are computed from it when the table is made. The background
model of a seed is a run of its own, which all objectives share.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.data import Dataset
from pscd.images.scores import DEFAULT, SCORES, combined, measures
from pscd.metrics import auroc
from pscd.model import Model
from studies.engine import Result, Row, Run, Settings, mean_rows, objective_label
from studies.engine.markdown import markdown_table

INSIDE, KNOWN = "inside", "known"  # held-out images: those that are judged, and those that scores compare with
OF_A_MODEL, OF_A_BACKGROUND = ("energy", "bits", "gradient"), ("background",)
BACKGROUND_NOISE = 0.3  # standard deviation, in units of white
MEAN = "mean over the sets"

Aurocs = Mapping[str, Mapping[str, float]]  # by score and other set


def sets_to_judge(data: Dataset, others: Mapping[str, Tensor], n: int) -> dict[str, Tensor]:
    """Held-out images, others of them to compare with, and images of other sets."""
    known = data.held_out[n : 2 * n] if len(data.held_out) >= 2 * n else data.train[:n]
    return {INSIDE: data.held_out[:n], KNOWN: known, **others}


def measure_sets(model: Model, sets: Mapping[str, Tensor], names: tuple[str, ...]) -> Result:
    """What scores are computed from, for every image of every set, as text for a JSON file."""
    background = model if names == OF_A_BACKGROUND else None
    return {
        kind: {name: _encode(values) for name, values in measures(model, x, names, background).items()}
        for kind, x in sets.items()
    }


def _encode(values: Tensor) -> str:
    return base64.b64encode(values.float().numpy().tobytes()).decode()


def _decode(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32)


def background_settings(config: TrainConfig, n: int) -> Settings:
    """The run of a background model: the same training by CD, on images with noise."""
    noisy = config.changed({"objective.gamma": 0.0, "rows.data_noise": BACKGROUND_NOISE})
    return {"data": config.rows.data, "seed": config.seed, "background": noisy.to_dict(), "n": n}


def aurocs(measured: Result, background: Result | None = None) -> dict[str, dict[str, float]]:
    """How well each score tells other sets from the model's own."""
    parts = [measured, *([background] if background is not None else [])]
    found = {
        kind: {name: _decode(text) for part in parts for name, text in part[kind].items()}
        for kind in measured
        if all(kind in part for part in parts)
    }
    tables: dict[str, dict[str, float]] = {}
    for by, needed in SCORES.items():
        if all(name in found[INSIDE] for name in needed):
            inside = combined(by, found[INSIDE], found[KNOWN])
            others = (kind for kind in found if kind not in (INSIDE, KNOWN))
            tables[by] = {kind: auroc(inside, combined(by, found[kind], found[KNOWN])) for kind in others}
    return tables


def score_rows(done: Sequence[Run]) -> list[Row]:
    """AUROC of every score but the energy by set and objective, and of all of them on average over the sets."""
    backgrounds = {d.settings["seed"]: d.result.get("measures") for d in done if "background" in d.settings}
    runs: list[Run] = []
    for d in done:
        if "background" in d.settings or "measures" not in d.result:
            continue
        for by, table in aurocs(d.result["measures"], backgrounds.get(d.settings["seed"])).items():
            for kind, value in {**table, MEAN: fmean(table.values())}.items():
                if by != "energy" or kind == MEAN:
                    runs.append(Run({**d.settings, "set": kind, "by": by}, {"auroc": value}))
    return mean_rows(runs, lambda s: (s["set"], column(objective_label(s["gamma"]), s["by"])), "auroc")


def score_summary(rows: Sequence[Row]) -> str:
    """A line for each score with its mean AUROC over the other sets, the default marked."""
    means = {row.column: row for row in rows if row.row == MEAN}
    objectives = list(dict.fromkeys(name.partition(":")[0] for name in means))
    lines = []
    for by in SCORES:
        found = [means.get(column(objective, by)) for objective in objectives]
        if any(found):
            name = f"**{by}** (the default of `pscd score`)" if by == DEFAULT else by
            lines.append([name, *("" if row is None else _with_spread(row) for row in found)])
    return markdown_table(["mean AUROC over the other sets, by", *objectives], lines) if lines else ""


def _with_spread(row: Row) -> str:
    return f"{row.measured:.3f}" + ("" if row.std is None else f" (sd {row.std:.3f})")


def column(objective: str, by: str) -> str:
    """The name of a column: the energy's is as short as it was before there were others."""
    return f"{objective}: AUROC" if by == "energy" else f"{objective}: AUROC by {by}"


# --- which score should be the default ---


@dataclass(frozen=True)
class Verdict:
    """A score that was chosen by some pairs of sets, judged on others."""

    judged: str
    by: str
    elsewhere: float
    here: float
    energy: float


def judge_choices(tables: Mapping[str, Aurocs], judged: Sequence[str] = ()) -> list[Verdict]:
    """Choose a score without a look at any pair that a judged set is part of, and judge it on that set's pairs.

    >>> one = {"energy": {"b": 0.4, "c": 0.6}, "typicality": {"b": 0.9, "c": 0.7}}
    >>> two = {"energy": {"a": 0.9, "c": 0.5}, "typicality": {"a": 0.1, "c": 0.6}}
    >>> [(v.judged, v.by, round(v.here, 2)) for v in judge_choices({"a": one, "b": two})]
    [('a', 'typicality', 0.8), ('b', 'typicality', 0.35)]
    """
    verdicts = []
    for name in judged or tables:
        means, own = means_without(tables, judged or (name,)), tables[name]
        best = max(means, key=means.__getitem__)
        verdicts.append(Verdict(name, best, means[best], fmean(own[best].values()), fmean(own["energy"].values())))
    return verdicts


def means_without(tables: Mapping[str, Aurocs], left_out: Sequence[str]) -> dict[str, float]:
    """The mean AUROC of each score over all pairs of sets without some."""
    scores = [by for by in SCORES if all(by in table for table in tables.values())]
    return {
        by: fmean(
            value
            for inside, table in tables.items()
            for outside, value in table[by].items()
            if not {inside, outside} & set(left_out)
        )
        for by in scores
    }


def default_score(verdicts: Sequence[Verdict]) -> str:
    """The score that every verdict has chosen, if it beats the energy on average where it is judged, or the energy."""
    chosen = {verdict.by for verdict in verdicts}
    better = fmean(verdict.here - verdict.energy for verdict in verdicts) > 0
    return chosen.pop() if len(chosen) == 1 and better else "energy"
