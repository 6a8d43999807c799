"""One engine for all studies: runs computed in parallel, stored by a digest of their settings, one page at the end."""

from studies.engine.experiment import (
    SCHEMA,
    Experiment,
    Row,
    Run,
    mean_rows,
    number,
    objective_label,
    run_experiment,
    with_reading,
)
from studies.engine.parallel import Result, RunStore, Settings, compute_missing, digest

__all__ = [
    "SCHEMA",
    "Experiment",
    "Result",
    "Row",
    "Run",
    "RunStore",
    "Settings",
    "compute_missing",
    "digest",
    "mean_rows",
    "number",
    "objective_label",
    "run_experiment",
    "with_reading",
]
