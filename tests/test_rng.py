import pytest
import torch

from pscd.errors import UserError
from pscd.rng import Stream, generator, integer_seed, seeded

# The numbers are part of every result that was computed with them.
STREAMS = {
    "TOY_TRAIN": 0, "TOY_HELD_OUT": 1, "SPLIT": 2, "SAMPLE": 3, "UPDATE": 4, "BUFFER": 5, "CLASSIFIER": 5,
    "FRESH_REAL": 6, "FRESH_OTHER": 7, "DATA_1D": 8, "CONTAMINATION_1D": 9, "THEOREM_SAMPLES": 10, "THEOREM_STEPS":
    11, "THEOREM_DESCENT": 12, "LEMMA_DENSITIES": 13, "LEMMA_SCORES": 14, "LEMMA_DIVERGENCES": 15,
    "RANDOMISED_STOP": 16, "PROPOSAL": 17, "OBJECTIVE_INIT": 18, "SETTLE_STEP": 19, "DETECTOR_ROWS": 20, "FLOW": 20,
    "DISCRETE_MACHINE": 20, "INPAINT": 20, "DENOISE": 21, "NORMALISER": 21, "DISCRETE_ROWS": 21, "DISCRETE_CHAINS":
    22, "STRIP": 22, "IMAGES_SHOWN": 23, "GAUSSIAN_CALIBRATION": 23, "OOD_MADE": 24, "OOD_OTHERS": 25,
    "NOISY_IMAGES": 26, "NOISE_PROBES": 27, "IMAGE_WEIGHTS": 28, "TIMING_DATA": 30, "BASELINE_UPDATE": 30,
    "TIMING_CHAINS": 31, "NCSN_SAMPLE": 31, "NCSN_ENERGIES": 32, "PIXELCNN_SAMPLE": 33, "GLOW_SAMPLE": 34,
    "GLOW_DEQUANTISE": 35, "GLOW_START": 36, "ROBUST_MIXTURE": 37, "DEQUANTISE": 38, "HOLD_OUT": 39, "QUALITY_ROWS":
    40, "QUALITY_LOOKS": 41, "QUALITY_CHAINS": 42, "GROWTH_ROWS": 43, "SPREAD": 44, "WAVES": 45, "LOG_Z": 46,
    "MIXED_MIXTURE": 47, "MISSING_CELLS": 48,
    "CONTAMINATION_2D": 60, "FRESH_CLEAN": 61, "FRESH_JUNK": 62, "TABLE_SPLIT": 63, "TABLE_JUNK": 64,
    "TABLE_SPREAD": 65, "RIVAL_ROWS": 66, "RIVAL_FLOW": 67, "CLEAN_ROWS": 68, "REACH": 69,
    "STREAM_SAMPLE": 49, "STREAM_CHUNKS": 50, "STREAM_WINDOW": 51, "STREAM_DEAL": 52, "STREAM_ROWS": 53,
    "SAMPLE_ROWS": 80, "SAMPLE_PART": 81,
}  # fmt: skip


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


def test_streams_keep_their_numbers():
    assert {name: int(stream) for name, stream in Stream.__members__.items()} == STREAMS


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
