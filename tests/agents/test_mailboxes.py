"""Orders: each is carried out once, and nobody sleeps through one."""

import os

import pytest

from dpmodule.agents.mailboxes import Mailboxes, ParentEnd, WorkerEnd

PARLEY, CHECK = 2, 4


@pytest.fixture
def mailboxes():
    made = Mailboxes(2, ahead=3)
    yield made
    made.close()


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
