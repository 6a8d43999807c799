"""What every experiment of the paper shares: runs computed in parallel and store, one report at the end.

`studies.engine.parallel` computes and stores the runs: a killed study resumes, and changed settings never meet old
results.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pscd.errors import UserError
from pscd.files import read_json, write_json, write_text_atomic, writing_to
from pscd.version import __version__, machine, versions
from studies.engine.markdown import markdown_table
from studies.engine.parallel import Result, RunStore, Settings, compute_missing, digest


@dataclass(frozen=True)
class Run:
    """The settings of a run and what computing it gave."""

    settings: Settings
    result: Result


@dataclass(frozen=True)
class Row:
    """One entry of an experiment's table.

    Args:
        row: name of its row.
        column: name of its column.
        measured: mean over the seeds, or None if nothing could be measured.
        std: standard deviation over the seeds.
        n: number of seeds.
        published: the paper's number.
        exact: the true value, by quadrature or in closed form.
    """

    row: str
    column: str
    measured: float | None
    std: float | None = None
    n: int = 1
    published: float | None = None
    exact: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """For the JSON file; `exact` only where there is one."""
        values = {name: getattr(self, name) for name in ("row", "column", "published", "measured", "std", "n")}
        return values if self.exact is None else {**values, "exact": self.exact}


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, and how to make it again.

    Args:
        name: of the command and the files.
        title: of the page.
        cost: how long it takes, in words.
        seeds: number of seeds unless asked otherwise.
        runs: settings of all runs for `(quick, seeds)`.
        compute: turns settings into a result, in a process of its own.
        rows: the table of all results.
        draw: writes the figures to a folder, and returns their paths.
        notes: what a reader should know beside the numbers.
        store_name: experiments that look at the same runs in different ways share them by this name.
        keeps_checkpoints: whether `compute` gets a folder `checkpoints`, where a run takes long.
        command: what follows `python -m studies`, where that is not the name alone.
        resumes_from_page: whether the numbers in `NAME.json` are all that table, figures and notes need of a run. Then
            runs that are there count as computed, so that the page goes on growing in a fresh clone, too.
        page: makes the page from the content of `NAME.json` and the results, where the usual one will not do.
        extra: further entries of `NAME.json`.
        stored: what `NAME.json` keeps of a run (default: its settings and its plain values).
        n_threads: threads of each run; None: as many as torch takes.
    """

    name: str
    title: str
    cost: str
    seeds: int
    runs: Callable[[bool, int], list[Settings]]
    compute: Callable[..., Result]
    rows: Callable[[Sequence[Run]], list[Row]]
    draw: Callable[[Sequence[Run], Path], list[Path]]
    notes: Callable[[Sequence[Run]], str] = field(default=lambda done: "")
    store_name: str | None = None
    keeps_checkpoints: bool = False
    command: str | None = None
    resumes_from_page: bool = False
    page: Callable[[dict[str, Any], Sequence[Run]], str] | None = None
    extra: Callable[[Sequence[Run]], dict[str, Any]] = field(default=lambda done: {})
    stored: Callable[[Run], dict[str, Any]] | None = None
    n_threads: int | None = 1

    @property
    def family(self) -> str:
        """What its runs are kept under."""
        return self.store_name or self.name


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    jobs: int = -1,
    show: bool = True,
    hours: float | None = None,
    only: Callable[[Settings], bool] = lambda settings: True,
) -> Path:
    """Compute what is missing of an experiment and write `NAME.json`, `NAME.md` and its figures.

    A file `NAME.reading.md` in `out`, written by hand, becomes the end of the page.

    Args:
        experiment: what to make.
        out: folder of the results, and of runs computed before.
        quick: whether to make a small version that only shows that everything works.
        seeds: number of seeds (default: the experiment's own, one if `quick`).
        jobs: runs at a time; -1 for one per core.
        show: whether to show a progress bar.
        hours: after which no run is begun any more; the page is then made of those that are done, and says so.
        only: which runs to compute, if they are missing; the page has all that are done.

    Returns:
        The path of the page.

    Raises:
        UserError: `seeds` is below 1, `out` cannot be written to, or no run is done.
    """
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    n_seeds = seeds or (1 if quick else experiment.seeds)
    runs = experiment.runs(quick, n_seeds)
    store = RunStore(out / f"{experiment.family}.runs", experiment.family)
    with writing_to(out):
        store.folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    compute = (
        partial(experiment.compute, checkpoints=store.folder / "checkpoints")
        if experiment.keeps_checkpoints
        else experiment.compute
    )
    known = _runs_of_page(out / f"{experiment.name}.json") if experiment.resumes_from_page else {}
    missing = [s for s in runs if digest(s) not in known and only(s)]
    fresh = compute_missing(store, missing, compute, jobs, show=show, hours=hours, n_threads=experiment.n_threads)
    done = [Run(s, result) for s in runs if (result := store.read(s) or known.get(digest(s))) is not None]
    if not done:
        raise UserError(f"no run of {experiment.name} is done in {out}; give it more --hours")
    figures = experiment.draw(done, out)
    report = {
        "experiment": experiment.name,
        "title": experiment.title,
        "quick": quick,
        "seeds": n_seeds,
        **({"runs_left": len(runs) - len(done)} if len(done) < len(runs) else {}),
        "rows": [row.to_dict() for row in experiment.rows(done)],
        "runs": [(experiment.stored or _plain)(d) for d in done],
        "figures": [path.name for path in figures],
        "versions": versions(),
        "machine": machine(),
        "wall_time_seconds": round(time.perf_counter() - start, 1),
        "runs_computed_in_that_time": fresh,
        "run_seconds": round(sum(d.result["seconds"] for d in done), 1),
        **experiment.extra(done),
    }
    write_json(out / f"{experiment.name}.json", report)
    path = out / f"{experiment.name}.md"
    text = experiment.page(report, done) if experiment.page else markdown(experiment, report, done)
    # What somebody wrote about the results outlives making them again.
    write_text_atomic(path, with_reading(text, path))
    return path


def _runs_of_page(path: Path) -> dict[str, Result]:
    """Results in the JSON file of a page, by the digest of their settings; none if another version wrote it."""
    try:
        report = read_json(path)
        if report["versions"]["pscd"] != __version__:
            return {}
        runs = [dict(run) for run in report["runs"]]
        return {digest(run.pop("settings")): run for run in runs}
    except (UserError, ValueError, KeyError, TypeError):  # there is none, or it is damaged
        return {}


def with_reading(text: str, page: Path) -> str:
    """The page with what somebody wrote about it, in `NAME.reading.md` beside it, at its end."""
    reading = page.with_suffix(".reading.md")
    return text + (f"\n{reading.read_text()}" if reading.is_file() else "")


def mean_rows(
    done: Sequence[Run],
    key: Callable[[Settings], tuple[str, str]],
    value: str,
    published: dict[tuple[str, str], float] | None = None,
    exact: str | None = None,
) -> list[Row]:
    """Mean and standard deviation over the runs of each `(row, column)`.

    Args:
        done: results; those whose value is None, of runs that diverged, are left out.
        key: the row and the column that settings belong to.
        value: name of the number in the results.
        published: the paper's numbers, by row and column.
        exact: name of the true value in the results.

    Returns:
        A row of the table for each pair that has a number.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for d in (d for d in done if d.result[value] is not None):
        groups.setdefault(key(d.settings), []).append(d)
    rows = []
    for (row, column), group in groups.items():
        values = torch.tensor([d.result[value] for d in group], dtype=torch.float64)
        rows.append(
            Row(
                row=row,
                column=column,
                measured=float(values.mean()),
                std=float(values.std()) if len(values) > 1 else None,
                n=len(values),
                published=(published or {}).get((row, column)),
                exact=float(group[0].result[exact]) if exact is not None else None,
            )
        )
    return rows


def markdown(experiment: Experiment, report: dict[str, Any], done: Sequence[Run]) -> str:
    """The page of an experiment: the command, the table with published beside measured, the figures.

    Args:
        experiment: whose page it is.
        report: what its JSON file holds.
        done: all results, for the notes.

    Returns:
        The text in Markdown.
    """
    words = [experiment.command or experiment.name, "--quick" if report["quick"] else "", f"--seeds {report['seeds']}"]
    command = "python -m studies " + " ".join(word for word in words if word)
    lines = [f"# {experiment.title}", "", f"Made by `{command}`. {report['machine']}; {report['versions']['torch']}."]
    lines += [f"Computing its runs took {report['run_seconds']:.0f} s of one core in all.", ""]
    if missing := report.get("runs_left"):
        lines += [
            f"**Not complete**: {missing} of {missing + len(done)} runs are missing; the same command continues.",
            "",
        ]
    notes = experiment.notes(done)
    if notes:
        lines += [notes.strip(), ""]
    has_exact = any("exact" in row for row in report["rows"])
    has_published = any(row["published"] is not None for row in report["rows"])
    head = ["", "", *(["published"] if has_published else []), *(["exact"] if has_exact else []), "measured", "sd", "n"]

    def shown(row: dict[str, Any]) -> list[str]:
        published = [number(row["published"])] if has_published else []
        exact = [number(row.get("exact"))] if has_exact else []
        return [
            row["row"],
            row["column"],
            *published,
            *exact,
            number(row["measured"]),
            number(row["std"]),
            str(row["n"]),
        ]

    lines.append(markdown_table(head, map(shown, report["rows"])))
    for figure in report["figures"]:
        lines += ["", f"![{figure}]({figure})"]
    return "\n".join(lines) + "\n"


def objective_label(gamma: float) -> str:
    """What a table calls the objective."""
    return "CD" if gamma == 0 else f"gamma {gamma:g}"


def number(value: float | None) -> str:
    """A number as a table shows it: four significant digits, nothing for nothing."""
    return "" if value is None else f"{value:.4g}"


def _plain(run: Run) -> dict[str, Any]:
    """Settings and values of a run, without what is only stored to be drawn."""
    values = {name: value for name, value in run.result.items() if not isinstance(value, list | dict)}
    return {"settings": run.settings, **values}


# JSON schema of `NAME.json`.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["experiment", "title", "quick", "seeds", "rows", "runs", "figures", "versions", "machine"],
    "properties": {
        "experiment": {"type": "string"},
        "quick": {"type": "boolean"},
        "seeds": {"type": "integer", "minimum": 1},
        "runs_left": {"type": "integer", "minimum": 1},
        "rows": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["row", "column", "published", "measured", "std", "n"],
                "additionalProperties": False,
                "properties": {
                    "row": {"type": "string"},
                    "column": {"type": "string"},
                    "published": {"type": ["number", "null"]},
                    "measured": {"type": ["number", "null"]},
                    "std": {"type": ["number", "null"]},
                    "n": {"type": "integer", "minimum": 1},
                    "exact": {"type": "number"},
                },
            },
        },
        "runs": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["settings", "seconds"]}},
        "figures": {"type": "array", "items": {"type": "string", "pattern": r"\.png$"}},
        "versions": {"type": "object", "required": ["pscd", "torch", "python"]},
        "wall_time_seconds": {"type": "number", "minimum": 0},
    },
}
