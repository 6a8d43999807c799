import itertools
import threading

import pytest
import torch
from torch import nn

from pscd.energies import MLP, ConvNet
from pscd.fast.threads import (
    Threads,
    _multiply_adds,
    allowed_threads,
    enough_threads,
    in_order,
    threads_set,
)


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("energy", "threads"), [(MLP((2,), width=64), 1), (MLP((2,), width=2000), 3), (nn.Conv2d(1, 1, 3), 3)]
)
def test_small_networks_get_one_thread_and_the_setting_comes_back(three_threads, energy, threads):
    with enough_threads(energy, 256):
        assert torch.get_num_threads() == threads
        assert allowed_threads() == 3
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("width", "threads"), [(4, 1), (256, 3)])
def test_convolutions_count_at_every_position(three_threads, width, threads):
    energy = ConvNet((1, 28, 28), width=width, depth=3)
    with enough_threads(energy, 64, (1, 28, 28)):
        assert torch.get_num_threads() == threads
    assert energy.training
    assert not any(m._forward_hooks for m in energy.modules())
    by_hand = 14 * 14 * (25 * width + width) + 7 * 7 * (9 * width * 2 * width + 2 * width)
    by_hand += 4 * 4 * (9 * 2 * width * 4 * width + 4 * width) + 4 * width * 16 * 4 * width + 4 * width + 4 * width + 1
    assert _multiply_adds(energy, (1, 28, 28)) == by_hand


class Machine:
    """A clock, and work that takes what `seconds` says for each number of threads."""

    def __init__(self, seconds):
        self.now, self.seconds, self.used = 0.0, seconds, []

    def clock(self):
        return self.now

    def work(self, threads):
        self.now += self.seconds[threads]
        self.used.append(threads)


def test_the_faster_number_of_threads_is_used():
    machine = Machine({1: 0.010, 2: 0.006})
    threads = Threads(machine.clock)
    for _ in range(1000):
        threads.run(machine.work, 2)
    assert machine.used[:4] == [1, 2, 1, 2]
    assert machine.used.count(2) > 950
    machine.seconds = {1: 0.010, 2: 0.4}  # the machine is busy now
    machine.used.clear()
    for _ in range(20_000):
        threads.run(machine.work, 2)
    # 200 s of work; until the first look, and then two of 0.4 s at pauses of 0.25, 0.5, 1, ... 60 s.
    assert machine.used.count(2) < 60
    assert machine.now < 1000 * 0.01 + 20_000 * 0.01 + 60 * 0.4 + 5


def test_one_thread_stays_one():
    machine = Machine({1: 0.01})
    threads = Threads(machine.clock)
    for _ in range(100):
        threads.run(machine.work, 1)
    assert machine.used == [1] * 100


def test_looks_become_rare():
    machine = Machine({1: 0.01, 2: 0.01})
    threads = Threads(machine.clock, first_pause=0.5, longest_pause=30.0)
    looks = []
    while machine.now < 500:
        before = len(machine.used)
        threads.run(machine.work, 2)
        looks += [machine.now] if len(machine.used) - before == 4 else []
    pauses = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert pauses[0] < 3 * 0.5
    assert 30 <= pauses[-1] < 31


def test_results_come_in_order_from_several_threads(three_threads):
    """The first piece waits for the second: with one thread at a time this would never end."""
    second = threading.Event()
    seen = []

    def work(i):
        seen.append((torch.get_num_threads(), torch.is_grad_enabled()))
        assert (second.set() or True) if i == 1 else second.wait(30)
        return i

    assert list(in_order(work, range(20))) == list(range(20))
    assert set(seen) == {(1, False)}
    assert torch.get_num_threads() == 3


def test_few_pieces_are_taken_ahead(three_threads):
    taken = []
    results = in_order(lambda i: i, (taken.append(i) or i for i in itertools.count()))
    assert [next(results) for _ in range(10)] == list(range(10))
    assert len(taken) <= 10 + 3 + 1
    results.close()
    assert torch.get_num_threads() == 3


def test_what_goes_wrong_in_a_piece_is_raised(three_threads):
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda i: 1 / i, [1, 1, 0, 1, 1, 1, 1]))
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("n", [1, 2, 5])
def test_one_piece_more_than_there_are_threads_waits(n):
    taken = []
    results = in_order(lambda i: i, (taken.append(i) or i for i in itertools.count()), threads=n)
    for k in range(1, 4):
        next(results)
        assert len(taken) == n + 1 + k
    results.close()


@pytest.mark.parametrize(("batch", "threads"), [(99, 1), (100, 3)])
def test_work_is_small_below_a_hundred_million_multiply_adds(three_threads, batch, threads):
    with enough_threads(nn.Linear(999, 1000), batch):  # a million weights
        assert torch.get_num_threads() == threads


def test_the_setting_comes_back_after_a_fault_and_blocks_may_be_nested(three_threads):
    with pytest.raises(KeyError), enough_threads(nn.Linear(1, 1), 1):
        raise KeyError
    assert (torch.get_num_threads(), allowed_threads()) == (3, 3)
    with enough_threads(nn.Linear(1, 1), 1), enough_threads(nn.Linear(1, 1), 1):
        assert (torch.get_num_threads(), allowed_threads()) == (1, 3)
    assert allowed_threads() == 3
    with threads_set(2):
        assert torch.get_num_threads() == 2
        with threads_set(None):
            assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 3


def test_counting_leaves_a_network_as_it_was():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 1)).double().eval()
    assert _multiply_adds(net, ()) == float("inf")
    assert _multiply_adds(net, (1, 4, 4)) == 4 * (18 + 2) + 9
    assert not net.training
    assert not any(m._forward_hooks for m in net.modules())
    assert _multiply_adds(nn.Identity(), ()) == 0
    with pytest.raises(RuntimeError):
        _multiply_adds(net.train(), (1, 2, 2))  # too small for the kernel
    assert net.training
    assert not any(m._forward_hooks for m in net.modules())


@pytest.mark.parametrize(("other", "switches"), [(9.0, False), (8.999, True)])
def test_threads_are_switched_if_the_other_number_is_clearly_faster(other, switches):
    machine = Machine({1: 10.0, 2: other})
    threads = Threads(machine.clock)
    assert threads.favoured(2) == 1
    threads.run(machine.work, 2)
    assert machine.used == [1, 2, 1, 2]
    assert threads.favoured(2) == (2 if switches else 1)


def test_the_last_time_of_each_counts():
    machine = Machine({})
    seconds = iter([1.0, 9.0, 1.0, 0.5])  # threads are slow to wake up
    machine.work = lambda n: (machine.used.append(n), setattr(machine, "now", machine.now + next(seconds)))
    threads = Threads(machine.clock)
    threads.run(machine.work, 2)
    assert threads.favoured(2) == 2


def test_pauses_double_up_to_a_minute_and_begin_anew_after_a_switch():
    machine = Machine({1: 0.0, 2: 0.0})
    threads = Threads(machine.clock)
    pauses = []
    for _ in range(9):
        threads.run(machine.work, 2)
        pauses.append(threads._next_look - machine.now)
        machine.now = threads._next_look - 1e-6
        machine.used.clear()
        threads.run(machine.work, 2)
        assert machine.used == [1]
        machine.now = threads._next_look
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, 32, 60, 60])
    machine.seconds = {1: 1.0, 2: 0.1}
    threads.run(machine.work, 2)
    assert threads._next_look - machine.now == pytest.approx(0.25)
    machine.used.clear()
    machine.now = threads._next_look
    threads.run(machine.work, 2)
    assert machine.used == [2, 1, 2, 1]


def test_a_network_is_counted_at_rest():
    """Dropout and batch normalisation behave otherwise in training, and a single row has no variance."""
    seen = []
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 1))
    net.register_forward_hook(lambda module, args, out: seen.append((module.training, torch.is_grad_enabled())))
    before = {name: t.clone() for name, t in net.state_dict().items()}
    _multiply_adds(net, (1, 4, 4))
    assert seen == [(False, False)]
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert net.training


def test_what_was_allowed_in_a_block_is_forgotten_after_it(three_threads):
    with enough_threads(nn.Linear(1, 1), 1):
        assert allowed_threads() == 3
    torch.set_num_threads(2)
    assert allowed_threads() == 2
