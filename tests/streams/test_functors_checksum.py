"""CRC-32C against its published vectors and a bitwise version."""

import random
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpmodule import native
from dpmodule.base import ArgumentError
from dpmodule.streams import Crc32cFunctor, StringHandle
from helpers.both_backends import in_native
from helpers.functors import backend as backend
from helpers.walk import walks

VECTORS = {
    b"": 0x00000000,
    b"a": 0xC1D04330,
    b"123456789": 0xE3069283,
    b"The quick brown fox jumps over the lazy dog": 0x22620404,
    bytes(32): 0x8A9136AA,  # this and those below: RFC 3720, B.4
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}


def bitwise(data, value=0):
    crc = value ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(("data", "value"), VECTORS.items())
def test_published_vectors(backend, data, value):
    assert Crc32cFunctor(data).run() == value == bitwise(data)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.binary(max_size=1100), begin=st.integers(0, 9), value=st.integers(0, 2**32 - 1))
def test_bitwise_version(backend, data, begin, value):
    assert Crc32cFunctor(StringHandle(data)[begin:], value).run() == bitwise(data[begin:], value)


@walks([511, 512, 513, 767, 768, 769, 1535, 1536, 12287, 12288, 12289, 13057, 30_000])
def test_sizes_around_those_of_its_steps(size, backend):
    data = random.Random(size).randbytes(size)
    assert Crc32cFunctor(data, 99).run() == bitwise(data, 99)


def test_continued_in_pieces(backend):
    data = random.Random(1).randbytes(50_000)
    whole = Crc32cFunctor(data).run()
    generator = random.Random(2)
    for _ in range(20):
        cuts = sorted([0, *(generator.randrange(50_001) for _ in range(5)), 50_000])
        value = 0
        for begin, end in zip(cuts, cuts[1:], strict=False):
            value = Crc32cFunctor(data[begin:end], value).run()
        assert value == whole


def test_arrays_of_any_type(backend):
    data = np.arange(1000, dtype=np.float64).reshape(10, 100)
    assert Crc32cFunctor(data).run() == bitwise(data.tobytes())


@in_native
def test_table_and_instruction_agree():
    generator = random.Random(3)
    for _ in range(200):
        data = generator.randbytes(generator.randrange(40_000))
        value = generator.randrange(2**32)
        assert native.core.crc32c(data, value, True).run() == native.core.crc32c(data, value, False).run()
    assert native.core.crc32c_kind() in ("sse4.2", "arm", "table")


@pytest.mark.parametrize("value", [-1, 2**32, 1.0, None, True])
def test_value_is_checked(backend, value):
    with pytest.raises(ArgumentError, match=re.escape(f"value is {value!r}, expected an integer")):
        Crc32cFunctor(b"", value)
