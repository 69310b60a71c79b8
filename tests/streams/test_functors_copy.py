"""Copying between buffers and tensors: every byte of the range and no other."""

import random

import numpy as np
import pytest
import torch

from dpmodule.base import ArgumentError, BoundsError, DTypeError
from dpmodule.streams import MemcpyFunctor, StringHandle
from helpers.functors import backend as backend


def test_between_tensors_and_arrays_of_any_type(backend):
    target = torch.zeros(2, 3, dtype=torch.float64)
    assert MemcpyFunctor(target, np.arange(6, dtype=np.float64).reshape(3, 2)).run() == 48
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]
    halves = torch.zeros(4, dtype=torch.bfloat16)
    assert MemcpyFunctor(halves, torch.tensor([1.5, 2.5], dtype=torch.bfloat16), target_offset=4).run() == 4
    assert halves.tolist() == [0, 0, 1.5, 2.5]


def test_into_shared_memory(backend):
    target = torch.zeros(10, dtype=torch.uint8).share_memory_()
    MemcpyFunctor(target, StringHandle(b"abcdef")[1:4], target_offset=2).run()
    assert bytes(target.numpy()) == b"\0\0bcd\0\0\0\0\0"


def test_random_ranges(backend):
    generator = random.Random(5)
    for _ in range(200):
        source, target = generator.randbytes(generator.randrange(60)), bytearray(generator.randbytes(60))
        expected = bytearray(target)
        source_offset = generator.randint(0, len(source))
        count = generator.randint(0, len(source) - source_offset)
        target_offset = generator.randint(0, 60 - count)
        expected[target_offset : target_offset + count] = source[source_offset : source_offset + count]
        functor = MemcpyFunctor(
            target, source, target_offset=target_offset, source_offset=source_offset, count=count
        )
        assert functor.run() == count
        assert target == expected


@pytest.mark.parametrize(("begin", "end"), [(0, 3), (3, 0), (2, 2)])
def test_overlap(backend, begin, end):
    data = bytearray(b"0123456789")
    expected = bytearray(data)
    expected[end : end + 6] = data[begin : begin + 6]
    MemcpyFunctor(data, data, source_offset=begin, target_offset=end, count=6).run()
    assert data == expected


def test_memory_lives_until_the_work_is_done(backend):
    target = bytearray(4)
    functor = MemcpyFunctor(target, bytes([1, 2, 3, 4]))
    with pytest.raises(BufferError):
        target.append(1)
    assert functor.run() == 4
    del functor
    target.append(1)
    assert target == b"\1\2\3\4\1"


def test_nothing_is_copied_from_nothing(backend):
    for target, source in ((bytearray(), b""), (torch.empty(0), torch.empty(0, 3)), (bytearray(3), b"")):
        assert MemcpyFunctor(target, source).run() == 0


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({}, "target: 12 bytes from byte 0 on are not inside its 10 bytes"),
        ({"count": 5, "target_offset": 6}, "target: 5 bytes from byte 6"),
        ({"count": 5, "target_offset": -1}, "target: 5 bytes from byte -1"),
        ({"count": 5, "source_offset": 8}, "source: 5 bytes from byte 8 on are not inside its 12 bytes"),
        ({"count": -1}, "source: -1 bytes from byte 0"),
        ({"source_offset": 13}, "source: the rest from byte 13"),
        ({"count": 2**70}, "source: 1180591620717411303424 bytes"),
    ],
)
def test_bounds(backend, keywords, text):
    target = bytearray(10)
    with pytest.raises(BoundsError, match=text):
        MemcpyFunctor(target, bytes(12), **keywords)
    assert target == bytes(10)


@pytest.mark.parametrize(
    ("target", "source", "error", "text"),
    [
        (b"abc", b"abc", ArgumentError, "target is bytes, which cannot be written to"),
        (StringHandle(b"abc"), b"abc", ArgumentError, "target is StringHandle, which cannot"),
        ([1, 2], b"ab", DTypeError, "target is list, expected a buffer or a tensor"),
        (bytearray(3), "abc", DTypeError, "source is str"),
        (torch.zeros(4, 4).t(), bytes(64), ArgumentError, "target is a tensor that is not contiguous"),
        (np.zeros((4, 4))[:, ::2], bytes(64), ArgumentError, "target is not contiguous"),
    ],
    ids=["bytes", "handle", "list", "text", "tensor", "array"],
)
def test_sides_are_checked(backend, target, source, error, text):
    with pytest.raises(error, match=text):
        MemcpyFunctor(target, source)
