"""Statistics on made-up numbers, and the matrix products of networks that can be counted by hand."""

import math

import pytest
import torch
from torch import nn

from pscd.energies import MLP, Architecture
from pscd.fast import threads_set
from pscd.objectives import PseudoSpherical
from studies import timing
from studies.timing import CASES, OBJECTIVES, Case, Estimate, Training, estimate, matrix_products, mlp, ratio, slope

TINY = Case("tiny", (2,), mlp(4), 8, 3, rows=50, buffer_size=20)
TINY_IMAGE = Case("tiny", (1, 4, 4), Architecture("conv", width=2, depth=2), 4, 2, rows=10, buffer_size=8)


def test_the_interval_of_a_median_is_between_two_order_statistics():
    # P(Bin(10, 1/2) <= 1) = 11 / 1024, twice that is below 5 %; with <= 2 it is 56 / 1024, twice that is not.
    assert estimate(range(10, 0, -1)) == Estimate(5.5, 2, 9, 10)
    # With 5 values even the range misses the median more often than 5 %, with 6 it does not.
    assert estimate([3.0, 1.0, 2.0, 5.0, 4.0]) == Estimate(3.0, 1.0, 5.0, 5)
    assert estimate([7.0]) == Estimate(7.0, 7.0, 7.0, 1)


@pytest.mark.parametrize("n", [6, 15, 40, 101])
def test_the_interval_is_the_shortest_that_covers_95_per_cent(n):
    found = estimate(range(1, n + 1))
    k = int(found.low)
    assert found.high == n + 1 - k

    def missed(k):
        return 2 * sum(math.comb(n, i) for i in range(k)) / 2**n

    assert missed(k) <= 0.05 < missed(k + 1)


def test_ratios_are_taken_within_rounds():
    # The machine is ten times slower in the last round, for both; the ratio of medians would be 5 / 2.
    assert ratio([2.0, 5.0, 60.0], [1.0, 2.0, 20.0]) == Estimate(2.5, 2.0, 3.0, 3)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5])
def test_the_slope_of_a_power_law_is_its_exponent(exponent):
    sizes = [1, 10, 100, 1000]
    assert slope(sizes, [7 * s**exponent for s in sizes]) == pytest.approx(exponent, abs=1e-12)


def test_everybody_has_a_turn_in_every_round_and_all_start_once():
    order = []
    tasks = {name: (lambda name=name: order.append(name)) for name in "abc"}
    times = timing.take_turns(tasks, 3, block=0.0)
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3, "c": 3}
    assert "".join(order) == "aabbcc" + "abc" + "bca" + "cab"


def test_short_tasks_are_repeated(monkeypatch):
    calls = []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: 0.01 * len(calls))
    times = timing.take_turns({"a": lambda: calls.append(1)}, 1, block=0.05)
    assert len(calls) == 2 + 5
    assert times["a"] == pytest.approx([0.01])


def test_the_products_of_an_mlp():
    energy, x = MLP((3,), width=5, depth=2), torch.randn(7, 3)
    shapes = [tuple(product().shape) for product in matrix_products(energy, x)]
    # There and back through each layer; the last has one output, and its way back is no product.
    assert shapes == [(7, 5), (7, 3), (7, 5), (7, 5), (7, 1)]
    assert torch.equal(matrix_products(energy, x)[0](), energy.net[0](x))
    assert not energy.net[0]._forward_hooks


def test_the_products_of_a_convolution():
    conv = nn.Conv2d(2, 3, 3, 2, 1)
    x = torch.randn(4, 2, 6, 6)
    there, back = matrix_products(nn.Sequential(conv), x)
    torch.testing.assert_close(there(), conv(x))
    gradient, of_weight, of_bias = back()
    assert gradient.shape == x.shape
    assert of_weight is of_bias is None


@pytest.mark.parametrize("case", [TINY, TINY_IMAGE], ids=["rows", "images"])
def test_a_training_moves_on(case):
    training = Training(case, 1.0)
    before = [p.clone() for p in training.state.energy.parameters()]
    training.update()
    assert training.state.step == 1
    assert any(not torch.equal(a, b) for a, b in zip(before, training.state.energy.parameters(), strict=True))
    training.sample()
    training.bound()()
    assert training.state.step == 1
    assert training.gradients


def test_the_cases_differ_by_gamma_alone_and_gamma_has_no_warm_up():
    for case in CASES.values():
        cd, pscd = (case.config(gamma) for gamma in OBJECTIVES.values())
        assert len(cd.differences(pscd)) == 1
        assert pscd.objective == PseudoSpherical(gamma=1.0, warmup=0.0)
        assert pscd.chains.buffer_size == 10_000


def test_threads_are_tried_and_the_setting_comes_back(monkeypatch):
    seconds, now = {1: 0.2, 3: 0.1}, [0.0]

    def task():
        now[0] += seconds[torch.get_num_threads()]

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    with threads_set(3):
        assert timing.best_threads(task) == 3
        seconds[3] = 0.5
        assert timing.best_threads(task) == 1
        assert torch.get_num_threads() == 3
