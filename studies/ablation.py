"""What ablations of images share: settings by task, each measured once and stored as soon as it is done."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pscd.config import TrainConfig
from pscd.images.grids import grid, save
from studies.engine import Experiment, Result, Run, Settings, digest, run_experiment
from studies.paper.images import decode

Tasks = dict[str, dict[str, TrainConfig]]  # settings by name, for each task


def key_of(config: TrainConfig, task: str) -> str:
    """The name of a result."""
    return digest(task, config.to_dict())


def add_only(parser: argparse.ArgumentParser, tasks: Tasks) -> None:
    """The flag that all ablations have."""
    names = "; ".join(dict.fromkeys(setting for settings in tasks.values() for setting in settings))
    parser.add_argument("--only", metavar="SETTING", help=f"one of: {names}")


def run(
    args: argparse.Namespace,
    tasks: Tasks,
    measure: Callable[[TrainConfig, str], dict[str, Any]],
    page: Callable[[dict[str, Any]], str],
    pictures: dict[str, str],
) -> Path:
    """Measure what is missing, and write numbers, page and pictures.

    Args:
        args: name, out and only.
        tasks: for each task settings by name.
        measure: trains a setting for a task; an `error` in what it returns says that the run diverged.
        page: writes the Markdown of the results by `key_of`.
        pictures: by file name, the key of the result whose `samples` are shown.

    Returns:
        The page.
    """

    def compute(settings: Settings) -> Result:
        return measure(TrainConfig.from_dict(settings["config"]), settings["task"])

    def by_key(done: Sequence[Run]) -> dict[str, Result]:
        return {key_of(TrainConfig.from_dict(r.settings["config"]), r.settings["task"]): r.result for r in done}

    def draw(done: Sequence[Run], folder: Path) -> list[Path]:
        results = by_key(done)
        drawn = []
        for file, key in pictures.items():
            if "samples" in results.get(key, {}):
                save(grid(decode(results[key]["samples"])), folder / file)
                drawn.append(folder / file)
        return drawn

    study = Experiment(
        args.name,
        args.name,
        "hours",
        1,
        lambda quick, seeds: [
            {"task": task, "setting": setting, "config": config.to_dict()}
            for task, settings in tasks.items()
            for setting, config in settings.items()
        ],
        compute,
        lambda done: [],
        draw,
        page=lambda report, done: page({"runs": by_key(done), "machine": report["machine"]}),
    )
    return run_experiment(study, args.out, jobs=1, only=lambda s: args.only in (None, s["setting"]))
