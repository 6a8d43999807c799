import json

import pytest

from pscd.cli.main import build_parser, main
from pscd.cli.sweep import alternatives, runs_from
from pscd.objectives import FEBM, PseudoSpherical
from tests.cli.helpers import SMALL, help_of, refused


def runs(line):
    argv = ["sweep", *line.split()]
    return runs_from(build_parser(argv).parse_args(argv))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "1"),
        ("a, b", "a b"),
        ("0:1:0.25", "0 0.25 0.5 0.75 1"),
        ("0:1:0.3", "0 0.3 0.6 0.9"),
        ("1:0:-0.5", "1 0.5 0"),
        ("16:64:16", "16 32 48 64"),
        ("0.1:0.3:0.1", "0.1 0.2 0.3"),  # as decimal numbers: 0.1 + 0.1 + 0.1 is not beyond 0.3
        ("1e-4:1e-2:x10", "0.0001 0.001 0.01"),
        ("-1:1:1,5", "-1 0 1 5"),
        ("100:100:1", "100"),
        ("mypackage.mine:Mine", "mypackage.mine:Mine"),
    ],
)
def test_lists_and_ranges(text, expected):
    assert alternatives(text) == expected.split(" ")


@pytest.mark.parametrize("text", ["1:0:0.5", "0:1:0", "0:1:x10", "1:100:x1", "0:1:1e-9"])
def test_ranges_that_lead_nowhere(text, capsys, tmp_path):
    assert f"the range {text}" in refused(["sweep", "moon", f"--gamma={text}", "--out", tmp_path / "x"], capsys)


def test_every_setting_may_be_a_list():
    found = runs("moon --gamma -0.5,0,1 --sampler-steps 5:10:5 --steps 7 --seeds 2")
    assert len(found) == 12
    assert {(r.config.objective.gamma, r.config.sampler.n_steps, r.config.seed) for r in found} == {
        (gamma, steps, seed) for gamma in (-0.5, 0.0, 1.0) for steps in (5, 10) for seed in (0, 1)
    }
    assert {r.config.steps for r in found} == {7}
    assert found[0].varied == {"gamma": "-0.5", "sampler-steps": "5"}  # what does not vary is not told
    assert " ".join(found[0].words) == "moon --gamma=-0.5 --sampler-steps 5 --steps 7 --seed 0"
    argv = ["train", *" ".join(found[0].words).split()]
    from pscd.cli.train import config_from

    assert config_from(build_parser(argv).parse_args(argv)) == found[0].config


def test_presets_objectives_seeds_and_columns():
    assert [r.config.energy.name for r in runs("digits --preset digits,mnist --seed 7")] == [
        r.config.energy.name for r in runs("digits --preset digits --seed 7") + runs("digits --preset mnist --seed 7")
    ]
    found = runs("moon --objective cd,f-ebm --seed 3,5")
    assert [(type(r.config.objective), r.config.seed) for r in found] == [
        (PseudoSpherical, 3),
        (PseudoSpherical, 5),
        (FEBM, 3),
        (FEBM, 5),
    ]
    assert [r.config.objective.divergence for r in runs("moon --objective f-ebm --divergence js,kl --seeds 1")] == [
        "js",
        "kl",
    ]
    found = runs("x.csv --columns a,b --columns a,b,c --seeds 1")
    assert [r.config.columns for r in found] == [("a", "b"), ("a", "b", "c")]
    assert len(runs("moon")) == 3  # seeds
    assert runs("moon --gamma auto,0 --seeds 1")[0].config.objective.gamma == "auto"


def test_mistakes_are_told_before_anything_is_computed(capsys, tmp_path):
    def told(line):
        message = refused(["sweep", *line.split(), "--out", tmp_path / "x"], capsys)
        assert not (tmp_path / "x").exists()
        return message

    assert "invalid number|auto value: 'much'" in told("moon --gamma 0,much")
    assert "lr must be a positive number" in told("moon --lr 1,0")
    assert "unrecognized arguments: --gama" in told("moon --gama 0")
    assert "--ratio" in told("moon --objective cd,nce --ratio 2")  # contrastive divergence has none
    assert "not both" in told("moon --seeds 2 --seed 1,2")
    assert "--seed: invalid literal" in told("moon --seed one")
    assert "these are 30000 runs" in told("moon --seed 0:9999:1 --gamma 0,1,2")
    assert "--backend dask needs --scheduler" in told("moon --backend dask")
    assert "unknown objective 'x'" in told("moon --objective x")
    assert "the following arguments are required: DATA" in told("--gamma 1")


def test_a_dry_run_tells_the_grid_and_help_teaches(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "moon", "--gamma", "0:1:0.5", "--seeds", "2", "--dry-run"]) == 0
    assert capsys.readouterr().out == "6 runs in sweeps/moon: gamma 0, 0.5, 1 x seed 0, 1\n"
    assert list(tmp_path.iterdir()) == []
    text = help_of(["sweep", "--help"], capsys)
    for words in ("--gamma", "--scheduler", "1e-4:1e-2:x10", "lists a,b,c or ranges", "goes on with the same command"):
        assert words in text
    assert "--divergence" in help_of(["sweep", "moon", "--objective", "f-ebm,cd", "--help"], capsys)
    assert "--checkpoint-every" in help_of(["sweep", "--help-all"], capsys)


def test_a_sweep_from_the_command_line(capsys, tmp_path, mine):
    line = ["sweep", "moon", "--objective", f"{mine}:Mine", "--softness", "1,2", "--seeds", "1", *SMALL]
    line += ["--jobs", "1", "--n", "50", "--out", str(tmp_path / "sweep")]
    assert main(line) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"2 runs in {tmp_path}/sweep: softness 1, 2 x seed 0\n| softness | MMD^2 x 1e4 |")
    assert "the first run took" in err
    found = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert f"best: pscd train moon --objective {mine}:Mine --softness {found['best']['varied']['softness']}" in out
    assert f"--out {tmp_path}/sweep/{found['best']['folder']}" in out
    assert found["command"].startswith("pscd sweep moon --objective")
    # The command of the best run finds it done, and measures and draws it.
    command = next(row for row in out.splitlines() if row.startswith("best: "))
    assert main(command.removeprefix("best: pscd ").split()) == 0
    assert (tmp_path / "sweep" / found["best"]["folder"] / "plot.png").is_file()
