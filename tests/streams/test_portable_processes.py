"""Child processes on systems without memfd, pidfd and signals from pipes: the same, by other ways."""

import os
import signal
import time

import pytest
import torch

from dpmodule.streams import child
from dpmodule.streams.errors import WorkerDied, WorkerStuck
from dpmodule.streams.supervisor import Supervisor
from helpers import child_targets
from helpers.processes import SOON_S, await_gone, resources, running

# Python 3.12 warns of what these tests do on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def other_system(monkeypatch):
    for name in ("memfd_create", "pidfd_open", "preadv"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(child, "_SET_SIGNAL", None)
    before = resources()
    yield
    assert resources() == before


def start(target, *args):
    supervisor = Supervisor("reader", start_method="fork", grace_s=0.3)
    return supervisor, supervisor.start(target, *args)


def test_messages_large_and_small():
    supervisor, child = start(child_targets.echo)
    with supervisor:
        for sent in (torch.arange(3), torch.arange(1_000_000)):
            child.send(sent)
            assert torch.equal(child.recv(10), sent)
        assert child.working_on == "item 1"


def test_a_death():
    supervisor, child = start(child_targets.echo)
    with supervisor:
        os.kill(child.pid, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            child.recv(10)
        assert time.monotonic() - begin < SOON_S


def test_a_child_that_hangs():
    supervisor, child = start(child_targets.endless)
    with supervisor:
        child.recv(10)
        with pytest.raises(WorkerStuck, match="in endless"):
            child.recv(0.2)


def test_closing():
    supervisor, child = start(child_targets.stubborn)
    child.recv(10)
    supervisor.close()
    assert not running(child.pid)


def test_a_killed_parent():
    ours, theirs = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            supervisor, child = start(child_targets.echo)
            os.write(theirs, str(child.pid).encode())
            time.sleep(60)
        finally:
            os._exit(1)
    pid = int(os.read(ours, 100))
    os.kill(parent, signal.SIGKILL)
    await_gone([pid])
    os.waitpid(parent, 0)
    os.close(ours)
    os.close(theirs)
