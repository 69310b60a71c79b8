"""Orders: each is carried out once, and nobody sleeps through one."""

import os
import threading
from functools import partial

import pytest

from dpmodule.agents import mailboxes
from dpmodule.agents.mailboxes import Mailboxes, ParentEnd, WorkerEnd
from dpmodule.streams.synchronization import Signal

PARLEY, CHECK = 2, 4


@pytest.fixture
def board():
    made = Mailboxes(2, ahead=3)
    yield made
    made.close()


def test_a_worker_gets_an_order_once_and_is_busy_until_it_has_finished(board):
    orders, desk = ParentEnd(board), WorkerEnd(board, 0)
    assert orders.idle() == [0, 1]
    assert orders.quiet()
    orders.give(0, CHECK)
    assert orders.idle() == [1]
    assert orders.busy() == [0]
    assert orders.quiet() is None
    assert orders.answer(0) is None
    assert orders.command(0) == CHECK
    assert desk.take() == CHECK
    desk.finish(at_end=True)
    assert orders.quiet()
    assert orders.answer(0) is True
    assert orders.done(0) == 1
    assert orders.is_at_end(0)
    assert not orders.all_at_end()


def test_workers_have_their_turns_and_those_at_their_end_have_none(board):
    orders, desks = ParentEnd(board), [WorkerEnd(board, worker) for worker in range(2)]
    for expected in (0, 1):
        assert orders.free(PARLEY, ahead=False) == expected
        orders.give(expected, PARLEY)
    assert orders.free(PARLEY, ahead=False) is None
    for desk in desks:
        assert desk.take() == PARLEY
    desks[1].finish(at_end=True)
    assert orders.free(PARLEY, ahead=False) is None  # the other one may have something left
    desks[0].finish()
    assert orders.free(PARLEY, ahead=False) == 0
    orders.give(0, PARLEY)
    desks[0].take()
    desks[0].finish(at_end=True, ended=True)
    assert orders.free(PARLEY, ahead=False) in (0, 1)
    assert orders.all_at_end()
    assert orders.ended() == 1


def test_short_parleys_are_given_ahead_but_nothing_else_is(board):
    orders, desk = ParentEnd(board), WorkerEnd(board, 0)
    WorkerEnd(board, 1).finish(at_end=True)  # the other one counts as busy
    orders.give(0, PARLEY)
    assert orders.free(PARLEY, ahead=True) is None  # not known to be short
    desk.take()
    desk.took(1e-5)
    desk.finish()
    given = 0
    while orders.free(PARLEY, ahead=True) == 0:
        orders.give(0, PARLEY)
        given += 1
    assert given == board.ahead
    assert orders.free(CHECK, ahead=True) is None
    assert orders.free(PARLEY, ahead=False) is None
    for _ in range(given):
        assert desk.take() == PARLEY
        desk.took(1.0)
        desk.finish()
    assert orders.idle() == [0]
    orders.give(0, PARLEY)
    assert orders.free(PARLEY, ahead=True) is None  # it takes long now


@pytest.mark.parametrize("may_spin", [False, True])
def test_orders_arrive_while_both_sides_sleep_and_wake(board, may_spin):
    orders, count = ParentEnd(board, may_spin), 300
    carried = [[], []]

    def work(worker):
        desk = WorkerEnd(board, worker, may_spin=may_spin)
        while (command := desk.take()) is not None:
            carried[worker].append(command)
            desk.finish()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for number in range(count):
        found = partial(orders.free, number, False)
        while (free := orders.look(found)) is None and (free := orders.sleep(found)) is None:
            pass
        orders.give(free, number)
    while orders.sleep(orders.quiet) is None:
        pass
    orders.close()
    for thread in threads:
        thread.join()
    assert sorted(carried[0] + carried[1]) == list(range(count))


def test_a_bell_that_stays_silent_costs_a_moment(board, monkeypatch):
    monkeypatch.setattr(mailboxes, "POLL_S", 0.02)
    monkeypatch.setattr(Signal, "give", lambda self: None)
    orders, found = ParentEnd(board, may_spin=False), []
    thread = threading.Thread(target=lambda: found.append(WorkerEnd(board, 0, may_spin=False).take()))
    thread.start()
    orders.give(0, CHECK)
    thread.join()
    assert found == [CHECK]


def test_a_closed_channel_and_a_closed_board_end_a_worker(board):
    read, write = os.pipe()
    desk = WorkerEnd(board, 0, read)
    os.close(write)
    assert desk.take() is None
    os.close(read)
    ParentEnd(board).close()
    assert WorkerEnd(board, 1).take() is None


def test_an_end_that_is_watched_is_an_alarm(board):
    read, write = os.pipe()
    orders = ParentEnd(board)
    orders.watch([read])
    board.parent_signal.give()
    assert orders.sleep(lambda: None) is None
    assert not orders.is_alarmed
    os.close(write)
    assert orders.sleep(lambda: None) is None
    assert orders.is_alarmed
    os.close(read)
