"""junk-images: many kinds of junk that people have among their images, from the first update on.

For each kind, CD, and PS-CD as the preset `mnist-robust` has it: with a short warm-up of gamma, on images that are
weighed before the first update (`pscd.recipes.images`). Beside them both on clean images. Runs of CD are those of
`scratch-images`.

warm-junk-images: the same junk, met by a network that CD has trained on clean images before; PS-CD on weighed images
and on images as they come.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from pscd.config import TrainConfig
from studies.engine import Experiment, Row, Run, Settings, mean_rows, number, objective_label
from studies.engine.markdown import markdown_table
from studies.paper.images import Choice
from studies.paper.scratch_images import COLUMNS, FALSE_ALARMS, GAMMA, LINES, compute, label, run_settings

# What collections of digits may hold, and how much of it: letters, clothes, and what cameras and scripts do to images.
KINDS = (
    ("notmnist", 0.05),
    ("notmnist", 0.1),
    ("fashion-mnist", 0.05),
    ("fashion-mnist", 0.1),
    ("noise", 0.1),
    ("blank", 0.1),
    ("saturated", 0.1),
    ("occluded", 0.1),
    ("shifted", 0.1),
    ("near-duplicates", 0.1),
)
Way = tuple[tuple[float, float], Literal["none", "glance"]]  # gamma and its warm-up, and whether images are weighed
WAYS: tuple[Way, ...] = ((LINES[0], "none"), (LINES[-1], "glance"))
# A network that knows digits needs no warm-up of gamma.
WARM_WAYS: tuple[Way, ...] = (((0.0, 0.0), "none"), ((GAMMA, 0.0), "glance"), ((GAMMA, 0.0), "none"))
WARM_UPDATES = 1000  # after the warm-up
LATER = 1000  # added to the seed after the warm-up: randomness is a function of seed and update
CLEAN = "clean images"


def kinds_of(choice: Choice) -> list[Choice]:
    """The choice with each kind of junk that is not the images' own kind."""
    return [replace(choice, junk=kind, ratio=ratio) for kind, ratio in KINDS if kind != choice.data]


def junk_runs(choice: Choice, quick: bool, seeds: int, ways: Sequence[Way] = WAYS) -> list[Settings]:
    """Every way to train, on clean images and with each kind of junk."""
    kinds = kinds_of(choice)
    if quick:  # what needs no other set of images
        kinds = [one for one in kinds if one.junk in ("blank", "occluded")]

    def every_way(of: Choice, seed: int, *, contaminated: bool) -> list[Settings]:
        return [
            run_settings(of, gamma, warmup, seed, contaminated=contaminated, quick=quick, start=start)
            for (gamma, warmup), start in ways
        ]

    made = []
    for seed in range(seeds):
        made += every_way(choice, seed, contaminated=False)
        made += [settings for one in kinds for settings in every_way(one, seed, contaminated=True)]
    return made


def warm_runs(choice: Choice, quick: bool, seeds: int) -> list[Settings]:
    """The same after a warm-up: CD on clean images, one run for each seed, from which every way goes on."""

    def after(settings: Settings) -> Settings:
        warm = run_settings(choice, 0.0, 0.0, settings["seed"], contaminated=False, quick=quick)["config"]
        changes = {"updates": 10 if quick else WARM_UPDATES, "seed": LATER + settings["seed"]}
        config = TrainConfig.from_dict(settings["config"]).changed(changes)
        return {**settings, "config": config.to_dict(), "warm": warm}

    return [after(settings) for settings in junk_runs(choice, quick, seeds, WARM_WAYS)]


def _kind(settings: Settings) -> str:
    return f"{settings['junk']}, {settings['ratio']:.0%}" if settings["contaminated"] else CLEAN


def _objective(settings: Settings) -> str:
    if "warm" not in settings:
        return label({**settings, "contaminated": True})
    weighed = ", images weighed" if settings["config"]["rows"]["start"] == "glance" else ""
    return objective_label(settings["gamma"]) + weighed


def _rows(done: Sequence[Run]) -> list[Row]:
    rows: list[Row] = []
    for value, words in COLUMNS.items():
        kept = [d for d in done if value in d.result and (d.settings["contaminated"] or value == "fid")]
        rows += mean_rows(kept, lambda s, w=words: (_kind(s), f"{_objective(s)}: {w}"), value)  # type: ignore[misc]
    order = list(dict.fromkeys(_kind(d.settings) for d in done))
    return sorted(rows, key=lambda row: order.index(row.row))


def _draw(done: Sequence[Run], path: Path) -> list[Path]:
    from studies.paper import figures

    rows = mean_rows(done, lambda s: (_kind(s), _objective(s)), "fid")
    return [figures.bars(rows, path, quantity="FID", floor=None, missing="diverged")]


def summary(done: Sequence[Run]) -> str:
    """A line for each kind of outliers: FID of both objectives, its rise above clean CD, detection and generation."""
    by: dict[tuple[str, str], list[Run]] = {}
    for d in done:
        by.setdefault((_kind(d.settings), _objective(d.settings)), []).append(d)
    objectives = list(dict.fromkeys(name for _, name in by))
    lines = []
    for kind in dict.fromkeys(kind for kind, _ in by):
        line = [kind]
        for name in objectives:
            of = by.get((kind, name), [])
            line += [_fid(of, by.get((CLEAN, objectives[0]), []))]
            line += ["" if kind == CLEAN else _mean(of, value) for value in ("ap", "like_junk")]
        both = [d for name in objectives for d in by.get((kind, name), [])]
        lines.append([*line, "" if kind == CLEAN else _mean(both, "junk_seen")])
    head = [words for name in objectives for words in (f"{name}: FID", "AP", "like junk")]
    return markdown_table(["junk", *head, "junk that looks like junk"], lines)


def _mean(runs: Sequence[Run], value: str) -> str:
    """The mean of a value over the runs that have one, which those that diverged have not."""
    found = [d.result[value] for d in runs if d.result.get(value) is not None]
    return number(fmean(found)) if found else ""


def _fid(runs: Sequence[Run], clean: Sequence[Run]) -> str:
    """Mean FID, how far it is above that of clean images with the same seeds, and how many runs diverged."""
    if not runs:
        return ""
    fids = {d.settings["seed"]: d.result["fid"] for d in runs if d.result["fid"] is not None}
    base = {d.settings["seed"]: d.result["fid"] for d in clean if d.result["fid"] is not None}
    both = fids.keys() & base.keys()
    above = fmean(fids[s] for s in both) / fmean(base[s] for s in both) - 1 if both else 0.0
    lost = f"{len(runs) - len(fids)} of {len(runs)} diverged" if len(fids) < len(runs) else ""
    told = f"{fmean(fids.values()):.1f} ({above:+.0%})" if fids else ""
    return "; ".join(filter(None, (told, lost)))


def _notes(done: Sequence[Run]) -> str:
    settings, config = done[0].settings, TrainConfig.from_dict(done[0].settings["config"])
    name = next((d.result["feature_map"] for d in done if "feature_map" in d.result), settings["features"])
    if "warm" in settings:
        before = TrainConfig.from_dict(settings["warm"]).updates
        start = f"{before} updates of CD on clean images, then {config.updates} more"
        weighed = "with gamma it learns from images as they come, or from images that are weighed before"
    else:
        start = f"{config.updates} updates from random weights"
        weighed = "with gamma they are weighed before the first update, as the preset `mnist-robust` does"
    lr = config.optimizer.lr
    return f"""
{start} on images a share of which is junk, or on clean ones. A {config.energy.name} of width {config.energy.width},
{config.sampler.n_steps} sampler steps an update, batches of {config.batch_size}, learning rate {lr:g}; gamma per
spread. CD learns from all images alike; {weighed} (`--start glance`). FID with {name},
{settings["n"]} samples against as many clean images that were held out; in brackets, how far above that of the first
objective on clean images with the same seeds. *AP*: average precision with which the energy finds the junk among the
training images. *Like junk*: the share of samples that are nearer to junk than to clean images in feature space, by so
much that {FALSE_ALARMS:.0%} of clean images are, too; the last column says how much of the junk itself is seen so.

{summary(done)}

All of it:
"""


def junk_images(choice: Choice) -> Experiment:
    """Junk of many kinds, which the paper has not."""
    return _experiment(
        choice, "junk-images", f"Training from scratch on {choice.data} with junk that people have", junk_runs
    )


def warm_junk_images(choice: Choice) -> Experiment:
    """Junk of many kinds after a warm-up on clean images, as in the paper's Table 6."""
    title = f"Training on {choice.data} with junk that people have, after a warm-up on clean images"
    return _experiment(choice, "warm-junk-images", title, warm_runs)


def _experiment(
    choice: Choice, command: str, title: str, runs: Callable[[Choice, bool, int], list[Settings]]
) -> Experiment:
    name = f"{command}-{choice.data}"
    return Experiment(
        name,
        title,
        "70 minutes",
        3,
        lambda quick, seeds: runs(choice, quick, seeds),
        compute,
        _rows,
        lambda done, out: _draw(done, out / f"{name}.png"),
        _notes,
        store_name=f"scratch-images-{choice.data}",
        keeps_checkpoints=True,
        command=f"{command} {choice.options}",
        resumes_from_page=True,
    )
