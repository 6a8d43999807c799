import math
from contextlib import nullcontext

import pytest
import torch

from pscd.coordinates import Coordinates
from pscd.mixtures import Mixture
from pscd.model_file import check_fits
from pscd.sampling import Chains


@pytest.mark.parametrize(
    ("step_size", "fits"),
    [
        (torch.tensor(0.1), True),
        (torch.tensor([0.1]), True),
        (torch.tensor([0.1, 0.2]), False),
        (torch.tensor(1), False),
        (torch.tensor(0.1).double(), False),
        (torch.tensor(0.0), False),
        (torch.tensor(math.inf), False),
        (torch.tensor(math.nan), False),
    ],
)
def test_a_step_size_is_one_positive_number_of_the_weights_kind(step_size, fits):
    with nullcontext() if fits else pytest.raises(ValueError, match="the step size is"):
        check_fits(Coordinates.identity((2,)), step_size, Mixture.standard(2), {"weight": torch.zeros(3)})


def chains(points, label):
    found = Chains(torch.zeros(3, 2, dtype=torch.uint8))
    found.points, found.label = points, label
    return found


@pytest.mark.parametrize(
    ("proposal", "message"),
    [
        (chains(torch.zeros(3, 2, dtype=torch.uint8), torch.zeros(3).long()), None),
        (chains(torch.zeros(3, 2), torch.zeros(3).long()), "no images with a label each"),
        (chains(torch.zeros(3, 2, dtype=torch.uint8), torch.zeros(3)), "no images with a label each"),
        (chains(torch.zeros(3, 2, dtype=torch.uint8), torch.zeros(2).long()), "no images with a label each"),
        (chains(torch.zeros(3, 3, dtype=torch.uint8), torch.zeros(3).long()), r"shape \(2,\), chains start at \(3,\)"),
        (Mixture.standard(2), None),
        (Mixture.standard(3), r"rows have the shape \(2,\), chains start at \(3,\)"),
    ],
)
def test_where_chains_start_must_fit_the_rows(proposal, message):
    with nullcontext() if message is None else pytest.raises(ValueError, match=message):
        check_fits(Coordinates.identity((2,)), torch.tensor(1.0), proposal, {"weight": torch.zeros(3)})


def test_a_network_without_floating_weights_has_a_step_of_either_kind():
    for kind in (torch.float32, torch.float64):
        check_fits(Coordinates.identity((2,)), torch.tensor(1.0, dtype=kind), Mixture.standard(2), {})
    weights = {"a": torch.zeros(1).double(), "n": torch.zeros(1).long()}
    check_fits(Coordinates.identity((2,)), torch.tensor(1.0).double(), Mixture.standard(2), weights)
