"""What processes share: each number of a counter goes to one taker, and a signal wakes who watches it."""

import os

import pytest

from dpmodule.streams import Supervisor
from dpmodule.streams.synchronization import SharedCounter, Signal
from helpers.programs import run_program


def take_all(channel, counter, count):
    found = []
    while (number := counter.take()) < count:
        found.append(number)
    return found


def test_numbers_come_in_order():
    counter = SharedCounter()
    for first in (0, 3, 0):
        counter.reset(first)
        assert [counter.take() for _ in range(3)] == [first, first + 1, first + 2]


def test_processes_take_each_number_once():
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    counter = SharedCounter()
    with Supervisor("taker", "fork") as takers:
        for _ in range(3):
            takers.start(take_all, counter, 20_000)
        found = takers.join(60)
    assert sorted(sum(found, [])) == list(range(20_000))
    assert all(each == sorted(each) for each in found)
    del counter, takers
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before


TOGETHER = """
import os
from collections import Counter
from dpmodule.streams.synchronization import SharedCounter

counter = SharedCounter()
for count in (100_000, 100_000, 3, 0):
    counter.reset()
    pipes = []
    for _ in range(4):
        read, write = os.pipe()
        if not os.fork():
            mine = []
            while (number := counter.take()) < count:
                mine.append(number)
            with open(write, "w") as file:
                print(*mine, file=file)
            os._exit(0)
        os.close(write)
        pipes.append(read)
    seen = Counter()
    for read in pipes:
        with open(read) as file:
            seen.update(map(int, file.read().split()))
    for _ in pipes:
        os.wait()
    print(len(seen) == count, {number: times for number, times in seen.items() if times != 1})
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_processes_that_come_together_get_different_numbers():
    done = run_program(TOGETHER)
    assert (done.stdout, done.stderr) == ("True {}\n" * 4, "")


@pytest.mark.parametrize("has_eventfd", [True, False])
def test_a_signal_stays_readable_until_it_is_drained_and_is_given_back(monkeypatch, has_eventfd):
    if not has_eventfd:
        monkeypatch.delattr(os, "eventfd", raising=False)
    before = len(os.listdir("/proc/self/fd"))
    signal = Signal.create()
    for _ in range(3):
        signal.give()
    assert os.read(signal.read, 64)
    signal.drain()
    with pytest.raises(BlockingIOError):
        os.read(signal.read, 64)
    signal.close()
    signal.close()
    signal.give()
    assert len(os.listdir("/proc/self/fd")) == before
