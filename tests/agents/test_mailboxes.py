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


def test_workers_have_their_turns_and_those_at_their_end_have_none(mailboxes):
    parent, ends = ParentEnd(mailboxes), [WorkerEnd(mailboxes, worker) for worker in range(2)]
    assert (parent.idle(), parent.all_idle()) == ([0, 1], True)
    for expected in (0, 1):
        assert parent.find_free(PARLEY, ahead=False) == expected
        parent.send(expected, PARLEY)
    assert (parent.busy(), parent.all_idle(), parent.answer(0), parent.command(0)) == (
        [0, 1],
        None,
        None,
        PARLEY,
    )
    assert parent.find_free(PARLEY, ahead=False) is None
    assert [end.receive() for end in ends] == [PARLEY] * 2
    ends[1].finish(at_end=True)
    assert (parent.answer(1), parent.done(1), parent.is_at_end(1)) == (True, 1, True)
    assert parent.find_free(PARLEY, ahead=False) is None  # the other one may have something left
    ends[0].finish()
    assert parent.find_free(PARLEY, ahead=False) == 0
    assert not parent.all_at_end()
    parent.send(0, PARLEY)
    ends[0].receive()
    ends[0].finish(at_end=True, ended=True)
    assert parent.find_free(PARLEY, ahead=False) in (0, 1)
    assert parent.all_at_end()
    assert parent.epochs_ended() == 1


def test_short_parleys_are_given_ahead_but_nothing_else_is(mailboxes):
    parent, end = ParentEnd(mailboxes), WorkerEnd(mailboxes, 0)
    WorkerEnd(mailboxes, 1).finish(at_end=True)  # the other one counts as busy
    parent.send(0, PARLEY)
    assert parent.find_free(PARLEY, ahead=True) is None  # not known to be short
    end.receive()
    end.record_time(1e-5)
    end.finish()
    given = 0
    while parent.find_free(PARLEY, ahead=True) == 0:
        parent.send(0, PARLEY)
        given += 1
    assert given == mailboxes.ahead
    assert parent.find_free(CHECK, ahead=True) is parent.find_free(PARLEY, ahead=False) is None
    for _ in range(given):
        assert end.receive() == PARLEY
        end.record_time(1.0)
        end.finish()
    assert parent.idle() == [0]
    parent.send(0, PARLEY)
    assert parent.find_free(PARLEY, ahead=True) is None  # it takes long now


@pytest.mark.parametrize("may_spin", [False, True])
def test_orders_arrive_while_both_sides_sleep_and_wake(mailboxes, may_spin):
    parent, carried = ParentEnd(mailboxes, may_spin), [[], []]

    def work(worker):
        end = WorkerEnd(mailboxes, worker, may_spin=may_spin)
        while (command := end.receive()) is not None:
            carried[worker].append(command)
            end.finish()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for number in range(300):
        found = partial(parent.find_free, number, False)
        while (free := parent.spin(found)) is None and (free := parent.wait(found)) is None:
            pass
        parent.send(free, number)
    while parent.wait(parent.all_idle) is None:
        pass
    parent.close()
    for thread in threads:
        thread.join()
    assert sorted(carried[0] + carried[1]) == list(range(300))


def test_a_bell_that_stays_silent_costs_a_moment(mailboxes, monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.02)
    monkeypatch.setattr(Signal, "give", lambda self: None)
    parent, found = ParentEnd(mailboxes, may_spin=False), []
    thread = threading.Thread(target=lambda: found.append(WorkerEnd(mailboxes, 0, may_spin=False).receive()))
    thread.start()
    parent.send(0, CHECK)
    thread.join()
    assert found == [CHECK]


def test_closed_ends_end_a_worker_and_alarm_the_parent(mailboxes):
    (read, write), parent = os.pipe(), ParentEnd(mailboxes)
    end = WorkerEnd(mailboxes, 0, read)
    parent.watch([read])
    mailboxes.parent_signal.give()
    assert (parent.wait(lambda: None), parent.has_alarm) == (None, False)
    os.close(write)
    assert (parent.wait(lambda: None), parent.has_alarm) == (None, True)
    assert end.receive() is None
    os.close(read)
    parent.close()
    assert WorkerEnd(mailboxes, 1).receive() is None
