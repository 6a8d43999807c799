import ctypes
import hashlib
import math
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from pscd.fast import cpp

needs_compiler = pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")


def dense(weight, bias=None, activation=cpp.NONE):
    return cpp.Layer(weight[:, :, None, None], bias, activation=activation)


def network(weight, bias, activation=cpp.NONE, **settings):
    """One hidden layer of 3, whose units are summed."""
    return cpp.Network([dense(weight, bias, activation)], torch.ones(1, 3), torch.zeros(1), **settings)


@pytest.mark.skipif(cpp._compiler() is None, reason="no C++ compiler")
def test_where_there_is_a_compiler_there_is_a_library():
    """Otherwise code that does not compile would skip all other tests silently."""
    assert cpp.library() is not None


@needs_compiler
def test_by_hand_of_the_reader():
    w = torch.tensor([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.0]])
    x = torch.tensor([[1.0, 1.0], [2.0, -1.0]])
    # Without an activation the gradient are the sums of w's columns, 0 and 3.
    e, grad = network(w, torch.tensor([0.5, 0.0, 0.0]))(x)
    assert torch.equal(e, torch.tensor([3.5, -2.5]))
    assert torch.equal(grad, torch.tensor([[0.0, 3.0], [0.0, 3.0]]))
    # ReLU: units of the first row are 3, 1, -1; of the second 0, -1, -2.
    e, grad = network(w, None, (cpp.LEAKY, 0.0))(x)
    assert torch.equal(e, torch.tensor([4.0, 0.0]))
    assert torch.equal(grad, torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    # A base of precision 2 adds |x|^2 and 2 x.
    e, grad = network(w, None, (cpp.LEAKY, 0.0), precision=2.0)(x)
    assert torch.equal(e, torch.tensor([6.0, 5.0]))
    assert torch.equal(grad, torch.tensor([[3.0, 5.0], [4.0, -2.0]]))


@needs_compiler
@pytest.mark.parametrize("kind", [cpp.SILU, cpp.TANH])
def test_activations_over_their_whole_range(kind):
    x = torch.linspace(-200, 200, 4001)[:, None]
    value, slope = cpp.Network([dense(torch.ones(1, 1), None, (kind, 0.0))], torch.ones(1, 1), None)(x)
    exact = x.double().requires_grad_()
    expected = (torch.nn.functional.silu if kind == cpp.SILU else torch.tanh)(exact)
    expected.sum().backward()
    torch.testing.assert_close(value.double(), expected[:, 0].detach(), rtol=5e-7, atol=5e-7)
    torch.testing.assert_close(slope.double(), exact.grad, rtol=5e-7, atol=5e-7)


@needs_compiler
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_waves(scale):
    """sin and cos one at a time, near and far, where the argument is reduced by the library."""
    x = scale * torch.linspace(-9, 9, 1001)[:, None]
    for column, wave in ((1, torch.sin), (2, torch.cos)):
        w = torch.zeros(3, 3)
        w[0, column] = 1
        e, grad = network(w, None, frequencies=torch.ones(1, 1))(x)
        exact = x.double().requires_grad_()
        expected = wave(exact)
        expected.sum().backward()
        torch.testing.assert_close(e.double(), expected[:, 0].detach(), rtol=0, atol=5e-7)
        torch.testing.assert_close(grad.double(), exact.grad, rtol=0, atol=5e-7)


@needs_compiler
def test_a_row_does_not_depend_on_its_company_nor_on_threads():
    torch.manual_seed(0)
    silu = (cpp.SILU, 0.0)
    hidden = [dense(torch.randn(40, 5), torch.randn(40), silu), dense(torch.randn(40, 40), torch.randn(40), silu)]
    last = torch.randn(1, 40), torch.randn(1)
    x, noise = torch.randn(100, 5), 0.1 * torch.randn(3, 100, 5)
    nets = [cpp.Network(hidden, *last, threads=t) for t in (1, 2, 3)]
    e, grad = nets[0](x)
    for net in nets:
        for part in (slice(0, 100), slice(7, 8), slice(50, 77)):
            ours = net(x[part])
            assert torch.equal(ours[0], e[part])
            assert torch.equal(ours[1], grad[part])
            assert torch.equal(net.energy(x[part]), e[part])
        ends = net.langevin(x, noise, 0.01, 1.0, (-2.0, 2.0))
        assert torch.equal(ends, nets[0].langevin(x, noise, 0.01, 1.0, (-2.0, 2.0)))
        assert torch.equal(ends[7:8], net.langevin(x[7:8], noise[:, 7:8], 0.01, 1.0, (-2.0, 2.0)))
    assert nets[0](x[:0])[0].shape == (0,)


@needs_compiler
def test_weights_learn_by_hand_of_the_reader():
    """f = 2 relu(x1 + x2) + 3 relu(x1 - x2), of which the first row has both, the second the first alone."""
    w = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    net = cpp.Network([dense(w, torch.zeros(2), (cpp.LEAKY, 0.0))], torch.tensor([[2.0, 3.0]]), torch.zeros(1))
    e, record = net.remember(torch.tensor([[3.0, 1.0], [1.0, 2.0]]))
    assert torch.equal(e, torch.tensor([14.0, 6.0]))
    (weight, bias), (last, last_bias) = net.learn(torch.tensor([1.0, 10.0]), record)
    assert torch.equal(weight, torch.tensor([[2 * 3.0 + 20, 2 * 1 + 40], [3 * 3, 3 * 1]]))
    assert torch.equal(bias, torch.tensor([22.0, 3.0]))
    assert torch.equal(last, torch.tensor([[4.0 + 30, 2]]))
    assert torch.equal(last_bias, torch.tensor([11.0]))


@needs_compiler
def test_what_weights_learn_does_not_depend_on_threads(monkeypatch):
    torch.manual_seed(0)
    silu = (cpp.SILU, 0.0)
    hidden = [dense(torch.randn(70, 5), torch.randn(70), silu), dense(torch.randn(50, 70), torch.randn(50), silu)]
    x, grad, last = torch.randn(1000, 5), torch.randn(1000), (torch.randn(1, 50), torch.randn(1))
    result = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(cpp._threads_to_learn, "favoured", lambda most: most)
        net = cpp.Network(hidden, *last, threads=threads)
        assert net._threads_for(len(x)) == threads
        e, record = net.remember(x)
        result.append([e, *(t for pair in net.learn(grad, record) for t in pair)])
    for other in result[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result[0], other, strict=True))


@needs_compiler
def test_a_record_is_not_written_to_while_it_is_needed():
    """Its memory is used again, but only once it is used up."""
    net = network(torch.ones(3, 2), None, (cpp.SILU, 0.0))
    x, grad = torch.randn(20, 2), torch.ones(20)
    _, first = net.remember(x)
    expected = first.clone()
    _, second = net.remember(2 * x)
    assert torch.equal(first[: 20 * 16], expected[: 20 * 16])  # what the first layer saw
    net.learn(grad, first)
    _, third = net.remember(x)
    assert third.data_ptr() == first.data_ptr() != second.data_ptr()


class Fence:
    """Memory that is NaN inside and on both sides, to detect reads before a write and writes beyond its ends."""

    WIDE = 64

    def __init__(self):
        self.made = []

    def empty(self, *shape, **options):
        shape = shape[0] if shape and not isinstance(shape[0], int) else shape
        whole = torch.full((2 * self.WIDE + math.prod(shape),), torch.nan)
        self.made.append(whole)
        return whole[self.WIDE : -self.WIDE].view(shape)

    def around(self, t):
        result = self.empty(t.shape)
        return result.copy_(t)

    def stands(self):
        return all(t[: self.WIDE].isnan().all() and t[-self.WIDE :].isnan().all() for t in self.made)


def everything(hidden, last, last_bias, x, noise, output=None, **settings):
    """All that a network can be asked for, on one thread, and the result of what it learns where it can learn."""
    net = cpp.Network(hidden, last, last_bias, **settings)
    result = [*net(x, output), net.energy(x, output), net.langevin(x, noise, 0.01, 0.5, (-1.0, 1.5), output)]
    if output is None:
        e, record = net.remember(x)
        result += [e, *(t for pair in net.learn(result[0], record) for t in pair)]
    return result


WAVES = [(33, 2 + 2 * 9, cpp.SILU), (5, 33, cpp.TANH), (17, 5, cpp.LEAKY)]
DENSE = [(3, 4, cpp.SILU), (40, 3, cpp.LEAKY)]  # few inputs: their gradient is that of dot products
CONVOLUTIONS = [
    ((3, 2, 3, 2), (5, 4), (2, 1), (1, 0), cpp.SILU),  # to (3, 3)
    ((18, 3, 2, 2), (3, 3), (1, 1), (0, 1), cpp.TANH),  # to (2, 4)
    ((5, 18, 2, 4), (2, 4), (1, 1), (0, 0), cpp.LEAKY),  # the whole image
]


def parts_of(kind, put):
    """The arguments of `everything`, each tensor where `put` puts it."""
    rng = torch.Generator().manual_seed(0)

    def draw(*shape):
        return put(0.5 * torch.randn(*shape, generator=rng))

    if kind == "convolutions":
        hidden = [
            cpp.Layer(draw(*shape), draw(shape[0]), *around, (kind, 0.1)) for shape, *around, kind in CONVOLUTIONS
        ]
        output = torch.arange(14) % 3
        return (hidden, draw(3, 5), draw(3), draw(14, 40), draw(2, 14, 40), output), {"bound": 2.0}
    sizes = WAVES if kind == "waves" else DENSE
    hidden = [
        cpp.Layer(draw(out, inputs, 1, 1), draw(out) if i else None, activation=(activation, 0.1))
        for i, (out, inputs, activation) in enumerate(sizes)
    ]
    d = 2 if kind == "waves" else 4
    more = {"frequencies": draw(2, 9), "precision": 0.5} if kind == "waves" else {"bound": 2.0, "precision": 0.1}
    return (hidden, draw(1, sizes[-1][0]), draw(1), draw(14, d), draw(2, 14, d)), more


@needs_compiler
@pytest.mark.parametrize("kind", ["waves", "dense", "convolutions"])
def test_nothing_is_read_before_it_is_written_nor_beyond_what_is_given(kind, monkeypatch):
    """Sizes that are no multiple of a vector, a last group of rows that is not full."""
    arguments, settings = parts_of(kind, torch.clone)
    expected = everything(*arguments, **settings)
    assert all(t.isfinite().all() for t in expected)
    fence = Fence()
    arguments, settings = parts_of(kind, fence.around)
    monkeypatch.setattr(cpp, "_spare", {})
    monkeypatch.setattr(torch, "empty", fence.empty)
    monkeypatch.setattr(torch, "empty_like", lambda t: fence.empty(t.shape))
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *shape: fence.empty(*shape))
    result = everything(*arguments, **settings)
    assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
    assert fence.stands()


@needs_compiler
def test_the_reference_of_all_that_a_network_is_asked_for():
    """The same networks by torch, in double precision."""
    for kind in ("waves", "dense", "convolutions"):
        (hidden, last, last_bias, x, _, *output), settings = parts_of(kind, torch.clone)
        y = x.double().requires_grad_()
        h = y
        if kind == "waves":
            phase = y @ settings["frequencies"].double()
            h = torch.cat([y, phase.sin(), phase.cos()], 1)
        for layer in hidden:
            image = h.view(len(h), layer.weight.shape[1], *layer.size)
            bias = None if layer.bias is None else layer.bias.double()
            h = nn.functional.conv2d(image, layer.weight.double(), bias, layer.stride, layer.padding)
            h = {cpp.SILU: nn.functional.silu, cpp.TANH: torch.tanh}.get(
                layer.activation[0], lambda t: nn.functional.leaky_relu(t, 0.1)
            )(h).flatten(1)
        f = h @ last.double().T + last_bias.double()
        f = f[torch.arange(14), output[0] if output else 0]
        bound, precision = settings.get("bound", 0.0), settings.get("precision", 0.0)
        e = (bound * torch.tanh(f / bound) if bound else f) + 0.5 * precision * y.square().sum(1)
        (grad,) = torch.autograd.grad(e.sum(), y)
        result = cpp.Network(hidden, last, last_bias, **settings)(x, *output)
        torch.testing.assert_close(result[0].double(), e.detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(result[1].double(), grad, rtol=1e-5, atol=1e-5)


@needs_compiler
def test_threads_are_chosen_by_the_rows_of_all_steps_and_for_learning_by_themselves(monkeypatch):
    net = network(torch.ones(3, 2), None, threads=3)
    rows, learnt = [], []
    monkeypatch.setattr(net, "_threads_for", lambda n: rows.append(n) or 1)
    x = torch.ones(6, 2)
    net(x)
    net.energy(x)
    net.langevin(x, torch.zeros(4, 6, 2), 0.1, 1.0, (-1.0, 1.0))
    assert rows == [6, 6, 24]
    monkeypatch.setattr(cpp._threads_to_learn, "run", lambda work, most: learnt.append(most) or work(most))
    net.learn(torch.ones(6), net.remember(x)[1])
    assert rows[3:] == [6, 6]
    assert learnt == [1]


@needs_compiler
def test_what_is_not_finite_stays_so():
    net = network(torch.ones(3, 2), None, (cpp.SILU, 0.0))
    for bad in (torch.nan, torch.inf):
        e, grad = net(torch.tensor([[bad, 0.0], [1.0, 1.0]]))
        assert not e[0].isfinite()
        assert e[1].isfinite()
        assert grad[1].isfinite().all()


@needs_compiler
def test_a_convolution_by_hand_of_the_reader():
    """A filter that adds a pixel, once, to the one below, twice; on a column of 3 with a zero around it."""
    weight = torch.tensor([1.0, 2.0]).view(1, 1, 2, 1)
    layer = cpp.Layer(weight, torch.tensor([10.0]), (3, 1), (1, 1), (1, 0))
    assert layer.output == (1, 4, 1)
    assert layer.work == 8
    picks = torch.eye(4)  # an output for each of the four sums
    net = cpp.Network([layer], picks, torch.arange(4.0))
    x = torch.tensor([[1.0, 2.0, 3.0]]).expand(4, -1)
    e, grad = net(x, torch.arange(4))
    assert torch.equal(e, 10 + torch.tensor([0 + 2.0, 1 + 4.0, 2 + 6.0, 3 + 0.0]) + torch.arange(4.0))
    assert torch.equal(grad, torch.tensor([[2.0, 0, 0], [1, 2, 0], [0, 1, 2], [0, 0, 1]]))


@needs_compiler
def test_a_bound():
    """bound tanh(f / bound) with f = x1 + x2, and |x|^2 / 2 beside it."""
    net = cpp.Network([dense(torch.ones(1, 2))], torch.ones(1, 1), None, precision=1.0, bound=3.0)
    x = torch.tensor([[1.0, 2.0], [-50.0, -60.0]])
    e, grad = net(x)
    f = x.sum(1)
    torch.testing.assert_close(e, 3 * torch.tanh(f / 3) + 0.5 * x.square().sum(1))
    torch.testing.assert_close(grad, x + (1 - torch.tanh(f / 3).square())[:, None])


@needs_compiler
@pytest.mark.parametrize("output", [torch.tensor([0]), torch.tensor([0, 1]), torch.tensor([-1, 0])])
def test_other_outputs_are_refused(output):
    with pytest.raises(RuntimeError, match="expected 2 output indices below 1"):
        network(torch.ones(3, 2), None)(torch.zeros(2, 2), output)


@needs_compiler
@pytest.mark.parametrize("x", [torch.zeros(2, 3), torch.zeros(2, 2).double(), torch.zeros(2)])
def test_other_rows_are_refused(x):
    with pytest.raises(RuntimeError, match="expected float32 rows of 2 on the CPU"):
        network(torch.ones(3, 2), None)(x)


@needs_compiler
@pytest.mark.parametrize("noise", [torch.zeros(4, 2), torch.zeros(4, 1, 2), torch.zeros(4, 3, 2).double()])
def test_other_noise_is_refused(noise):
    with pytest.raises(RuntimeError, match=r"expected noise like \(3, 2\)"):
        network(torch.ones(3, 2), None).langevin(torch.zeros(3, 2), noise, 0.1, 1.0, (-1.0, 1.0))


@pytest.fixture
def quick_compiler(monkeypatch):
    """Without optimisation: what is compiled is not run."""
    monkeypatch.setattr(cpp, "FLAGS", ("-O0", *cpp.FLAGS[1:]))


@pytest.fixture
def empty_cache(tmp_path, monkeypatch, quick_compiler):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pscd"


def test_no_compiler_no_library(empty_cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert cpp.library.__wrapped__() is None
    assert not empty_cache.exists()


@pytest.mark.parametrize("script", ["exit 1", "touch $NOWHERE"])
def test_a_compiler_that_fails_is_none(empty_cache, monkeypatch, tmp_path, script):
    compiler = tmp_path / "bad-c++"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    assert cpp.library.__wrapped__() is None
    assert list(empty_cache.iterdir()) == []


@needs_compiler
def test_it_is_compiled_once_and_kept(empty_cache, monkeypatch):
    monkeypatch.setattr(cpp, "_first_use", {})
    start = time.perf_counter()
    path = cpp._compiled()
    took = time.perf_counter() - start
    assert set(empty_cache.iterdir()) == {path, path.with_suffix(".sum")}
    made, seconds = path.stat().st_mtime_ns, cpp.compiled_in()
    assert 0 < seconds < took
    assert cpp._compiled() == path
    assert cpp.compiled_in() == seconds
    assert path.stat().st_mtime_ns == made
    content = path.read_bytes()
    path.write_bytes(bytes([*content[:5000], content[5000] ^ 1, *content[5001:]]))  # one bit of its code
    assert cpp._compiled() == path
    assert path.read_bytes() == content


@needs_compiler
def test_compiling_is_timed_without_a_trace(empty_cache):
    start = time.perf_counter()
    seconds = cpp.time_to_compile()
    assert 0 < seconds < time.perf_counter() - start
    assert not empty_cache.exists()


def test_nothing_is_timed_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert cpp.time_to_compile() is None


@needs_compiler
def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path, monkeypatch, quick_compiler):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cpp._compiled().parent.parent == tmp_path


@needs_compiler
@pytest.mark.parametrize(("rows", "most"), [(49_999, 1), (50_000, 3)])
def test_half_a_million_multiply_adds_are_worth_threads(rows, most):
    net = cpp.Network([dense(torch.ones(2, 4))], torch.ones(1, 2), None, threads=3)  # ten for a row
    assert net._threads_for(rows) == most


def test_the_compiler_that_is_asked_for_comes_first(monkeypatch, tmp_path):
    for name in ("own", "g++", "clang++", "c++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "own")
    for name in ("own", "g++", "clang++", "c++"):
        assert cpp._compiler() == str(tmp_path / name)
        (tmp_path / name).unlink()
    assert cpp._compiler() is None
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o700)
    monkeypatch.delenv("CXX")
    assert cpp._compiler() == str(tmp_path / "g++")
    monkeypatch.setattr(cpp, "SOURCES", (cpp.SOURCES[0], tmp_path / "gone.h"))
    assert cpp._compiler() is None


def test_another_name_for_whatever_else_it_is_made_from(empty_cache, monkeypatch):
    """Nothing is compiled: what is in the cache is taken as intact."""
    monkeypatch.setattr(cpp, "_is_intact", lambda path: True)
    monkeypatch.setattr(cpp, "_compiler", lambda: "cc")
    names = [cpp._compiled().name]
    for attribute, value in (("FLAGS", ("-O1",)), ("SOURCES", (cpp.SOURCES[0],)), ("_compiler", lambda: "other"),
                             ("_processor", lambda: "flags: none")):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(cpp, attribute, value)
            names.append(cpp._compiled().name)
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    names.append(cpp._compiled().name)
    assert len(set(names)) == 6
    assert all(name.startswith("kernels-") and len(name) == len("kernels-.so") + 16 for name in names)
    assert empty_cache.stat().st_mode & 0o777 == 0o700


def test_code_of_somebody_else_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cpp, "_is_intact", lambda path: True)
    monkeypatch.setattr(cpp, "_compiler", lambda: "cc")
    assert cpp._compiled().parent == tmp_path / "pscd"
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert cpp._compiled() is None
    assert (tmp_path / "pscd-12345").is_dir()


def test_a_library_is_intact_if_its_checksum_says_so(tmp_path):
    path = tmp_path / "kernels.so"
    assert not cpp._is_intact(path)
    path.write_bytes(b"code")
    assert not cpp._is_intact(path)
    path.with_suffix(".sum").write_text(hashlib.sha256(b"code").hexdigest())
    assert cpp._is_intact(path)
    path.with_suffix(".sum").write_bytes(b"\xff\xfe")
    assert not cpp._is_intact(path)


def test_what_is_no_library_is_not_loaded(tmp_path, monkeypatch):
    (tmp_path / "kernels.so").write_bytes(b"no code")
    monkeypatch.setattr(cpp, "_compiled", lambda: tmp_path / "kernels.so")
    assert cpp.library.__wrapped__() is None


@pytest.mark.parametrize("openmp", [True, False])
def test_openmp_is_used_if_the_compiler_has_it(tmp_path, monkeypatch, openmp):
    commands = []

    def run(command, **settings):
        commands.append(command)
        assert settings == {"check": True, "capture_output": True, "timeout": 120}
        if "-fopenmp" in command and not openmp:
            raise subprocess.CalledProcessError(1, command)
        Path(command[-1]).write_bytes(b"code")

    monkeypatch.setattr(subprocess, "run", run)
    assert cpp._compile("cc", tmp_path / "kernels.so")
    assert (tmp_path / "kernels.so").read_bytes() == b"code"
    assert ["-fopenmp" in command for command in commands] == ([True] if openmp else [True, False])
    assert commands[0][:7] == ["cc", *cpp.FLAGS]
    assert commands[-1][-3:-1] == [str(cpp.SOURCES[0]), "-o"]


def test_the_cache_and_the_processor(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cpp._cache_folder() == tmp_path / "pscd"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cpp._cache_folder() == tmp_path / "home" / ".cache" / "pscd"
    monkeypatch.setattr(Path, "read_text", lambda self: "model: x\nflags: sse avx\nflags: other\n")
    assert cpp._processor() == "flags: sse avx"
    monkeypatch.setattr(Path, "read_text", lambda self: "Features: neon\n")
    assert cpp._processor() == "Features: neon"
    monkeypatch.setattr(Path, "read_text", lambda self: "model: x\n")
    assert cpp._processor() == ""


@needs_compiler
def test_weights_are_copied_and_sizes_counted():
    weight = torch.ones(3, 2).T.contiguous().T  # columns first
    net = network(weight, None, frequencies=None)
    assert (net.inputs, net._work) == (2, 3 + 6)
    waves = network(torch.ones(3, 6), None, frequencies=torch.ones(2, 2))
    assert waves.inputs == 2
    labels = cpp.Network([dense(torch.ones(3, 2))], torch.ones(2, 3), torch.tensor([0.0, 5.0]))
    x = torch.zeros(2, 2)
    assert labels(x, torch.tensor([0, 1]))[0].tolist() == [0, 5]
    assert labels.energy(x, torch.tensor([1, 0])).tolist() == [5, 0]
    for output in (torch.tensor([0, 2]), torch.tensor([[0, 1]]), torch.tensor([0])):
        with pytest.raises(RuntimeError, match="expected 2 output indices below 2"):
            labels(x, output)
    assert labels(x[:0], torch.tensor([], dtype=torch.long))[0].shape == (0,)


@needs_compiler
def test_a_chain_by_hand_of_the_reader():
    """E = |x|^2 / 2, of which a step of one half takes half away; the gradient is clamped, and so is the point."""
    net = cpp.Network([dense(torch.zeros(1, 1))], torch.zeros(1, 1), None, precision=1.0)
    x, still = torch.tensor([[4.0], [-8.0]]), torch.zeros(2, 2, 1)
    wide = (-torch.inf, torch.inf)
    assert net.langevin(x, still, 0.5, torch.inf, wide)[:, 0].tolist() == [1, -2]
    assert net.langevin(x, still, 0.5, 2.0, wide)[:, 0].tolist() == [2, -6]
    assert net.langevin(x, still, 0.5, torch.inf, (-1.0, 0.5))[:, 0].tolist() == [0.25, -0.5]
    noise = torch.tensor([[[1.0], [0.0]], [[0.0], [2.0]]])
    assert net.langevin(x, noise, 0.5, torch.inf, wide)[:, 0].tolist() == [1.5, 0]
    assert x[:, 0].tolist() == [4, -8]


@needs_compiler
def test_sizes_may_be_larger_than_two_thousand_million():
    for name in ("packed_size", "scratch_size", "record_size"):
        assert getattr(cpp.library(), name).restype is ctypes.c_ssize_t


def test_where_files_have_no_owner_all_are_of_number_0(tmp_path, monkeypatch):
    """As on Windows. The usual cache is a file here, so that the folder beside it is used."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cpp, "_is_intact", lambda path: True)
    monkeypatch.setattr(cpp, "_compiler", lambda: "cc")
    monkeypatch.delattr("os.getuid")
    cpp._compiled()
    assert (tmp_path / "pscd-0").is_dir()


@pytest.fixture
def without_avx512(tmp_path, monkeypatch):
    """The kernels as they are compiled for processors without AVX-512, of half the vector length."""
    monkeypatch.setattr(cpp, "FLAGS", ("-O1", *cpp.FLAGS[1:], "-mno-avx512f"))
    compiler = cpp._compiler()
    if compiler is None or not cpp._compile(compiler, tmp_path / "kernels.so"):
        pytest.skip("no C++ compiler, or none for such a processor")
    monkeypatch.setattr(cpp, "_compiled", lambda: tmp_path / "kernels.so")
    result = cpp.library.__wrapped__()
    monkeypatch.setattr(cpp, "library", lambda: result)


def test_without_avx512_the_numbers_are_the_same(without_avx512):
    x = torch.linspace(-200, 200, 401)[:, None]
    for kind, function in ((cpp.SILU, torch.nn.functional.silu), (cpp.TANH, torch.tanh)):
        value, slope = cpp.Network([dense(torch.ones(1, 1), None, (kind, 0.0))], torch.ones(1, 1), None)(x)
        exact = x.double().requires_grad_()
        expected = function(exact)
        expected.sum().backward()
        torch.testing.assert_close(value.double(), expected[:, 0].detach(), rtol=5e-7, atol=5e-7)
        torch.testing.assert_close(slope.double(), exact.grad, rtol=5e-7, atol=5e-7)
    torch.manual_seed(0)
    weights = torch.randn(40, 5), torch.randn(40), torch.randn(1, 40), torch.randn(1)
    net = cpp.Network([dense(*weights[:2], (cpp.SILU, 0.0))], *weights[2:], precision=0.5, bound=3.0)
    x = torch.randn(30, 5, requires_grad=True)
    f = torch.nn.functional.silu(x @ weights[0].T + weights[1]) @ weights[2][0] + weights[3]
    e = 3 * torch.tanh(f / 3) + 0.25 * x.square().sum(1)
    (grad,) = torch.autograd.grad(e.sum(), x)
    result = net(x.detach())
    torch.testing.assert_close(result[0], e.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result[1], grad, rtol=1e-5, atol=1e-5)
    still = torch.zeros(1, 30, 5)
    moved = net.langevin(x.detach(), still, 0.1, 0.05, (-0.5, 0.5))
    torch.testing.assert_close(
        moved, (x - 0.1 * grad.clamp(-0.05, 0.05)).clamp(-0.5, 0.5).detach(), rtol=1e-5, atol=1e-5
    )
