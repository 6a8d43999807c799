"""Blocks of a large table as a fitted detector takes them, and a sample of one to fit it to."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pscd.errors import UserError
from pscd.rng import Stream, generator
from pscd.tables import encode, look
from pscd.tables.blocks import BlockSource
from pscd.tables.encode import other_decimal
from pscd.tables.levels import listed
from pscd.tables.numbers import LARGEST

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector

Fitting = Callable[[Any], Any]


def fitting_blocks(detector: "EnergyDetector", source: BlockSource, told: dict[str, Any] | None = None) -> Fitting:
    """What makes of a block of a table the rows that a detector takes.

    What must be found out about the cells, such as the decimal sign, is found out from the first block, and is the same
    for all.

    Args:
        detector: the fitted detector.
        source: the table.
        told: what is known about the cells, as `pscd.tables.read_frame` takes it.

    Returns:
        A function from a block, an array or a data frame, to rows.

    Raises:
        UserError: the table has other columns than the detector was fitted to.
    """
    wanted = wanted_columns(detector)
    if source.names is None and source.n_columns != len(wanted):
        width = f"{source.n_columns} numbers a row"
        raise UserError(f"{source.path}: {width}, but the detector was fitted to {len(wanted)} columns")
    gone = [name for name in wanted if source.names is not None and name not in source.names]
    if gone:
        raise UserError(f"{source.path}: has no column {listed(gone)}; it has {listed(list(source.names or ()))}")
    first = next(source.blocks(0, wanted))
    known = {name: value for name, value in (told or {}).items() if value not in (None, ())}
    schema = detector.reader_.schema
    if schema is None:
        numbers = None if source.names is None else _numbers(first, wanted, known)
        named = hasattr(detector, "feature_names_in_")

        def rows(block: Any) -> Any:
            x = _values(block, wanted) if numbers is None else encode(block[wanted], numbers).x
            return pd.DataFrame(x, columns=wanted) if named else _finite(x)

        return rows
    first = _framed(first, wanted, known)
    decimal = other_decimal(first, schema)
    known |= {} if decimal is None else {"decimal": decimal}
    return lambda block: _framed(block, wanted, known)


def wanted_columns(detector: "EnergyDetector") -> list[str]:
    """The columns that a detector cannot do without.

    Args:
        detector: the fitted detector.

    Returns:
        Their names; those of one that was fitted to an array are x0, x1, ...
    """
    schema = detector.reader_.schema
    if schema is not None:
        return [column.name for column in schema.learnt()]
    found = getattr(detector, "feature_names_in_", None)
    return [f"x{j}" for j in range(detector.n_features_in_)] if found is None else [str(name) for name in found]


def _numbers(first: pd.DataFrame, wanted: Sequence[str], known: dict[str, Any]) -> Any:
    """What the columns of text are as numbers; None if all columns are numbers already."""
    if all(pd.api.types.is_numeric_dtype(first[name]) for name in wanted):
        return None
    first.attrs["pscd"] = first.attrs.get("pscd", {}) | known
    return look(first[list(wanted)], kinds=dict.fromkeys(wanted, "number"))


def _values(block: Any, wanted: Sequence[str]) -> np.ndarray:
    """Numbers as they are."""
    x = block.reshape(len(block), -1) if isinstance(block, np.ndarray) else block[list(wanted)].to_numpy(np.float64)
    return x.astype(np.float64)


def _finite(x: np.ndarray) -> np.ndarray:
    """Numbers with NaN for those that cannot be, which an array must not have."""
    with np.errstate(invalid="ignore"):
        x[~(np.abs(x) < LARGEST)] = np.nan
    return x


def _framed(block: Any, wanted: Sequence[str], known: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(block, columns=list(wanted)) if isinstance(block, np.ndarray) else block
    frame.attrs["pscd"] = frame.attrs.get("pscd", {}) | known
    return frame


def sample_rows(source: BlockSource, n: int, *, seed: int) -> Any:
    """Rows of a table chosen at random, in their order.

    Args:
        source: the table.
        n: how many; all of them, if there are no more.
        seed: the same number gives the same rows.

    Returns:
        A data frame, or an array.
    """
    rng = np.random.default_rng(int(generator(seed, Stream.SAMPLE_ROWS).initial_seed()))
    kept: list[Any] = []
    keys: list[np.ndarray] = []
    edge = np.inf
    for block in source.blocks():
        drawn = rng.random(len(block))
        chosen = np.flatnonzero(drawn < edge)
        kept.append(block[chosen] if isinstance(block, np.ndarray) else block.iloc[chosen])
        keys.append(drawn[chosen])
        if sum(map(len, keys)) > 2 * n:
            kept, keys, edge = _smallest(kept, keys, n)
    kept, keys, _ = _smallest(kept, keys, n)
    return kept[0]


def _smallest(kept: list[Any], keys: list[np.ndarray], n: int) -> tuple[list[Any], list[np.ndarray], float]:
    """The rows with the n smallest keys, and the largest of these."""
    every = np.concatenate(keys)
    edge = float(np.partition(every, n - 1)[n - 1]) if len(every) > n else np.inf
    chosen = np.flatnonzero(every <= edge)
    if isinstance(kept[0], np.ndarray):
        return [np.concatenate(kept)[chosen]], [every[chosen]], edge
    whole = pd.concat(kept, ignore_index=True).iloc[chosen].reset_index(drop=True)
    whole.attrs = kept[0].attrs
    return [whole], [every[chosen]], edge
