"""Fitted detectors in two files of a folder, without pickle."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pscd.coordinates import Coordinates
from pscd.detector.cell_model import CellModel
from pscd.detector.gaussian import Gaussian
from pscd.detector.neighbourhood import Neighbourhood
from pscd.detector.numbers import NumberEnergy
from pscd.detector.reading import EncodedRows, Reader
from pscd.energies import Correction
from pscd.errors import UserError
from pscd.files import locked, read_tensors, reading, tensors_digest, under, write_tensors, writing_to
from pscd.mixtures import TableMixture
from pscd.model import Model
from pscd.run_folder import RunFolder
from pscd.tables import Schema

FITTED = ("contamination_", "offset_", "n_rows_")  # numbers that are saved


def write_detector(detector: Any, run: RunFolder) -> None:
    """Write a fitted detector to a folder, which is made if it does not exist."""
    run.make()
    with locked(run.lock), writing_to(run.path):
        _write(detector, run)


def _write(detector: Any, run: RunFolder) -> None:
    tensors = {f"cells.{name}": t for name, t in detector.cells_.tensors().items()}
    tensors |= {"sample_weight": torch.from_numpy(detector.sample_weight_), "impossible": detector.impossible_}
    if detector.cells_.columns is not None:
        tensors |= {f"columns.{name}": t for name, t in detector.cells_.columns.tensors().items()}
    metadata = {}
    if detector.numbers_ is not None:
        gaussian = detector.numbers_.gaussian
        tensors |= {"mean": gaussian.mean, "covariance": gaussian.covariance}
        detector.numbers_.model.save(run.network, step=detector.updates)
        metadata["network"] = tensors_digest(read_tensors(run.network)[0])
    near = detector.neighbourhood_
    tensors |= {} if near is None else {"neighbours": near.rows}
    seed = detector.random_state
    facts = {
        "parameters": {**detector.get_params(), "random_state": seed if isinstance(seed, int) else None},
        "fitted": {name: getattr(detector, name) for name in FITTED},
        "neighbours": None if near is None else near.count,
        "names": [str(name) for name in getattr(detector, "feature_names_in_", [])],
        "schema": detector.reader_.schema.to_json(),
        "is_plain": detector.reader_.is_plain,
    }
    write_tensors(run.detector, tensors, {"facts": json.dumps(facts), **metadata})


def read_detector(cls: Any, run: RunFolder) -> Any:
    """Read a detector that `write_detector` wrote."""
    with reading(run.detector, "damaged, or not a detector of pscd"):
        tensors, metadata = read_tensors(run.detector)
        facts = json.loads(metadata["facts"])
        parameters = facts["parameters"]
        detector = cls(**parameters | {"missing": tuple(parameters["missing"])})
        detector._check_parameters()
        _restore(detector, tensors, facts)
        rows = tensors.get("neighbours")
        detector.neighbourhood_ = None if rows is None else Neighbourhood(rows, int(facts["neighbours"]))
        gaussian = None if detector.cells_.columns is None else Gaussian(tensors["mean"], tensors["covariance"])
    detector.numbers_ = None
    if gaussian is not None:
        _check_network(run.network, metadata.get("network"))
        energy = Correction(len(gaussian.mean), bound=detector.bound)
        detector.numbers_ = NumberEnergy(gaussian, Model.load(run.network, energy=energy))
    with reading(run.detector, "damaged, or not a detector of pscd"):
        _check_fits(detector)
    return detector


def _check_fits(detector: Any) -> None:
    """Score a row of zeros, to see that the parts of a file fit together."""
    x = torch.zeros(1, len(detector.cells_.levels), dtype=torch.float64)
    nothing = torch.zeros(1, detector.reader_.n_columns, dtype=torch.bool)
    rows = EncodedRows(x, nothing, nothing, None, detector.reader_)
    if detector.score_samples(rows).shape != (1,):
        raise ValueError("its parts do not fit together")


def _restore(detector: Any, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Set all that was fitted, except for the energy of the numbers."""
    for name in FITTED:
        value = facts["fitted"][name]
        if not isinstance(value, int | float):
            raise ValueError(f"{name} is {value!r}")
        setattr(detector, name, value)
    detector.sample_weight_ = tensors["sample_weight"].numpy()
    detector.impossible_ = tensors["impossible"]
    columns, cells = (under(tensors, f"{name}.") for name in ("columns", "cells"))
    detector.cells_ = CellModel(
        Coordinates(**columns) if columns else None,
        TableMixture(**under(cells, "mixture.")),
        *(cells[name] for name in ("levels", "varies", "constants")),
    )
    detector.reader_ = Reader(Schema.from_json(facts["schema"]), bool(facts["is_plain"]))
    detector.n_features_in_ = detector.reader_.n_columns
    if facts["names"]:
        detector.feature_names_in_ = np.array([str(name) for name in facts["names"]], dtype=object)


def _check_network(path: Path, digest: str | None) -> None:
    """Raise a `UserError` if the network is not the one that a detector was saved with."""
    if not path.is_file():
        return  # loading the model reports it
    with reading(path, "damaged"):
        own = tensors_digest(read_tensors(path)[0])
    if own != digest:
        raise UserError(
            f"{path}: not the network of the detector in this folder, but of another fit; save the detector again"
        )
