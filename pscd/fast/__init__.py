"""Energies and their input gradients, as fast as the kind of energy allows.

A chain needs E(x) and its gradient with respect to x at every step, and nothing else. `evaluating(energy, x)` provides
them: by hand and in C++ for sequences of supported layers, through autograd for any other energy. Results agree to
rounding, so samplers can be understood without this package; `using("plain")` turns it off.

Other packages import from here only. `gradients` chooses a way, `sequence` parses a network, `torch_layers` and `cpp`
(with `kernels.cpp`) compute it, `threads` decides on the number of processor threads.
"""

from pscd.fast.cpp import compiled_in, time_to_compile
from pscd.fast.gradients import (
    MODES,
    at_once,
    by_hand,
    energies,
    evaluating,
    evaluator,
    frozen,
    using,
)
from pscd.fast.sequence import Sequence, fixed_weights
from pscd.fast.threads import allowed_threads, enough_threads, in_order, threads_set
from pscd.fast.torch_layers import Evaluator, has_hooks, prefer_channels_last

__all__ = [
    "MODES",
    "Evaluator",
    "Sequence",
    "allowed_threads",
    "at_once",
    "by_hand",
    "compiled_in",
    "energies",
    "enough_threads",
    "evaluating",
    "evaluator",
    "fixed_weights",
    "frozen",
    "has_hooks",
    "in_order",
    "prefer_channels_last",
    "threads_set",
    "time_to_compile",
    "using",
]
