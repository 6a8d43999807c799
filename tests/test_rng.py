import pytest
import torch

from pscd.errors import UserError
from pscd.rng import Stream, generator, integer_seed, seeded


def test_same_path_same_numbers_and_no_other():
    def draw(*path):
        return torch.rand(3, generator=generator(*path))

    assert torch.equal(draw(1, 2, 3), draw(1, 2, 3))
    paths = [(1, 2), (2, 1), (1, 2, 0), (0, 1, 2), (3,)]
    assert len({tuple(draw(*path).tolist()) for path in paths}) == len(paths)


def test_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    integer_seed(generator(0))
    assert torch.equal(before, torch.get_rng_state())


def test_the_numbers_of_a_path_are_the_same_for_ever():
    assert torch.randint(10**6, (3,), generator=generator(7, Stream.UPDATE, 3)).tolist() == [929801, 109154, 500426]
    assert integer_seed(generator(7)) == 987444464
    assert len({integer_seed(generator(7, i)) for i in range(100)}) == 100


def test_seeds_start_at_zero():
    generator(0)
    with pytest.raises(UserError, match="must not be negative, got -1"):
        generator(-1)


def test_what_is_built_with_a_seed_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (seeded(lambda: torch.rand(3), seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first, torch.rand(3, generator=torch.Generator().manual_seed(0)))
