"""Messages and descriptors over a socket: any size, any number, in any pieces."""

import os
import socket
import threading

import numpy as np
import pytest
import torch

from dpmodule.streams.messages import MessageFrames, pack


@pytest.fixture
def ends():
    first, second = (MessageFrames(sock) for sock in socket.socketpair())
    yield first, second
    first.close()
    second.close()


def never():
    raise AssertionError("the socket is full")


def count_fds():
    return len(os.listdir("/proc/self/fd"))


def test_kinds_and_values(ends):
    first, second = ends
    values = [None, "text", {"a": torch.arange(3)}, np.zeros((0, 2)), b"x" * 40_000, torch.ones(2_000_000)]
    for kind, value in enumerate(values):
        first.send(pack(kind, value), never)
    found = second.receive()
    assert [message.kind for message in found] == list(range(6))
    got = [message.value() for message in found]
    assert got[:2] == values[:2]
    assert got[2]["a"].tolist() == [0, 1, 2]
    assert got[3].shape == (0, 2)
    assert got[4] == values[4]
    assert torch.equal(got[5], values[5])


@pytest.mark.parametrize(
    "tensor", [torch.ones(3, requires_grad=True), torch.eye(2).to_sparse(), torch.tensor(1j).conj()]
)
def test_tensors_that_have_no_plain_memory(ends, tensor):
    ends[0].send(pack(0, tensor), never)
    got = ends[1].receive()[0].value()
    assert torch.equal(got.to_dense(), tensor.to_dense())
    assert got.requires_grad == tensor.requires_grad


def test_a_message_in_pieces():
    sender, other = socket.socketpair()
    frames = MessageFrames(other)
    message = pack(5, {"a": np.arange(100)})
    data = b"".join([message.header, *message.body])
    for i in range(len(data)):
        assert frames.receive() == []
        sender.send(data[i : i + 1])
    (found,) = frames.receive()
    assert found.value()["a"].sum() == 4950
    sender.close()
    assert frames.receive() == []
    assert frames.ended
    frames.close()


def test_many_descriptors(ends):
    before = count_fds()
    pipes = [os.pipe() for _ in range(230)]
    fds = [fd for pair in pipes for fd in pair]
    ends[0].send(pack(0, "many", fds=fds), never)
    for fd in fds:
        os.close(fd)
    (message,) = ends[1].receive()
    assert len(message.fds) == 460
    for i in range(0, 460, 2):
        os.write(message.fds[i + 1], bytes([i // 2]))
        assert os.read(message.fds[i], 1) == bytes([i // 2])
    assert not os.get_inheritable(message.fds[0])
    message.close()
    assert count_fds() == before


def test_what_was_not_taken_is_closed():
    before = count_fds()
    first, second = (MessageFrames(sock) for sock in socket.socketpair())
    first.send(pack(0, b"x" * 100_000), never)
    second._read()
    second.close()
    first.close()
    assert count_fds() == before


def test_large_messages_without_shared_memory(monkeypatch, ends):
    monkeypatch.delattr(os, "memfd_create")
    found = []

    def read():
        while not found:
            found.extend(ends[1].receive())

    reader = threading.Thread(target=read)
    reader.start()
    ends[0].send(pack(0, torch.arange(1_000_000)), lambda: None)
    reader.join()
    assert torch.equal(found[0].value(), torch.arange(1_000_000))


def test_a_closed_end(ends):
    ends[1].close()
    message = pack(0, b"x" * 100_000)
    with pytest.raises(OSError, match="pipe"):
        ends[0].send(message, never)
    assert message.owned == []
