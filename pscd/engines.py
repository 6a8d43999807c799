"""Tables on a cluster: rows of a Dask DataFrame or a Ray Dataset scored, detected and cleaned where they are.

Each partition is a pandas frame, and is worked on by itself: the model goes to the rows. What a worker computes depends
on its partition alone, so one that is killed is replaced without a trace. Neither engine is imported here: a table
brings its own. `pip install 'pscd[dask]'` or `'pscd[ray]'` installs them.

For Spark, which wants a function of its own, see docs/how-to/score-large-tables.md.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscd import fast
from pscd.errors import UserError
from pscd.model import Model

if TYPE_CHECKING:
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector

Work = Callable[["pd.DataFrame"], "pd.DataFrame"]


def score(table: Any, model: "EnergyDetector | Model") -> Any:
    """The table with a column `energy`: the higher, the stranger.

    >>> import numpy as np, pandas as pd
    >>> from pscd import EnergyDetector
    >>> rows = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    >>> list(score(rows, EnergyDetector(updates=20).fit(rows)).columns)
    ['a', 'b', 'energy']
    """
    _check_columns(table, model)
    return _apply(table, _Score(model), {"energy": "float64"})


def detect(table: Any, detector: "EnergyDetector") -> Any:
    """The table with columns `energy`, `outlier` and `because`, which names the columns to blame for each outlier.

    >>> import numpy as np, pandas as pd
    >>> from pscd import EnergyDetector
    >>> rows = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    >>> rows.loc[0, "a"] = 50.0
    >>> detect(rows, EnergyDetector(updates=20).fit(rows)).loc[0, "because"][:6]
    'a = 50'
    """
    _check_columns(table, detector)
    return _apply(table, _Detect(detector), {"energy": "float64", "outlier": "bool", "because": "str"})


def clean(table: Any, detector: "EnergyDetector", *, repair: bool = True, fill: bool = False) -> Any:
    """The table with wrong cells, missing cells or both as they should be.

    A mistake that explains several wrong cells of a partition, such as a unit, is more readily believed for the next.

    >>> import numpy as np, pandas as pd
    >>> from pscd import EnergyDetector
    >>> rows = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 1)) @ [[1.0, 1.0]], columns=["a", "b"])
    >>> detector = EnergyDetector(updates=20).fit(rows)
    >>> rows.loc[0, "a"] = 50.0
    >>> bool(clean(rows, detector).loc[0, "a"] < 3)
    True
    """
    _check_columns(table, detector)
    return _apply(table, _Clean(detector, repair, fill), {})


class _Score:
    """Energies of a partition. A class, not a closure: engines pickle it, and name it in what they show."""

    def __init__(self, model: "EnergyDetector | Model") -> None:
        self.model = model

    def __call__(self, part: "pd.DataFrame") -> "pd.DataFrame":
        import numpy as np

        if len(part) == 0:
            return part.assign(energy=_empty("float64"))
        with fast.threads_set(1):  # the engine has a process for each core
            rows = part[_names(self.model, part)]
            if isinstance(self.model, Model):
                return part.assign(energy=np.asarray(self.model.energy(rows.to_numpy("float64")), "float64"))
            return part.assign(energy=-self.model.score_samples(rows))


class _Detect:
    def __init__(self, detector: "EnergyDetector") -> None:
        self.detector = detector

    def __call__(self, part: "pd.DataFrame") -> "pd.DataFrame":
        import numpy as np

        from pscd.detector.reasons import reasons_of

        scored = _Score(self.detector)(part)
        outlier = scored["energy"].to_numpy() > -self.detector.offset_
        because = np.full(len(part), "", dtype=object)
        some = np.flatnonzero(outlier)
        with fast.threads_set(1):
            rows = part[_names(self.detector, part)]
            because[some] = reasons_of(self.detector, self.detector.read(rows), some)
        made = scored.assign(outlier=outlier.astype(bool), because=because)
        return made.astype({"because": "str"})


class _Clean:
    def __init__(self, detector: "EnergyDetector", repair: bool, fill: bool) -> None:
        self.detector, self.repair, self.fill = detector, repair, fill

    def __call__(self, part: "pd.DataFrame") -> "pd.DataFrame":
        made = part.copy()
        for name in self._names_of_whole_numbers(part):
            made[name] = made[name].astype("float64")
        if len(part) == 0:
            return made
        rows = part[_names(self.detector, part)].reset_index(drop=True)
        with fast.threads_set(1):
            found = self._found(rows)
        for column, cells in found.groupby("column"):
            name = str(column)
            values = made[name].copy()
            values.iloc[cells["row"].to_numpy()] = cells["suggestion"].to_numpy()
            made[name] = values.astype(made[name].dtype)
        return made

    def _found(self, rows: "pd.DataFrame") -> "pd.DataFrame":
        """The cells to be mended, each once."""
        cells = self.detector.cells(rows)
        return cells[cells["problem"].isin(["wrong"] * self.repair + ["missing"] * self.fill)]

    def _names_of_whole_numbers(self, part: "pd.DataFrame") -> list[str]:
        """Columns that may be mended to a value with decimals: a partition must not decide on its own types."""
        reader = self.detector.reader_
        whole = [name for name in part.columns if part[name].dtype.kind in "iu"]
        if reader.is_plain:
            return [name for name in whole if name in _names(self.detector, part)]
        kinds = {column.name: column.kind for column in reader.schema.columns}
        return [name for name in whole if kinds.get(name) == "number"]


def _names(model: "EnergyDetector | Model", part: "pd.DataFrame") -> list[str]:
    """The columns of a partition that a model takes."""
    if isinstance(model, Model):
        return list(part.columns) if model.columns is None else list(model.columns)
    return model.columns if hasattr(model, "feature_names_in_") else list(part.columns)


def _check_columns(table: Any, model: "EnergyDetector | Model") -> None:
    """Find out that a column is not there before anything is sent to a cluster."""
    from pscd.tables.levels import listed

    there = _columns(table)
    named = isinstance(model, Model) and model.columns is not None
    wanted = _names(model, table) if named or not isinstance(model, Model) else there
    gone = [name for name in wanted if name not in there]
    if gone:
        raise UserError(f"the table has no column {listed(gone)}; it has {listed(there)}")


def _columns(table: Any) -> list[str]:
    if _is_ray(table):
        return list(table.schema().names)
    if hasattr(table, "columns"):
        return [str(name) for name in table.columns]
    raise _not_a_table(table)


def _is_ray(table: Any) -> bool:
    return type(table).__module__.startswith("ray.data")


def _is_dask(table: Any) -> bool:
    return type(table).__module__.startswith("dask")


def _not_a_table(table: Any) -> UserError:
    return UserError(f"expected a Dask DataFrame, a Ray Dataset or a pandas frame, got {type(table).__name__}")


def _empty(dtype: str) -> "pd.Series":
    import pandas as pd

    return pd.Series(dtype=dtype)


def _apply(table: Any, work: Work, new: dict[str, str]) -> Any:
    """The work on every partition of a table; `new` columns have these types."""
    if _is_dask(table):
        like = table._meta
        meta = work(like) if not new else like.assign(**{name: _empty(dtype) for name, dtype in new.items()})
        return table.map_partitions(work, meta=meta)
    if _is_ray(table):
        # Whole blocks: by default Ray puts several into one batch, as they come.
        return table.map_batches(work, batch_format="pandas", batch_size=None)
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return work(table)
    raise _not_a_table(table)
