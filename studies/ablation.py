"""What ablations of images share: settings by task, each measured once and kept as soon as it is there."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pscd.config import TrainConfig
from pscd.files import write_json, write_text_atomic
from pscd.images.grids import grid, save
from pscd.version import machine, versions
from studies.engine.experiment import with_reading
from studies.engine.parallel import digest
from studies.paper.images import decode

Cells = dict[str, dict[str, Any]]


def key_of(config: TrainConfig, task: str) -> str:
    """The name of a result."""
    return digest(task, config.to_dict())


def run(
    name: str,
    about: str,
    tasks: dict[str, dict[str, TrainConfig]],
    measure: Callable[[TrainConfig, str], dict[str, Any]],
    page: Callable[[dict[str, Any]], str],
    pictures: dict[str, str],
) -> None:
    """The command line of an ablation: measure what is missing, and write numbers, page and pictures after each.

    Args:
        name: of the files.
        about: what the command does, for its help.
        tasks: for each task settings by name.
        measure: trains a setting for a task; an `error` in what it returns says that the run diverged.
        page: writes the Markdown of what was found.
        pictures: by file name, the key of the result whose `samples` are shown.
    """
    names = "; ".join(dict.fromkeys(setting for settings in tasks.values() for setting in settings))
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("folder", type=Path, help="where results are kept and the page goes")
    parser.add_argument("--only", metavar="SETTING", help=f"one of: {names}")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    path = asked.folder / f"{name}.json"
    cells: Cells = json.loads(path.read_text())["cells"] if path.is_file() else {}
    for task, setting, config in ((task, *item) for task, settings in tasks.items() for item in settings.items()):
        key = key_of(config, task)
        if key in cells or asked.only not in (None, setting):
            continue
        cells[key] = measure(config, task)
        print(task, setting, {k: v for k, v in cells[key].items() if not isinstance(v, dict)}, flush=True)
        found = {"cells": cells, "versions": versions(), "machine": machine()}
        write_json(path, found)
        text = path.with_suffix(".md")
        write_text_atomic(text, with_reading(page(found), text))
        for file, shown in pictures.items():
            if shown == key and "samples" in cells[key]:
                save(grid(decode(cells[key]["samples"])), asked.folder / file)
