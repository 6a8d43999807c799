"""The streams of random numbers that studies draw from, besides those of the library."""

from enum import IntEnum


class StudyStream(IntEnum):
    """The first number of a generator's path, see `pscd.rng.Stream`.

    The numbers are part of every result that was computed with them. Names that share one, here or in the library, are
    never used with the same seed in one run; give anything new its own number.
    """

    CLASSIFIER = 5
    DATA_1D = 8
    CONTAMINATION_1D = 9
    THEOREM_SAMPLES = 10
    THEOREM_STEPS = 11
    THEOREM_DESCENT = 12
    LEMMA_DENSITIES = 13
    LEMMA_SCORES = 14
    LEMMA_DIVERGENCES = 15
    DISCRETE_MACHINE = 20
    DISCRETE_ROWS = 21
    DISCRETE_CHAINS = 22
    OOD_SYNTHETIC = 24
    OOD_DATA = 25
    NOISY_IMAGES = 26
    NOISE_PROBES = 27
    IMAGE_WEIGHTS = 28
    TIMING_DATA = 30
    BASELINE_UPDATE = 30
    TIMING_CHAINS = 31
    NCSN_SAMPLE = 31
    NCSN_ENERGIES = 32
    PIXELCNN_SAMPLE = 33
    GLOW_SAMPLE = 34
    GLOW_DEQUANTISE = 35
    GLOW_START = 36
    QUALITY_ROWS = 40
    QUALITY_LOOKS = 41
    QUALITY_CHAINS = 42
    GROWTH_ROWS = 43
    CONTAMINATION_2D = 60
    FRESH_CLEAN = 61
    FRESH_OUTLIERS = 62
    TABLE_SPLIT = 63
    TABLE_OUTLIERS = 64
    TABLE_SPREAD = 65
    BASELINE_ROWS = 66
    BASELINE_FLOW = 67
