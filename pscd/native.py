"""The C++ of `kernels.cpp`, compiled on first use and kept; None where there is no compiler."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pscd.threads import Threads

SOURCE = Path(__file__).with_name("kernels.cpp")
COMPILERS = ("g++", "clang++", "c++")  # after the one that CXX names
FLAGS = ("-O3", "-std=c++17", "-march=native", "-shared", "-fPIC", "-Wno-psabi")
SILU, TANH, LEAKY = 0, 1, 2  # activations, as kernels.cpp numbers them
NONE = (LEAKY, 1.0)  # a layer without one
MOST_LAYERS = 32
SMALLEST_SHARED = 500_000  # multiply-adds below which threads are not worth their start

_threads = Threads()
_Floats = ctypes.POINTER(ctypes.c_float)
_float = ctypes.c_float


class _Network(ctypes.Structure):
    """Mirrors `struct Network` of kernels.cpp, where it is explained."""

    _fields_ = (
        ("layers", ctypes.c_int),
        ("inputs", ctypes.c_int),
        ("waves", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("width", ctypes.POINTER(ctypes.c_int)),
        ("kind", ctypes.POINTER(ctypes.c_int)),
        ("slope", _Floats),
        ("weight", ctypes.POINTER(_Floats)),
        ("bias", ctypes.POINTER(_Floats)),
        ("last", _Floats),
        ("last_bias", _Floats),
        ("frequencies", _Floats),
        ("precision", ctypes.c_float),
        ("packed", _Floats),
        ("scratch", _Floats),
    )


class Network:
    """A fully connected energy in C++, with the weights as they are now.

    Args:
        weights: `(out, in)` of each hidden layer, then `(1, in)`: float32, on the CPU.
        biases: `(out,)` of each, or None.
        activations: kind and slope for each hidden layer.
        frequencies: `(inputs, waves)`; the first layer sees inputs, sines and cosines.
        precision: precision |x|^2 / 2 is added to the energy.
        threads: the most to use; results do not depend on it.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor | None],
        activations: Sequence[tuple[int, float]],
        *,
        frequencies: Tensor | None = None,
        precision: float = 0.0,
        threads: int = 1,
    ) -> None:
        hidden = len(activations)
        waves = 0 if frequencies is None else frequencies.shape[1]
        first = weights[0].shape[1]
        tensors = [t.detach().contiguous() if t is not None else None for t in (*weights, *biases, frequencies)]
        pointers = [_floats(t) for t in tensors]
        layer_weights, layer_biases = pointers[: hidden + 1], pointers[hidden + 1 : -1]
        self.inputs = first - 2 * waves
        self._net = _Network(
            layers=hidden,
            inputs=self.inputs,
            waves=waves,
            threads=threads,
            width=(ctypes.c_int * (hidden + 1))(first, *(len(w) for w in weights[:-1])),
            kind=(ctypes.c_int * hidden)(*(kind for kind, _ in activations)),
            slope=(ctypes.c_float * hidden)(*(slope for _, slope in activations)),
            weight=(_Floats * hidden)(*layer_weights[:-1]),
            bias=(_Floats * hidden)(*layer_biases[:-1]),
            last=layer_weights[-1],
            last_bias=layer_biases[-1],
            frequencies=pointers[-1],
            precision=precision,
        )
        self._reference = ctypes.byref(self._net)
        self._library = library()
        packed = torch.empty(self._library.packed_size(self._reference))
        scratch = torch.empty(self._library.scratch_size(self._reference))
        self._net.packed, self._net.scratch = _floats(packed), _floats(scratch)
        self._alive = (tensors, packed, scratch)  # for as long as C++ points to them
        self._library.prepare(self._reference)
        self._most_threads = threads
        self._size = sum(w.numel() for w in weights)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """E of rows `(B, inputs)`, `(B,)`, and its gradient."""
        x = self._checked(x)
        e, grad = x.new_empty(len(x)), torch.empty_like(x)
        self._run(self._library.evaluate, len(x), _floats(x), len(x), _floats(e), _floats(grad))
        return e, grad

    def langevin(
        self, x: Tensor, noise: Tensor, step_size: float, max_grad: float, bounds: tuple[float, float]
    ) -> Tensor:
        """The end of a chain from rows `(B, inputs)`, as many steps as there are rows of `noise`, `(n, B, inputs)`."""
        x, noise = self._checked(x), noise.contiguous()
        if noise.dtype != x.dtype or noise.shape[1:] != x.shape:
            raise RuntimeError(f"expected noise like {tuple(x.shape)}, got {noise.dtype} {tuple(noise.shape)}")
        y = torch.empty_like(x)
        numbers = (_float(step_size), _float(max_grad), *map(_float, bounds))
        arguments = (_floats(x), len(x), _floats(noise), len(noise), *numbers, _floats(y))
        self._run(self._library.langevin, len(x) * len(noise), *arguments)
        return y

    def _checked(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu" or x.shape[1:] != (self.inputs,):
            raise RuntimeError(f"expected float32 rows of {self.inputs} on the CPU, got {x.dtype} {tuple(x.shape)}")
        return x.contiguous()

    def _run(self, function: Any, rows: int, *arguments: Any) -> None:
        def work(threads: int) -> None:
            self._net.threads = threads
            function(self._reference, *arguments)

        _threads.run(work, self._most_threads if rows * self._size >= SMALLEST_SHARED else 1)


def _floats(t: Tensor | None) -> Any:
    return ctypes.cast(t.data_ptr(), _Floats) if t is not None else None


@cache
def library() -> Any:
    """The compiled library; None where there is no compiler, or what it made is not to be trusted."""
    path = _compiled()
    if path is None:
        return None
    try:
        found = ctypes.CDLL(str(path))
    except OSError:  # made for another machine, or on a disk that does not allow it
        return None
    for name in ("packed_size", "scratch_size"):
        getattr(found, name).restype = ctypes.c_ssize_t
    return found


def _compiled() -> Path | None:
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), *COMPILERS))), None)
    if compiler is None or not SOURCE.exists():
        return None
    made_from = (SOURCE.read_text(), compiler, *FLAGS, platform.machine(), _processor())
    name = f"kernels-{hashlib.sha256(chr(0).join(made_from).encode()).hexdigest()[:16]}.so"
    for folder in (_cache_folder(), Path(tempfile.gettempdir()) / f"pscd-{os.getuid()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.getuid():  # somebody else's: not to be loaded from
                continue
            return folder / name if (folder / name).exists() or _compile(compiler, folder / name) else None
        except OSError:
            continue
    return None


def _compile(compiler: str, path: Path) -> bool:
    """Whether it worked; with threads if the compiler knows OpenMP."""
    for extra in (("-fopenmp",), ()):
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            command = [compiler, *FLAGS, *extra, str(SOURCE), "-o", str(temporary)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except subprocess.SubprocessError:
            temporary.unlink(missing_ok=True)
            continue
        if temporary.exists():
            os.replace(temporary, path)
            return True
    return False


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pscd"


def _processor() -> str:
    """What this processor can do: code made for it alone must not be found by another that shares the folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
