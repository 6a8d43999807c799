import math

import pytest
import torch

from pscd.mixtures.neighbours import isolation
from pscd.rng import generator


@pytest.mark.parametrize(("n", "rank"), [(200, 14), (20, 5), (4, 3), (2, 1)])
def test_it_is_the_distance_to_the_neighbour_of_the_root_of_n(n, rank):
    """Against a sort of all distances; the first is that of a row to itself."""
    u = torch.randn(n, 3, generator=generator(0), dtype=torch.float64)
    distances = (u[:, None] - u).norm(dim=2).sort(1).values
    assert rank == min(max(5, math.isqrt(n)), n - 1)
    torch.testing.assert_close(isolation(u), distances[:, rank], rtol=1e-6, atol=1e-7)


def test_blocks_change_nothing():
    u = torch.randn(300, 2, generator=generator(0), dtype=torch.float64)
    whole = isolation(u)
    torch.testing.assert_close(isolation(u, block=7), whole, rtol=1e-6, atol=1e-7)


def test_a_row_apart_is_the_most_isolated():
    u = torch.randn(300, 2, generator=generator(0), dtype=torch.float64)
    u[17] = 10
    assert isolation(u).argmax() == 17
