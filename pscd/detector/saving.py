"""Fitted detectors in two files of a folder, without pickle."""

import json
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pscd.coordinates import LINEAR, SPIKED_LINEAR, Coordinates
from pscd.detector.cells import CellModel
from pscd.detector.gaussian import Gaussian
from pscd.detector.neighbourhood import Neighbourhood
from pscd.detector.numbers import NumberEnergy
from pscd.detector.reading import Reader, Rows
from pscd.energies import Correction
from pscd.errors import UserError
from pscd.files import locked, read_tensors, reading, tensors_digest, under, write_tensors, writing_to
from pscd.mixtures import TableMixture
from pscd.model import Model
from pscd.run_folder import RunFolder
from pscd.tables import Schema

if TYPE_CHECKING:
    from pathlib import Path

    from pscd.detector.estimator import EnergyDetector

    Detector = TypeVar("Detector", bound=EnergyDetector)

FITTED = ("gamma_", "contamination_", "offset_", "n_rows_", "yardstick_")  # numbers that are saved


def write_detector(detector: "EnergyDetector", run: RunFolder) -> None:
    """Write a fitted detector.

    Args:
        detector: fitted.
        run: the folder, which is made if there is none.

    Raises:
        UserError: it cannot be written, or another process is writing there.
    """
    run.make()
    with locked(run.lock), writing_to(run.path):
        _write(detector, run)


def _write(detector: "EnergyDetector", run: RunFolder) -> None:
    tensors = {f"cells.{name}": t for name, t in detector.cells_.tensors().items()}
    tensors |= {"sample_weight": torch.from_numpy(detector.sample_weight_), "stray": detector.stray_}
    if detector.cells_.columns is not None:
        tensors |= {f"columns.{name}": t for name, t in detector.cells_.columns.tensors().items()}
    metadata = {}
    if detector.numbers_ is not None:
        gaussian = detector.numbers_.gaussian
        tensors |= {"mean": gaussian.mean, "covariance": gaussian.covariance, "scatter": gaussian.scatter}
        detector.numbers_.model.save(run.network, step=detector.n_updates)
        metadata["network"] = tensors_digest(read_tensors(run.network)[0])
    near = detector.neighbourhood_
    tensors |= {} if near is None else {"neighbours": near.rows}
    facts = {
        "parameters": {
            **detector.get_params(),
            "random_state": None if not _plain(detector.random_state) else detector.random_state,
        },
        "fitted": {name: getattr(detector, name) for name in FITTED},
        "neighbours": None if near is None else near.count,
        "names": [str(name) for name in getattr(detector, "feature_names_in_", [])],
        "schema": None if detector.reader_.schema is None else detector.reader_.schema.to_json(),
    }
    write_tensors(run.detector, tensors, {"facts": json.dumps(facts), **metadata})


def read_detector(cls: "type[Detector]", run: RunFolder) -> "Detector":
    """Read a detector that `write_detector` wrote, or an earlier version of it.

    Args:
        cls: the class of the detector.
        run: the folder.

    Returns:
        The fitted detector.

    Raises:
        UserError: a file is damaged, or the two files are of different fits.
    """
    with reading(run.detector, "damaged, or not a detector of pscd"):
        tensors, metadata = read_tensors(run.detector)
        facts = json.loads(metadata["facts"])
        parameters = facts["parameters"]
        detector = cls(**parameters | {"missing": tuple(parameters.get("missing", ()))})
        detector._check_parameters()
        _restore(detector, tensors, facts)
        gaussian = _gaussian(tensors, facts["fitted"]["gamma_"])
        rows = tensors.get("neighbours")
        detector.neighbourhood_ = None if rows is None else Neighbourhood(rows, int(facts["neighbours"]))
    detector.numbers_ = None
    if gaussian is not None:
        _check_network(run.network, metadata.get("network"))
        energy = Correction(len(gaussian.mean), bound=detector.bound)
        detector.numbers_ = NumberEnergy(gaussian, Model.load(run.network, energy=energy))
    with reading(run.detector, "damaged, or not a detector of pscd"):
        _check_fits(detector)
    return detector


def _check_fits(detector: "EnergyDetector") -> None:
    """Score a row of zeros, to see that the parts of a file fit together."""
    x = torch.zeros(1, len(detector.cells_.levels), dtype=torch.float64)
    scores = detector._scored(Rows(x, torch.zeros(1, detector.reader_.n_columns, dtype=torch.bool), None))
    if scores.shape != (1,):
        raise ValueError("its parts do not fit together")


def _restore(detector: "EnergyDetector", tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Take over what was written, but for the energy of the numbers."""
    for name in FITTED:
        value = facts["fitted"].get(name, ()) if name == "yardstick_" else facts["fitted"][name]
        if not all(isinstance(v, int | float) for v in (value if name == "yardstick_" else [value])):
            raise ValueError(f"{name} is {value!r}")
        setattr(detector, name, value)
    detector.sample_weight_ = tensors["sample_weight"].numpy()
    columns = _columns(under(tensors, "columns."), tensors)
    own = under(tensors, "cells.")
    detector.cells_ = _cells(own, columns) if own else _gaussian_cells(tensors, columns)
    schema = facts.get("schema")
    width = len(detector.cells_.levels)
    detector.reader_ = Reader(width) if schema is None else Reader(len(schema["columns"]), Schema.from_json(schema))
    detector.stray_ = tensors.get("stray", torch.zeros(width, dtype=torch.long))
    detector.n_features_in_ = detector.reader_.n_columns
    if facts["names"]:
        detector.feature_names_in_ = np.array([str(name) for name in facts["names"]], dtype=object)


def _check_network(path: "Path", digest: str | None) -> None:
    """A `UserError` if the network is not the one that a detector was saved with; old detectors do not know theirs."""
    if digest is None or not path.is_file():
        return
    with reading(path, "damaged"):
        found = tensors_digest(read_tensors(path)[0])
    if found != digest:
        raise UserError(
            f"{path}: not the network of the detector beside it, but of another fit; save the detector again"
        )


def _plain(value: object) -> bool:
    return value is None or isinstance(value, int)


def _columns(tensors: dict[str, Tensor], others: dict[str, Tensor]) -> Coordinates | None:
    """The coordinates of a file, or of one written before coordinates had a room of their own."""
    if not tensors:
        return None
    if "spiked" not in tensors:
        return Coordinates(**tensors)
    linear = torch.where(tensors["spiked"], SPIKED_LINEAR, LINEAR).double()
    return Coordinates(tensors["centre"], tensors["scale"], linear, tensors["kept"], others["constants"])


def _gaussian(tensors: dict[str, Tensor], gamma: float) -> Gaussian | None:
    if not under(tensors, "columns."):  # no number varies
        return None
    return Gaussian(tensors["mean"], tensors["covariance"], gamma, tensors["scatter"])


def _cells(tensors: dict[str, Tensor], columns: Coordinates | None) -> CellModel:
    mixture = TableMixture(**under(tensors, "mixture."))
    return CellModel(columns, mixture, tensors["levels"], tensors["varies"], tensors["constants"])


def _gaussian_cells(tensors: dict[str, Tensor], columns: Coordinates | None) -> CellModel:
    """The cells of a detector that was saved before it had a mixture: its Gaussian knows them too."""
    assert columns is not None
    assert columns.used is not None
    assert columns.constants is not None
    mean, covariance = tensors["mean"], tensors["covariance"]
    levels = torch.zeros(len(columns.used), dtype=torch.long)
    mixture = TableMixture(mean.new_ones(1), mean[None], torch.linalg.cholesky(covariance)[None])
    constants = torch.where(columns.used, torch.nan, columns.constants)
    return CellModel(columns, mixture, levels, columns.used, constants)
