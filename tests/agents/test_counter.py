"""Counters: every number goes to one taker."""

import copy
import threading

from dpmodule.agents.counter import LocalCounter, SharedCounter, counter_for
from dpmodule.streams import Supervisor


def take(channel, counter, count):
    return [counter.take() for _ in range(count)]


def test_numbers_come_in_order_and_begin_anew():
    for counter in (counter_for(1), counter_for(2)):
        assert [counter.take() for _ in range(3)] == [0, 1, 2]
        assert counter.peek() == counter.peek() == 3
        counter.reset()
        assert counter.take() == 0
        counter.reset(40)
        assert counter.take() == 40
        assert copy.deepcopy(counter) is counter
    assert isinstance(counter_for(1), LocalCounter)
    assert isinstance(counter_for(2), SharedCounter)


def test_processes_and_threads_take_each_number_once():
    counter, own = SharedCounter(), []
    thread = threading.Thread(target=lambda: own.extend(take(None, counter, 5000)))
    with Supervisor("taker", "fork") as takers:
        for _ in range(3):
            takers.start(take, counter, 5000)
        thread.start()
        found = takers.join(60)
    thread.join()
    assert sorted(sum(found, own)) == list(range(20_000))
    assert counter.peek() == 20_000


def add_by_value(channel, counter, count):
    taken = []
    for _ in range(count):
        with counter.get_lock():
            counter.value += 1
            taken.append(counter.value)
    return taken


def test_the_value_is_the_number_taken_last_and_is_changed_under_a_lock():
    for counter in (counter_for(1), counter_for(2)):
        assert (counter.value, counter.take(), counter.value) == (-1, 0, 0)
        with counter.get_lock():
            counter.value = (counter.value + 41) % 7
        assert (counter.value, counter.peek(), counter.take()) == (6, 7, 7)
    counter = SharedCounter()
    with Supervisor("adder", "fork") as adders:
        for _ in range(3):
            adders.start(add_by_value, counter, 300)
        taken = adders.join(60)
    assert sorted(sum(taken, [])) == list(range(900))
