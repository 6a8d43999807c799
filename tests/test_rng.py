import torch

from pscd.rng import generator, integer_seed


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
