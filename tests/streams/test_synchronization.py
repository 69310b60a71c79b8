"""What processes share: each number of a counter goes to one taker, and a signal wakes who watches it."""

import os

import pytest

from dpmodule.streams.synchronization import Signal
from helpers.both_backends import descriptors


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
