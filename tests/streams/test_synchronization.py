"""What processes share: each number of a counter goes to one taker, and a signal wakes who watches it."""

import os

import pytest

from dpmodule.streams import Supervisor
from dpmodule.streams.synchronization import SharedCounter, Signal
from helpers.both_backends import descriptors


def take_all(channel, counter, count):
    found = []
    while (number := counter.take()) < count:
        found.append(number)
    return found


def test_processes_take_each_number_once():
    before, counter = descriptors(), SharedCounter()
    for count in (100_000, 100_000, 3, 0):
        counter.reset()
        with Supervisor("taker", "fork") as takers:
            for _ in range(4):
                takers.start(take_all, counter, count)
            found = takers.join(60)
        assert sorted(sum(found, [])) == list(range(count))
        assert all(each == sorted(each) for each in found)
    counter.reset(3)
    assert [counter.take() for _ in range(3)] == [3, 4, 5]
    del counter, takers
    assert descriptors() <= before


@pytest.mark.parametrize("has_eventfd", [True, False])
def test_a_signal_stays_readable_until_it_is_drained_and_is_given_back(monkeypatch, has_eventfd):
    if not has_eventfd:
        monkeypatch.delattr(os, "eventfd", raising=False)
    before = descriptors()
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
    assert descriptors() == before
