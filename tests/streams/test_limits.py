"""What happens when the system has no descriptors or no memory left: a typed error, nothing lost, nothing leaked."""

import contextlib
import gc
import os
import resource

import pytest
import torch

from dpmodule.base import FileError
from dpmodule.streams import Supervisor
from helpers.pipes import every_core, make, pipe

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def free_descriptors(count):
    """Leave only so many descriptors free."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    highest = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + count, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for fd in taken[len(taken) - count :]:
            os.close(fd)
        del taken[len(taken) - count :]
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("free", range(9))
@every_core
def test_a_pipe_that_cannot_be_made_leaves_nothing_open(core, free):
    before = descriptors()
    with free_descriptors(free), pytest.raises(FileError, match="pipe.*ulimit -n"):
        make(core)
    assert descriptors() == before


@every_core
def test_a_send_without_descriptors_can_be_repeated(core):
    with pipe(core) as (reader, writer):
        with free_descriptors(0), pytest.raises(FileError):
            writer.send([torch.ones(3)])
        writer.send([torch.ones(3)])
        assert torch.equal(reader.recv(timeout=10)[0], torch.ones(3))


@every_core
def test_a_message_waits_for_a_descriptor(core):
    with pipe(core) as (reader, writer):
        reader.claim()
        writer.send([torch.ones(3)])
        with free_descriptors(0), pytest.raises(FileError, match="descriptor that the other end"):
            reader.recv(timeout=10)
        assert torch.equal(reader.recv(timeout=10)[0], torch.ones(3))
        writer.send([torch.full((3,), 2.0)])
        assert torch.equal(reader.recv(timeout=10)[0], torch.full((3,), 2.0))


@contextlib.contextmanager
def free_memory(size):
    """Leave only so many bytes of addresses free."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif("DPMODULE_TEST_SLOWNESS" in os.environ, reason="a sanitizer takes all addresses")
@pytest.mark.parametrize("begins", [True, False])
@every_core
def test_a_message_without_memory_leaves_room_for_smaller_ones(core, begins):
    large, small = torch.zeros(1 << 25), torch.ones(3)
    with pipe(core) as (reader, writer):
        if begins:  # else the large one is the first of its structure
            writer.send([small])
            assert torch.equal(reader.recv(timeout=10)[0], small)
        with free_memory(1 << 26):
            for _ in range(2):
                with pytest.raises(FileError, match="memory"):
                    writer.send([large])
                with pytest.raises(FileError, match="memory"):
                    writer.acquire(like=[large])
                writer.send([small])
                assert torch.equal(reader.recv(timeout=10)[0], small)
            assert writer.acquire()[0].shape == small.shape
            writer.release()
        writer.send([large])
        assert reader.recv(timeout=10)[0].shape == large.shape


@pytest.mark.parametrize("free", range(4))
def test_a_child_that_cannot_be_started_leaves_nothing_open(free):
    before = descriptors()
    with Supervisor(start_method="fork") as supervisor:
        with free_descriptors(free), pytest.raises(FileError, match="worker 0 'worker-0'.*ulimit -n"):
            supervisor.start(os.getpid)
        assert supervisor.children == ()
    assert descriptors() == before
