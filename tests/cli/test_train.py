import json
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from pscd.cli.main import main, parser_for
from pscd.cli.train import config_from, diagnostics
from pscd.config import RowSettings, TrainConfig
from pscd.errors import UserError
from pscd.files import sealed
from pscd.objectives import FEBM, OBJECTIVES, NoiseContrastive, PseudoSpherical
from pscd.recipes.configs import RECIPES, recovering
from pscd.sampling import Langevin
from tests.cli.helpers import SMALL, TOY, help_of, parse, refused, write_module


def test_the_common_path_needs_no_dots():
    config = parse(
        "train moon --gamma 0.5 --updates 100 --seed 3 --set sampler.n_steps=9 --set energy.width=32 "
        "--set energy.name=quadratic --set optimizer.clip=1.0"
    )
    assert config.objective.gamma == 0.5
    assert (config.updates, config.seed, config.sampler.n_steps, config.optimizer.clip) == (100, 3, 9, 1.0)
    assert (config.energy.width, config.energy.name) == (32, "quadratic")


def test_objective_and_sampler_are_chosen_by_a_word():
    config = parse("train moon --objective cd --sampler langevin --set sampler.noise_scale=none --set sampler.low=-1")
    assert config.objective == PseudoSpherical(gamma=0.0)
    assert config.sampler == Langevin(low=-1.0)
    assert parse("train moon --set energy.spectral_norm=true --set energy.base_scale=none").energy.base_scale is None
    assert parse("train x.csv --columns a,b").rows.columns == ("a", "b")
    assert parse("train moon --gamma -0.5").objective.gamma == -0.5


def test_other_objectives_have_settings_of_their_own():
    assert parse("train moon --objective f-ebm --set objective.divergence=js --set objective.l2=0.1").objective == FEBM(
        divergence="js", l2=0.1
    )
    assert parse(
        "train moon --objective nce --set objective.noise=gaussian --set objective.ratio=5"
    ).objective == NoiseContrastive(noise="gaussian", ratio=5)
    assert parse("train moon --objective cd --set chains.start=data").chains.start == "data"


PLAIN = TrainConfig(rows=RowSettings(data="moon"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # Folders and recipes have these names; none of the words is the data.
        ("train moon", PLAIN),
        ("train moon --out train", PLAIN),
        ("train --out=train moon", PLAIN),
        ("train --updates 9 moon --out digits", replace(PLAIN, updates=9)),
        ("train --columns digits moon", PLAIN.changed({"rows.columns": ("digits",)})),
        ("train --objective f-ebm --set objective.divergence=js moon", replace(PLAIN, objective=FEBM(divergence="js"))),
        ("train --tensorboard moon --seed 4", replace(PLAIN, seed=4)),
        ("train --device cpu -- moon", PLAIN),
        # And these are.
        ("train digits --out moon", RECIPES["digits"]),
        ("train --batch-size 7 --out moon digits", replace(RECIPES["digits"], batch_size=7)),
        ("train --set sampler.noise_scale=0.5 digits", RECIPES["digits"].changed({"sampler.noise_scale": 0.5})),
        ("train train", RECIPES["images"].changed({"rows.data": "train"})),
        ("train --recipe images digits", RECIPES["images"].changed({"rows.data": "digits"})),
    ],
)
def test_the_data_are_what_stands_in_their_place(line, expected, tmp_path, monkeypatch):
    """`pscd train moon` beside a folder `train` took that for the data."""
    monkeypatch.chdir(tmp_path)
    for folder in ("train", "moon", "digits"):
        (tmp_path / folder).mkdir()
    assert parse(line, (3, 8, 8)) == expected


def test_train_beside_a_folder_called_train(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").mkdir()
    assert main(["train", "moon", *SMALL]) == 0
    assert (tmp_path / "runs" / "moon" / "plot.png").exists()


def test_help_has_few_flags_and_help_all_lists_every_setting(capsys):
    text = help_of(["train", "--help"], capsys)
    flags = {word for line in text.splitlines() for word in line.split()[:1] if word[:2] == "--"}
    assert {"--out", "--gamma", "--objective", "--recipe", "--updates", "--seed", "--columns", "--set"} <= flags
    assert len(flags) <= 21
    assert main(["train", "--help-all", "--objective", "nce"]) == 0
    listed = capsys.readouterr().out
    assert "    objective.ratio=4\n" in listed
    assert main(["train", "digits", "--help-all"]) == 0
    assert f"    optimizer.lr={RECIPES['digits'].optimizer.lr}\n" in capsys.readouterr().out


def test_recovery_likelihood_changes_the_recipe_of_images():
    config = parse("train digits --objective recovery --gamma 0.3 --set energy.levels=4 --set objective.n_steps=3")
    assert config == recovering(RECIPES["digits"]).changed(
        {"objective.gamma": 0.3, "energy.levels": 4, "objective.n_steps": 3}
    )
    with pytest.raises(UserError, match="need a network for images"):
        parse("train moon --objective recovery")


# --- parts of one's own ---


def test_parts_of_ones_own_by_import_path_with_their_flags(mine):
    config = parse(
        f"train --set objective.softness=3.0 --set objective.mood=wild --set objective.updates=8 --updates 9 "
        f"--gamma 0.5 --objective {mine}:Mine --sampler {mine}:Slow --set sampler.patience=4 "
        f"--set sampler.n_steps=2 moon"
    )
    module = sys.modules[mine]
    assert config.objective == module.Mine(gamma=0.5, softness=3.0, mood="wild", updates=8)
    assert config.sampler == module.Slow(n_steps=2, patience=4)
    assert (config.rows.data, config.updates) == ("moon", 9)
    assert parse(f"train --objective {mine}:Mine digits").optimizer.lr == RECIPES["digits"].optimizer.lr


def test_a_toy_of_ones_own_is_imported_when_it_is_named(mine):
    assert parse(f"train --updates 9 {mine}:toy").rows.data == f"{mine}:toy"
    assert mine in sys.modules


def test_modules_are_imported_before_anything_else(mine):
    assert main(["train", "--import", mine, "--help-all"]) == 0
    assert mine in sys.modules


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--objective {}:Nobody", "there is no Nobody"),
        ("--objective {}:Slow", "cannot be used as objective: it has no needs_negatives"),
        ("--sampler {}:Mine", "cannot be used as sampler: it has no n_steps"),
        ("--objective {}:Needy", "every field needs a default"),
        ("--objective {}:Plain", "cannot be used as objective: it has no sampling_power"),
        ("--objective {}:Mine --set objective.softness=much", "softness must be float"),
        ("--objective {}:Mine --set objective.mood=sad", "mood must be"),
        ("--set sampler.patience=3", "there is no setting 'sampler.patience'"),
    ],
)
def test_mistakes_with_parts_of_ones_own_are_told_in_one_line(mine, flags, message, capsys):
    assert message in refused(["train", "moon", *flags.format(mine).split()], capsys)


def test_a_run_with_parts_of_ones_own_is_trained_kept_and_read_again(mine, tmp_path, capsys):
    parts = ["--objective", f"{mine}:Mine", "--set", "objective.softness=3.0", "--sampler", f"{mine}:Slow"]
    assert main(["train", "moon", *parts, *SMALL]) == 0
    run = tmp_path / "runs" / "moon"
    assert json.loads((run / "config.json").read_text())["objective"]["softness"] == 3
    assert main(["train", "moon", *parts, *SMALL]) == 0  # goes on
    sys.modules.pop(mine)  # as in a new process
    argv = ["sample", str(run), "--n", "50", "--out", str(tmp_path / "x.csv")]
    capsys.readouterr()
    assert f"--import {mine}" in refused(argv, capsys)
    assert main([*argv, "--import", mine]) == 0


def test_a_run_on_a_toy_of_ones_own_is_trained_and_measured(mine, tmp_path):
    write_module(tmp_path, mine, TOY)
    assert main(["train", f"{mine}:toy", *SMALL]) == 0
    run = tmp_path / "runs" / "toy"
    assert (run / "plot.png").exists()
    sys.modules.pop(mine)
    assert main(["report", str(run), "--evaluate", "--n", "50", "--import", mine]) == 0


# --- what a run prints and keeps ---


@pytest.mark.parametrize("objective", ["f-ebm", "nce"])
def test_with_and_without_negatives_from_the_command_line(objective, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "moon", "--objective", objective, *SMALL, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "gradients of chains: by" in text
    assert "diagnostics:" in text
    assert "picture:" in text
    row = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"loss", "gradient", "e_pos"} <= row.keys()
    # Chains that a run does not move are not counted.
    assert ("mode_error" in row) == ("acceptance" in row) == OBJECTIVES[objective].needs_negatives


def test_one_dimension_too(tmp_path, capsys):
    assert main(["train", "mixture_1d", *SMALL, "--out", str(tmp_path / "line")]) == 0
    assert (tmp_path / "line" / "plot.png").exists()
    assert torch.isfinite(torch.tensor(json.loads((tmp_path / "line/evaluation.json").read_text())["rows"][0]["mmd"]))


def test_the_same_command_again_goes_on_and_another_is_refused(run, csv, capsys):
    command = ["train", csv, "--columns", "height,weight,age", *SMALL, "--out", run]
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.suffix in (".safetensors", ".json", ".jsonl")}
    line = refused([*command, "--gamma", "0.3"], capsys)
    assert "objective.gamma: 0.3 asked, auto there" in line
    assert "choose another folder" in line
    assert main([str(a) for a in command]) == 0
    after = {name: (run / name).read_bytes() for name in before}
    assert after == before


def test_a_run_that_diverges_ends_with_one_line_and_code_1(tmp_path, capsys):
    flags = ["--sampler", "langevin", "--set", "sampler.step_size=100", "--set", "guard.max_retries=1", "--lr", "0.1"]
    assert main(["train", "moon", *SMALL, *flags, "--out", str(tmp_path / "run")]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "diverged 2 times" in last
    assert "is kept in" in last
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_the_verdict_reads_retries_from_the_log(tmp_path):
    """No `state.pt` is needed for it."""
    log = tmp_path / "metrics.jsonl"
    assert diagnostics(tmp_path) == []
    log.write_text(json.dumps(sealed({"step": 1, "gap": 0.0})) + "\n")
    assert diagnostics(tmp_path) == ["no problem found"]
    rows = ({"step": 1, "gap": 0.0, "retries": 1}, {"step": 2, "gap": 0.0, "retries": 2})
    log.write_text("\n".join(json.dumps(sealed(row)) for row in rows))
    (sentence,) = diagnostics(tmp_path)
    assert "rolled back 2 times" in sentence


@pytest.mark.parametrize(("n", "junk"), [(25, 2), (400, 40)])
def test_a_file_as_people_have_them_end_to_end(n, junk, tmp_path, capsys):
    """Junk, a constant column, whole numbers, few rows; nothing but the name of the file, and fewer updates."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    x[:, 1] += x[:, 0]
    x[:junk] = rng.uniform(-12, 12, size=(junk, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(year=2020, count=rng.poisson(3, n))
    frame.to_csv(tmp_path / "own.csv", index=False)
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "own.csv"), "--updates", "30", "--measure", "500", "--out", str(run)]) == 0
    out = capsys.readouterr().out
    assert "diagnostics: gamma" in out
    assert main(["sample", str(run), "--n", "20", "--out", str(tmp_path / "s.csv")]) == 0
    drawn = pd.read_csv(tmp_path / "s.csv")
    assert list(drawn.columns) == ["a", "b", "c", "count"]  # the constant is left out
    score = ["score", str(run), str(tmp_path / "own.csv"), "--log-density", "--out", str(tmp_path / "e.csv")]
    assert main(score) == 0
    scores = pd.read_csv(tmp_path / "e.csv")
    assert len(scores) == n
    assert np.isfinite(scores["log_density"]).all()
    assert scores["energy"][:junk].median() > scores["energy"][junk:].median()
    if n == 400:  # 40 of 360: a chance of being right in pairs, whose standard error is about .05 at worst
        higher = (scores["energy"].to_numpy()[:junk, None] > scores["energy"].to_numpy()[None, junk:]).mean()
        assert higher > 0.9


def test_a_column_with_a_comma_in_its_name_is_quoted(tmp_path, capsys):
    rows = np.random.default_rng(0).normal(size=(30, 3))
    np.savetxt(tmp_path / "x.csv", rows, delimiter=",", header='"Income, CHF",b,c', comments="")
    argv = ["train", str(tmp_path / "x.csv"), "--columns", '"Income, CHF",c']
    args = parser_for(argv).parse_args(argv[1:])
    assert config_from(args, (2,)).rows.columns == ("Income, CHF", "c")
    assert "double quote" in refused(["train", tmp_path / "x.csv", "--columns", '"Income, CHF'], capsys)


@pytest.mark.parametrize("columns", ["a,b", "a,b,c"])
def test_a_network_that_corrects_nothing_leaves_out_what_is_for_one_that_does(columns):
    bounded = parse(f"train x.csv --columns {columns}", (len(columns.split(",")),))
    assert bounded.energy.name == "corrected"
    assert bounded.rows.hold_out > 0
    free = parse(f"train x.csv --columns {columns} --set energy.name=mlp", (len(columns.split(",")),))
    assert (free.energy.name, free.rows.hold_out, free.objective.negatives) == ("mlp", 0.0, "auto")
    assert free.objective == replace(bounded.objective, negatives="auto")
    more = "--set rows.hold_out=0.3 --set objective.negatives=importance"
    asked = parse(f"train x.csv --columns {columns} --set energy.name=mlp {more}", (len(columns.split(",")),))
    assert (asked.rows.hold_out, asked.objective.negatives) == (0.3, "importance")  # what is asked for is refused later
