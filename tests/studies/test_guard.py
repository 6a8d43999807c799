"""The guard computes hours of numbers in all; here the cheapest of each kind that needs no data from outside."""

import json
from argparse import Namespace

from studies import guard


def test_every_part_of_the_guard_can_be_listed(tmp_path):
    """The studies that it takes its numbers from have not moved."""
    names = [name for name, _ in guard.numbers_of(tmp_path)]
    assert len(set(names)) == len(names)
    assert {name.partition("/")[0].partition(",")[0] for name in names} >= {
        "gaussian",
        "detector",
        "cells",
        "bench",
        "moon",
    }


def test_numbers_are_kept_and_not_computed_again(tmp_path, capsys):
    args = Namespace(folder=tmp_path, out=tmp_path / "guard.json", only="cells/iris")
    guard.run(args)
    (first,) = json.loads(args.out.read_text()).values()
    assert 0 < first["ap"] <= 1
    assert "cells/iris" in capsys.readouterr().out
    guard.run(args)
    assert "cells/iris" not in capsys.readouterr().out
