"""The sections about a training run: its curves, the verdict, and its settings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pscd.config import TrainConfig
from pscd.errors import UserError
from pscd.files import unsealed
from pscd.presets import default_preset
from pscd.report import charts
from pscd.report.blocks import Block, Chart, Charts, Section, Table, Text
from pscd.run_folder import RunFolder
from pscd.training.guard import verdict
from pscd.training.loop import last_step

MOST = 1_000  # points of a curve; longer logs are thinned out
MEASURES = {"mmd": "MMD^2 x 1e4", "frechet": "Fréchet distance", "n_real": "held-out rows", "n_fake": "compared rows"}
NO_PROBLEM = "no problem found"

# Panels in their order: title, what it shows, and the curves by their names in the log.
PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Energies", "Mean energy of a batch of data and of samples: they should stay together.",
     {"e_pos": "data", "e_neg": "samples"}),
    ("Effective sample size", "Share of a batch that the weights leave in play: near 0, a few rows do all the work.",
     {"ess_pos": "data", "ess_neg": "samples"}),
    ("Acceptance", "Share of proposed moves that the chains accept.", {"acceptance": "steps", "jumps": "jumps"}),
    ("Gamma", "Robustness: at 0 every row counts alike.", {"gamma": "gamma"}),
    ("Loss", "What is minimised; its height says little, a jump much.", {"loss": "loss"}),
    ("Gradient", "Norm of the loss's gradient; the axis is logarithmic.", {"gradient": "gradient"}),
    ("Gain", "Nats by which held-out rows are likelier than under the mixture at the start; the best update is kept.",
     {"gain": "gain"}),
    ("Spread", "How far the energies of data lie apart: the unit of gamma in this run.",
     {"spread": "spread"}),
    ("Temperature", "Of the chains: noise squared over twice the step; 1 samples the model itself.",
     {"temperature": "temperature"}),
    ("Mode error", "How far the chains' shares of the known modes are from those of the data: 0 is right.",
     {"mode_error": "mode error"}),
)  # fmt: skip
LOGARITHMIC = {"Gradient"}
NOT_DRAWN = {"step", "retries", "gap"}


def verdict_blocks(rows: Sequence[Mapping[str, float]], notes: Sequence[str] = ()) -> list[Block]:
    """How the run went, in words.

    Args:
        rows: the rows of the log.
        notes: what training said about the data.

    Returns:
        The verdict and the notes.
    """
    if not rows:
        return []
    found = verdict([dict(row) for row in rows], retries=int(rows[-1].get("retries", 0)))
    tone = "good" if found == [NO_PROBLEM] else "warning"
    blocks: list[Block] = [Text(tuple(f"Verdict: {sentence}." for sentence in found), tone)]
    if notes:
        blocks.append(Text(tuple(f"{note[0].upper()}{note[1:]}." for note in notes if note)))
    return blocks


def state_in_words(config: TrainConfig, updates: int, *, has_model: bool, running: bool) -> str:
    """How far a run has come.

    Args:
        config: of the run.
        updates: that were made, or that the model calls its own.
        has_model: whether there is a model, and not only checkpoints.
        running: whether training goes on.

    Returns:
        A word or two.
    """
    if running:
        return "training"
    if not has_model:
        return "not finished"
    return "finished" if updates >= last_step(config) else "diverged"


def updates_in_words(config: TrainConfig, step: int, updates: int) -> str:
    """How many updates were made.

    Args:
        config: of the run.
        step: the last that is in the log.
        updates: as the model has it, all of them if held-out rows ended the run early; 0 if there is no model.

    Returns:
        For example `20 of 20`.
    """
    if config.idle_steps and 0 < step < updates:
        return (
            f"{step:,} of at most {config.steps:,}: by held-out rows none of the last {config.idle_steps:,} was better"
        )
    return f"{max(step, updates):,} of {config.steps:,}"


def training_section(rows: Sequence[Mapping[str, float]]) -> Section:
    """Curves over the run.

    Args:
        rows: the rows of the log.

    Returns:
        The section.
    """
    if not rows:
        return Section("Training", (Text(("Nothing has been logged yet.",)),))
    steps = [int(row["step"]) for row in rows]
    blocks: list[Block] = [Charts(tuple(_panels(rows)), updates=(min(steps), max(steps)))]
    thinned = _thinned(rows)
    if len(thinned) < len(rows):
        blocks.append(Text((f"Drawn are {len(thinned):,} of {len(rows):,} rows of the log.",)))
    return Section("Training", tuple(blocks))


def _thinned(rows: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """Every so many rows, the last among them."""
    stride = -(-len(rows) // MOST)
    return list(rows[::-1][::stride][::-1])


def _panels(rows: Sequence[Mapping[str, float]]) -> list[Chart]:
    back = rolled_back(rows)
    thinned = _thinned(rows)
    known = NOT_DRAWN | {name for _, _, names in PANELS for name in names}
    rest = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in known]
    modes = {name: name.replace("_", " ") for name in rest if name.startswith("mode_") and name != "mode_error"}
    panels = [
        *PANELS,
        *(
            (name.replace("_", " ").capitalize(), "", {name: name.replace("_", " ")})
            for name in rest
            if name not in modes
        ),
    ]
    if modes:
        few = dict(list(modes.items())[: len(charts.PALETTE)])
        panels.append(("Chains in each mode", "Share of the chains that are in each known mode of the data.", few))
    made = []
    for title, about, names in panels:
        series = {}
        for name, label in names.items():
            there = [row for row in thinned if isinstance(row.get(name), int | float)]
            if there:
                series[label] = ([row["step"] for row in there], [row[name] for row in there])
        if series:
            positive = all(value > 0 for _, values in series.values() for value in values)
            spec = charts.curves(series, rolled_back=back, log=title in LOGARITHMIC and positive)
            ends = ", ".join(f"{label} {values[-1]:.4g}" for label, (_, values) in series.items())
            marked = f" Dashed lines: rolled back {len(back)} times." if back else ""
            made.append(Chart(title, spec, f"{about} At the end: {ends}.{marked}".strip()))
    return made


def rolled_back(rows: Sequence[Mapping[str, float]]) -> list[int]:
    """The updates before which the guard rolled the run back, as far as the log tells.

    Args:
        rows: of the log.

    Returns:
        Updates, rising.

    >>> rolled_back([{"step": 1, "retries": 0}, {"step": 2, "retries": 2}, {"step": 3, "retries": 2}])
    [2]
    """
    before, found = 0.0, []
    for row in rows:
        if row.get("retries", 0) > before:
            found.append(int(row["step"]))
        before = row.get("retries", 0)
    return found


def evaluation_blocks(folder: RunFolder) -> tuple[Block, ...]:
    """How far samples are from held-out data.

    Args:
        folder: the run folder.

    Returns:
        A table, or nothing if that was not measured.
    """
    if not folder.evaluation.is_file():
        return ()
    try:
        rows = unsealed(json.loads(folder.evaluation.read_text()))["rows"]
        head = [name for name in rows[0] if name not in ("name", "features")]
        shown = tuple((str(row["name"]), *(_measured(name, row[name]) for name in head)) for row in rows)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return ()
    said = "Compared with held-out data. Samples can hardly do better than other data do:"
    return (Text((said,)), Table(("", *(MEASURES.get(name, name.replace("_", " ")) for name in head)), shown))


def _measured(name: str, value: float) -> str:
    if name == "mmd":
        return f"{1e4 * value:.2f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def settings_section(config: TrainConfig, n_columns: int | None, fingerprint: str | None) -> Section:
    """The settings that differ from those that `pscd train` takes for such data, and all of them folded away.

    Args:
        config: of the run.
        n_columns: how many columns the data have, if they are a table.
        fingerprint: of the data.

    Returns:
        The section.
    """
    ours, usual = flat(config.to_dict()), flat(default_preset(config.data, n_columns).to_dict())
    changed = tuple(
        (name, _text(value), _text(usual.get(name)))
        for name, value in ours.items()
        if name != "data" and value != usual.get(name)
    )
    said = f"Data: {config.data or 'rows in memory'}, fingerprint {fingerprint or 'not kept'}."
    if not changed:
        blocks: list[Block] = [Text((said, "Every setting is the default for such data."))]
    else:
        blocks = [
            Text((said, "Settings that differ from the defaults for such data:")),
            Table(("setting", "this run", "default"), changed),
        ]
    everything = tuple((name, _text(value)) for name, value in ours.items())
    blocks.append(Table(("setting", "this run"), everything, summary="All settings"))
    return Section("Settings", tuple(blocks))


def _text(value: object) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names.

    Args:
        values: dictionaries of dictionaries.
        prefix: of all names.

    Returns:
        The values by name.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def read_config(values: Mapping[str, Any]) -> tuple[TrainConfig, str | None]:
    """The configuration that a run folder keeps, and the fingerprint of the data.

    Args:
        values: what `config.json` holds.

    Returns:
        Configuration and fingerprint.

    Raises:
        UserError: it is of another version, or damaged.
    """
    try:
        kept = unsealed(dict(values))
        fingerprint = kept.pop("fingerprint", None)
        return TrainConfig.from_dict(kept), fingerprint
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError("config.json is damaged, or of another version") from None
