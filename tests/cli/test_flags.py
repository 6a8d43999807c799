import argparse
from dataclasses import dataclass
from typing import Literal, Optional

import pytest

from pscd.cli.common import Parser
from pscd.cli.flags import add_fields, options
from pscd.sampling import SAMPLERS
from pscd.types import option
from tests.cli.helpers import parse


@dataclass(frozen=True)
class Settings:
    count: int = option(3, "a whole number")
    rate: float | None = option(0.5, "a number, 100 % of it, or none")
    old: Optional[int] = option(None, "the older way to say it")  # noqa: UP045
    on: bool = option(False, "a switch")
    names: tuple[str, ...] = option(("a",), "words")
    sizes: tuple[int, ...] | None = option(None, "numbers")
    mood: Literal["calm", "wild"] = option("calm", "one of two")
    level: Literal[1, 2] | None = option(None, "one of two numbers")
    n_steps: int = option(4, "steps", flag="steps")
    hidden: int = 7


def parser(**more):
    made = Parser("pscd")
    add_fields(made, Settings(), "settings", **more)
    return made


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--count", "5"], 5),
        (["--rate", "1e-3"], 0.001),
        (["--rate", "none"], None),
        (["--old", "5"], 5),
        (["--old", "None"], None),
        (["--on", "true"], True),
        (["--on", "False"], False),
        (["--names", "x, y"], ("x", "y")),
        (["--sizes", "1,2"], (1, 2)),
        (["--mood", "wild"], "wild"),
        (["--level", "2"], 2),
        (["--level", "none"], None),
        (["--steps", "9"], 9),
    ],
)
def test_a_field_is_a_flag_of_its_type(words, expected):
    (value,) = vars(parser().parse_args(words)).values()
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--count", "much"], "invalid integer value: 'much'"),
        (["--rate", "much"], "invalid number value: 'much'"),
        (["--on", "maybe"], "invalid true|false value: 'maybe'"),
        (["--mood", "sad"], "invalid choice: 'sad' (choose from"),
        (["--level", "3"], "invalid choice: '3'"),
        (["--sizes", "1,x"], "invalid list value: '1,x'"),
        (["--hidden", "3"], "unrecognized arguments: --hidden"),
    ],
)
def test_a_wrong_value_is_told_in_one_line(words, message, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(words)
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_the_help_has_text_default_and_choices():
    text = " ".join(parser().format_help().split())
    assert "--rate NUMBER a number, 100 % of it, or none (default: 0.5)" in text
    assert "--mood calm|wild one of two (default: calm)" in text
    assert "--sizes LIST numbers (default: none)" in text
    assert "hidden" not in text
    assert [f.name for f in options(Settings())][-1] == "n_steps"


def test_flags_that_are_not_shown_work_all_the_same():
    made = parser(shown={"count"})
    assert "--mood" not in made.format_help()
    assert "--count" in made.format_help()
    assert vars(made.parse_args(["--mood", "wild"])) == {"settings.mood": "wild"}
    assert vars(parser(only={"count"}).parse_known_args(["--mood", "wild"])[0]) == {}


def test_a_name_that_is_taken_gets_the_role_in_front():
    made = argparse.ArgumentParser()
    made.add_argument("--count")
    add_fields(made.add_argument_group("group"), Settings(), "objective")
    assert vars(made.parse_args(["--objective-count", "5"]))["objective.count"] == 5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_steps_of_every_sampler_have_the_same_flag(sampler):
    assert parse(f"train moon --sampler {sampler} --sampler-steps 7 --out x").sampler.n_steps == 7
