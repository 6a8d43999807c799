"""What the tests of several commands use."""

import sys

import pytest

from pscd.cli.main import main, parser_for
from pscd.cli.train import config_from

FLAGS = """--updates 20 --batch-size 16 --measure 500 --set rows.n_data=300 --set chains.buffer_size=50
--set chains.jump_components=2 --set energy.width=8 --set energy.depth=1 --set energy.fourier=2
--set chains.sample_steps=4 --set guard.log_every=10"""
SMALL = FLAGS.split()


# Parts of one's own, as a user would write them into a file beside the data.
MINE = """
from dataclasses import dataclass
from typing import Literal

import torch

from pscd import Langevin, PseudoSpherical
from pscd.types import option

@dataclass(frozen=True)
class Mine(PseudoSpherical):
    softness: float = option(2.0, "a setting of my own")
    mood: Literal["calm", "wild"] = option("calm", "another, one of two words")
    updates: int = option(7, "its name is taken")

@dataclass(frozen=True)
class Slow(Langevin):
    patience: int = option(3, "a setting of my own")

@dataclass(frozen=True)
class Needy:
    gamma: float

class Plain:
    needs_negatives = True

def toy(n, generator=None):
    return torch.randn(n, 2, generator=generator) + 5
"""

TOY = """
import torch

from pscd.data import Toy

toy = Toy(lambda n, generator=None: torch.randn(n, 2, generator=generator) + 5)
"""


def parse(text, shape=(2,)):
    """The configuration that a line of `train` describes, for rows of this shape."""
    argv = text.split()
    return config_from(parser_for(argv).parse_args(argv[1:]), shape)


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


def help_of(argv, capsys):
    """What a line with `--help` prints."""
    with pytest.raises(SystemExit, match=r"^0$"):
        main(argv)
    return capsys.readouterr().out


def write_module(folder, name, text=MINE):
    """A module in a folder, not imported yet."""
    (folder / f"{name}.py").write_text(text)
    sys.modules.pop(name, None)
    return name
