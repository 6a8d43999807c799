"""The sections about a training run: findings, curves and settings."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from pscd.config import TrainConfig
from pscd.files import unsealed
from pscd.report import charts
from pscd.report.blocks import Block, Chart, Section, Table, Text
from pscd.run_folder import RunFolder
from pscd.training.guard import diagnose
from pscd.version import __version__

Log = Sequence[Mapping[str, float]]


class Panel(NamedTuple):
    """A chart of the log: its title, what it shows, and labels of the curves by their names in the log."""

    title: str
    about: str
    curves: dict[str, str]
    checks: str = ""  # what the diagnostics judge by these curves


PANELS = (
    Panel("Energies", "Mean energy of a batch of data and of samples, which should stay close.",
          {"e_pos": "data", "e_neg": "samples"}, "energies of data and samples"),
    Panel("Effective sample size", "Share of a batch that carries the weight: near 0, a few rows dominate.",
          {"ess_pos": "data", "ess_neg": "samples"}, "effective sample sizes"),
    Panel("Acceptance", "Share of proposed moves that the chains accept.",
          {"acceptance": "steps", "jumps": "jumps"}, "acceptance"),
    Panel("Gamma", "Robustness: at 0 every row has the same weight.", {"gamma": "gamma"}),
    Panel("Loss", "Its level is not comparable between runs; look for jumps.", {"loss": "loss"}),
    Panel("Gradient", "Norm of the gradient of the loss.", {"gradient": "gradient"}),
    Panel("Gain", "Log-likelihood of held-out rows above that of the mixture at the start, in nats; the best update is "
          "used.", {"gain": "gain"}),
    Panel("Spread", "Spread of the energies of data, the unit of gamma in this run.", {"spread": "spread"}),
    Panel("Temperature", "Of the chains; at 1 they sample the model itself.", {"temperature": "temperature"}),
    Panel("Mode error", "Distance of the chains' shares of the known modes from those of the data.",
          {"mode_error": "mode error"}, "shares of the modes"),
)  # fmt: skip


def findings_blocks(log: Log, notes: Sequence[str] = ()) -> list[Block]:
    """The diagnostics of a run, with what they are based on, and what training noted about the data."""
    if log:
        checked = [panel.checks for panel in PANELS if panel.checks and any(name in log[-1] for name in panel.curves)]
        about = f"Checked: {', '.join([*checked, 'roll-backs'])}."
        problems = diagnose([dict(row) for row in log], retries=int(log[-1].get("retries", 0)))
        if problems == ["no problem found"]:
            text = Text((f"No problem found. {about}",), "good")
        else:
            text = Text((*(f"{_capitalised(problem)}." for problem in problems), about), "warning")
    else:
        text = Text(("Nothing has been logged, so nothing was checked.",))
    blocks: list[Block] = [text]
    if any(notes):
        blocks.append(Text(tuple(f"{_capitalised(note)}." for note in notes if note)))
    return blocks


def _capitalised(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def training_section(log: Log, *, most: int = 1_000) -> Section:
    """Curves over the run, of at most `most` rows of the log."""
    if not log:
        return Section("Training", (Text(("Nothing has been logged yet.",)),))
    drawn = log[::-1][:: -(-len(log) // most)][::-1]  # the last row among them
    blocks: list[Block] = list(_curves(drawn, rolled_back(log)))
    if len(drawn) < len(log):
        blocks.append(Text((f"Drawn are {len(drawn):,} of {len(log):,} rows of the log.",)))
    return Section("Training", tuple(blocks))


def _curves(log: Log, back: Sequence[int]) -> Iterator[Chart]:
    """A chart for each panel that the log has curves for, and for each other number in it."""
    drawn = {"step", "retries", "gap", *(name for panel in PANELS for name in panel.curves)}
    others = [name for name in dict.fromkeys(name for row in log for name in row) if name not in drawn]
    labels = {name: name.replace("_", " ") for name in others}
    modes = [name for name in others if name.startswith("mode_")]
    panels = [*PANELS, *(Panel(_capitalised(labels[n]), "", {n: labels[n]}) for n in others if n not in modes)]
    if modes:
        few = {name: labels[name] for name in modes[: len(charts.DASHES)]}
        panels.append(Panel("Chains in each mode", "Share of the chains in each known mode of the data.", few))
    for panel in panels:
        series = {}
        for name, label in panel.curves.items():
            rows = [row for row in log if isinstance(row.get(name), int | float)]
            if rows:
                series[label] = ([row["step"] for row in rows], [row[name] for row in rows])
        if series:
            log_scale = "gradient" in panel.curves and all(v > 0 for _, values in series.values() for v in values)
            ends = ", ".join(f"{label} {values[-1]:.4g}" for label, (_, values) in series.items())
            marks = f" Dashed lines: rolled back {len(back)} times." if back else ""
            spec = charts.curves(series, rolled_back=back, log=log_scale)
            yield Chart(panel.title, spec, f"{panel.about} At the end: {ends}.{marks}".strip())


def rolled_back(log: Log) -> list[int]:
    """The updates before which the guard rolled the run back, as far as the log records it.

    >>> rolled_back([{"step": 1, "retries": 0}, {"step": 2, "retries": 2}, {"step": 3, "retries": 2}])
    [2]
    """
    retries = [0.0, *(row.get("retries", 0) for row in log)]
    return [int(row["step"]) for row, before in zip(log, retries, strict=False) if row.get("retries", 0) > before]


def evaluation_blocks(folder: RunFolder) -> tuple[Block, ...]:
    """The measurements in a run folder as a table; empty without any."""
    titles = {"mmd": "MMD^2 x 1e4", "frechet": "Fréchet distance", "n_real": "held-out", "n_fake": "compared"}
    try:
        rows = unsealed(json.loads(folder.evaluation.read_text()))["rows"]
        names = [name for name in rows[0] if name not in ("name", "features")]
        lines = tuple((str(row["name"]), *(_measured(name, row[name]) for name in names)) for row in rows)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return ()
    about = "Compared with held-out data; the line of data is the level of a perfect model."
    return (Text((about,)), Table(("", *(titles.get(name, name) for name in names)), lines))


def _measured(name: str, value: float) -> str:
    if name == "mmd":
        return f"{1e4 * value:.2f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def settings_section(config: TrainConfig, fingerprint: str | None) -> Section:
    """The settings that differ from the defaults, all settings folded away, and the versions."""
    settings, defaults = flat(config.to_dict()), flat(TrainConfig().to_dict())
    changed = tuple(
        (name, _text(value), _text(defaults.get(name)))
        for name, value in settings.items()
        if name != "rows.data" and value != defaults.get(name)
    )
    blocks: list[Block] = [
        Text((f"Data: {config.rows.data or 'rows in memory'}, fingerprint {fingerprint or 'unknown'}.",))
    ]
    blocks.append(
        Table(("setting", "this run", "default"), changed) if changed else Text(("All settings are defaults.",))
    )
    everything = tuple((name, _text(value)) for name, value in settings.items())
    blocks.append(Table(("setting", "this run"), everything, summary="All settings"))
    return Section("Settings", (*blocks, versions()))


def versions() -> Table:
    """The versions that wrote the report."""
    return Table((), (("pscd", __version__), ("torch", str(torch.__version__)), ("Python", platform.python_version())))


def _text(value: object) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    settings: dict[str, Any] = {}
    for name, value in values.items():
        settings |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return settings
