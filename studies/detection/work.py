"""What is computed: one cell for every table, detector and seed, and for the contamination curves.

Cells are kept and resumed by `studies.engine.experiment`. Their settings hold the checksum of the table, the
detector's configuration, the libraries' versions and the code of our detector's own modules. A change of
anything else, such as the trainer, is noticed by the version alone: remove the folder of cells after one.
"""

import ast
import json
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pscd.errors import UserError
from studies.detection import tables
from studies.detection.detectors import CURVES, DETECTORS
from studies.detection.tables import Facts
from studies.engine import Result, Run, Settings

LEVELS = (0.0, 0.05, 0.1, 0.2, 0.3)
QUICK_LEVELS = (0.0, 0.2)
CURVE_SHARE = 0.05
CURVE_ROWS = 1000
CURVE_SETS = 4
QUICK_CURVE_SETS = 2
LIBRARIES = ("numpy", "scikit-learn")


class Key(NamedTuple):
    """What a number belongs to; `extra` is the share of contamination added."""

    table: str
    detector: str
    seed: int
    extra: float


@dataclass(frozen=True)
class Plan:
    """What to measure: the tables of `folder`, each with every detector and seed, and the curves."""

    folder: Path
    sets: tuple[Facts, ...]
    detectors: dict[str, Settings]  # by name: configuration, versions and code
    seeds: int
    max_rows: int
    curve_sets: tuple[str, ...]
    levels: tuple[float, ...]

    @property
    def curve_detectors(self) -> tuple[str, ...]:
        """Those of the curves that were asked for."""
        return tuple(name for name in CURVES if name in self.detectors)

    def facts(self, table: str) -> Facts:
        """The facts of a table by its name."""
        return next(facts for facts in self.sets if facts.name == table)

    def is_cut(self, table: str) -> bool:
        """Whether only some of its rows are drawn."""
        return self.facts(table).n > self.max_rows

    def wanted(self) -> Iterator[Key]:
        """Everything to be known, without contamination first."""
        for facts in self.sets:
            for detector in self.detectors:
                yield from (Key(facts.name, detector, seed, 0.0) for seed in range(self.seeds))
        for table in self.curve_sets:
            for detector in self.curve_detectors:
                for level in self.levels:
                    yield from (Key(table, detector, seed, level) for seed in range(self.seeds) if level > 0)


def make_plan(
    folder: Path,
    *,
    seeds: int,
    max_rows: int,
    only: Sequence[str] | None = None,
    detectors: Sequence[str] | None = None,
    quick: bool = False,
) -> Plan:
    """Read all tables once, so that what is wrong with one is told before anything is computed."""
    chosen = {name: _identity(name) for name in detectors or DETECTORS}
    sets = tuple(tables.look(path, max_rows, seeds) for path in tables.list_tables(folder, only))
    rare = [facts.name for facts in sets if facts.share < CURVE_SHARE and facts.n >= CURVE_ROWS]
    curve_sets = tuple(rare[: QUICK_CURVE_SETS if quick else CURVE_SETS])
    return Plan(folder, sets, chosen, seeds, max_rows, curve_sets, QUICK_LEVELS if quick else LEVELS)


def settings_of(plan: Plan, key: Key) -> Settings:
    """All that decides the number of a key.

    A detector without randomness gives every seed the same on the same rows: where a table is not cut and
    nothing is added, all seeds share the cell of seed 0.
    """
    facts = plan.facts(key.table)
    fixed = not DETECTORS[key.detector].random and not plan.is_cut(key.table) and key.extra == 0
    return {
        "set": key.table,
        "checksum": facts.checksum,
        "rows": min(facts.n, plan.max_rows),
        "detector": key.detector,
        **plan.detectors[key.detector],
        "seed": 0 if fixed else key.seed,
        "extra": key.extra,
    }


def all_settings(plan: Plan) -> list[Settings]:
    """One for each cell, without repetition."""
    return list({_text(settings): settings for settings in (settings_of(plan, key) for key in plan.wanted())}.values())


def by_key(plan: Plan, done: Sequence[Run]) -> dict[Key, Result]:
    """The result of every key; keys that share a cell share its result."""
    results = {_text(d.settings): d.result for d in done}
    return {key: results[_text(settings_of(plan, key))] for key in plan.wanted()}


def measure(folder: Path, settings: Settings) -> Result:
    """Fit a detector on all rows without their labels, and score it with them.

    Contamination that was added is fitted but not scored. A detector that fails is no better than chance:
    AUROC .5, and the share of anomalies for the average precision.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score
    from threadpoolctl import threadpool_limits

    x, y = tables.read(folder / f"{settings['set']}.npz")
    rows = tables.draw(y, settings["rows"], settings["seed"])
    x, y = x[rows], y[rows]
    share = float(y.mean())
    result: Result = {"n": len(x), "d": x.shape[1], "anomaly_share": share}
    fitted = np.concatenate([x, tables.contamination(x, settings["extra"], settings["seed"])])
    start = time.perf_counter()
    try:
        with threadpool_limits(1):
            scores, known = detect(settings["detector"], fitted, settings["seed"])
    except Exception as error:  # of any library: a failure is a result, and is told on the page
        seconds = round(time.perf_counter() - start, 4)
        message = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return {**result, "auroc": 0.5, "ap": share, "fit_seconds": seconds, "error": message}
    scores = scores[: len(x)]
    scored = {"auroc": float(roc_auc_score(y, scores)), "ap": float(average_precision_score(y, scores))}
    return {**result, **scored, **known}


def detect(name: str, x: np.ndarray, seed: int) -> tuple[np.ndarray, dict[str, float]]:
    """Scores of the rows that a detector was fitted on, the seconds that took, and for ours what it chose."""
    detector = DETECTORS[name]
    with warnings.catch_warnings():
        if not detector.own:
            warnings.simplefilter("ignore")
            x = tables.standardise(x)
            _warm_up(name)
        unfitted = detector.make(seed)
        start = time.perf_counter()
        scores = np.asarray(detector.score(unfitted, x), np.float64)
        known = {"fit_seconds": round(time.perf_counter() - start, 4)}
    if scores.shape != (len(x),):
        raise ValueError(f"scores of shape {scores.shape} for {len(x)} rows")
    if np.isnan(scores).any():
        raise ValueError(f"{np.isnan(scores).sum()} of {len(x)} scores are not a number")
    if detector.own:
        known |= {name: float(getattr(unfitted, f"{name}_")) for name in ("gamma", "contamination")}
    largest = np.finfo(np.float64).max
    return scores.clip(-largest, largest), known


@cache
def _warm_up(name: str) -> None:
    """Let numba compile and torch start before the clock does, once in a process."""
    DETECTORS[name].score(DETECTORS[name].make(0), np.random.default_rng(0).normal(size=(100, 3)))


def _identity(name: str) -> Settings:
    """What decides a detector's scores beside rows and seed."""
    detector = DETECTORS[name]
    try:
        return {
            "configuration": detector.configuration(),
            "versions": {library: version(library) for library in (*LIBRARIES, *detector.libraries)},
            "code": {module: code_checksum(module) for module in detector.modules},
        }
    except ModuleNotFoundError as error:  # PackageNotFoundError is one too
        raise UserError(
            f"{name} needs {error.name}; from a clone of the repository: pip install '.[detection]'"
        ) from None


def code_checksum(module: str) -> str:
    """Of a module's code alone: neither comments nor docstrings change a result."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module {module}", name=module)
    tree = ast.parse(Path(spec.origin).read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)]  # type: ignore[attr-defined]
    return f"{zlib.crc32(ast.dump(tree).encode()):08x}"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _text(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)
