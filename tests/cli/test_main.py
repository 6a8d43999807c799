import argparse
import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
import torch

from pscd.cli.main import build_parser, config_from, main
from pscd.objectives import FEBM, OBJECTIVES, NoiseContrastive, PseudoSpherical
from pscd.sampling import Langevin

FLAGS = """--steps 20 --n-data 300 --batch-size 16 --buffer-size 50 --jump-components 2 --width 8 --depth 1
--sample-steps 4 --log-every 10 --fourier 2"""
SMALL = FLAGS.split()


@pytest.fixture
def csv(tmp_path):
    rows = np.random.default_rng(0).normal(size=(200, 3))
    frame = pd.DataFrame(rows, columns=["height", "weight", "age"])
    frame["name"] = "somebody"
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def run(csv, tmp_path, capsys):
    code = main(["train", str(csv), "--columns", "height,weight,age", *SMALL, "--out", str(tmp_path / "run")])
    capsys.readouterr()
    assert code == 0
    return tmp_path / "run"


def parse(text):
    argv = text.split()
    return config_from(build_parser(argv).parse_args(argv))


def refused(argv, capsys):
    """Exit code 2, one line on standard error, no traceback; returns the line."""
    try:
        code = main([str(a) for a in argv])
    except SystemExit as stop:
        code = stop.code
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith("pscd")
    return lines[0]


def test_the_common_path_needs_no_dots():
    config = parse(
        "train moon --gamma 0.5 --steps 100 --seed 3 --sampler-steps 9 --width 32 --energy quadratic --clip 1"
    )
    assert config.objective.gamma == 0.5
    assert (config.steps, config.seed, config.sampler.n_steps, config.clip) == (100, 3, 9, 1.0)
    assert (config.energy.width, config.energy.name) == (32, "quadratic")


def test_objective_and_sampler_are_chosen_by_a_word():
    config = parse("train moon --objective cd --sampler langevin --sampler-noise-scale none --sampler-low -1")
    assert config.objective == PseudoSpherical(gamma=0.0)
    assert config.sampler == Langevin(low=-1.0)
    assert parse("train moon --spectral-norm true --base-scale none").energy.base_scale is None
    assert parse("train x.csv --columns a,b").columns == ("a", "b")
    assert parse("train moon --gamma -0.5").objective.gamma == -0.5


def test_train_sample_score_evaluate_plot(run, csv, tmp_path, capsys):
    assert (run / "plot.png").stat().st_size > 10_000
    assert main(["sample", str(run), "--n", "50", "--out", str(tmp_path / "s.csv")]) == 0
    assert main(["sample", str(run), "--n", "50", "--out", str(tmp_path / "s.npy")]) == 0
    samples = pd.read_csv(tmp_path / "s.csv")
    assert list(samples.columns) == ["height", "weight", "age"]
    np.testing.assert_allclose(samples.to_numpy(), np.load(tmp_path / "s.npy"), rtol=1e-5)

    # columns are found by name, whatever their order and whatever stands beside them
    pd.read_csv(csv)[["age", "name", "weight", "height"]].to_csv(tmp_path / "other.csv", index=False)
    assert main(["score", str(run), str(tmp_path / "other.csv"), "--out", str(tmp_path / "a.csv")]) == 0
    assert main(["score", str(run), str(csv), "--out", str(tmp_path / "b.npy")]) == 0
    scores = pd.read_csv(tmp_path / "a.csv")
    assert list(scores["row"]) == list(range(1, 201))
    np.testing.assert_allclose(scores["energy"], np.load(tmp_path / "b.npy"), rtol=1e-4)

    assert main(["evaluate", str(run), "--n", "100"]) == 0
    assert main(["plot", str(run), "--out", str(tmp_path / "again.png")]) == 0
    out = capsys.readouterr().out
    assert "MMD^2" in out
    assert (tmp_path / "again.png").exists()
    rows = json.loads((run / "evaluation.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["samples", "data"]


def test_the_same_command_again_goes_on_and_another_is_refused(run, csv, capsys):
    command = ["train", csv, "--columns", "height,weight,age", *SMALL, "--out", run]
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.suffix in (".safetensors", ".json", ".jsonl")}
    line = refused([*command, "--gamma", "0.3"], capsys)
    assert "objective.gamma: 0.3 asked, 1.0 there" in line
    assert "choose another --out" in line
    assert main([str(a) for a in command]) == 0
    after = {name: (run / name).read_bytes() for name in before}
    assert after == before


def test_a_changed_file_is_not_mixed_into_a_run(run, csv, capsys):
    frame = pd.read_csv(csv)
    frame.loc[0, "age"] = 99.0
    frame.to_csv(csv, index=False)
    line = refused(["train", csv, "--columns", "height,weight,age", *SMALL, "--out", run], capsys)
    assert "has changed since" in line


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["train", "mooon"], "unknown data 'mooon'"),
        (["train", "missing.csv"], "missing.csv: no such file"),
        (["train", "moon", "--gamma", "-2"], "gamma must be a finite number >= -1"),
        (["train", "moon", "--gamma", "nan"], "gamma must be"),
        (["train", "moon", "--gamma", "much"], "invalid number value: 'much'"),
        (["train", "moon", "--objective", "gan"], "invalid choice: 'gan'"),
        (["train", "moon", "--sampler", "gibbs"], "invalid choice: 'gibbs'"),
        (["train", "moon", "--steps", "0"], "steps must be at least 1"),
        (["train", "moon", "--energy", "huge"], "unknown energy 'huge'"),
        (["train", "moon", "--device", "tpu9"], "device 'tpu9' is not available"),
        (["train", "moon", "--objective", "cd", "--gamma", "1"], "--objective cd is gamma 0"),
        (["train", "moon", "--objective", "f-ebm", "--divergence", "tv"], "divergence must be one of kl, reverse-kl"),
        (["train", "moon", "--seed", "-1"], "seed must be at least 0"),
        (["train", "moon", "--clip", "-1"], "clip must be a positive number"),
        (["train", "moon", "--sampler-jump-every", "1"], "jump_every must be 0 (never) or at least 2"),
        (["train", "moon", "--device", "meta"], "device 'meta' is not available"),
        (["reproduce", "gamma-1d", "--jobs", "0"], "--jobs must not be 0"),
        (["sample", "x", "--out", "x.npy", "--threads", "0"], "--threads must be at least 1"),
        (["plot", "x", "--out", "picture"], "must end in .png"),
        (["train", "moon", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["sample", "nowhere", "--out", "x.npy"], "nowhere: no such run folder"),
        (["sample", "nowhere", "--out", "x.txt"], "must end in .npy or .csv"),
        (["teach", "moon"], "invalid choice: 'teach'"),
        ([], "required"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in refused(argv, capsys)
    assert list(tmp_path.iterdir()) == []


def test_bad_files_are_one_line_and_exit_code_2(csv, run, tmp_path, capsys):
    assert "column 'name' is not numeric" in refused(["train", csv, "--out", tmp_path / "r"], capsys)
    (tmp_path / "empty.csv").write_text("")
    assert "is empty" in refused(["train", tmp_path / "empty.csv"], capsys)
    np.save(tmp_path / "nan.npy", np.full((50, 2), np.nan))
    assert "50 rows are missing, infinite or over 1e30" in refused(["train", tmp_path / "nan.npy"], capsys)
    np.save(tmp_path / "two.npy", np.zeros((50, 2)))
    line = refused(["score", run, tmp_path / "two.npy", "--out", tmp_path / "o.csv"], capsys)
    assert "2 numbers a row" in line
    assert "3 numbers" in line
    pd.DataFrame({"height": [1.0], "age": [2.0]}).to_csv(tmp_path / "short.csv", index=False)
    assert "no column 'weight'" in refused(["score", run, tmp_path / "short.csv", "--out", tmp_path / "o.csv"], capsys)
    assert not (tmp_path / "o.csv").exists()


def test_nothing_is_overwritten(csv, run, tmp_path, capsys):
    precious = tmp_path / "precious.csv"
    precious.write_text("mine")
    assert "exists" in refused(["sample", run, "--out", precious], capsys)
    assert "exists" in refused(["score", run, csv, "--out", precious], capsys)
    assert precious.read_text() == "mine"
    assert main(["score", str(run), str(csv), "--out", str(precious), "--force"]) == 0
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    assert "holds other files" in refused(["train", "moon", *SMALL, "--out", tmp_path / "full"], capsys)
    (tmp_path / "file").write_text("mine")
    assert "cannot write to" in refused(["train", "moon", *SMALL, "--out", tmp_path / "file"], capsys)
    assert "cannot write" in refused(["sample", run, "--out", tmp_path / "file" / "x.npy"], capsys)


def test_a_run_that_diverges_ends_with_one_line_and_code_1(tmp_path, capsys):
    flags = ["--sampler", "langevin", "--sampler-step-size", "100", "--max-retries", "1", "--lr", "0.1"]
    assert main(["train", "moon", *SMALL, *flags, "--out", str(tmp_path / "run")]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "diverged 2 times" in last
    assert "is kept in" in last
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    for flag in ("--gamma", "--steps", "--out", "--sampler-steps", "--width", "default: 1.0"):
        assert flag in text


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_setting_has_a_flag_of_its_own(objective):
    parser = build_parser(["train", "moon", "--objective", objective])
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    flags = [flag for action in commands.choices["train"]._actions for flag in action.option_strings]
    assert len(flags) == len(set(flags))
    own = {f"--{f.name.replace('_', '-')}" for f in fields(OBJECTIVES[objective])}
    assert {"--lr", "--ema", "--chains", "--sampler-jump-every", "--fourier"} | own <= set(flags)


@pytest.mark.parametrize("objective", ["f-ebm", "nce"])
def test_with_and_without_negatives_from_the_command_line(objective, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "moon", "--objective", objective, *SMALL, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "gradients of chains: by" in text
    assert "verdict:" in text
    assert "picture:" in text
    row = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"loss", "gradient", "e_pos"} <= row.keys()
    # Chains that a run does not move are not counted.
    assert ("mode_error" in row) == ("acceptance" in row) == OBJECTIVES[objective].needs_negatives


def test_rivals_take_their_own_flags():
    assert parse("train moon --objective f-ebm --divergence js --l2 0.1").objective == FEBM(divergence="js", l2=0.1)
    assert parse("train moon --objective nce --noise gaussian --ratio 5").objective == NoiseContrastive(
        noise="gaussian", ratio=5
    )
    assert parse("train moon --objective cd --chains data").chains == "data"


def test_one_dimension_too(tmp_path, capsys):
    assert main(["train", "mixture_1d", *SMALL, "--out", str(tmp_path / "line")]) == 0
    assert (tmp_path / "line" / "plot.png").exists()
    assert torch.isfinite(torch.tensor(json.loads((tmp_path / "line/evaluation.json").read_text())["rows"][0]["mmd"]))
