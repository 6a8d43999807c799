import argparse

import pytest

from pscd.cli.flags import Parser, add_settings, settings_help, settings_of
from pscd.config import RowSettings, TrainConfig
from pscd.objectives import OBJECTIVES
from tests.cli.helpers import parse, refused


def parser():
    made = Parser("pscd")
    add_settings(made, TrainConfig, {"--gamma": "objective.gamma", "--seed": "seed"})
    return made


def test_a_flag_that_is_not_given_leaves_nothing():
    assert vars(parser().parse_args([])) == {}
    assert vars(parser().parse_args(["--gamma", "auto", "--seed", "3"])) == {"objective.gamma": "auto", "seed": "3"}
    assert "the same seed gives the same result" in parser().format_help()


def test_negative_numbers_and_lists_of_them_are_values():
    made = Parser("pscd")
    made.add_argument("--missing")
    assert made.parse_args(["--missing", "-999,-99"]).missing == "-999,-99"


@pytest.mark.parametrize("words", [["--gam", "1"], ["--gamma"], ["--nonsense"]])
def test_a_mistake_is_one_line(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(words)
    assert capsys.readouterr().err.count("\n") == 1


def test_control_characters_of_a_mistake_do_not_reach_the_terminal(capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["--\x1b[31m\nred"])
    text = capsys.readouterr().err
    assert "\x1b" not in text
    assert "red" in text


def test_every_setting_is_listed_with_its_value_and_can_be_set():
    names = [name for name, _, _, _ in settings_of(TrainConfig())]
    assert {"seed", "objective.gamma", "sampler.n_steps", "energy.width"} <= set(names)
    assert "objective.gamma=1.0\n" in settings_help(TrainConfig())
    for name, _, value, _ in settings_of(TrainConfig()):
        if value not in ("", None):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            assert parse(f"train moon --set {name}={text}") == TrainConfig(rows=RowSettings(data="moon"))


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "recovery"])
def test_settings_of_every_objective_can_be_set(objective):
    for name, _, value, _ in settings_of(OBJECTIVES[objective], "objective."):
        assert parse(f"train moon --objective {objective} --set {name}={value}").objective == OBJECTIVES[objective]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sampler.n_steps", "write NAME=VALUE"),
        ("=3", "write NAME=VALUE"),
        ("nonsense=3", "there is no setting 'nonsense'; pscd train --help-all lists them"),
        ("sampler.n_steps=much", "n_steps must be int"),
        ("optimizer=adam", "is several settings"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(setting, message, capsys):
    assert message in refused(["train", "moon", "--set", setting], capsys)


def test_types_of_flags():
    from pscd.cli.flags import at_least, number_or_auto, share

    assert (at_least(1)("3"), number_or_auto("auto"), number_or_auto("0.5"), share("0.1")) == (3, "auto", 0.5, 0.1)
    for kind, text in ((at_least(1), "0"), (number_or_auto, "-1"), (number_or_auto, "much"), (share, "1")):
        with pytest.raises(argparse.ArgumentTypeError, match="must be"):
            kind(text)
