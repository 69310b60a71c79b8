"""`Tickets`: every number goes to one taker, in whatever process."""

import os

from dpmodule.streams import Supervisor
from dpmodule.streams.tickets import Tickets


def take_all(channel, tickets):
    found = []
    while (number := tickets.take()) is not None:
        found.append(number)
    return found


def test_numbers_come_in_order_and_end():
    tickets = Tickets()
    assert tickets.take() is None
    for count in (3, 1, 0, 2):
        tickets.refill(count)
        assert [tickets.take() for _ in range(count + 1)] == [*range(count), None]
    tickets.close()
    tickets.close()


def test_processes_take_each_number_once():
    tickets = Tickets()
    tickets.refill(20_000)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with Supervisor("taker", "fork") as takers:
        for _ in range(3):
            takers.start(take_all, tickets)
        found = takers.join(60)
    assert sorted(sum(found, [])) == list(range(20_000))
    assert all(each == sorted(each) for each in found)
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before
    tickets.close()
