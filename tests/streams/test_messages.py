"""Messages and descriptors over a socket: any size, any number, in any pieces."""

import os
import socket

import pytest
import torch

from dpmodule.streams.messages import MessageFrames, pack
from helpers.both_backends import descriptors


@pytest.fixture
def ends():
    before = descriptors()
    first, second = (MessageFrames(sock) for sock in socket.socketpair())
    yield first, second
    first.close()
    second.close()
    assert descriptors() == before


def test_kinds_and_tensors_that_have_no_plain_memory(ends):
    values = [torch.ones(3, requires_grad=True), torch.eye(2).to_sparse(), torch.tensor(1j).conj()]
    for kind, value in enumerate([*values, None, "text", b"x" * 40_000]):
        ends[0].send(pack(kind, value), pytest.fail)
    found = ends[1].receive()
    assert [message.kind for message in found] == list(range(6))
    got = [message.value() for message in found]
    assert got[3:] == [None, "text", b"x" * 40_000]
    for each, value in zip(got, values):
        assert torch.equal(each.to_dense(), value.to_dense())
        assert each.requires_grad == value.requires_grad


def test_many_descriptors(ends):
    pipes = [os.pipe() for _ in range(230)]
    fds = [fd for pair in pipes for fd in pair]
    ends[0].send(pack(0, "many", fds=fds), pytest.fail)
    for fd in fds:
        os.close(fd)
    (message,) = ends[1].receive()
    assert len(message.fds) == 460
    for i in range(0, 460, 2):
        os.write(message.fds[i + 1], bytes([i // 2]))
        assert os.read(message.fds[i], 1) == bytes([i // 2])
    assert not os.get_inheritable(message.fds[0])
    message.close()


def test_what_was_not_taken_is_closed(ends):
    ends[0].send(pack(0, b"x" * 100_000), pytest.fail)
    ends[1]._read()


def test_a_closed_end(ends):
    ends[1].close()
    message = pack(0, b"x" * 100_000)
    with pytest.raises(OSError, match="pipe"):
        ends[0].send(message, pytest.fail)
    assert message.owned == []
