"""Many runs over a grid of settings, each in a run folder of its own, and one page about them all.

`pscd.parallel` computes what is missing, so a sweep that was killed goes on: runs that are done stay, and those under
way resume from their checkpoint.
"""

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from pscd.config import TrainConfig
from pscd.data import find_toy
from pscd.errors import InUse, UserError
from pscd.evaluation import N_IMAGES, N_ROWS, evaluate, evaluate_images, keep, load_run_data
from pscd.extensions import import_module, is_path, path_of
from pscd.files import locked, markdown_table, write_json, write_text_atomic, writing_to
from pscd.model import Model
from pscd.parallel import Cells, Engine, Result, Settings, compute_missing, digest
from pscd.plots import plot_sweep
from pscd.run_folder import RunFolder
from pscd.runs import load, train
from pscd.training.guard import TAIL
from pscd.version import machine, versions

LIKELY = 0.8  # share of the held-out rows whose log density counts, so that up to a fifth may be junk
LONGEST_NAME = 80
ANOTHER_WRITES = 3600.0  # seconds to wait for another process that computes the same run
JSON, PAGE, PICTURE = "sweep.json", "sweep.md", "sweep.png"


@dataclass(frozen=True)
class Measure:
    """A number of a run, and which way is better.

    Args:
        title: as tables and pictures call it.
        sign: 1 if larger is better, -1 if smaller is.
        unit: tables and pictures show it times this.
        floor: name of the number that data compared with data have, the best that can be expected.
    """

    title: str
    sign: int
    unit: float = 1.0
    floor: str | None = None


MEASURES = {
    "mmd": Measure("MMD^2 x 1e4", -1, 1e4, "mmd_data"),
    "log_density": Measure("log density", 1),
    "frechet": Measure("Frechet distance", -1, floor="frechet_data"),
    "precision": Measure("precision", 1),
    "recall": Measure("recall", 1),
    "density": Measure("density", 1),
    "coverage": Measure("coverage", 1),
    "gain": Measure("held-out gain", 1),
    "ess": Measure("ESS", 1),
    "retries": Measure("roll-backs", -1),
    "seconds": Measure("seconds", -1),
}
MEANINGS = {
    "mmd": "MMD^2 between samples and rows that were not trained on (of a toy: fresh ones); junk among them counts",
    "log_density": f"mean log density, in nats, of the {LIKELY:.0%} of the held-out rows that a model finds likeliest",
    "frechet": "Frechet distance between the pixels of samples and of held-out images",
    "gain": "what the network adds to its mixture on held-out rows, in nats of the objective: for equal gammas only",
    "ess": "effective share of a batch, the smaller of both phases, over the last fifth of a run",
}


@dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Args:
        config: every setting.
        varied: the settings that differ between runs, but for the seed, as texts by name.
        words: what follows `pscd train` to make this run alone; empty if it was not given by words.
    """

    config: TrainConfig
    varied: dict[str, str]
    words: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A digest of the configuration: what a run folder is found by."""
        return digest(self.config.to_dict())[:8]


def grid(config: TrainConfig, changes: dict[str, Sequence[Any]], seeds: Iterable[int] = range(3)) -> list[Run]:
    """A run for every combination of settings, and every seed.

    Args:
        config: what all runs share.
        changes: values by name, with dots: `{"objective.gamma": [0, 0.5, 1]}`.
        seeds: of the runs.

    Returns:
        The runs.

    Raises:
        UserError: there is no such setting, or a value is out of range.

    >>> runs = grid(TrainConfig("moon"), {"objective.gamma": [0.0, 1.0]}, seeds=range(2))
    >>> [(run.config.objective.gamma, run.config.seed) for run in runs]
    [(0.0, 0), (0.0, 1), (1.0, 0), (1.0, 1)]
    """
    found = []
    for values in product(*changes.values()):
        chosen = dict(zip(changes, values, strict=True))
        varied = {name.rpartition(".")[2]: str(value) for name, value in chosen.items()}
        found += [Run(config.changed({**chosen, "seed": seed}), varied) for seed in seeds]
    return found


def sweep(
    runs: Sequence[Run],
    out: Path | str,
    *,
    engine: Engine | None = None,
    by: str | None = None,
    n: int | None = None,
    device: str = "cpu",
    imports: Sequence[str] = (),
    hours: float | None = None,
    command: str = "",
    show: bool = True,
) -> Path:
    """Compute what is missing of a sweep and write `sweep.json`, `sweep.md` and `sweep.png`.

    Args:
        runs: what to compute, see `grid`.
        out: folder of the sweep; a run folder for each run is made inside. Workers of a cluster must see it.
        engine: what computes the runs (default: the cores of this machine).
        by: the measure that decides which settings are best (default: of images the Frechet distance, of toys the MMD,
            of tables the log density).
        n: samples to measure with, and rows to compare them with (default: as `pscd evaluate`).
        device: where each run trains.
        imports: modules of one's own to import first.
        hours: after which no run is begun any more.
        command: what the page says it was made by.
        show: whether to show a progress bar.

    Returns:
        The path of the page.

    Raises:
        UserError: there are no runs, `out` holds something else or is in use, a cluster does not answer, or every run
            failed.
    """
    folder, engine = Path(out).resolve(), engine or Engine()
    runs = _without_repeats(runs)
    names = _claim(folder, runs)
    with locked(folder / ".lock"):
        start = time.perf_counter()
        kept = Cells(folder / "cells", "sweep")
        cells = [_settings(run, n) for run in runs]
        modules = sorted({*imports, *_modules(runs)})
        compute = partial(_compute, out=folder, names=names, device=device, imports=modules)
        _write_json(folder, {"command": command, "runs": [_described(run, names, None) for run in runs]})
        compute_missing(kept, cells, compute, engine, show=show, hours=hours, unit="run", keep_failures=True)
        results = [kept.found(settings) for settings in cells]
        _check_any(results)
        found = _report(runs, names, results, by) | {"command": command, "versions": versions(), "machine": machine()}
        found["wall_time_seconds"] = round(time.perf_counter() - start, 1)
        _write_json(folder, found)
        with writing_to(folder):
            measure = MEASURES[found["by"]]
            plot_sweep(found, measure.title, measure.unit, _floor(found), folder / PICTURE)
            write_text_atomic(folder / PAGE, page(found))
    return folder / PAGE


def _without_repeats(runs: Sequence[Run]) -> list[Run]:
    if not runs:
        raise UserError("a sweep needs at least one run")
    return list({run.key: run for run in reversed(runs)}.values())[::-1]


def _claim(folder: Path, runs: Sequence[Run]) -> dict[str, str]:
    """Make the folder of a sweep; returns the name of each run's folder by its key, old ones as they are."""
    with writing_to(folder):
        if folder.is_dir() and any(folder.iterdir()) and not (folder / JSON).is_file():
            raise UserError(f"{folder} exists and is not the folder of a sweep; choose another --out")
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        (folder / "runs").mkdir(exist_ok=True)
        there = {path.name.rpartition("-")[2]: path.name for path in (folder / "runs").iterdir()}
    return {run.key: there.get(run.key, _name(run)) for run in runs}


def _name(run: Run) -> str:
    words = [*(f"{name}-{value}" for name, value in run.varied.items()), f"seed-{run.config.seed}"]
    return f"{re.sub(r'[^A-Za-z0-9.+_-]+', '-', '_'.join(words))[:LONGEST_NAME]}-{run.key}"


def _modules(runs: Sequence[Run]) -> Iterator[str]:
    """The modules of objectives, samplers and toys of one's own, which every process has to import."""
    for config in (run.config for run in runs):
        for name in (config.data, *(path_of(type(part)) for part in (config.objective, config.sampler))):
            if is_path(name):
                yield name.partition(":")[0]


def _settings(run: Run, n: int | None) -> Settings:
    return {"config": run.config.to_dict(), "data": _stamp(run.config.data), "n": n}


def _stamp(data: str) -> str:
    """What changes with the files of the data; the runs themselves compare their contents."""
    path = Path(data)
    if find_toy(data) is not None or not path.exists():
        return data
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return digest([[p.name, p.stat().st_size, p.stat().st_mtime_ns] for p in files])


def _compute(settings: Settings, *, out: Path, names: dict[str, str], device: str, imports: Sequence[str]) -> Result:
    """Train one run, or what is left of it, and measure it."""
    if not (out / JSON).is_file():
        raise UserError(f"{out} is not there: a sweep must lie on a disk that every worker sees")
    for module in imports:
        import_module(module)
    config = TrainConfig.from_dict(settings["config"])
    run = RunFolder(out / "runs" / names[Run(config, {}).key])
    _in_turn(lambda: train(config, run.path, device=device, progress=False))
    return measure(load(run.path, device=device), run, settings["n"])


def _in_turn(work: Callable[[], object], pause: float = 0.5) -> None:
    """Do the work, after whoever does it already: a worker, perhaps, that outlived the command that started it."""
    end = time.monotonic() + ANOTHER_WRITES
    while True:
        try:
            work()
            return
        except InUse:
            if time.monotonic() > end:
                raise
            time.sleep(pause)


def measure(model: Model, run: RunFolder, n: int | None = None) -> Result:
    """What a finished run is compared by: samples and densities on rows it has not seen, and its log.

    Args:
        model: of the run.
        run: its folder; `evaluation.json` is written there.
        n: samples, and rows to compare them with; None: as many as `pscd evaluate` takes.

    Returns:
        Numbers by name; those that this kind of model does not have are left out.
    """
    if model.is_image:
        keep(of_images := evaluate_images(model, n=n or N_IMAGES), run)
        samples, data = of_images
        values = {name: getattr(samples, name) for name in ("frechet", "precision", "recall", "density", "coverage")}
        found: Result = {**values, "frechet_data": data.frechet}
    else:
        keep(of_rows := evaluate(model, n=n or N_ROWS), run)
        found = {"mmd": of_rows[0].mmd, "mmd_data": of_rows[1].mmd, **_log_density(model, n or N_ROWS)}
    return {**found, **_from_log(run.read_metrics())}


def _log_density(model: Model, n: int) -> Result:
    """The mean over the likeliest rows: one row of junk would decide about the mean over all."""
    try:
        values = model.log_prob(load_run_data(model).held_out[:n]).sort(descending=True).values
    except UserError:  # labels have no density
        return {}
    return {"log_density": float(values[: max(1, round(LIKELY * len(values)))].mean())}


def _from_log(rows: Sequence[dict[str, float]]) -> Result:
    tail = rows[-max(1, round(TAIL * len(rows))) :]

    def mean(name: str) -> float | None:
        values = [row[name] for row in tail if name in row]
        return statistics.fmean(values) if values else None

    both = [value for value in (mean("ess_pos"), mean("ess_neg")) if value is not None]
    gains = [row["gain"] for row in rows if "gain" in row]
    found = {"ess": min(both, default=None), "gain": max(gains, default=None), "retries": mean("retries")}
    return {name: value for name, value in found.items() if value is not None}


def _check_any(results: Sequence[Result | None]) -> None:
    done = [result for result in results if result is not None]
    reasons = sorted({result["failed"] for result in done if "failed" in result})
    if not done:
        raise UserError("no run was begun in time; give it more --hours")
    if all("failed" in result for result in done):
        raise UserError(f"every run failed: {'; '.join(reasons[:3])}")


def _described(run: Run, names: dict[str, str], result: Result | None) -> dict[str, Any]:
    told = {"varied": run.varied, "seed": run.config.seed, "folder": f"runs/{names[run.key]}", "words": list(run.words)}
    return {**told, **(result or {"not_run": True})}


def _report(
    runs: Sequence[Run], names: dict[str, str], results: Sequence[Result | None], by: str | None
) -> dict[str, Any]:
    """All that is known, for `sweep.json`: every run, and mean and deviation for each setting."""
    told = [_described(run, names, result) for run, result in zip(runs, results, strict=True)]
    fine = [run for run in told if "not_run" not in run and "failed" not in run]
    there = [name for name in MEASURES if any(name in run for run in fine)]
    by = by or _default_measure(runs[0].config, there)
    if by not in there:
        raise UserError(f"no run has the measure {by!r}; there are: {', '.join(there)}")
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in told:
        groups.setdefault(label(run["varied"]), []).append(run)
    settings = [_summary(group, there) for group in groups.values()]
    ranked = [s for s in settings if by in s["measures"]]
    best = max(ranked, key=lambda s: (-s["failed"], MEASURES[by].sign * s["measures"][by]["mean"]))
    of_best = [run for run in fine if run["varied"] == best["varied"] and by in run]
    best_run = max(of_best, key=lambda run: MEASURES[by].sign * run[by])
    return {"by": by, "measures": there, "settings": settings, "best": best_run, "runs": told}


def _default_measure(config: TrainConfig, there: Sequence[str]) -> str:
    order = (
        ("frechet", "mmd", "log_density") if find_toy(config.data) is not None else ("frechet", "log_density", "mmd")
    )
    return next(name for name in order if name in there)


def label(varied: dict[str, str]) -> str:
    """A setting in words.

    Args:
        varied: texts by name.

    Returns:
        Names and values.

    >>> label({"gamma": "0.5", "lr": "0.01"}), label({})
    ('gamma 0.5, lr 0.01', 'as given')
    """
    return ", ".join(f"{name} {value}" for name, value in varied.items()) or "as given"


def _summary(group: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    measures = {}
    for name in names:
        values = [run[name] for run in group if name in run]
        if values:
            sd = statistics.stdev(values) if len(values) > 1 else None
            measures[name] = {"mean": statistics.fmean(values), "sd": sd, "n": len(values)}
    failed = sum("failed" in run for run in group)
    return {"varied": group[0]["varied"], "runs": len(group), "failed": failed, "measures": measures}


def _write_json(folder: Path, values: dict[str, Any]) -> None:
    with writing_to(folder):
        write_json(folder / JSON, values)


def page(found: dict[str, Any]) -> str:
    """The page of a sweep in Markdown: table, best run, picture, and what failed.

    Args:
        found: what `sweep.json` holds.

    Returns:
        The text.
    """
    runs, by = found["runs"], MEASURES[found["by"]]
    failed = [run for run in runs if "failed" in run]
    not_run = sum("not_run" in run for run in runs)
    lines = ["# Sweep", "", f"{len(runs)} runs, {len(runs) - len(failed) - not_run} of them finished."]
    if found["command"]:
        lines[-1] += f" Made by `{found['command']}`."
    lines += [f"{found['machine']}; {found['versions']['torch']}; pscd {found['versions']['pscd']}.", ""]
    if not_run:
        lines += [f"**Not complete**: {not_run} runs were not begun; the same command goes on.", ""]
    lines += [table(found), "", "Mean ± standard deviation over seeds.", ""]
    lines += [f"- **{MEASURES[name].title}**: {MEANINGS[name]}." for name in found["measures"] if name in MEANINGS]
    if (floor := _floor(found)) is not None:
        lines += [f"- Data compared with other data: {by.title} {floor:.4g}."]
    best = found["best"]
    way = "largest" if by.sign > 0 else "smallest"
    lines += ["", f"## Best: {label(best['varied'])}", ""]
    lines += [f"It has the {way} mean {by.title}. Of its seeds {best['seed']} is the best, in `{best['folder']}`."]
    lines += ["The best of many looks better than it is: measure it again on rows that did not choose it."]
    if best["words"]:
        lines += ["", "```sh", best_command(found), "```"]
    if failed:
        head = ["setting", "seed", "why", "folder"]
        rows = [[label(run["varied"]), str(run["seed"]), run["failed"], f"`{run['folder']}`"] for run in failed]
        lines += ["", "## Failed", "", markdown_table(head, rows)]
        lines += ["", "The same command tries them again, but for runs that diverged, which would do so again."]
    return "\n".join([*lines, "", f"![{by.title}]({PICTURE})"]) + "\n"


def _floor(found: dict[str, Any]) -> float | None:
    """What data compared with other data have, as tables show it."""
    by = MEASURES[found["by"]]
    values = [run[by.floor] for run in found["runs"] if by.floor in run]
    return by.unit * statistics.fmean(values) if values else None


def best_command(found: dict[str, Any]) -> str:
    """What makes the best run alone."""
    return " ".join(["pscd train", *found["best"]["words"]])


def table(found: dict[str, Any]) -> str:
    """Mean and deviation of each setting as a Markdown table.

    Args:
        found: what `sweep.json` holds.

    Returns:
        The table.
    """
    varied = list(found["settings"][0]["varied"])
    shown = [found["by"], *(name for name in found["measures"] if name != found["by"])]
    head = [*varied, *(MEASURES[name].title for name in shown), "runs", "failed"]

    def cell(setting: dict[str, Any], name: str) -> str:
        value = setting["measures"].get(name)
        if value is None:
            return ""
        unit = MEASURES[name].unit
        return f"{unit * value['mean']:.4g}" + ("" if value["sd"] is None else f" ± {unit * value['sd']:.2g}")

    rows = (
        [*s["varied"].values(), *(cell(s, name) for name in shown), str(s["runs"]), str(s["failed"] or "")]
        for s in found["settings"]
    )
    return markdown_table(head, rows)
