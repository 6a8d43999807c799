"""The C++ of `kernels.cpp` and `vectors.h`, compiled on first use and cached; None where there is no compiler."""

import ctypes
import hashlib
import math
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pscd.fast.threads import Threads
from pscd.files import replacing, write_text_atomic

SOURCES = tuple(Path(__file__).with_name(name) for name in ("kernels.cpp", "vectors.h"))
FLAGS = ("-O3", "-std=c++17", "-march=native", "-shared", "-fPIC", "-Wno-psabi")
SILU, TANH, LEAKY = 0, 1, 2  # activations, as kernels.cpp numbers them
NONE = (LEAKY, 1.0)  # a layer without one

_threads, _threads_to_learn = Threads(), Threads()  # what is best for chains need not be best for a single pass
_spare: dict[int, Tensor] = {}  # the last record, by its size, to be reused: fresh memory costs page faults
_first_use: dict[str, float] = {}
_float = ctypes.c_float
_Floats = ctypes.POINTER(ctypes.c_float)
_Ints = ctypes.POINTER(ctypes.c_int)


class _Layer(ctypes.Structure):
    """Mirrors `struct Layer` of kernels.cpp, where it is explained."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("channels", "height", "width", "tall", "wide", "down", "across")),
        *((name, ctypes.c_int) for name in ("top", "left", "out", "rows", "columns", "kind")),
        ("slope", ctypes.c_float),
        ("weight", _Floats),
        ("bias", _Floats),
    )


class _Network(ctypes.Structure):
    """Mirrors `struct Network`."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("count", "inputs", "waves", "threads")),
        ("layers", ctypes.POINTER(_Layer)),
        ("last", _Floats),
        ("last_bias", _Floats),
        ("outputs", ctypes.c_int),
        ("frequencies", _Floats),
        ("precision", ctypes.c_float),
        ("bound", ctypes.c_float),
        ("packed", _Floats),
        ("scratch", _Floats),
    )


@dataclass(frozen=True)
class Layer:
    """A convolution and its activation; a fully connected layer is one whose kernel covers all of its input."""

    weight: Tensor  # `(out, channels, height, width)` of the kernel, float32, on the CPU
    bias: Tensor | None  # `(out,)`
    size: tuple[int, int] = (1, 1)  # height and width of the input; a row of numbers is an image of one pixel
    stride: tuple[int, int] = (1, 1)  # down and across
    padding: tuple[int, int] = (0, 0)  # zeros above and below, and left and right
    activation: tuple[int, float] = NONE  # its kind and slope

    @property
    def output(self) -> tuple[int, int, int]:
        """Channels, height and width of the output."""
        out, _, *kernel = self.weight.shape
        around = zip(self.size, self.padding, kernel, self.stride, strict=True)
        rows, columns = ((n + 2 * padding - k) // step + 1 for n, padding, k, step in around)
        return out, rows, columns

    @property
    def work(self) -> int:
        """Multiply-adds per row."""
        _, rows, columns = self.output
        return rows * columns * self.weight.numel()


class Network:
    """An energy in C++, with a copy of the current weights."""

    def __init__(
        self,
        layers: Sequence[Layer],  # the hidden ones
        last: Tensor,  # weights of the last layer, `(outputs, n)`; with several outputs, calls choose one for each row
        last_bias: Tensor | None,  # `(outputs,)`
        *,
        frequencies: Tensor | None = None,  # `(inputs, waves)`; the first layer also sees sines and cosines
        precision: float = 0.0,  # precision |x|^2 / 2 is added to the energy
        bound: float = 0.0,  # the rest of the energy is f, or bound tanh(f / bound) if this is not 0
        threads: int = 1,  # the most to use; results do not depend on it
        min_shared_work: int = 500_000,  # multiply-adds below which starting threads does not pay
    ) -> None:
        self._min_shared_work = min_shared_work
        self._alive: list[Any] = []  # tensors that C++ has pointers to
        waves = 0 if frequencies is None else frequencies.shape[1]
        self.layers, self.last = layers, last
        self.inputs = layers[0].weight.shape[1] * math.prod(layers[0].size) - 2 * waves
        self._net = _Network(
            count=len(layers),
            inputs=self.inputs,
            waves=waves,
            threads=threads,
            layers=(_Layer * len(layers))(*map(self._layer, layers)),
            last=self._pointer(last),
            last_bias=self._pointer(last_bias),
            outputs=len(last),
            frequencies=self._pointer(frequencies),
            precision=precision,
            bound=bound,
        )
        self._reference = ctypes.byref(self._net)
        self._library = library()
        self._net.packed = self._pointer(torch.empty(self._library.packed_size(self._reference)))
        self._net.scratch = self._pointer(torch.empty(self._library.scratch_size(self._reference)))
        self._library.prepare(self._reference)
        self._most_threads = threads
        self._work = last.numel() + sum(layer.work for layer in layers)

    def _layer(self, layer: Layer) -> _Layer:
        _, channels, tall, wide = layer.weight.shape
        sizes = (channels, *layer.size, tall, wide, *layer.stride, *layer.padding, *layer.output, *layer.activation)
        return _Layer(*sizes, self._pointer(layer.weight), self._pointer(layer.bias))

    def _pointer(self, t: Tensor | None) -> Any:
        t = t.detach().contiguous() if t is not None else None
        self._alive.append(t)
        return _floats(t)

    def __call__(self, x: Tensor, output: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Energies and their gradient."""
        x, output = self._checked(x, output)
        e, grad = x.new_empty(len(x)), torch.empty_like(x)
        self._run(self._library.evaluate, len(x), _floats(x), _ints(output), len(x), _floats(e), _floats(grad))
        return e, grad

    def energy(self, x: Tensor, output: Tensor | None = None) -> Tensor:
        """Energies without the gradient: the same numbers in about half the time."""
        x, output = self._checked(x, output)
        e = x.new_empty(len(x))
        self._run(self._library.evaluate, len(x), _floats(x), _ints(output), len(x), _floats(e), None)
        return e

    def langevin(
        self,
        x: Tensor,
        noise: Tensor,
        step_size: float,
        max_grad: float,
        bounds: tuple[float, float],
        output: Tensor | None = None,
    ) -> Tensor:
        """Run a whole Langevin chain."""
        x, output = self._checked(x, output)
        noise = noise.contiguous()
        if noise.dtype != x.dtype or noise.shape[1:] != x.shape:
            raise RuntimeError(f"expected noise like {tuple(x.shape)}, got {noise.dtype} {tuple(noise.shape)}")
        y, grad = torch.empty_like(x), torch.empty_like(x)
        numbers = (_float(step_size), _float(max_grad), *map(_float, bounds))
        arguments = (_floats(x), _ints(output), len(x), _floats(noise), len(noise), *numbers, _floats(y), _floats(grad))
        self._run(self._library.langevin, len(x) * len(noise), *arguments)
        return y

    def remember(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Energies, and a record of the forward pass for `learn`; for fully connected networks with one output."""
        x, _ = self._checked(x, None)
        size = self._library.record_size(self._reference, len(x))
        e, spare = x.new_empty(len(x)), _spare.pop(size, None)
        record = x.new_empty(size) if spare is None else spare
        arguments = (_floats(x), len(x), _floats(e), _floats(record))
        self._run(self._library.remember, len(x), *arguments, threads=_threads_to_learn)
        return e, record

    def learn(self, grad: Tensor, record: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Gradients with respect to the parameters."""
        shapes = [layer.weight.shape[:2] for layer in self.layers] + [self.last.shape]
        parts = torch.empty(sum(out * (inputs + 1) for out, inputs in shapes))
        grad = grad.contiguous()
        # Not timed, which would run it twice: the first run overwrites the record.
        self._net.threads = _threads_to_learn.favoured(self._threads_for(len(grad)))
        self._library.learn(self._reference, _floats(grad), len(grad), _floats(record), _floats(parts))
        _spare.clear()
        _spare[len(record)] = record
        sizes = [size for out, inputs in shapes for size in (out * inputs, out)]
        gradients = iter(parts.split(sizes))
        return [(next(gradients).view(shape), next(gradients)) for shape in shapes]

    def _checked(self, x: Tensor, output: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if x.dtype != torch.float32 or x.device.type != "cpu" or x.shape[1:] != (self.inputs,):
            raise RuntimeError(f"expected float32 rows of {self.inputs} on the CPU, got {x.dtype} {tuple(x.shape)}")
        if output is not None:
            output = output.to(torch.int32).contiguous()
            inside = len(output) == 0 or 0 <= int(output.min()) <= int(output.max()) < self._net.outputs
            if output.shape != x.shape[:1] or not inside:
                raise RuntimeError(f"expected {len(x)} output indices below {self._net.outputs}")
        return x.contiguous(), output

    def _run(self, function: Any, rows: int, *arguments: Any, threads: Threads = _threads) -> None:
        def work(number: int) -> None:
            self._net.threads = number
            function(self._reference, *arguments)

        threads.run(work, self._threads_for(rows))

    def _threads_for(self, rows: int) -> int:
        """The number of threads that so many rows are worth."""
        return self._most_threads if rows * self._work >= self._min_shared_work else 1


def _floats(t: Tensor | None) -> Any:
    return ctypes.cast(t.data_ptr(), _Floats) if t is not None else None


def _ints(t: Tensor | None) -> Any:
    return ctypes.cast(t.data_ptr(), _Ints) if t is not None else None


@cache
def library() -> Any:
    """The compiled library; None where there is no compiler, or the result cannot be loaded."""
    path = _compiled()
    if path is None:
        return None
    try:
        compiled = ctypes.CDLL(str(path))
    except OSError:  # compiled for another machine, or on a disk mounted noexec
        return None
    for name in ("packed_size", "scratch_size", "record_size"):
        getattr(compiled, name).restype = ctypes.c_ssize_t
    return compiled


def _compiled() -> Path | None:
    compiler = _compiler()
    if compiler is None:
        return None
    made_from = (*(path.read_text() for path in SOURCES), compiler, *FLAGS, platform.machine(), _processor())
    name = f"kernels-{hashlib.sha256(chr(0).join(made_from).encode()).hexdigest()[:16]}.so"
    user = os.getuid() if hasattr(os, "getuid") else 0  # on Windows every file has the owner 0
    for folder in (_cache_folder(), Path(tempfile.gettempdir()) / f"pscd-{user}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != user:  # another user's: do not load code from it
                continue
            return folder / name if _is_intact(folder / name) or _compile_once(compiler, folder / name) else None
        except OSError:
            continue
    return None


def compiled_in() -> float | None:
    """Seconds that this process spent on compiling; None if the library was cached, or could not be compiled."""
    return _first_use.get("seconds")


def time_to_compile() -> float | None:
    """Seconds that compiling takes, measured anew; None where there is no compiler."""
    compiler = _compiler()
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        return time.perf_counter() - start if _compile(compiler, Path(folder) / "kernels.so") else None


def _compiler() -> str | None:
    compilers = (os.environ.get("CXX", ""), "g++", "clang++", "c++")
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    return compiler if all(path.exists() for path in SOURCES) else None


def _compile_once(compiler: str, path: Path) -> bool:
    start = time.perf_counter()
    worked = _compile(compiler, path)
    if worked:
        _first_use["seconds"] = time.perf_counter() - start
        write_text_atomic(path.with_suffix(".sum"), _checksum(path))
    return worked


def _is_intact(path: Path) -> bool:
    """Whether a library is the one that was compiled; a damaged one could crash, or compute something else."""
    try:
        return path.with_suffix(".sum").read_text() == _checksum(path)
    except (FileNotFoundError, ValueError):
        return False


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile(compiler: str, path: Path) -> bool:
    """Compile, with OpenMP if the compiler supports it; returns whether it worked."""
    for extra in (("-fopenmp",), ()):
        try:
            with replacing(path) as temporary:
                command = [compiler, *FLAGS, *extra, str(SOURCES[0]), "-o", str(temporary)]
                subprocess.run(command, check=True, capture_output=True, timeout=120)
            return True
        except (subprocess.SubprocessError, FileNotFoundError):  # it failed, or wrote nothing
            continue
    return False


def _cache_folder() -> Path:
    # Not `pscd.files.cache_folder`: importing pooch takes 0.1 s, and on a Mac it names another folder.
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pscd"


def _processor() -> str:
    """The instruction sets of this processor, part of the cache key: processors of other kinds may share the folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
