"""StringHandles between processes: shared memory, both ways of starting a process, and nothing left behind."""

import contextlib
import gc
import multiprocessing
import sys

import pytest
import torch

from dpmodule.streams import StringHandle, Supervisor
from helpers.both_backends import descriptors
from helpers.child_targets import answer_handles, report_handle
from helpers.processes import shared_files
from helpers.programs import again_without_native

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm"),
    # Python warns of forks beside the thread by which multiprocessing passes descriptors
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

every_start = pytest.mark.parametrize("start", ["fork", "spawn"])


@pytest.fixture(autouse=True)
def nothing_is_left():
    gc.collect()
    segments = shared_files()
    yield
    gc.collect()
    assert shared_files() <= segments


@contextlib.contextmanager
def child(start, target, *args):
    """A process that runs a function of a connection, joined at the end."""
    context = multiprocessing.get_context(start)
    connection, other = context.Pipe()
    process = context.Process(target=target, args=(other, *args), daemon=True)
    process.start()
    other.close()
    with connection:
        yield connection
        process.join(80)
    code = process.exitcode
    process.kill()
    process.join(5)
    process.close()
    assert code == 0


@every_start
def test_handles_go_to_a_child_and_come_from_it(start):
    shared = torch.full((1 << 17,), 1, dtype=torch.uint8).share_memory_()
    private = torch.full((1 << 17,), 2, dtype=torch.uint8)
    cases = [
        (StringHandle(shared)[100:110], shared, (b"\1" * 8, 10, True), b"\x09" * 8),
        (StringHandle(shared)[5:5], shared, (b"", 0, True), b""),
        (StringHandle(private), private, (b"\2" * 8, 1 << 17, True), b"\2" * 8),
        (StringHandle(b"B" * 100_000), shared, (b"B" * 8, 100_000, True), b"B" * 8),
        (StringHandle(b"small")[1:], shared, (b"mall", 4, False), b"mall"),
        *[(StringHandle(shared)[64:], shared, (b"\1" * 8, (1 << 17) - 64, True), b"\x09" * 8)] * 20,
    ]
    before = 0
    with child(start, answer_handles) as connection:
        for number, (handle, tensor, held, then) in enumerate(cases):
            before = descriptors() if number == 5 else before
            connection.send(handle)
            assert connection.recv() == held
            tensor.fill_(9)  # seen there only where the memory is the same
            connection.send("look again")
            assert connection.recv() == then
            tensor.fill_(1 if tensor is shared else 2)
        assert descriptors() <= before + 5  # of twenty sends
        connection.send(None)
        first, second = connection.recv(), connection.recv()
        connection.send("thanks")
    assert (first, second) == (b"b" * 65_536, b"\7" * 65_527)  # and the child has ended
    assert (first.source.is_shared(), second.source.is_shared(), len(second.source)) == (True, True, 65_527)


def test_a_handle_may_be_an_argument_of_a_process():
    """The shared memory that is made for it lives until the process has it."""
    with Supervisor() as supervisor:
        child = supervisor.start(report_handle, StringHandle(b"abcd" * 50_000))
        assert child.recv(80) == (b"abcd", 200_000)


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    again_without_native(__file__, "-k", "go_to_a_child and fork")
