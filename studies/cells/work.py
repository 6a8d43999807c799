"""What is computed: one piece of work for every table, kind of dirt, method and seed, kept and resumed as cells are.

The dirt depends on table, dirt and seed alone, so every method meets the same cells.
"""

import signal
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from pscd.errors import UserError
from studies.cells import corruptions, tables
from studies.cells.measures import coverage, ranking, value_errors
from studies.cells.methods import Method
from studies.cells.ours import OURS
from studies.cells.rivals import RIVALS
from studies.cells.tables import LABELLED, MIXED, NUMERIC, Table
from studies.detection.work import code_checksum
from studies.engine import Result, Settings

FIND, FILL, RANK = "find", "fill", "rank"
METHODS: dict[str, Method] = {**OURS, **RIVALS}
LIBRARIES = ("numpy", "pandas", "scikit-learn")
MODULES = ("studies.cells.corruptions", "studies.cells.measures", "studies.cells.methods")
LONGEST = 120  # processor seconds after which a method is stopped


class Dirt(NamedTuple):
    """What is done to a table: shares of cells that are wrong and that are missing."""

    task: str
    wrong: float
    missing: float
    mechanism: corruptions.Mechanism = "at random"


WRONG = (0.01, 0.05, 0.1, 0.2)
MISSING = (0.1, 0.3, 0.5)
FINDING = (*(Dirt(FIND, wrong, 0.0) for wrong in WRONG), Dirt(FIND, 0.05, 0.3))
FILLING = (
    *(Dirt(FILL, 0.0, missing) for missing in MISSING),
    *(Dirt(FILL, 0.0, missing, "not at random") for missing in MISSING),
    Dirt(FILL, 0.05, 0.3),
)
RANKING = tuple(Dirt(RANK, 0.0, missing) for missing in (0.0, *MISSING))
QUICK = (Dirt(FIND, 0.05, 0.0), Dirt(FILL, 0.0, 0.3), Dirt(RANK, 0.0, 0.3))
QUICK_TABLES = ("iris", "diabetes", "penguins", "wages", "18_Ionosphere")


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    data: Path | None
    names: tuple[tuple[str, str], ...]  # group and name
    dirt: tuple[Dirt, ...]
    methods: dict[str, Settings]  # by name: versions and code
    seeds: int
    rows: int
    columns: int

    def wanted(self) -> Iterator[tuple[Dirt, str, str, str, int]]:
        """Dirt, group, table, method and seed, in an order in which a run that is stopped is of use.

        Seeds one after the other, the dirt that says most first, and then table by table, the groups in turn: all
        numbers are then of the same tables.
        """
        core = tuple(dirt for dirt in self.dirt if dirt in QUICK)
        rest = tuple(dirt for dirt in self.dirt if dirt not in QUICK)
        for seed in range(self.seeds):
            for stage in (core, rest):
                for group, name in in_turn(self.names):
                    for dirt in stage:
                        if (group == LABELLED) != (dirt.task == RANK):
                            continue
                        for method in self.methods:
                            known = METHODS[method]
                            if getattr(known, dirt.task) and (known.seeds is None or seed < known.seeds):
                                yield dirt, group, name, method, seed


def in_turn(names: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first table of each group, then the second of each, and so on."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for group, name in names:
        groups.setdefault(group, []).append((group, name))
    return [table for row in zip_longest(*groups.values()) for table in row if table is not None]


def make_plan(
    data: Path | None,
    *,
    seeds: int,
    rows: int,
    columns: int,
    only: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    quick: bool = False,
    trial: bool = False,
) -> Plan:
    """Find the tables and the libraries, so that what is missing is told before anything is computed."""
    names = tables.table_names(data, trial=trial)
    known = list(dict.fromkeys(name for _, name in names))
    for unknown in (name for name in only or () if name not in known):
        raise UserError(f"no table {unknown}; there are: {', '.join(known)}")
    if quick and only is None:
        only = QUICK_TABLES
    chosen = tuple((group, name) for group, name in names if only is None or name in only)
    for unknown in (name for name in methods or () if name not in METHODS):
        raise UserError(f"no method {unknown!r}; there are: {'; '.join(METHODS)}")
    dirt = QUICK if quick else (*RANKING, *FINDING, *FILLING)
    return Plan(data, chosen, dirt, {m: _identity(m) for m in methods or METHODS}, seeds, rows, columns)


def _identity(name: str) -> Settings:
    """What decides a method's results beside table and seed."""
    method = METHODS[name]
    try:
        return {
            "versions": {library: version(library) for library in (*LIBRARIES, *method.libraries)},
            "code": {module: code_checksum(module) for module in (*MODULES, *method.modules)},
        }
    except ModuleNotFoundError as error:  # PackageNotFoundError is one too
        raise UserError(f"{name} needs {error.name}; from a clone of the repository: pip install '.[cells]'") from None


def all_settings(plan: Plan) -> list[Settings]:
    """Settings of every piece of work, in the order in which they are computed."""
    sums = {
        (group, name, seed): _load(plan.data, group, name, plan.rows, plan.columns, seed).checksum
        for group, name in plan.names
        for seed in range(plan.seeds)
    }
    return [
        {
            **dirt._asdict(),
            "group": group,
            "table": name,
            "checksum": sums[group, name, seed],
            "rows": plan.rows,
            "columns": plan.columns,
            "method": method,
            **plan.methods[method],
            "seed": seed,
        }
        for dirt, group, name, method, seed in plan.wanted()
    ]


def _load(data: Path | None, group: str, name: str, rows: int, columns: int, seed: int) -> Table:
    try:
        return tables.load(group, name, data, rows=rows, columns=columns, seed=seed)
    except ModuleNotFoundError as error:
        raise UserError(f"{name} needs {error.name}; from a clone of the repository: pip install '.[cells]'") from None


def measure(data: Path | None, settings: Settings) -> Result:
    """Spoil the table, let the method work, and judge it. What fails is a result too, with its reason."""
    from threadpoolctl import threadpool_limits

    table = _load(data, settings["group"], settings["table"], settings["rows"], settings["columns"], settings["seed"])
    result: Result = {"n": table.frame.shape[0], "d": table.frame.shape[1]}
    dirt = Dirt(*(settings[name] for name in Dirt._fields))
    start = time.process_time()
    try:
        with threadpool_limits(1), warnings.catch_warnings(), stopped_after(LONGEST):
            warnings.simplefilter("ignore")
            judged = _judge(METHODS[settings["method"]], table, dirt, settings["seed"])
    except Exception as error:  # of any library: a failure is told on the page
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return {**result, "error": text[:200], "method_seconds": round(time.process_time() - start, 2)}
    return {**result, **judged}


def spoil(table: Table, dirt: Dirt, seed: int) -> tuple[corruptions.Dirty, np.ndarray]:
    """The table with its dirt, and which cells were hidden; the same for every method."""
    named = zlib.crc32(f"{table.name} {dirt.wrong} {dirt.missing} {dirt.mechanism}".encode())
    rng = np.random.default_rng([seed, named])
    dirty = corruptions.corrupt(table.frame, dirt.wrong, rng)
    hidden = corruptions.hide(table.frame, dirt.missing, dirt.mechanism, rng)
    kind = np.where(hidden, "", dirty.kind)
    return corruptions.Dirty(corruptions.without(dirty.frame, hidden), kind), hidden


def _judge(method: Method, table: Table, dirt: Dirt, seed: int) -> Result:
    dirty, hidden = spoil(table, dirt, seed)
    start = time.process_time()
    if dirt.task == FIND:
        assert method.find is not None
        found = method.find(dirty.frame.copy(), seed)
        result: dict[str, Any] = {"method_seconds": round(time.process_time() - start, 2)}
        result |= ranking(found.scores, dirty) | value_errors(table.frame, found.suggested, dirty.wrong)
        result |= _named("untouched", value_errors(table.frame, dirty.frame, dirty.wrong))
        if found.flagged is not None:
            repaired = found.suggested.where(found.flagged & dirty.frame.notna().to_numpy(), dirty.frame)
            result |= _named("repaired", value_errors(table.frame, repaired, dirty.wrong))
            right = dirty.frame.notna().to_numpy() & ~dirty.wrong
            result |= {
                "found": float(found.flagged[dirty.wrong].mean()),
                "false_alarms": float(found.flagged[right].mean()),
            }
        return result
    if dirt.task == FILL:
        assert method.fill is not None
        filled = method.fill(dirty.frame.copy(), seed)
        result = {"method_seconds": round(time.process_time() - start, 2)}
        result |= value_errors(table.frame, filled.best, hidden)
        return result | ({"coverage": coverage(table.frame, filled.draws, hidden)} if filled.draws else {})
    assert method.rank is not None
    assert table.labels is not None
    from sklearn.metrics import roc_auc_score

    scores = np.asarray(method.rank(dirty.frame.copy(), seed), np.float64)
    return {
        "method_seconds": round(time.process_time() - start, 2),
        "auroc": float(roc_auc_score(table.labels, scores)),
    }


def _named(prefix: str, values: dict[str, float | None]) -> dict[str, float | None]:
    return {f"{prefix} {name}": value for name, value in values.items()}


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside the block after so much of the processor's time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"stopped after {seconds:g} s of the processor")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


GROUPS = {NUMERIC: "columns of numbers", MIXED: "numbers and categories", LABELLED: "rows with labels"}
