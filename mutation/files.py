"""Where mistakes are planted, and the test files that are asked first about each file."""

_FLAGS = "tests/cli/test_flags.py"
_SAMPLING = ["tests/sampling/test_sampling.py", "tests/sampling/test_exactness.py", _FLAGS]
_OBJECTIVES = ["tests/objectives/test_objectives.py", "tests/training/test_one_update.py"]
_KERNELS = [
    "tests/fast/test_cpp.py",
    "tests/fast/test_gradients.py",
    "tests/fast/test_sequence.py",
    "tests/properties/test_losses.py",
]

_KEPT = "tests/mixtures/test_kept_numbers.py"
_TWO_PROCESSES = "tests/test_distributed.py::test_two_processes_give_the_gradient_of_one"  # nobody sees what they call

# What the numbers of the library rest on.
CORE = {
    "pscd/losses.py": ["tests/test_losses.py"],
    "pscd/sampling/buffer.py": ["tests/sampling/test_buffer.py"],
    "pscd/sampling/jumps.py": ["tests/sampling/test_jumps.py", "tests/sampling/test_exactness.py", _FLAGS],
    "pscd/sampling/langevin.py": _SAMPLING,
    "pscd/sampling/mala.py": _SAMPLING,
    "pscd/sampling/proposals.py": ["tests/sampling/test_sampling.py"],
    "pscd/sampling/protocol.py": _SAMPLING,
    "pscd/sampling/starts.py": ["tests/sampling/test_starts.py"],
    "pscd/mixtures/background.py": ["tests/mixtures/test_background.py", _KEPT],
    "pscd/mixtures/evidence.py": ["tests/mixtures/test_evidence.py"],
    "pscd/mixtures/groups.py": ["tests/mixtures/test_groups.py"],
    "pscd/mixtures/mixture.py": ["tests/mixtures/test_mixture.py"],
    "pscd/mixtures/neighbours.py": ["tests/mixtures/test_neighbours.py", _KEPT],
    "pscd/mixtures/robust.py": ["tests/mixtures/test_robust.py", _KEPT],
    "pscd/mixtures/ties.py": ["tests/mixtures/test_ties.py"],
    "pscd/objectives/f_ebm.py": _OBJECTIVES,
    "pscd/objectives/flow_noise.py": ["tests/objectives/test_flow_noise.py"],
    "pscd/objectives/gamma.py": _OBJECTIVES,
    "pscd/objectives/nce.py": _OBJECTIVES,
    "pscd/objectives/protocol.py": _OBJECTIVES,
    "pscd/objectives/score_matching.py": _OBJECTIVES,
    "pscd/objectives/trimmed.py": _OBJECTIVES,
    "pscd/training/checkpoint.py": ["tests/training/test_checkpoint.py", _TWO_PROCESSES],
    "pscd/training/guard.py": ["tests/training/test_guard.py"],
    "pscd/training/held_out.py": ["tests/training/test_held_out.py"],
    "pscd/training/initial.py": ["tests/training/test_initial.py", _TWO_PROCESSES],
    "pscd/training/interrupt.py": ["tests/training/test_interrupt.py"],
    "pscd/training/loop.py": [
        "tests/training/test_loop.py",
        "tests/training/test_one_update.py",
        "tests/training/test_given.py",
    ],
    "pscd/training/notes.py": ["tests/training/test_notes.py"],
    "pscd/training/prepare.py": ["tests/training/test_prepare.py"],
    "pscd/training/settling.py": ["tests/training/test_settling.py"],
    "pscd/training/stopped.py": ["tests/training/test_stopped.py"],
    "pscd/model.py": ["tests/test_model.py"],
    "pscd/distributed.py": ["tests/test_distributed.py", _TWO_PROCESSES],
    "pscd/exact.py": ["tests/test_exact.py"],
    "pscd/discrete.py": ["tests/test_discrete.py"],
    "pscd/metrics.py": ["tests/test_metrics.py"],
    "pscd/theory.py": ["tests/test_theory.py"],
    "pscd/normalise.py": ["tests/test_normalise.py"],
    "pscd/coordinates.py": ["tests/test_coordinates.py"],
    "pscd/config.py": ["tests/test_config.py"],
    "pscd/presets.py": ["tests/test_presets.py"],
    "pscd/rng.py": ["tests/test_rng.py"],
    "pscd/detector/gaussian.py": ["tests/detector/test_gaussian.py"],
    "pscd/detector/numbers.py": ["tests/detector/test_numbers.py", "tests/detector/test_estimator.py"],
    "pscd/detector/estimator.py": ["tests/detector/test_estimator.py"],
    "pscd/data/__init__.py": ["tests/data/test_rows.py"],
    "pscd/data/download.py": ["tests/data/test_download.py"],
    "pscd/data/image_formats.py": ["tests/data/test_image_formats.py"],
    "pscd/data/image_sets.py": ["tests/data/test_image_sets.py"],
    "pscd/data/matlab.py": ["tests/data/test_matlab.py"],
    "pscd/data/noise.py": ["tests/data/test_noise.py"],
    "pscd/data/pixels.py": ["tests/data/test_pixels.py"],
    "pscd/data/tables.py": ["tests/data/test_tables.py"],
    "pscd/data/toys.py": ["tests/data/test_toys.py"],
    "pscd/fast/kernels.cpp": _KERNELS,
    "pscd/fast/vectors.h": _KERNELS,
}

# What is built around them: tables of any kind, the cells of a table, the fast room in Python.
FURTHER = {
    "pscd/mixtures/cells.py": ["tests/mixtures/test_cells.py", _KEPT],
    "pscd/mixtures/missing.py": ["tests/mixtures/test_missing.py", _KEPT],
    "pscd/mixtures/mixed.py": ["tests/mixtures/test_mixed.py", _KEPT],
    "pscd/mixtures/mixed_fit.py": ["tests/mixtures/test_mixed_fit.py", _KEPT],
    "pscd/detector/cells.py": ["tests/detector/test_cells.py"],
    "pscd/detector/cleaning.py": ["tests/detector/test_cleaning.py"],
    "pscd/detector/mistakes.py": ["tests/detector/test_mistakes.py"],
    "pscd/detector/reading.py": ["tests/detector/test_reading.py"],
    "pscd/detector/saving.py": ["tests/detector/test_saving.py"],
    "pscd/frames/cells.py": ["tests/frames/test_cells.py"],
    "pscd/frames/dates.py": ["tests/frames/test_dates.py"],
    "pscd/frames/encoding.py": ["tests/frames/test_encoding.py"],
    "pscd/frames/layout.py": ["tests/frames/test_reading.py"],
    "pscd/frames/levels.py": ["tests/frames/test_encoding.py", "tests/frames/test_frames.py"],
    "pscd/frames/looking.py": ["tests/frames/test_looking.py"],
    "pscd/frames/numbers.py": ["tests/frames/test_numbers.py"],
    "pscd/frames/oddities.py": ["tests/frames/test_oddities.py"],
    "pscd/frames/reading.py": ["tests/frames/test_reading.py"],
    "pscd/frames/schema.py": ["tests/frames/test_frames.py"],
    "pscd/frames/writing.py": ["tests/frames/test_writing.py"],
    "pscd/fast/cpp.py": ["tests/fast/test_cpp.py"],
    "pscd/fast/gradients.py": ["tests/fast/test_gradients.py"],
    "pscd/fast/sequence.py": ["tests/fast/test_sequence.py"],
    "pscd/fast/threads.py": ["tests/fast/test_threads.py"],
    "pscd/fast/torch_layers.py": ["tests/fast/test_torch_layers.py"],
}
FILES = CORE | FURTHER

# Tests of whole programs, which take long and say little about one line.
NOT_ASKED = ("tests/paper/", "tests/benchmarks/", "tests/baselines/", "tests/examples/", "tests/mutation/",
             "tests/scripts/", "tests/report/", "tests/images/", "tests/cli/test_train.py", "tests/test_timing.py",
             "tests/test_packaging.py", "tests/test_architecture.py",
             "tests/test_docstrings.py", "pscd/paper/", "pscd/baselines/", "pscd/report/", "pscd/images/")  # fmt: skip
