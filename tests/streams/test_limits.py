"""What happens when the system has no descriptors or no memory left: a typed error, nothing lost, nothing leaked."""

import contextlib
import os
import resource

import pytest
import torch

from dpmodule.base import FileError
from dpmodule.streams import Supervisor
from helpers.both_backends import descriptors
from helpers.pipes import make, pipe, same

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")


@contextlib.contextmanager
def limited(kind, most):
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@contextlib.contextmanager
def free_descriptors(count):
    """Leave only so many descriptors free."""
    highest, taken = max(int(name) for name in os.listdir("/proc/self/fd")) + 1, []
    with limited(resource.RLIMIT_NOFILE, highest + count):
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            for _ in range(count):
                os.close(taken.pop())
            yield
        finally:
            for fd in taken:
                os.close(fd)


def start():
    with Supervisor(start_method="fork") as supervisor:
        try:
            supervisor.start(os.getpid)
        finally:
            assert supervisor.children == ()


@pytest.mark.parametrize("free", range(9))
def test_what_cannot_be_made_leaves_nothing_open(core, free):
    calls = [(lambda: make(core), "pipe.*ulimit -n")]
    calls += [(start, "worker 0 'worker-0'.*ulimit -n")] if free < 4 else []
    before = descriptors()
    for call, text in calls:
        with free_descriptors(free), pytest.raises(FileError, match=text):
            call()
        assert descriptors() == before


def test_a_send_or_receive_without_descriptors_can_be_repeated(core):
    with pipe(core) as (reader, writer):
        reader.claim()
        with free_descriptors(0), pytest.raises(FileError):
            writer.send([torch.ones(3)])
        writer.send([torch.ones(3)])
        with free_descriptors(0), pytest.raises(FileError, match="descriptor that the other end"):
            reader.recv(timeout=10)
        assert same(reader.recv(timeout=10), [torch.ones(3)])
        writer.send([torch.zeros(3)])
        assert same(reader.recv(timeout=10), [torch.zeros(3)])


@pytest.mark.skipif("DPMODULE_TEST_SLOWNESS" in os.environ, reason="a sanitizer takes all addresses")
@pytest.mark.parametrize("begins", [True, False])
def test_a_message_without_memory_leaves_room_for_smaller_ones(core, begins):
    large, small = torch.zeros(1 << 25), torch.ones(3)
    with pipe(core) as (reader, writer):
        if begins:  # else the large one is the first of its structure
            writer.send([small])
            assert same(reader.recv(timeout=10), [small])
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        with limited(resource.RLIMIT_AS, used + (1 << 26)):
            for _ in range(2):
                for call in (writer.send, writer.acquire):
                    with pytest.raises(FileError, match="memory"):
                        call([large])
                writer.send([small])
                assert same(reader.recv(timeout=10), [small])
            assert writer.acquire()[0].shape == small.shape
            writer.release()
        writer.send([large])
        assert reader.recv(timeout=10)[0].shape == large.shape
