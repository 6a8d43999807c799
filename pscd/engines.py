"""Tables on a cluster: rows of a Dask DataFrame or a Ray Dataset scored, detected and cleaned where they are.

Each partition is a pandas frame and is processed by itself, so a worker that is killed can be replaced. Neither engine
is imported here: a table brings its own. For Spark see docs/how-to/score-large-tables.md.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pscd import fast
from pscd.errors import UserError
from pscd.model import Model

if TYPE_CHECKING:
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector


def score(table: Any, model: "EnergyDetector | Model") -> Any:
    """The table with a column `energy`; higher energy = more anomalous.

    Args:
        table: a Dask DataFrame, a Ray Dataset or a pandas frame.
        model: a fitted detector; or a model of a table, whose columns are taken by name, or all if it knows no names.

    Returns:
        A table of the same kind, not computed yet where the engine is lazy.

    Raises:
        UserError: the table is of another kind, or has other columns.

    >>> import pandas as pd
    >>> from pscd import EnergyDetector
    >>> rows = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    >>> list(score(rows, EnergyDetector(updates=20).fit(rows)).columns)
    ['a', 'b', 'energy']
    """
    return _apply(table, partial(_score, model=model), model, {"energy": "float64"})


def detect(table: Any, detector: "EnergyDetector") -> Any:
    """The table with columns `energy`, `outlier` and `because`, which names the responsible columns of each outlier.

    Args:
        table: a Dask DataFrame, a Ray Dataset or a pandas frame.
        detector: a fitted detector; fit one to a sample of the table.

    Returns:
        A table of the same kind, not computed yet where the engine is lazy.

    Raises:
        UserError: the table is of another kind, or has other columns.

    >>> import pandas as pd
    >>> from pscd import EnergyDetector
    >>> rows = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    >>> rows.loc[0, "a"] = 50.0
    >>> detect(rows, EnergyDetector(updates=20).fit(rows)).loc[0, "because"][:6]
    'a = 50'
    """
    new = {"energy": "float64", "outlier": "bool", "because": "str"}
    return _apply(table, partial(_detect, detector=detector), detector, new)


def clean(table: Any, detector: "EnergyDetector", *, repair: bool = True, fill: bool = False) -> Any:
    """The table with suggestions in place of wrong cells, missing cells or both.

    Args:
        table: a Dask DataFrame, a Ray Dataset or a pandas frame.
        detector: a fitted detector.
        repair: whether to replace cells that look wrong; a mistake in several cells of a partition, such as a unit, is
            more readily recognised there.
        fill: whether to fill missing cells.

    Returns:
        A table of the same kind and with the same columns; whole numbers that may be replaced by others become floats.

    Raises:
        UserError: the table is of another kind, or has other columns.

    >>> import pandas as pd
    >>> from pscd import EnergyDetector
    >>> rows = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 1)) @ [[1.0, 1.0]], columns=["a", "b"])
    >>> detector = EnergyDetector(updates=20).fit(rows)
    >>> rows.loc[0, "a"] = 50.0
    >>> bool(clean(rows, detector).loc[0, "a"] < 3)
    True
    """
    return _apply(table, partial(_clean, detector=detector, repair=repair, fill=fill), detector, {})


def _score(part: "pd.DataFrame", model: "EnergyDetector | Model") -> "pd.DataFrame":
    if len(part) == 0:
        return part.assign(energy=np.empty(0))
    rows = part[_names(model, list(part.columns))]
    with fast.threads_set(1):  # the engine has a process for each core
        if isinstance(model, Model):
            x: Any = rows if model.schema is not None else rows.to_numpy("float64")
            return part.assign(energy=np.asarray(model.energy(x), "float64"))
        return part.assign(energy=-model.score_samples(rows))


def _detect(part: "pd.DataFrame", detector: "EnergyDetector") -> "pd.DataFrame":
    from pscd.detector.reasons import reasons_of

    scored = _score(part, detector)
    outlier = scored["energy"].to_numpy() > -detector.offset_
    because = np.full(len(part), "", dtype=object)
    index = np.flatnonzero(outlier)
    with fast.threads_set(1):
        because[index] = reasons_of(detector, detector.read(part[_names(detector, list(part.columns))]), index)
    return scored.assign(outlier=outlier.astype(bool), because=because).astype({"because": "str"})


def _clean(part: "pd.DataFrame", detector: "EnergyDetector", repair: bool, fill: bool) -> "pd.DataFrame":
    names = _names(detector, list(part.columns))
    # Suggestions may have decimals, and a partition must not decide on its own types.
    numbers = {column.name for column in detector.reader_.schema.columns if column.kind == "number"}
    chosen = names if detector.reader_.is_plain else numbers
    made = part.astype({name: "float64" for name in part.columns if part[name].dtype.kind in "iu" and name in chosen})
    if len(part) == 0:
        return made
    with fast.threads_set(1):
        cells = detector.cells(part[names].reset_index(drop=True))
    cells = cells[cells["problem"].isin(["wrong"] * repair + ["missing"] * fill)]
    for column, changes in cells.groupby("column"):
        name = str(column)
        values = made[name].copy()
        values.iloc[changes["row"].to_numpy()] = changes["suggestion"].to_numpy()
        made[name] = values.astype(made[name].dtype)
    return made


def _names(model: "EnergyDetector | Model", columns: list[str]) -> list[str]:
    """The columns of a table that a model takes; all, if it knows no names."""
    if not isinstance(model, Model):
        return list(model.columns) if hasattr(model, "feature_names_in_") else columns
    if model.schema is not None:
        return [column.name for column in model.schema.learnt()]
    return columns if model.columns is None else list(model.columns)


def _apply(table: Any, work: Any, model: "EnergyDetector | Model", new: dict[str, str]) -> Any:
    """The work on every partition of a table; `new` columns have these types."""
    import pandas as pd

    from pscd.tables.levels import listed

    engine = type(table).__module__.partition(".")[0]
    if engine not in ("dask", "ray") and not isinstance(table, pd.DataFrame):
        raise UserError(f"expected a Dask DataFrame, a Ray Dataset or a pandas frame, got {type(table).__name__}")
    columns = [str(name) for name in (table.schema().names if engine == "ray" else table.columns)]
    absent = [name for name in _names(model, columns) if name not in columns]
    if absent:  # before anything is sent to a cluster
        raise UserError(f"the table has no column {listed(absent)}; it has {listed(columns)}")
    if engine == "dask":
        like = table._meta
        meta = work(like) if not new else like.assign(**{name: pd.Series(dtype=kind) for name, kind in new.items()})
        return table.map_partitions(work, meta=meta)
    if engine == "ray":
        # Whole blocks: by default Ray puts several into one batch, as they come.
        return table.map_batches(work, batch_format="pandas", batch_size=None)
    return work(table)
