from dataclasses import replace

from pscd.config import TrainConfig
from pscd.training import checkpoint
from studies.engine import Run, digest
from studies.paper import WITH_IMAGES, Choice
from studies.paper.junk_images import KINDS, LATER, WARM_UPDATES, junk_runs, summary, warm_runs
from studies.paper.scratch_images import COLUMNS, SHORT

DIGITS = Choice(data="digits", features="pixels", n=60)


def test_every_kind_has_both_objectives_and_clean_images_stand_beside_them():
    made = junk_runs(replace(DIGITS, data="fashion-mnist"), False, 2)
    kinds = [kind for kind in KINDS if kind[0] != "fashion-mnist"]  # its own images are no junk
    assert len(made) == 2 * 2 * (1 + len(kinds))
    assert [(s["gamma"], s["warmup"]) for s in made[:4]] == [(0.0, 0.0), (0.3, SHORT)] * 2
    assert [s["config"]["rows"]["start"] for s in made[:4]] == [
        "none",
        "glance",
    ] * 2  # images are weighed for gamma alone
    assert [s["contaminated"] for s in made[:4]] == [False, False, True, True]
    assert {(s["junk"], s["ratio"]) for s in made if s["contaminated"]} == set(kinds)
    assert {s["seed"] for s in made[: len(made) // 2]} == {0}


def test_the_summary_by_hand():
    """Clean CD has 10 and 20 with two seeds. Beside it, 15 of seed 1 is a quarter below, 12 and 24 a fifth above."""
    clean, dirty = (
        [next(s for s in junk_runs(DIGITS, True, 2) if s["seed"] == seed and s["contaminated"] == c) for seed in (0, 1)]
        for c in (False, True)
    )
    results = [
        (clean[0], {"fid": 10.0}),
        (clean[1], {"fid": 20.0}),
        (dirty[0], {"error": "it diverged", **dict.fromkeys(COLUMNS)}),
        (dirty[1], {"fid": 15.0, "ap": 0.5, "like_junk": 0.25, "junk_seen": 0.75}),
        (dirty[0] | {"gamma": 0.3, "warmup": 0.05}, {"fid": 12.0, "ap": 0.9, "like_junk": 0.0, "junk_seen": 0.25}),
        (dirty[1] | {"gamma": 0.3, "warmup": 0.05}, {"fid": 24.0, "ap": 1.0, "like_junk": 0.5, "junk_seen": 0.5}),
    ]
    lines = summary([Run(*one) for one in results]).splitlines()
    assert lines[2] == "| clean images | 15.0 (+0%) |  |  |  |  |  |  |"
    assert lines[3] == "| blank, 10% | 15.0 (-25%); 1 of 2 diverged | 0.5 | 0.25 | 18.0 (+20%) | 0.95 | 0.25 | 0.5 |"


def test_after_a_warm_up_every_way_goes_on_from_one_run_of_cd_on_clean_images():
    made = warm_runs(DIGITS, False, 2)
    assert len(made) == 2 * 3 * (1 + len(KINDS))
    for seed in (0, 1):
        (warm,) = {digest(s["warm"]): s["warm"] for s in made if s["seed"] == seed}.values()
        config = TrainConfig.from_dict(warm)
        assert (config.seed, config.objective.gamma, config.rows.start) == (seed, 0.0, "none")
    first = [TrainConfig.from_dict(s["config"]) for s in made[:3]]
    assert [(c.objective.gamma, c.rows.start) for c in first] == [(0.0, "none"), (0.3, "glance"), (0.3, "none")]
    assert {(c.objective.warmup, c.updates, c.seed) for c in first} == {(0.0, WARM_UPDATES, LATER)}


def test_the_warm_run_is_trained_once_and_gone_on_from(tmp_path):
    experiment = WITH_IMAGES["warm-junk-images"](DIGITS)
    clean, _, _, dirty, *_ = experiment.runs(True, 1)
    assert all(experiment.compute(s, tmp_path)["fid"] > 0 for s in (clean, dirty))
    assert len(list(tmp_path.iterdir())) == 3  # the warm run, and one for each run
    warm = checkpoint.load(tmp_path / digest(dirty["warm"]))
    names = ("config", "contaminated", "ratio", "junk", "warm")
    after = checkpoint.load(tmp_path / digest(*(dirty[name] for name in names)))
    # Adam has counted the updates of both: the second run began with all of the first, not with its weights alone.
    updates = [{int(moments["step"]) for moments in run["optimizer"]["state"].values()} for run in (warm, after)]
    assert updates == [{warm["step"]}, {warm["step"] + after["step"]}]
