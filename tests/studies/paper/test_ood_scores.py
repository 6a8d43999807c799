"""Scores from what runs keep, and a choice among them that does not look at what it is judged by."""

import json

import pytest
import torch

from pscd.config import TrainConfig
from pscd.data import Dataset
from pscd.images.scores import combined
from pscd.metrics import auroc
from pscd.rng import generator
from studies.engine import Row, Run, mean_rows, objective_label
from studies.paper.ood_scores import (
    BACKGROUND_NOISE,
    INSIDE,
    KNOWN,
    MEAN,
    Verdict,
    _decode,
    _encode,
    aurocs,
    background_settings,
    column,
    default_score,
    judge_choices,
    means_without,
    score_rows,
    score_summary,
    sets_to_judge,
)
from studies.presets import PRESETS


def kept(**named):
    return {name: _encode(values) for name, values in named.items()}


@pytest.fixture
def values():
    rng = generator(0)
    sets = {INSIDE: 0.0, KNOWN: 0.0, "low": -5.0, "high": 5.0}
    return {
        kind: {name: shift + torch.randn(50, generator=rng) for name in ("energy", "bits", "gradient", "background")}
        for kind, shift in sets.items()
    }


def part(values, *names):
    return {kind: kept(**{name: by[name] for name in names}) for kind, by in values.items()}


def test_numbers_survive_the_json_file(values):
    x = values["low"]["energy"]
    assert torch.equal(_decode(json.loads(json.dumps(_encode(x)))), x)


def test_scores_are_those_of_the_images(values):
    found = aurocs(part(values, "energy", "bits", "gradient"), part(values, "background"))
    assert list(found) == ["energy", "typicality", "complexity", "gradient", "background", "joint"]
    for by, table in found.items():
        inside, known = values[INSIDE], values[KNOWN]
        for kind in ("low", "high"):
            expected = auroc(combined(by, inside, known), combined(by, values[kind], known))
            assert table[kind] == pytest.approx(expected)
    assert found["energy"]["low"] < 0.01
    assert found["typicality"]["low"] > 0.99


def test_without_a_background_its_score_is_left_out(values):
    assert "background" not in aurocs(part(values, "energy", "bits", "gradient"))


def test_the_background_of_a_seed_belongs_to_all_objectives_of_that_seed(values):
    own, of_seed = part(values, "energy", "bits", "gradient"), part(values, "background")
    done = [Run({"gamma": g, "seed": s}, {"measures": own}) for g in (0.0, 1.0) for s in (0, 1)]
    done += [Run({"gamma": 0.0, "seed": 2}, {"fid": None})]  # diverged, or computed before measures were kept
    done += [Run({"seed": 1, "background": {}}, {"measures": of_seed})]
    done += [Run({"seed": 0, "background": {}}, {"error": "diverged"})]
    rows = {(row.row, row.column): row for row in score_rows(done)}
    assert rows["low", "CD: AUROC by background"].n == 1
    assert rows["low", "gamma 1: AUROC by typicality"].n == 2
    assert (MEAN, "CD: AUROC") in rows
    assert ("low", "CD: AUROC") not in rows  # which stands in the table already
    assert score_rows([Run({"gamma": 0.0, "seed": 0}, {"fid": 3.0})]) == []


def test_the_summary_marks_the_default():
    """AUROC of 1 and 0.5 with two seeds: 0.75, and a standard deviation of 0.354."""

    def run(gamma, seed, **values):
        return Run({"gamma": gamma, "by": next(iter(values)), "seed": seed}, {"auroc": next(iter(values.values()))})

    runs = [run(0.0, 0, energy=1.0), run(0.0, 1, energy=0.5), run(1.0, 0, energy=0.25), run(0.0, 0, joint=0.9)]
    rows = mean_rows(runs, lambda s: (MEAN, column(objective_label(s["gamma"]), s["by"])), "auroc")
    rows.append(Row("low", "CD: AUROC by gradient", 0.1))  # of one set
    assert score_summary(rows).splitlines() == [
        "| mean AUROC over the other sets, by | CD | gamma 1 |",
        "|---|---|---|",
        "| energy | 0.750 (sd 0.354) | 0.250 |",
        "| **joint** (the default of `pscd score`) | 0.900 |  |",
    ]
    assert score_summary([]) == ""


def test_images_to_compare_with_are_not_those_that_are_judged():
    x = torch.arange(40).view(-1, 1, 1, 1).to(torch.uint8)
    sets = sets_to_judge(Dataset(x[:10], x[10:]), {"other": x}, 15)
    assert sets[INSIDE].flatten().tolist() == list(range(10, 25))
    assert sets[KNOWN].flatten().tolist() == list(range(25, 40))
    few = sets_to_judge(Dataset(x[:10], x[10:]), {}, 16)
    assert few[KNOWN].flatten().tolist() == list(range(10))


def test_the_background_is_trained_by_cd_on_noisy_images():
    config = PRESETS["mnist"].changed({"objective.gamma": 1.0, "seed": 3})
    settings = background_settings(config, 50)
    noisy = TrainConfig.from_dict(settings["background"])
    assert noisy == config.changed({"objective.gamma": 0.0, "rows.data_noise": BACKGROUND_NOISE})
    assert (settings["seed"], settings["n"], settings["data"]) == (3, 50, "mnist")


def tables(**changes):
    names = ("energy", "typicality", "gradient")
    found = {inside: {by: {o: 0.5 for o in "abcx" if o != inside} for by in names} for inside in "abc"}
    for place, value in changes.items():
        inside, by, outside = place.split("_")
        found[inside][by][outside] = value
    return found


def test_a_set_has_no_say_in_the_choice_that_it_is_judged_by():
    """Neither as the one that a model was trained on, nor as the one that it is to tell apart."""
    found = tables(a_typicality_x=1.0, b_typicality_a=1.0, c_typicality_a=1.0, b_gradient_x=0.6)
    diagnose = next(v for v in judge_choices(found) if v.judged == "a")
    assert diagnose == Verdict("a", "gradient", pytest.approx((0.6 + 0.5 * 3) / 4), 0.5, 0.5)
    b = next(v for v in judge_choices(found) if v.judged == "b")
    assert b.by == "typicality"  # by the pairs (a, x) and (c, a)
    assert b.here == pytest.approx((1.0 + 0.5 + 0.5) / 3)


def test_sets_that_are_judged_together_are_left_out_together():
    found = tables(a_typicality_x=1.0, b_typicality_x=1.0, c_typicality_a=1.0, c_gradient_x=0.6)
    verdicts = judge_choices(found, ("a", "b"))
    assert [(v.judged, v.by) for v in verdicts] == [("a", "gradient"), ("b", "gradient")]  # by the pair (c, x) alone
    assert verdicts[0].elsewhere == verdicts[1].elsewhere == pytest.approx(0.6)
    assert means_without(found, ("a", "b"))["typicality"] == pytest.approx(0.5)
    assert means_without(found, ())["typicality"] == pytest.approx((3 * 1.0 + 6 * 0.5) / 9)


def test_scores_that_some_table_lacks_are_not_chosen():
    found = tables(b_gradient_x=0.9, c_gradient_x=0.9)
    del found["a"]["gradient"]
    assert {v.by for v in judge_choices(found)} == {"energy"}


def test_the_default_is_one_that_every_choice_agrees_on_and_that_beats_the_energy():
    def diagnose(by, here):
        return Verdict("a", by, 0.9, here, 0.6)

    assert default_score([diagnose("gradient", 0.8), diagnose("gradient", 0.5)]) == "gradient"
    assert default_score([diagnose("gradient", 0.8), diagnose("typicality", 0.9)]) == "energy"
    assert default_score([diagnose("gradient", 0.5), diagnose("gradient", 0.6)]) == "energy"
    assert default_score([diagnose("energy", 0.6)]) == "energy"
