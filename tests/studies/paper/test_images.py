import json
import sys
from dataclasses import replace

import pytest
import torch

from pscd.data import Dataset
from pscd.errors import Diverged, UserError
from pscd.objectives import FEBM
from pscd.rng import generator
from studies.engine.streams import StudyStream
from studies.paper import WITH_IMAGES, Choice, reproduce
from studies.paper.contamination_images import training_images
from studies.paper.images import decode, encode

DIGITS = Choice(data="digits", features="pixels", n=60)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all, so that experiments find each other's runs; no image set but the digits is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PSCD_DATA", str(tmp_path_factory.mktemp("empty")))
        yield tmp_path_factory.mktemp("results")


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_every_artefact_with_images_is_made(name, out):
    page = reproduce(name, out, quick=True, jobs=1, images=DIGITS)
    report = json.loads((out / f"{name}-digits.json").read_text())
    assert page.name == f"{name}-digits.md"
    assert f"python -m studies {name}-digits" not in page.read_text()
    assert f"python -m studies {name} --data digits --features pixels --n 60 --quick" in page.read_text()
    assert all(row["measured"] is not None for row in report["rows"])
    assert all((out / figure).stat().st_size > 1000 for figure in report["figures"])


def test_artefacts_share_the_runs(out):
    reproduce("images-fid", out, quick=True, jobs=1, images=DIGITS)
    reproduce("images-gamma", out, quick=True, jobs=1, images=DIGITS)
    assert json.loads((out / "images-gamma-digits.json").read_text())["runs_computed_in_that_time"] == 0


def test_noise_and_interpolations_are_always_there_to_tell_apart(out):
    reproduce("ood", out, quick=True, jobs=1, images=DIGITS)
    rows = json.loads((out / "ood-digits.json").read_text())["rows"]
    assert {row["row"] for row in rows} == {"uniform noise", "Gaussian noise", "interpolations", "mean over the sets"}
    assert all(0 <= row["measured"] <= 1 for row in rows)


def test_every_score_is_in_the_table_and_the_energy_once(out):
    """The mean of the energy's AUROC, from what runs keep of each image, is that of its numbers in the table."""
    reproduce("ood", out, quick=True, jobs=1, images=DIGITS)
    rows = json.loads((out / "ood-digits.json").read_text())["rows"]
    by = {(row["row"], row["column"]): row["measured"] for row in rows}
    assert len(by) == len(rows)
    sets = ("uniform noise", "Gaussian noise", "interpolations")
    for name in ("", " by typicality", " by complexity", " by gradient", " by background", " by joint"):
        values = [by[one, f"CD: AUROC{name}"] for one in sets]
        assert by["mean over the sets", f"CD: AUROC{name}"] == pytest.approx(sum(values) / 3)
    assert "Of 2 runs, 0 diverged" in (out / "ood-digits.md").read_text()


def test_a_tenth_of_the_images_becomes_noise():
    x = torch.zeros(200, 1, 4, 4, dtype=torch.uint8)
    settings = {"contaminated": True, "ratio": 0.1, "seed": 3}
    dirty, is_noise = training_images(Dataset(x, x), settings)
    assert is_noise.sum() == 20
    assert dirty[~is_noise].max() == 0
    assert dirty[is_noise].float().mean() == pytest.approx(127.5, abs=5 * 73.9 / (20 * 16) ** 0.5)
    rng = generator(3, StudyStream.NOISY_IMAGES)
    index = torch.randperm(200, generator=rng)[:20]  # the same noise as in the results that are kept
    assert torch.equal(dirty[index], torch.randint(256, (20, 1, 4, 4), generator=rng).to(torch.uint8))
    clean, none = training_images(Dataset(x, x), {**settings, "contaminated": False})
    assert clean is x
    assert not none.any()


def test_junk_that_people_have_replaces_images(out):
    """A tenth of blank frames: the table says so, and whether the energy finds them."""
    blank = replace(DIGITS, junk="blank", ratio=0.2)
    page = reproduce("contamination-images", out, quick=True, jobs=1, images=blank)
    assert page.name == "contamination-images-digits-blank-20.md"
    text = page.read_text()
    assert "20% of which are junk (blank)" in text
    assert "--data digits --features pixels --n 60 --junk blank --ratio 0.2 --quick" in text
    rows = json.loads(page.with_suffix(".json").read_text())["rows"]
    found = {row["column"] for row in rows if row["row"] == "CD"}
    assert {"AUROC of junk among the images, last", "AP of junk among the images, last"} <= found
    assert not any("AUROC" in row["column"] for row in rows if row["row"] == "CD, clean images")
    x = torch.full((50, 1, 4, 4), 7, dtype=torch.uint8)
    x[..., 0] = 9  # not blank
    dirty, is_junk = training_images(Dataset(x, x), {"contaminated": True, "ratio": 0.2, "seed": 3, "junk": "blank"})
    assert is_junk.sum() == 10
    assert (dirty[is_junk] == dirty[is_junk][:, :, :1, :1]).all()
    assert torch.equal(dirty[~is_junk], x[~is_junk])


def test_images_survive_the_json_file():
    x = torch.randint(256, (3, 1, 4, 4), generator=generator(0)).to(torch.uint8)
    assert torch.equal(decode(json.loads(json.dumps(encode(x)))), x)


def test_a_run_that_diverges_is_told_without_a_folder_of_this_machine(tmp_path, monkeypatch):
    def give_up(*args, **settings):
        raise Diverged("training diverged 6 times", f"the model of step 5 is kept in {tmp_path}")

    # The package has functions of the same names.
    plain, dirty, rivals = (
        sys.modules[f"studies.paper.{n}"] for n in ("images", "contamination_images", "rivals_images")
    )
    for module in (plain, dirty, rivals):
        monkeypatch.setattr(module, "fit", give_up)
    monkeypatch.setattr(dirty.checkpoint, "branch", lambda *folders: None)
    config = DIGITS.config(0.0, 0, quick=True)
    run = {"config": config.to_dict(), "n": 60, "features": "pixels"}
    rival = replace(config, objective=FEBM(), energy=replace(config.energy, classes=0)).to_dict()
    line = {"gamma": 0.3, "unit": "spread", "seed": 0, "contaminated": False, "ratio": 0.1, "stages": 3}
    data = Dataset(torch.zeros(8, 1, 8, 8, dtype=torch.uint8), torch.zeros(4, 1, 8, 8, dtype=torch.uint8))
    stages = dirty._go_on({**line, "after": run["config"]}, data, data.held_out, None, tmp_path / "a")
    told = {"fid": None, "error": "training diverged 6 times"}
    assert stages == [told]
    assert plain.compute(run, tmp_path) == told | dict.fromkeys(plain.PRDC)
    assert plain.compute({**run, "background": run["config"]}, tmp_path) == {"error": told["error"]}
    assert rivals.compute({**run, "config": rival, "method": "f-EBM"}, tmp_path) == told


def test_the_unit_of_gamma_and_the_updates_can_be_chosen():
    plain, chosen = (replace(DIGITS, **c).config(0.5, 1, quick=False) for c in ({}, {"unit": "nats", "updates": 7}))
    assert (plain.objective.unit, chosen.objective.unit) == ("spread", "nats")
    assert chosen == plain.changed({"objective.unit": "nats", "updates": 7})
    experiment = WITH_IMAGES["images-fid"](replace(DIGITS, unit="nats", updates=7))
    assert experiment.name == "images-fid-digits-nats"
    assert experiment.command.endswith("--n 60 --unit nats --updates 7")


def test_both_units_stand_on_one_page_beside_one_cd(out):
    both = replace(DIGITS, unit="both")
    experiment = WITH_IMAGES["images-fid"](both)
    runs = experiment.runs(False, 2)
    assert len({json.dumps(run, sort_keys=True) for run in runs}) == len(runs) == 2 * (1 + 4 + 4)
    single = [WITH_IMAGES["images-fid"](replace(DIGITS, unit=unit)).runs(False, 2) for unit in ("nats", "spread")]
    assert all(run in runs for part in single for run in part)  # models of one unit are not trained again
    page = reproduce("images-gamma", out, quick=True, jobs=1, images=both)
    rows = json.loads(page.with_suffix(".json").read_text())["rows"]
    names = ["CD", *(f"gamma {g} per {unit}" for unit in ("nat", "spread") for g in ("-0.5", "0.5", "1", "2"))]
    assert list(dict.fromkeys(row["row"] for row in rows)) == names
    with pytest.raises(UserError, match="ood has one unit of gamma; --unit both is for images-fid, images-gamma"):
        reproduce("ood", out, quick=True, images=both)


def test_choices_that_do_not_fit_are_told(tmp_path):
    with pytest.raises(UserError, match="--preset"):
        reproduce("images-fid", tmp_path, quick=True, images=Choice(data="quickdraw"))
    with pytest.raises(UserError, match="no images to choose"):
        reproduce("theory", tmp_path, quick=True, images=DIGITS)
