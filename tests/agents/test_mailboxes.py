"""Orders: each is carried out once, and nobody sleeps through one."""

import os
import threading
from functools import partial

import pytest

from dpmodule.agents import mailboxes as module
from dpmodule.agents.mailboxes import Mailboxes, ParentEnd, WorkerEnd
from dpmodule.streams.synchronization import Signal

PARLEY, CHECK = 2, 4


@pytest.fixture
def mailboxes():
    made = Mailboxes(2, ahead=3)
    yield made
    made.close()


def test_a_worker_gets_an_order_once_and_is_busy_until_it_has_finished(mailboxes):
    parent_end, end = ParentEnd(mailboxes), WorkerEnd(mailboxes, 0)
    assert parent_end.idle() == [0, 1]
    assert parent_end.all_idle()
    parent_end.send(0, CHECK)
    assert parent_end.idle() == [1]
    assert parent_end.busy() == [0]
    assert parent_end.all_idle() is None
    assert parent_end.answer(0) is None
    assert parent_end.command(0) == CHECK
    assert end.receive() == CHECK
    end.finish(at_end=True)
    assert parent_end.all_idle()
    assert parent_end.answer(0) is True
    assert parent_end.done(0) == 1
    assert parent_end.is_at_end(0)
    assert not parent_end.all_at_end()


def test_workers_have_their_turns_and_those_at_their_end_have_none(mailboxes):
    parent_end, ends = ParentEnd(mailboxes), [WorkerEnd(mailboxes, worker) for worker in range(2)]
    for expected in (0, 1):
        assert parent_end.find_free(PARLEY, ahead=False) == expected
        parent_end.send(expected, PARLEY)
    assert parent_end.find_free(PARLEY, ahead=False) is None
    for end in ends:
        assert end.receive() == PARLEY
    ends[1].finish(at_end=True)
    assert parent_end.find_free(PARLEY, ahead=False) is None  # the other one may have something left
    ends[0].finish()
    assert parent_end.find_free(PARLEY, ahead=False) == 0
    parent_end.send(0, PARLEY)
    ends[0].receive()
    ends[0].finish(at_end=True, ended=True)
    assert parent_end.find_free(PARLEY, ahead=False) in (0, 1)
    assert parent_end.all_at_end()
    assert parent_end.epochs_ended() == 1


def test_short_parleys_are_given_ahead_but_nothing_else_is(mailboxes):
    parent_end, end = ParentEnd(mailboxes), WorkerEnd(mailboxes, 0)
    WorkerEnd(mailboxes, 1).finish(at_end=True)  # the other one counts as busy
    parent_end.send(0, PARLEY)
    assert parent_end.find_free(PARLEY, ahead=True) is None  # not known to be short
    end.receive()
    end.record_time(1e-5)
    end.finish()
    given = 0
    while parent_end.find_free(PARLEY, ahead=True) == 0:
        parent_end.send(0, PARLEY)
        given += 1
    assert given == mailboxes.ahead
    assert parent_end.find_free(CHECK, ahead=True) is None
    assert parent_end.find_free(PARLEY, ahead=False) is None
    for _ in range(given):
        assert end.receive() == PARLEY
        end.record_time(1.0)
        end.finish()
    assert parent_end.idle() == [0]
    parent_end.send(0, PARLEY)
    assert parent_end.find_free(PARLEY, ahead=True) is None  # it takes long now


@pytest.mark.parametrize("may_spin", [False, True])
def test_orders_arrive_while_both_sides_sleep_and_wake(mailboxes, may_spin):
    parent_end, count = ParentEnd(mailboxes, may_spin), 300
    carried = [[], []]

    def work(worker):
        end = WorkerEnd(mailboxes, worker, may_spin=may_spin)
        while (command := end.receive()) is not None:
            carried[worker].append(command)
            end.finish()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for number in range(count):
        found = partial(parent_end.find_free, number, False)
        while (find_free := parent_end.spin(found)) is None and (find_free := parent_end.wait(found)) is None:
            pass
        parent_end.send(find_free, number)
    while parent_end.wait(parent_end.all_idle) is None:
        pass
    parent_end.close()
    for thread in threads:
        thread.join()
    assert sorted(carried[0] + carried[1]) == list(range(count))


def test_a_bell_that_stays_silent_costs_a_moment(mailboxes, monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.02)
    monkeypatch.setattr(Signal, "give", lambda self: None)
    parent_end, found = ParentEnd(mailboxes, may_spin=False), []
    thread = threading.Thread(target=lambda: found.append(WorkerEnd(mailboxes, 0, may_spin=False).receive()))
    thread.start()
    parent_end.send(0, CHECK)
    thread.join()
    assert found == [CHECK]


def test_a_closed_channel_and_a_closed_board_end_a_worker(mailboxes):
    read, write = os.pipe()
    end = WorkerEnd(mailboxes, 0, read)
    os.close(write)
    assert end.receive() is None
    os.close(read)
    ParentEnd(mailboxes).close()
    assert WorkerEnd(mailboxes, 1).receive() is None


def test_an_end_that_is_watched_is_an_alarm(mailboxes):
    read, write = os.pipe()
    parent_end = ParentEnd(mailboxes)
    parent_end.watch([read])
    mailboxes.parent_signal.give()
    assert parent_end.wait(lambda: None) is None
    assert not parent_end.has_alarm
    os.close(write)
    assert parent_end.wait(lambda: None) is None
    assert parent_end.has_alarm
    os.close(read)
